"""Split documents into units: segments A end, and segments B begin, at the bounds of units.

A unit is a sentence, with two exceptions:

* A sentence that is too long for a pair is several units.
* The sentence of a document of one sentence is at least two units, so that there is a B.

Units depend only on the document and the length of instances. So the units of all documents are
known, and a random B can begin at the bound of a unit as a real one does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipelines.arrays import Bools, Int64s, offsets_of
from pipelines.instances.token_documents import TokenDocuments


class Units(NamedTuple):
    """Units of the documents of one shard, end to end.

    Attributes:
        bounds: Unit u has the tokens bounds[u] .. bounds[u+1]; shape (units + 1,).
        offsets: Document d has the units offsets[d] .. offsets[d+1]; shape (documents + 1,).
        is_inside: Whether the unit begins inside a sentence; shape (units,).
    """

    bounds: Int64s
    offsets: Int64s
    is_inside: Bools

    def part(self, documents: range) -> Units:
        """Return the units of consecutive documents. Their tokens keep their numbers."""
        offsets = self.offsets[documents.start : documents.stop + 1]
        first, stop = offsets[0], offsets[-1]
        return Units(self.bounds[first : stop + 1], offsets - first, self.is_inside[first:stop])


def split_units(documents: TokenDocuments, *, max_tokens: int) -> Units:
    """Split documents of at least two tokens into at least two units each.

    No unit is longer than three quarters of `max_tokens`, so that there is space for a B.
    """
    sentences = documents.sentence_lengths.astype(np.int64)
    offsets = documents.sentence_offsets
    sizes = sentences.copy()
    sizes[sentences > max_tokens - max_tokens // 4] = (max_tokens + 1) // 2
    alone = offsets[:-1][np.diff(offsets) == 1]
    sizes[alone] = np.minimum(sizes[alone], (sentences[alone] + 1) // 2)
    counts = -(-sentences // sizes)
    first = offsets_of(counts)
    sentence = np.repeat(np.arange(len(sentences)), counts)
    position = np.arange(len(sentence)) - first[sentence]  # of the unit in its sentence
    starts = documents.token_bounds[sentence] + position * sizes[sentence]
    return Units(
        bounds=np.append(starts, documents.token_bounds[-1]),
        offsets=first[offsets],
        is_inside=position > 0,
    )
