"""Which word pieces an answer is: from characters of the context to places in the windows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from model.task_types.span_windows import Plan
from model.task_types.span_words import encode_texts
from model.tasks.span_answers import NOT_FOUND
from pipelines.arrays import Int64s, Ragged
from pipelines.wordpiece.ids import WordPieceTokenizer
from schemas.errors import ExamplesError

NO_SPAN = -1


class Spans(NamedTuple):
    """The answer of each example in pieces of its context.

    Attributes:
        first, last: int64 (R,), both included; NO_SPAN where the question has no answer or its
            answer cannot be found.
        is_usable: bool (R,): False where it has one that cannot be found.
    """

    first: Int64s
    last: Int64s
    is_usable: npt.NDArray[np.bool_]


def answer_spans(examples: pa.Table, plan: Plan, tokenizer: WordPieceTokenizer) -> Spans:
    """The pieces of the first answer that stands in the context.

    First the words that hold the answer, then, within their pieces, the first run that is exactly
    the answer's own pieces, if there is one: 1895 in "(1895-1943)" (run_squad.py).

    Raises:
        ExamplesError: a row's answers are not known.
    """
    _check_known(examples)
    starts, ends, texts = _first_answers(examples)
    rows = np.flatnonzero(starts != NOT_FOUND)
    contexts = plan.contexts
    first, last = (np.full(len(starts), NO_SPAN, np.int64) for _ in range(2))
    words_from = contexts.word_offsets[contexts.of_row[rows]]
    first_word = words_from + _word_at(plan, rows, starts[rows])
    last_word = words_from + _word_at(plan, rows, ends[rows] - 1)
    begins = contexts.piece_offsets[first_word]
    stops = contexts.piece_offsets[last_word + 1]
    own = encode_texts([texts[row] for row in rows.tolist()], tokenizer)
    begins, stops = _improved(contexts.piece_ids, begins, stops, own)
    origin = contexts.context_pieces[contexts.of_row[rows]]
    has_pieces = stops > begins
    first[rows[has_pieces]] = (begins - origin)[has_pieces]
    last[rows[has_pieces]] = (stops - 1 - origin)[has_pieces]
    is_impossible = examples.column("is_impossible").to_numpy()
    return Spans(first, last, (first != NO_SPAN) | is_impossible.astype(np.bool_))


def window_labels(plan: Plan, spans: Spans) -> Int64s:
    """Places of the answer's first and last token in each window, (U, 2).

    (0, 0) where the question has no answer or the window does not hold the whole of it.
    """
    first, last = spans.first[plan.rows], spans.last[plan.rows]
    is_inside = (first >= plan.starts) & (last < plan.starts + plan.lengths) & (first != NO_SPAN)
    shift = plan.b_starts - plan.starts
    return np.where(is_inside[:, None], np.stack([first + shift, last + shift], axis=1), 0)


def _check_known(examples: pa.Table) -> None:
    column = examples.column("is_impossible")
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise ExamplesError(
            f"question {examples.column('id')[row]}: its answers are not known, so no model can be "
            "trained on it; train on a split with answers"
        )


def _first_answers(examples: pa.Table) -> tuple[Int64s, Int64s, list[str]]:
    """Of each row: character where the answer starts, where it ends, and its text.

    The start is NOT_FOUND where there is none. White space around it is no part of it.
    """
    starts, ends = (np.full(len(examples), NOT_FOUND, np.int64) for _ in range(2))
    texts = [""] * len(examples)
    columns = (examples.column(name).to_pylist() for name in ("answers", "answer_starts"))
    for row, (answers, places) in enumerate(zip(*columns, strict=True)):
        for text, place in zip(answers, places, strict=True):
            stripped = text.strip()
            if place != NOT_FOUND and stripped:
                start = place + len(text) - len(text.lstrip())
                starts[row], ends[row], texts[row] = start, start + len(stripped), stripped
                break
    return starts, ends, texts


def _word_at(plan: Plan, rows: Int64s, characters: Int64s) -> Int64s:
    """Number in its context of the word that holds a character of the context of each row."""
    contexts = plan.contexts
    # One ascending key for all words: contexts are kept apart by the longest one's length.
    longest = int(contexts.word_ends.max(initial=0)) + 1
    of_word = np.repeat(np.arange(len(contexts.texts)), np.diff(contexts.word_offsets))
    keys = of_word * longest + contexts.word_starts
    of_row = contexts.of_row[rows]
    found = np.searchsorted(keys, of_row * longest + characters, side="right") - 1
    return np.asarray(found - contexts.word_offsets[of_row], np.int64)


def _improved(ids: Int64s, begins: Int64s, stops: Int64s, answers: Ragged) -> tuple[Int64s, Int64s]:
    """Narrow each span of pieces to the first run in it that is the answer's pieces."""
    begins, stops = begins.copy(), stops.copy()
    lengths = answers.lengths
    for row in np.flatnonzero((stops - begins > lengths) & (lengths > 0)).tolist():
        span = ids[begins[row] : stops[row]].tolist()
        wanted = answers.values[answers.offsets[row] : answers.offsets[row + 1]].tolist()
        size = len(wanted)
        for at in range(len(span) - size + 1):
            if span[at] == wanted[0] and span[at : at + size] == wanted:
                stops[row] = begins[row] + at + size
                begins[row] += at
                break
    return begins, stops
