"""The n-grams of documents, as sets of 32-bit hashes that are the same on every machine.

Words are those of an uncased BERT, lower-cased and without accents, but for punctuation. In a
script that puts no space between words (CJK, Kana, Thai, Lao, Khmer, Burmese, Tibetan) each
character is one.
"""

from __future__ import annotations

import hashlib
import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.arrays import Int64s, UInt64s, flat_lists, joined, offsets_of, ranges
from pipelines.wordpiece.words import Chunks, sentence_batches, word_splitter

# BERT's own normaliser makes words of CJK ideographs, and of no other such script's characters.
_SPACELESS = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\ua9e0-\ua9ff\uaa60-\uaa7f"
    "\uff66-\uff9f]"
)
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_HALF = np.uint64(32)


def ngram_sets(sentences: pa.ListArray, n: int) -> tuple[npt.NDArray[np.uint32], Int64s]:
    """The n-grams of each document, each once, ascending; end to end, with offsets.

    An n-gram reaches over the ends of sentences. A document of fewer words than n has one, of all
    its words; one without words has none.

    Args:
        sentences: of each document.
        n: words of an n-gram.
    """
    texts, of_documents = flat_lists(sentences)
    words, of_sentences = _word_hashes(texts)
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


def _word_hashes(texts: pa.StringArray) -> tuple[UInt64s, Int64s]:
    """64 bits of each word of some texts, end to end, and the offsets of the texts."""
    hashes, counts = list[UInt64s](), list[Int64s]()
    for batch in sentence_batches(texts):
        chunks = Chunks(batch)
        of_distinct, offsets = _hashes_of(chunks.distinct)
        index = chunks.index.to_numpy()
        lengths = np.diff(offsets)[index]
        hashes.append(of_distinct[ranges(offsets[index], lengths)])
        counts.append(np.diff(offsets_of(lengths)[chunks.offsets]))
    return np.concatenate([np.empty(0, np.uint64), *hashes]), offsets_of(joined(counts))


def _hashes_of(chunks: list[str]) -> tuple[UInt64s, Int64s]:
    """The hashes of the words of each chunk, and the offsets of the chunks."""
    known: dict[str, int] = {}
    hashes, counts = list[int](), list[int]()
    for found in word_splitter(lowercase=True).split(chunks):
        before = len(hashes)
        for word in found:
            for part in word if _SPACELESS.search(word) else (word,):
                if part not in known:
                    known[part] = _hash(part)
                if known[part]:
                    hashes.append(known[part])
        counts.append(len(hashes) - before)
    return np.array(hashes, np.uint64), offsets_of(counts)


def _hash(word: str) -> int:
    """64 bits of a word; 0 for what is none, as punctuation."""
    if not any(map(str.isalnum, word)):
        return 0
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") or 1
