"""Windows over passages: words, pieces, windows and answer positions.

Words are separated by white space as in run_squad.py (space, tab, line feed, carriage return and
U+202F). Every distinct word is tokenized once. A window is
`[CLS] question [SEP] part of the context [SEP]`. Windows start every `doc_stride` pieces until one
reaches the end. A piece in several windows is scored in the one where it has the most context.

Letters: R rows of examples, C distinct contexts, W words and P pieces of all contexts, U windows,
D context pieces of all windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from model.task_types.sequences import Sequences, Texts, encode_texts, join_texts
from model.tasks.squad import NOT_FOUND
from pipelines.arrays import Bools, Int64s, joined, offsets_of, ranges
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.errors import ConfigError, TaskDataError
from schemas.finetune_configs import FeaturesConfig

_MARKS = 3  # [CLS], [SEP], [SEP]

BATCH_CHARACTERS = 4 << 20
"""Characters split together; their working memory is about 20 bytes each."""

_SPACE = " "
_OTHER_SPACES = "\t\n\r\u202f"


class Contexts(NamedTuple):
    """Distinct contexts of examples as words and pieces."""

    texts: list[str]
    """(C,)"""

    of_row: Int64s
    """Context of each example, (R,)."""

    word_offsets: Int64s
    """Context c has the words word_offsets[c] .. word_offsets[c + 1] - 1, (C + 1,)."""

    word_starts: Int64s
    word_ends: Int64s
    """Word w has the characters word_starts[w] .. word_ends[w] - 1 of its context, (W,)."""

    piece_offsets: Int64s
    """Word w has the pieces piece_offsets[w] .. piece_offsets[w + 1] - 1, (W + 1,). Words of
    control characters have none."""

    piece_ids: Int64s
    """(P,)"""

    @property
    def context_pieces(self) -> Int64s:
        """Context c has the pieces context_pieces[c] .. context_pieces[c + 1] - 1, (C + 1,)."""
        pieces: Int64s = self.piece_offsets[self.word_offsets]
        return pieces


def read_contexts(column: pa.ChunkedArray, tokenizer: WordPieceTokenizer) -> Contexts:
    """Split and tokenize the distinct contexts of examples."""
    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
    texts: list[str] = encoded.dictionary.to_pylist()
    words: list[SplitWords] = []
    pieces: list[Texts] = []
    for batch in _batches(texts):
        words.append(split_words(batch))
        pieces.append(encode_texts(words[-1].words, tokenizer))
    return Contexts(
        texts=texts,
        of_row=encoded.indices.to_numpy().astype(np.int64),
        word_offsets=offsets_of(joined([np.diff(split.offsets) for split in words])),
        word_starts=joined([split.starts for split in words]),
        word_ends=joined([split.ends for split in words]),
        piece_offsets=offsets_of(joined([part.lengths for part in pieces])),
        piece_ids=joined([part.flat() for part in pieces]),
    )


class SplitWords(NamedTuple):
    """Words of texts."""

    words: list[str]
    offsets: Int64s
    """Text i has the words offsets[i] .. offsets[i + 1] - 1."""

    starts: Int64s
    ends: Int64s
    """Characters of the words in their texts."""


def split_words(texts: Sequence[str]) -> SplitWords:
    """Return the words of texts and their positions."""
    joined = _SPACE.join([*texts, ""])
    for space in _OTHER_SPACES:
        joined = joined.replace(space, _SPACE)
    codes = np.frombuffer(joined.encode("utf-32-le"), "<u4")
    is_word = np.zeros(len(codes) + 2, np.bool_)
    is_word[1:-1] = codes != ord(_SPACE)
    edges = np.flatnonzero(is_word[1:] != is_word[:-1])
    starts, ends = edges[::2], edges[1::2]
    text_starts = offsets_of([len(text) + 1 for text in texts])
    offsets = np.searchsorted(starts, text_starts)
    shift = np.repeat(text_starts[:-1], np.diff(offsets))
    words = [word for word in joined.split(_SPACE) if word]
    return SplitWords(words, offsets, starts - shift, ends - shift)


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


# Windows


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Windows of examples."""

    contexts: Contexts
    questions: Texts
    """Pieces of each question, R rows, truncated to `max_query_length`."""

    cut_questions: int
    """Number of truncated questions."""

    rows: Int64s
    """Example of each window, ascending, (U,)."""

    starts: Int64s
    """First piece of the context in each window, (U,)."""

    lengths: Int64s
    """Number of pieces of the context in each window, at least 1, (U,)."""

    @property
    def b_starts(self) -> Int64s:
        """Position of each window's first context piece in its sequence, (U,)."""
        starts: Int64s = self.questions.lengths[self.rows] + 2
        return starts

    @property
    def sequence_lengths(self) -> Int64s:
        """Number of tokens of each window, [CLS] and [SEP] included, (U,)."""
        return self.b_starts + self.lengths + 1

    def select(self, is_selected: Bools) -> Plan:
        """Return the plan with the windows of some rows; `is_selected` is (R,)."""
        kept = is_selected[self.rows]
        return replace(
            self, rows=self.rows[kept], starts=self.starts[kept], lengths=self.lengths[kept]
        )


