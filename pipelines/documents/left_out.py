"""Documents that a later look at a corpus has found, and that are left out of it, with the reason.

An artifact says so by a table of the schema `LEFT_OUT`. `build-vocabulary` and `build-tokens` read
the tables of the inputs that they are given of `LEAVE_OUT_INPUTS`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pipelines.documents.duplicates_table import rows_by_shard
from pipelines.io.stage_inputs import LEAVE_OUT_INPUTS, InputFile, input_file
from schemas.arrow import LEFT_OUT
from schemas.manifest import StageInput

LEFT_OUT_FILE = "__left_out__/left-out.arrow"
"""In a folder that opening the one above as a data set passes over."""

CONTAMINATED, NEAR_DUPLICATE = "contaminated", "near-duplicate"


def left_out_files(inputs: Mapping[str, StageInput]) -> list[InputFile]:
    """The tables of a stage's inputs that have one, in the order in which they count."""
    return [input_file(inputs[name], LEFT_OUT_FILE) for name in LEAVE_OUT_INPUTS if name in inputs]


def left_out_rows(table: InputFile, *, shard: str) -> dict[int, str]:
    """The reasons of the rows of one document shard that are left out."""
    found = _by_shard(table).get(shard, {})
    return {row: reason for reason, rows in found.items() for row in rows.tolist()}


@functools.lru_cache(maxsize=4)
def _by_shard(table: InputFile) -> Mapping[str, Mapping[str, npt.NDArray[np.uint32]]]:
    found: dict[str, dict[str, npt.NDArray[np.uint32]]] = {}
    for (shard, reason), rows in rows_by_shard(table, expected=LEFT_OUT).items():
        found.setdefault(shard, {})[reason] = rows
    return found
