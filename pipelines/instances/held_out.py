"""Which documents are held out: training never sees them, and models are evaluated on them.

Whether a document is held out depends on its id and the share alone, and for a wiki page not on its
revision (`split_id`). So the choice is the same at every length, seed and pass, and in every corpus
that has the document. A larger share holds out the documents of a smaller one and some more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipelines.seeds import keys_for

TRAINING, HELD_OUT = "training", "held-out"
"""The two parts of a corpus, as `FileEntry.statistics["part"]` of instance shards names them."""

HELD_OUT_FOLDER = "__held-out__"
"""Folder of their shards, below that of the training shards. Arrow's data sets pass over names that
begin with `_` and Hugging Face's over folders that begin with `__`, so that what opens the folder
above as a data set has the training rows alone."""

HELD_OUT_PREFIX = f"{HELD_OUT_FOLDER}/held-out-"
"""What the logical names of held-out shards begin with."""

_SEED = 0  # not a recipe's: what is held out must not change with the draws


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
        share: of the documents, from 0 (none) to 1 (all).

    Returns:
        bool of shape (documents,).
    """
    # Rounded up, the bound has the same keys below it, and can be compared without floats.
    bound = math.ceil(share * 2.0**64)
    if bound == 0 or bound >= 1 << 64:
        return np.full(len(document_ids), bound > 0)
    return keys_for(_SEED, "held-out", document_ids) < np.uint64(bound)
