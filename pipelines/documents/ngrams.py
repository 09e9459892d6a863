"""The n-grams of documents, as sets of 32-bit hashes that are the same on every machine.

Words are those of `pipelines.documents.words`. In a script that puts no space between words each
character is one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.arrays import Int64s, UInt64s, flat_lists, offsets_of, ranges
from pipelines.documents.words import WordHasher

_PRIME = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_HALF = np.uint64(32)


def ngram_sets(
    sentences: pa.ListArray, n: int, *, hasher: WordHasher
) -> tuple[npt.NDArray[np.uint32], Int64s]:
    """The n-grams of each document, each once, ascending; end to end, with offsets.

    An n-gram reaches over the ends of sentences. A document of fewer words than n has one, of all
    its words; one without words has none.

    Args:
        sentences: of each document.
        n: words of an n-gram.
        hasher: of their words.
    """
    texts, of_documents = flat_lists(sentences)
    words, _, of_sentences = hasher.words(texts)
    ends = of_sentences[of_documents]
    lengths = np.diff(ends)
    counts = np.where(lengths > 0, np.maximum(lengths - n + 1, 1), 0)
    starts = ranges(ends[:-1], counts)
    hashes = np.zeros(len(starts), np.uint64)
    # Only where a document has fewer words than n does an n-gram reach its end.
    last = np.repeat(ends[1:], counts) - 1
    for place in range(n):
        at = starts + place
        word = words[np.minimum(at, last)]
        word[at > last] = 0
        hashes = mixed(hashes, word)
    documents = np.repeat(np.arange(len(lengths), dtype=np.uint64), counts)
    distinct = np.unique((documents << _HALF) | (hashes >> _HALF))
    sizes = np.bincount((distinct >> _HALF).astype(np.int64), minlength=len(lengths))
    return distinct.astype(np.uint32), offsets_of(sizes)


def mixed(hashes: UInt64s, more: UInt64s) -> UInt64s:
    """Hashes of 64 bits, each with another number mixed into it."""
    found: UInt64s = (hashes ^ more) * _PRIME
    found ^= found >> _SHIFT
    return found * _PRIME
