"""The tokens of an instance's segments, and which sentences of a document they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def segment_ids(row: dict[str, Any]) -> dict[str, npt.NDArray[np.int64]]:
    """The token ids of the segments `a` and `b` of an instance before masking.

    Args:
        row: of the instances table; a B that is not there has no ids.
    """
    ids = np.array(row["input_ids"], np.int64)
    ids[np.array(row["masked_lm_positions"], np.int64)] = row["masked_lm_ids"]
    border = row["segment_b_start"]
    return {"a": ids[1 : border - 1], "b": ids[border:-1]}


def sentences_of(
    segment: npt.NDArray[np.int64], tokens: dict[str, Any], *, of: int
) -> tuple[int, int] | None:
    """First and last sentence that a segment's tokens are of; None where it cannot be told.

    Args:
        segment: its token ids before masking.
        tokens: of the tokens table, the row that the segment was taken from.
        of: how many sentences the document has.
    """
    lengths = tokens["sentence_lengths"]
    ids = np.array(tokens["token_ids"], np.int64)
    if not len(segment) or len(lengths) != of or len(segment) > len(ids):
        return None
    starts = np.flatnonzero(ids[: len(ids) - len(segment) + 1] == segment[0]).tolist()
    at = [start for start in starts if np.array_equal(ids[start : start + len(segment)], segment)]
    if len(at) != 1:
        return None
    bounds = np.cumsum(lengths)
    first, last = np.searchsorted(bounds, [at[0], at[0] + len(segment) - 1], side="right").tolist()
    return first, last
