"""Documents that later stages exclude from a corpus, with the reason.

`find-contamination` and `find-near-duplicates` write a table of the schema `EXCLUDED_DOCUMENTS`.
`build-vocabulary` and `build-tokens` read it from each of `LEAVE_OUT_INPUTS` that they have.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pipelines.documents.duplicates_table import rows_by_shard
from pipelines.io.stage_inputs import LEAVE_OUT_INPUTS, InputFile, input_file
from schemas.arrow import EXCLUDED_DOCUMENTS
from schemas.manifest import StageInput

LEFT_OUT_FILE = "__excluded__/excluded-documents.arrow"
"""Path in the artifact. Readers of a dataset skip folders that start with `_`."""

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
    for (shard, reason), rows in rows_by_shard(table, expected=EXCLUDED_DOCUMENTS).items():
        found.setdefault(shard, {})[reason] = rows
    return found
