"""Windows over passages: words, pieces, windows and answer positions.

The library `tokenizers` gives the characters of each piece in its context. Words are separated by
white space as in run_squad.py (space, tab, line feed, carriage return and U+202F). A window is
`[CLS] question [SEP] part of the context [SEP]`. Windows start every `doc_stride` pieces until one
reaches the end. A piece in several windows is scored in the one where it has the most context.

Letters: R rows of examples, C distinct contexts, P pieces of all contexts, U windows, D context
pieces of all windows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from model.tasks.features import Sequences, Texts, check_answered, encode_texts, join_texts
from model.tasks.squad import NOT_FOUND
from pipelines.arrays import Bools, Int64s, offsets_of, ranges
from pipelines.wordpiece.tokenizer import Chunks, WordPieceTokenizer, bert_tokenizer
from schemas.errors import ConfigError
from schemas.finetune_configs import FeaturesConfig

_MARKS = 3  # [CLS], [SEP], [SEP]

_BATCH_TEXTS = 1024
"""Number of chunks tokenized together; bounds memory."""

_SPACES = " \t\n\r\u202f"
"""White space that separates words in run_squad.py."""

_TO_SPACE = str.maketrans(dict.fromkeys(_SPACES, " "))


class Contexts(NamedTuple):
    """Distinct contexts of examples as pieces."""

    texts: list[str]
    """(C,)"""

    of_row: Int64s
    """Context of each example, (R,)."""

    offsets: Int64s
    """Context c has the pieces offsets[c] .. offsets[c + 1] - 1, (C + 1,)."""

    piece_ids: Int64s
    """(P,)"""

    piece_starts: Int64s
    piece_ends: Int64s
    """Piece p has the characters piece_starts[p] .. piece_ends[p] - 1 of its context, (P,)."""

    def find_pieces(self, contexts: Int64s, characters: Int64s) -> Int64s:
        """Return the first piece of each context that begins at a character or later."""
        bases = offsets_of([len(text) + 1 for text in self.texts])
        starts = self.piece_starts + np.repeat(bases[:-1], np.diff(self.offsets))
        return np.searchsorted(starts, bases[contexts] + characters)


def read_contexts(column: pa.ChunkedArray, tokenizer: WordPieceTokenizer) -> Contexts:
    """Tokenize the distinct contexts of examples.

    Each distinct chunk between spaces is tokenized once: its pieces do not depend on its neighbors.
    """
    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
    chunks = Chunks(encoded.dictionary)
    library = bert_tokenizer(tokenizer.vocab, **tokenizer.rules)
    lengths: list[int] = []
    ids: list[int] = []
    characters: list[tuple[int, int]] = []
    for begin in range(0, len(chunks.distinct), _BATCH_TEXTS):
        for pieces in library.encode_batch(chunks.distinct[begin : begin + _BATCH_TEXTS]):
            lengths.append(len(pieces))
            ids += pieces.ids
            characters += pieces.offsets
    index, counts = chunks.index.to_numpy(), np.array(lengths, np.int64)
    rows = ranges(offsets_of(counts)[:-1][index], counts[index])
    widths = np.array([len(chunk) + 1 for chunk in chunks.distinct], np.int64)[index]
    chunk_starts = offsets_of(widths)[:-1]
    firsts = chunks.offsets
    chunk_starts -= np.repeat(chunk_starts[firsts[:-1]], np.diff(firsts))
    places = np.array(characters, np.int64).reshape(-1, 2)[rows]
    places += np.repeat(chunk_starts, counts[index])[:, None]
    return Contexts(
        texts=encoded.dictionary.to_pylist(),
        of_row=encoded.indices.to_numpy().astype(np.int64),
        offsets=offsets_of(counts[index])[firsts],
        piece_ids=np.array(ids, np.int64)[rows],
        piece_starts=np.ascontiguousarray(places[:, 0]),
        piece_ends=np.ascontiguousarray(places[:, 1]),
    )


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
    pieces = np.diff(contexts.offsets)[contexts.of_row]
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
    first_piece = contexts.offsets[contexts.of_row[plan.rows]] + plan.starts
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
    check_answered(examples, "is_impossible", expected="every question of the training data")
    starts, ends, texts = _first_answers(examples)
    rows = np.flatnonzero(starts != NOT_FOUND)
    contexts = plan.contexts
    first, last = (np.full(len(starts), NO_SPAN, np.int64) for _ in range(2))
    spaced = [text.translate(_TO_SPACE) for text in contexts.texts]
    own_contexts = contexts.of_row[rows]
    words = [
        _widen_to_words(spaced[context], start, end)
        for context, start, end in zip(
            own_contexts.tolist(), starts[rows].tolist(), ends[rows].tolist(), strict=True
        )
    ]
    begins, stops = (
        contexts.find_pieces(own_contexts, side)
        for side in np.array(words, np.int64).reshape(-1, 2).T
    )
    own = encode_texts([texts[row] for row in rows.tolist()], tokenizer)
    begins, stops = _improved(contexts.piece_ids, begins, stops, own)
    origin = contexts.offsets[own_contexts]
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
    shift = plan.questions.lengths[plan.rows] + 2 - plan.starts  # behind [CLS] question [SEP]
    return np.where(is_inside[:, None], np.stack([first + shift, last + shift], axis=1), 0)


def _first_answers(examples: pa.Table) -> tuple[Int64s, Int64s, list[str]]:
    """Return start character, end character and text of the answer of each row.

    The start is NOT_FOUND without answer. Surrounding white space is stripped.
    """
    starts, ends = (np.full(len(examples), NOT_FOUND, np.int64) for _ in range(2))
    texts = [""] * len(examples)
    columns = (examples.column(name).to_pylist() for name in ("answers", "answer_starts"))
    for row, (answers, places) in enumerate(zip(*columns, strict=True)):
        for text, offset in zip(answers, places, strict=True):
            stripped = text.strip()
            if offset != NOT_FOUND and stripped:
                start = offset + len(text) - len(text.lstrip())
                starts[row], ends[row], texts[row] = start, start + len(stripped), stripped
                break
    return starts, ends, texts


def _widen_to_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the characters of the words that have the characters from `start` to `end`."""
    word_end = text.find(" ", end)
    return text.rfind(" ", 0, start) + 1, len(text) if word_end < 0 else word_end


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
