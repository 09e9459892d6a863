"""Words and n-grams of texts as hashes, independent of case, accents, punctuation and machine.

A character becomes its compatibility form (NFKD), case folded, without nonspacing marks. A word is
a run of letters, digits and spacing marks. Format characters (soft hyphens) are removed, and all
others separate words. In scripts without spaces between words each character is a word, and weighs
half as much as another.

A character does not depend on its neighbors, so text is split at U+0020 first and each distinct
chunk is normalized once (as in `pipelines.wordpiece.tokenizer`).
"""

from __future__ import annotations

import hashlib
import itertools
import unicodedata
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.arrays import Int64s, UInt64s, flat_lists, offsets_of, ranges
from pipelines.wordpiece.tokenizer import ChunkCache, Chunks, sentence_batches

HALF, WHOLE = 1, 2
"""Weights in half words."""

_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # ideographic iteration mark, closing mark, zero
    (0x3041, 0x30FF),  # Hiragana, Katakana
    (0x3100, 0x312F),  # Bopomofo
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x4DBF),  # CJK ideographs
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x1B000, 0x1B16F),  # Kana supplements
    (0x20000, 0x3FFFF),
)


class Words(NamedTuple):
    """Words of sentences, end to end."""

    hashes: UInt64s
    weights: npt.NDArray[np.uint8]
    """`HALF` or `WHOLE` for each word."""

    offsets: Int64s
    """Sentence i has the words offsets[i] .. offsets[i + 1] - 1."""


class WordHasher:
    """Hashes the words of sentences, with a cache of chunks."""

    def __init__(self, *, max_chunks: int = 1 << 20) -> None:
        """Create a hasher that caches up to `max_chunks` chunks."""
        self._characters = _Characters()
        self._chunks = ChunkCache(self._hashed_words, np.uint64, max_chunks=max_chunks)

    def words(self, sentences: pa.Array) -> Words:
        """Return the words of an Arrow array of strings."""
        hashes, weights = [np.empty(0, np.uint64)], [np.empty(0, np.uint8)]
        counts = [np.empty(0, np.int64)]
        for batch in sentence_batches(sentences):
            chunks = Chunks(batch)
            rows = self._chunks.rows(chunks.distinct).take(chunks.index)
            pairs = rows.values.to_numpy().reshape(-1, 2)
            hashes.append(pairs[:, 0])
            weights.append(pairs[:, 1].astype(np.uint8))
            counts.append(np.diff(rows.offsets.to_numpy()[chunks.offsets]) // 2)
        return Words(
            np.concatenate(hashes), np.concatenate(weights), offsets_of(np.concatenate(counts))
        )

    def _hashed_words(self, chunks: list[str]) -> tuple[UInt64s, Int64s]:
        """Return hash and weight of each word of the chunks, and offsets."""
        words = [self._chunk_words(chunk) for chunk in chunks]
        pairs = list(itertools.chain.from_iterable(words))
        return np.array(pairs, np.uint64).reshape(-1), 2 * offsets_of(list(map(len, words)))

    def _chunk_words(self, chunk: str) -> list[tuple[int, int]]:
        if chunk.isalpha() and chunk.isascii():
            return [_hashed(chunk.lower())]
        return [_hashed(word) for word in chunk.translate(self._characters).split()]


def _hashed(word: str) -> tuple[int, int]:
    """Return the hash and the weight of a word."""
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    weight = HALF if len(word) == 1 and _is_unspaced(word) else WHOLE
    return int.from_bytes(digest, "little"), weight


def normalized_words(text: str) -> list[str]:
    """Return the words of a text as they are compared, human-readable.

    >>> normalized_words("The CAFÉ's co\\u00adop, №5: 東京タワー")
    ['the', 'cafe', 's', 'coop', 'no5', '東', '京', 'タ', 'ワ', 'ー']
    """
    return text.translate(_Characters()).split()


def word_window(text: str, first: int, count: int) -> str:
    """Return the part of a text with `count` words, starting with the word number `first`.

    >>> word_window("Call me (Ishmael).  Some years ago", 2, 3)
    'Ishmael).  Some years'
    """
    characters, word, in_word, start, end = _Characters(), -1, False, 0, 0
    for at, character in enumerate(text):
        for part in characters[ord(character)]:
            if part == " ":
                in_word = False
                continue
            if not in_word:
                in_word, word = True, word + 1
                if word == first:
                    start = at
            if first <= word < first + count:
                end = at + 1
    return text[start:end]


class _Characters(dict[int, str]):
    """Table for `str.translate`, filled on demand."""

    def __missing__(self, code_point: int) -> str:
        self[code_point] = replacement = _replacement(chr(code_point))
        return replacement


def _replacement(character: str) -> str:
    plain = unicodedata.normalize("NFKD", character).casefold()
    parts = []
    for part in unicodedata.normalize("NFKD", plain):
        category = unicodedata.category(part)
        if category in ("Mn", "Me", "Cf"):
            continue
        if category[0] not in "LN" and category != "Mc":
            parts.append(" ")
        else:
            parts.append(f" {part} " if _is_unspaced(part) else part)
    return "".join(parts)


def _is_unspaced(character: str) -> bool:
    code = ord(character)
    return code >= _UNSPACED[0][0] and any(low <= code <= high for low, high in _UNSPACED)


_PRIME = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_HALF = np.uint64(32)


def ngram_sets(
    sentences: pa.ListArray, n: int, *, hasher: WordHasher
) -> tuple[npt.NDArray[np.uint32], Int64s]:
    """Return the distinct 32-bit n-grams of each document, ascending, end to end, with offsets.

    An n-gram may cross the end of a sentence. A document with fewer than n words has one n-gram of
    all its words; a document without words has none.
    """
    texts, of_documents = flat_lists(sentences)
    words, _, of_sentences = hasher.words(texts)
    ends = of_sentences[of_documents]
    lengths = np.diff(ends)
    counts = np.where(lengths > 0, np.maximum(lengths - n + 1, 1), 0)
    starts = ranges(ends[:-1], counts)
    hashes = np.zeros(len(starts), np.uint64)
    # An n-gram reaches the end of a document only if the document has fewer than n words.
    last = np.repeat(ends[1:], counts) - 1
    for offset in range(n):
        at = starts + offset
        word = words[np.minimum(at, last)]
        word[at > last] = 0
        hashes = mixed(hashes, word)
    documents = np.repeat(np.arange(len(lengths), dtype=np.uint64), counts)
    distinct = np.unique((documents << _HALF) | (hashes >> _HALF))
    sizes = np.bincount((distinct >> _HALF).astype(np.int64), minlength=len(lengths))
    return distinct.astype(np.uint32), offsets_of(sizes)


def mixed(hashes: UInt64s, more: UInt64s) -> UInt64s:
    """Return 64-bit hashes with another number mixed into each."""
    product: UInt64s = (hashes ^ more) * _PRIME
    product ^= product >> _SHIFT
    return product * _PRIME
