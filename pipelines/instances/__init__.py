"""Instances: masked pairs of segments from tokenized documents, and which documents are held out.

Models are evaluated on held-out documents and never trained on them. Whether a document is held out
depends only on its id and the fraction, and for a wiki page not on its revision (`split_id`). The
choice is the same for every length, seed, pass and corpus. A larger fraction holds out the
documents of a smaller one and more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipelines.seeds import keys_for

TRAINING, HELD_OUT = "training", "held-out"
"""Values of `FileEntry.statistics["part"]` of instance shards."""

LABELS = {0: "B is the next segment", 1: "B is random", -1: "A without B"}
"""Meaning of `next_sentence_label`."""

HELD_OUT_FOLDER = "__held-out__"
"""Folder of held-out shards, inside the folder of training shards. Arrow datasets skip names that
start with `_` and Hugging Face datasets skip folders that start with `__`, so the outer folder
opens as a dataset of training rows."""

HELD_OUT_PREFIX = f"{HELD_OUT_FOLDER}/held-out-"
"""Prefix of the paths of held-out shards."""

_SEED = 0  # constant, so that a recipe's seed does not change the held-out documents


def split_id(document_id: str, revision_id: int | None) -> str | None:
    """Return the id of a wiki page without its revision, and None for other documents.

    >>> split_id("enwiki:12:345", 345)
    'enwiki:12'
    """
    return None if revision_id is None else document_id.removesuffix(f":{revision_id}")


def is_held_out(document_ids: Sequence[str], *, share: float) -> npt.NDArray[np.bool_]:
    """Return whether each document is held out.

    >>> is_held_out(["a", "b", "c"], share=1.0).tolist()
    [True, True, True]

    Args:
        document_ids: One per document; of a wiki page its `split_id`.
        share: Fraction of documents, from 0 (none) to 1 (all).

    Returns:
        bool of shape (documents,).
    """
    # Rounding up keeps the same keys below the bound, and avoids a comparison of floats.
    bound = math.ceil(share * 2.0**64)
    if bound == 0 or bound >= 1 << 64:
        return np.full(len(document_ids), bound > 0)
    return keys_for(_SEED, "held-out", document_ids) < np.uint64(bound)
