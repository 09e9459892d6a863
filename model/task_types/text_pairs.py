"""Texts and pairs of texts as `[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]`, many at once.

Letters for shapes: N sequences, T token places of all of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.arrays import Int64s, offsets_of, ranges
from pipelines.wordpiece.ids import WordPieceTokenizer


class EncodedTexts(NamedTuple):
    """Ids of texts, of which several may be the same ones.

    Attributes:
        ids: ids that the texts are runs of.
        starts: int64 (N,): where in `ids` each begins.
        lengths: int64 (N,).
    """

    ids: npt.NDArray[Any]
    starts: Int64s
    lengths: Int64s

    @classmethod
    def of(cls, texts: pa.Array | pa.ChunkedArray, tokenizer: WordPieceTokenizer) -> Self:
        """Encode texts, none of which is null."""
        ids, counts = tokenizer.encode_sentences(texts)
        return cls(ids, offsets_of(counts)[:-1], counts.astype(np.int64))

    def repeat(self, times: int) -> EncodedTexts:
        """Each text so many times, one beside the other."""
        return self._replace(
            starts=np.repeat(self.starts, times), lengths=np.repeat(self.lengths, times)
        )


class JoinedTexts(NamedTuple):
    """Sequences end to end.

    Attributes:
        offsets: int64 (N + 1,), b_starts: int64 (N,), input_ids: int64 (T,): see `Features`.
        counters: `texts-truncated`, sequences that had to lose tokens, and `tokens-cut`, how many.
    """

    offsets: Int64s
    b_starts: Int64s
    input_ids: Int64s
    counters: dict[str, int]


def join_texts(
    first: EncodedTexts,
    second: EncodedTexts,
    *,
    has_second: npt.NDArray[np.bool_],
    max_seq_length: int,
    tokenizer: WordPieceTokenizer,
) -> JoinedTexts:
    """Put texts A and B together, cut from the end where they are too long for a sequence.

    Args:
        first: A of each sequence.
        second: B of each sequence; empty where there is none.
        has_second: bool (N,): whether there is a B, which may be an empty text.
        max_seq_length: most tokens of a sequence, [CLS] and [SEP] included; at least 3.
        tokenizer: whose ids they are.
    """
    marks = np.where(has_second, 3, 2)  # [CLS] and one or two [SEP]
    kept_a, kept_b = truncated_lengths(first.lengths, second.lengths, room=max_seq_length - marks)
    b_starts = kept_a + 2
    offsets = offsets_of(kept_a + kept_b + marks)
    begins = offsets[:-1]
    input_ids = np.full(offsets[-1], tokenizer.sep_id, dtype=np.int64)
    input_ids[begins] = tokenizer.cls_id
    _copy_runs(first, input_ids, starts=begins + 1, lengths=kept_a)
    _copy_runs(second, input_ids, starts=begins + b_starts, lengths=kept_b)
    cut = first.lengths + second.lengths - kept_a - kept_b
    counters = {"texts-truncated": int((cut > 0).sum()), "tokens-cut": int(cut.sum())}
    return JoinedTexts(offsets, b_starts, input_ids, counters)


def truncated_lengths(a: Int64s, b: Int64s, *, room: npt.ArrayLike) -> tuple[Int64s, Int64s]:
    """Tokens that are kept of A and B so that both fit into `room`.

    The reference (run_classifier.py, lines 557-571) takes one token at a time from the end of the
    longer, from B's if both are equal. So the shorter loses nothing before the longer has come
    down to it, and from there on they take turns.
    """
    space = np.asarray(room, dtype=np.int64)
    half = space // 2
    kept_a: Int64s = np.minimum(a, np.maximum(space - b, space - half))
    kept_b: Int64s = np.minimum(b, np.maximum(space - a, half))
    return kept_a, kept_b


def _copy_runs(texts: EncodedTexts, target: Int64s, *, starts: Int64s, lengths: Int64s) -> None:
    """Copy the first `lengths` ids of each text to where in `target` it `starts`."""
    target[ranges(starts, lengths)] = texts.ids[ranges(texts.starts, lengths)]