def plan_windows(
    examples: pa.Table, tokenizer: WordPieceTokenizer, *, config: FeaturesConfig
) -> Plan:
    """Plan the windows of SPAN_EXAMPLES. The same arguments always give the same plan.

    A context without any piece (control characters only) gets no window.

    Raises:
        ConfigError: A question leaves no space for its context.
    """
    contexts = read_contexts(examples.column("context"), tokenizer)
    questions = encode_texts(examples.column("question"), tokenizer)
    full = questions.lengths
    queries = np.minimum(full, config.max_query_length)
    room = config.max_seq_length - _MARKS - queries
    if len(room) and room.min() < 1:
        raise ConfigError(
            f"max_seq_length {config.max_seq_length} leaves no space for the context next to a "
            f"question of {int(queries.max())} tokens and {_MARKS} marks: raise max_seq_length, or "
            f"lower max_query_length (now {config.max_query_length})"
        )
    pieces = np.diff(contexts.context_pieces)[contexts.of_row]
    step = np.minimum(config.doc_stride, room)
    # Rounded up: windows after the first until one reaches the end.
    count = np.where(pieces > 0, 1 + np.maximum(0, -((room - pieces) // step)), 0)
    rows = np.repeat(np.arange(len(count)), count)
    starts = ranges(np.zeros(len(count), np.int64), count) * step[rows]
    return Plan(
        contexts=contexts,
        questions=questions._replace(lengths=queries),
        cut_questions=int((full > queries).sum()),
        rows=rows,
        starts=starts,
        lengths=np.minimum(pieces[rows] - starts, room[rows]),
    )


def window_sequences(plan: Plan, tokenizer: WordPieceTokenizer) -> Sequences:
    """Return all windows, end to end."""
    questions, contexts = plan.questions, plan.contexts
    first_piece = contexts.context_pieces[contexts.of_row[plan.rows]] + plan.starts
    return join_texts(
        Texts(questions.ids, questions.starts[plan.rows], questions.lengths[plan.rows]),
        Texts(contexts.piece_ids, first_piece, plan.lengths),
        np.ones(len(plan.rows), np.bool_),
        tokenizer=tokenizer,
    )


def max_context(plan: Plan) -> tuple[Bools, Int64s]:
    """Return in which window each context piece has the most context.

    A piece's context in a window is the smaller number of pieces to its left and right, plus a
    hundredth of the window's length; of equals the first window wins.

    Returns:
        is_max: bool (D,), the context pieces of all windows end to end.
        offsets: int64 (U + 1,): window u has offsets[u] .. offsets[u + 1] - 1.
    """
    offsets = offsets_of(plan.lengths)
    is_max = np.ones(offsets[-1], np.bool_)
    ends = plan.starts + plan.lengths
    for ahead in range(1, len(plan.rows)):
        # Each window against the one `ahead` of it, where both have a piece.
        first = np.arange(len(plan.rows) - ahead)
        shares = (plan.rows[ahead:] == plan.rows[:-ahead]) & (plan.starts[ahead:] < ends[:-ahead])
        first = first[shares]
        if not len(first):
            break
        second = first + ahead
        common = ends[first] - plan.starts[second]
        pieces = ranges(plan.starts[second], common)
        first, second = np.repeat(first, common), np.repeat(second, common)
        second_wins = _context(plan, second, pieces) > _context(plan, first, pieces)
        loser = np.where(second_wins, first, second)
        is_max[offsets[loser] + pieces - plan.starts[loser]] = False
    return is_max, offsets


def _context(plan: Plan, windows: Int64s, pieces: Int64s) -> npt.NDArray[np.float64]:
    left = pieces - plan.starts[windows]
    lengths = plan.lengths[windows]
    # As floats, like the reference, so that rounding breaks ties as it does there.
    context: npt.NDArray[np.float64] = np.minimum(left, lengths - 1 - left) + 0.01 * lengths
    return context


# Answers


NO_SPAN = -1


class Spans(NamedTuple):
    """Answer of each example in pieces of its context."""

    first: Int64s
    last: Int64s
    """First and last piece, (R,); NO_SPAN if there is no answer or it does not occur."""

    is_usable: Bools
    """False if the answer does not occur, (R,)."""


def answer_spans(examples: pa.Table, plan: Plan, tokenizer: WordPieceTokenizer) -> Spans:
    """Return the pieces of the first answer that occurs in the context.

    Finds the words that contain the answer, then, within their pieces, the first exact match of the
    answer's pieces, if any: 1895 in "(1895-1943)" (run_squad.py).

    Raises:
        TaskDataError: The answers of a row are not known.
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
    """Return the positions of the answer's first and last token in each window, (U, 2).

    (0, 0) if the question has no answer or the window does not contain it completely.
    """
    first, last = spans.first[plan.rows], spans.last[plan.rows]
    is_inside = (first >= plan.starts) & (last < plan.starts + plan.lengths) & (first != NO_SPAN)
    shift = plan.b_starts - plan.starts
    return np.where(is_inside[:, None], np.stack([first + shift, last + shift], axis=1), 0)


def _check_known(examples: pa.Table) -> None:
    column = examples.column("is_impossible")
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise TaskDataError(
            f"question {examples.column('id')[row]}: its answers are not known, so no model can be "
            "trained on it; train on a split with answers"
        )


def _first_answers(examples: pa.Table) -> tuple[Int64s, Int64s, list[str]]:
    """Return start character, end character and text of the answer of each row.

    The start is NOT_FOUND without answer. Surrounding white space is stripped.
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
    """Return the word, counted in its context, that has a character of each row's context."""
    contexts = plan.contexts
    # One ascending key for the words of all contexts.
    longest = int(contexts.word_ends.max(initial=0)) + 1
    of_word = np.repeat(np.arange(len(contexts.texts)), np.diff(contexts.word_offsets))
    keys = of_word * longest + contexts.word_starts
    of_row = contexts.of_row[rows]
    found = np.searchsorted(keys, of_row * longest + characters, side="right") - 1
    return np.asarray(found - contexts.word_offsets[of_row], np.int64)


def _improved(ids: Int64s, begins: Int64s, stops: Int64s, answers: Texts) -> tuple[Int64s, Int64s]:
    """Narrow each span of pieces to the first run in it that is the answer's pieces."""
    begins, stops = begins.copy(), stops.copy()
    lengths = answers.lengths
    for row in np.flatnonzero((stops - begins > lengths) & (lengths > 0)).tolist():
        # As texts with a character for each id, because `str.find` takes linear time.
        span = "".join(map(chr, ids[begins[row] : stops[row]].tolist()))
        answer = answers.ids[answers.starts[row] : answers.starts[row] + lengths[row]]
        at = span.find("".join(map(chr, answer.tolist())))
        if at >= 0:
            begins[row] += at
            stops[row] = begins[row] + lengths[row]
    return begins, stops
