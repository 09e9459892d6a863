"""Passages as words and word pieces, all at once.

Words are what run_squad.py takes for words: what stands between white space (space, tab, line feed,
carriage return and U+202F). Every distinct word is tokenised once.
Letters: R rows of examples, C distinct contexts, W words and P pieces of all contexts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.arrays import Int64s, Ragged, joined, offsets_of, ranges
from pipelines.wordpiece.ids import WordPieceTokenizer

BATCH_CHARACTERS = 4 << 20
"""Characters split together; their working memory is about 20 bytes each."""

_SPACE = " "
_OTHER_SPACES = "\t\n\r\u202f"


class Contexts(NamedTuple):
    """The distinct contexts of some examples."""

    texts: list[str]
    """(C,)"""

    of_row: Int64s
    """(R,): context of each example."""

    word_offsets: Int64s
    """(C + 1,): context c has the words word_offsets[c] .. word_offsets[c + 1] - 1."""

    word_starts: Int64s
    word_ends: Int64s
    """(W,): characters of its context that each word is: start .. end - 1."""

    piece_offsets: Int64s
    """(W + 1,): word w has the pieces piece_offsets[w] .. piece_offsets[w + 1] - 1. A word may have
    none: control characters are no text."""

    piece_ids: npt.NDArray[np.int64]
    """(P,)"""

    @property
    def context_pieces(self) -> Int64s:
        """(C + 1,): context c has the pieces context_pieces[c] .. context_pieces[c + 1] - 1."""
        pieces: Int64s = self.piece_offsets[self.word_offsets]
        return pieces


def read_contexts(column: pa.ChunkedArray, tokenizer: WordPieceTokenizer) -> Contexts:
    """Split and tokenise the contexts of examples, each distinct one once."""
    encoded = column.cast(pa.large_string()).dictionary_encode().unify_dictionaries()
    chunks = encoded.chunks
    texts: list[str] = chunks[0].dictionary.to_pylist() if chunks else []
    of_row = [chunk.indices.to_numpy().astype(np.int64) for chunk in chunks]
    words: list[SplitWords] = []
    pieces: list[Ragged] = []
    for batch in _batches(texts):
        words.append(split_words(batch))
        pieces.append(encode_texts(words[-1].words, tokenizer))
    return Contexts(
        texts=texts,
        of_row=joined(of_row),
        word_offsets=offsets_of(joined([np.diff(split.offsets) for split in words])),
        word_starts=joined([split.starts for split in words]),
        word_ends=joined([split.ends for split in words]),
        piece_offsets=offsets_of(joined([part.lengths for part in pieces])),
        piece_ids=joined([part.values for part in pieces]),
    )


class SplitWords(NamedTuple):
    """The words of some texts."""

    words: list[str]
    offsets: Int64s
    """Text i has the words offsets[i] .. offsets[i + 1] - 1."""

    starts: Int64s
    ends: Int64s
    """Characters in its text."""


def split_words(texts: Sequence[str]) -> SplitWords:
    """The words of texts and where they stand."""
    joined = _SPACE.join([*texts, ""])
    for space in _OTHER_SPACES:
        joined = joined.replace(space, _SPACE)
    codes = np.frombuffer(joined.encode("utf-32-le"), "<u4")
    is_word = np.zeros(len(codes) + 2, np.bool_)
    is_word[1:-1] = codes != ord(_SPACE)
    edges = np.flatnonzero(is_word[1:] != is_word[:-1])
    starts, ends = edges[::2], edges[1::2]
    text_starts = offsets_of(np.fromiter((len(text) + 1 for text in texts), np.int64, len(texts)))
    offsets = np.searchsorted(starts, text_starts)
    shift = np.repeat(text_starts[:-1], np.diff(offsets))
    words = [word for word in joined.split(_SPACE) if word]
    return SplitWords(words, offsets, starts - shift, ends - shift)


def encode_texts(texts: list[str], tokenizer: WordPieceTokenizer) -> Ragged:
    """The word pieces of each text; equal texts are tokenised once."""
    encoded = pa.array(texts, pa.large_string()).dictionary_encode()
    ids, lengths = tokenizer.encode_sentences(encoded.dictionary)
    index = encoded.indices.to_numpy()
    begins = offsets_of(lengths)[:-1][index]
    own = lengths.astype(np.int64)[index]
    return Ragged(ids[ranges(begins, own)].astype(np.int64), offsets_of(own))


def _batches(texts: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text) + 1
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
