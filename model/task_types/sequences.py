"""Texts as token ids, and sequences `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` of them.

Letters for shapes: N sequences, T tokens of all sequences.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.arrays import Bools, Int64s, offsets_of, ranges
from pipelines.wordpiece.tokenizer import WordPieceTokenizer

_BLOCK = 8192  # sequences that are put together at a time; bounds the memory of the indices


class Texts(NamedTuple):
    """Token ids of texts; several texts can share their ids."""

    ids: npt.NDArray[Any]
    starts: Int64s
    """Index in `ids` at which each text begins, (N,)."""

    lengths: Int64s
    """(N,)."""

    def flat(self) -> Int64s:
        """Return the ids of all texts, end to end."""
        ids: Int64s = self.ids[ranges(self.starts, self.lengths)].astype(np.int64)
        return ids


class Sequences(NamedTuple):
    """Sequences, end to end."""

    input_ids: Int64s
    """(T,)."""

    offsets: Int64s
    """Sequence i has the tokens offsets[i] .. offsets[i + 1] - 1, (N + 1,)."""

    b_starts: Int64s
    """Index in its sequence where text B begins; its length without B, (N,)."""


def encode_texts(
    texts: pa.Array | pa.ChunkedArray | list[str], tokenizer: WordPieceTokenizer
) -> Texts:
    """Encode texts without nulls. Equal texts are tokenized once."""
    if isinstance(texts, list):
        column = pa.array(texts, pa.large_string())
    else:
        column = texts.cast(pa.large_string())
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    encoded = column.dictionary_encode()
    ids, counts = tokenizer.encode_sentences(encoded.dictionary)
    index = encoded.indices.to_numpy()
    return Texts(ids, offsets_of(counts)[:-1][index], counts.astype(np.int64)[index])


def join_texts(
    first: Texts, second: Texts, has_second: Bools, *, tokenizer: WordPieceTokenizer
) -> Sequences:
    """Return the sequences of texts A and B; a B that exists may have no token."""
    offsets = offsets_of(first.lengths + second.lengths + np.where(has_second, 3, 2))
    begins, b_starts = offsets[:-1], first.lengths + 2
    input_ids = np.full(offsets[-1], tokenizer.sep_id, np.int64)
    input_ids[begins] = tokenizer.cls_id
    for texts, places in ((first, begins + 1), (second, begins + b_starts)):
        for block_start in range(0, len(places), _BLOCK):
            block = slice(block_start, block_start + _BLOCK)
            lengths = texts.lengths[block]
            ids = texts.ids[ranges(texts.starts[block], lengths)]
            input_ids[ranges(places[block], lengths)] = ids
    return Sequences(input_ids, offsets, b_starts)


def truncated_lengths(a: Int64s, b: Int64s, *, room: npt.ArrayLike) -> tuple[Int64s, Int64s]:
    """Return the lengths of A and B after truncation to a total number of tokens.

    The reference (run_classifier.py, lines 557-571) removes one token at a time from the end of the
    longer text, or of B if both are equal. So the shorter text loses nothing until both are equal,
    and then they alternate.
    """
    space = np.asarray(room, dtype=np.int64)
    half = space // 2
    kept_a: Int64s = np.minimum(a, np.maximum(space - b, space - half))
    kept_b: Int64s = np.minimum(b, np.maximum(space - a, half))
    return kept_a, kept_b
