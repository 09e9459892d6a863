"""Windows over passages: what of a long context the model reads at once (run_squad.py).

A window is `[CLS] question [SEP] part of the context [SEP]`. Windows begin every `window_step`
pieces until one reaches the end. A piece that stands in several windows is scored in the one where
it has most context. Letters as in `model.task_types.span_words`, U windows, D context pieces of all
windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from model.task_types.span_words import Contexts, encode_texts, read_contexts
from pipelines.arrays import Int64s, Ragged, offsets_of, ranges
from pipelines.wordpiece.ids import WordPieceTokenizer
from schemas.errors import ConfigError
from schemas.task_configs import FeaturesConfig

Bools = npt.NDArray[np.bool_]

_MARKS = 3  # [CLS], [SEP], [SEP]
_BLOCK_WINDOWS = 8192  # put together at a time; bounds the memory of the indices


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The windows of examples.

    Attributes:
        contexts: the passages as pieces.
        questions: pieces of each question, (R) rows, cut to `max_query_tokens`.
        cut_questions: how many were cut.
        rows: int64 (U,): example of each window, ascending.
        starts: int64 (U,): where it begins, in pieces of its context.
        lengths: int64 (U,): how many pieces of the context it has, at least 1.
    """

    contexts: Contexts
    questions: Ragged
    cut_questions: int
    rows: Int64s
    starts: Int64s
    lengths: Int64s

    @property
    def b_starts(self) -> Int64s:
        """(U,): place in its sequence of each window's first context piece."""
        places: Int64s = self.questions.lengths[self.rows] + 2
        return places

    @property
    def sequence_lengths(self) -> Int64s:
        """(U,): tokens of each window, marks included."""
        return self.b_starts + self.lengths + 1

    def taken(self, is_taken: Bools) -> Plan:
        """The plan without the windows of some rows; `is_taken` is (R,)."""
        kept = is_taken[self.rows]
        return Plan(
            contexts=self.contexts,
            questions=self.questions,
            cut_questions=self.cut_questions,
            rows=self.rows[kept],
            starts=self.starts[kept],
            lengths=self.lengths[kept],
        )


def plan_windows(
    examples: pa.Table, tokenizer: WordPieceTokenizer, *, config: FeaturesConfig
) -> Plan:
    """Plan the windows of SPAN_EXAMPLES. The same arguments always give the same plan.

    A context without any piece (control characters only) gets no window.

    Raises:
        ConfigError: a question leaves no room for its context.
    """
    contexts = read_contexts(examples.column("context"), tokenizer)
    questions = encode_texts(examples.column("question").to_pylist(), tokenizer)
    full = questions.lengths
    queries = np.minimum(full, config.max_query_tokens)
    room = config.max_seq_length - _MARKS - queries
    if len(room) and room.min() < 1:
        raise ConfigError(
            f"max_seq_length {config.max_seq_length} leaves no room for the context beside a "
            f"question of {int(queries.max())} tokens and {_MARKS} marks: raise max_seq_length, or "
            f"lower max_query_tokens (now {config.max_query_tokens})"
        )
    pieces = np.diff(contexts.context_pieces)[contexts.of_row]
    step = np.minimum(config.window_step, room)
    # Rounded up: windows after the first until one reaches the end.
    count = np.where(pieces > 0, 1 + np.maximum(0, -((room - pieces) // step)), 0)
    rows = np.repeat(np.arange(len(count)), count)
    starts = ranges(np.zeros(len(count), np.int64), count) * step[rows]
    places = ranges(questions.offsets[:-1], queries)
    return Plan(
        contexts=contexts,
        questions=Ragged(questions.values[places], offsets_of(queries)),
        cut_questions=int((full > queries).sum()),
        rows=rows,
        starts=starts,
        lengths=np.minimum(pieces[rows] - starts, room[rows]),
    )


def window_ids(plan: Plan, *, cls_id: int, sep_id: int) -> tuple[Int64s, Int64s]:
    """The token ids of all windows end to end, and their offsets (U + 1,)."""
    lengths = plan.sequence_lengths
    offsets = offsets_of(lengths)
    ids = np.full(offsets[-1], sep_id, np.int64)
    ids[offsets[:-1]] = cls_id
    contexts = plan.contexts
    first_piece = contexts.context_pieces[contexts.of_row[plan.rows]] + plan.starts
    question_at, question_lengths = plan.questions.offsets[plan.rows], plan.b_starts - 2
    for begin in range(0, len(lengths), _BLOCK_WINDOWS):
        block = slice(begin, begin + _BLOCK_WINDOWS)
        at = offsets[:-1][block]
        size = question_lengths[block]
        ids[ranges(at + 1, size)] = plan.questions.values[ranges(question_at[block], size)]
        size = plan.lengths[block]
        places = ranges(at + plan.b_starts[block], size)
        ids[places] = contexts.piece_ids[ranges(first_piece[block], size)]
    return ids, offsets


def max_context(plan: Plan) -> tuple[Bools, Int64s]:
    """Where each context piece of each window has most context.

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
