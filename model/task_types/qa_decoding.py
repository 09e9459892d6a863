"""Answers from the logits of starts and ends: the n best of each question (run_squad.py).

Letters as in `model.task_types.qa_windows`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from model.task_types.qa_windows import Contexts, Plan, max_context
from model.task_types.task_type import Encoding
from pipelines.arrays import Bools, Int64s, offsets_of
from schemas.finetune_configs import FeaturesConfig

Logits = npt.NDArray[np.float64]

NO_ANSWER_ODDS = 1e9
"""`null_odds` if no span can be an answer, so that "" is the only one."""


class Entry(NamedTuple):
    """One of the best answers of a question."""

    text: str
    """"" for no answer."""

    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """Sum of its logits."""
        return self.start_logit + self.end_logit


class _Candidates(NamedTuple):
    """Spans that may be answers, in pieces of the context."""

    first: Int64s
    last: Int64s
    start_logits: Logits
    end_logits: Logits


def decode_answers(
    examples: pa.Table, plan: Plan, outputs: npt.NDArray[np.float32], *, encoding: Encoding
) -> Iterator[dict[str, Any]]:
    """Yield the prediction of each example (`model.task_types.task_type`).

    In each window the `n_best_size` highest starts are paired with the `n_best_size` highest ends.
    A pair is an answer if both are pieces of the context, the window has most context of the start,
    the end is not before it, and it has at most `max_answer_length` pieces. The answers with the
    highest sums in all windows are the best; equal texts count once. With `has_unanswerable`, "" is
    one of them, with its lowest score in any window, and the answer where `null_odds` is above 0.

    Args:
        examples: Examples of the plan.
        plan: Windows of the examples.
        outputs: Logits of start and end of each token of all windows, end to end, (T, 2).
        encoding: Limits and task.
    """
    config, has_unanswerable = encoding.config, encoding.task.has_unanswerable
    is_max, piece_offsets = max_context(plan)
    token_offsets = offsets_of(plan.sequence_lengths)
    windows_of = np.searchsorted(plan.rows, np.arange(len(plan.contexts.of_row) + 1))
    b_starts = plan.b_starts
    for row, identity in enumerate(examples["id"].to_pylist()):
        null: Entry | None = None
        found: list[_Candidates] = []
        for window in range(windows_of[row], windows_of[row + 1]):
            logits = outputs[token_offsets[window] : token_offsets[window + 1]].astype(np.float64)
            empty = Entry("", float(logits[0, 0]), float(logits[0, 1]))
            null = empty if null is None or empty.score < null.score else null
            pieces = slice(piece_offsets[window], piece_offsets[window + 1])
            inside = _in_window(
                logits, b_start=int(b_starts[window]), is_max=is_max[pieces], config=config
            )
            shift = int(plan.starts[window])
            found.append(inside._replace(first=inside.first + shift, last=inside.last + shift))
        entries, null_odds = [Entry("", 0.0, 0.0)], NO_ANSWER_ODDS  # a context without pieces
        if null is not None:
            entries, null_odds = _n_best(
                row,
                _Candidates(*map(np.concatenate, zip(*found, strict=True))),
                null=null,
                contexts=plan.contexts,
                size=config.n_best_size,
                has_unanswerable=has_unanswerable,
            )
        best = next((entry.text for entry in entries if entry.text), "")
        yield {
            "id": identity,
            "text": "" if has_unanswerable and null_odds > 0.0 else best,
            "null_odds": null_odds,
            "n_best": _with_probabilities(entries),
        }


def _with_probabilities(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    scores = np.array([entry.score for entry in entries])
    exponents = np.exp(scores - scores.max())
    probabilities = (exponents / exponents.sum()).tolist()
    return [
        {**entry._asdict(), "probability": probability}
        for entry, probability in zip(entries, probabilities, strict=True)
    ]


def _in_window(
    logits: Logits, *, b_start: int, is_max: Bools, config: FeaturesConfig
) -> _Candidates:
    """Return the spans of one window in falling order of their starts, then ends."""
    size = len(is_max)
    # Stable: of equal logits the earlier token comes first.
    starts, ends = (
        np.argsort(-logits[:, side], kind="stable")[: config.n_best_size] - b_start
        for side in (0, 1)
    )
    starts = starts[(starts >= 0) & (starts < size)]
    starts = starts[is_max[starts]]
    ends = ends[(ends >= 0) & (ends < size)]
    pieces = ends[None, :] - starts[:, None] + 1
    start, end = np.nonzero((pieces >= 1) & (pieces <= config.max_answer_length))
    first, last = starts[start], ends[end]
    return _Candidates(first, last, logits[first + b_start, 0], logits[last + b_start, 1])


def _n_best(
    row: int,
    found: _Candidates,
    *,
    null: Entry,
    contexts: Contexts,
    size: int,
    has_unanswerable: bool,
) -> tuple[list[Entry], float]:
    order = np.argsort(-(found.start_logits + found.end_logits), kind="stable")
    entries: list[Entry] = []
    seen: set[str] = set()
    best: Entry | None = None
    waiting = has_unanswerable
    for at in order.tolist():
        if len(entries) >= size and best is not None:
            break
        start_logit, end_logit = float(found.start_logits[at]), float(found.end_logits[at])
        if waiting and start_logit + end_logit < null.score and len(entries) < size:
            entries.append(null)
            waiting = False
        text = _answer_text(contexts, row, int(found.first[at]), int(found.last[at]))
        if not text or text in seen:
            continue
        seen.add(text)
        entry = Entry(text, start_logit, end_logit)
        if best is None:
            best = entry  # taken even if "" fills an n best of one, or no tau could choose it
        elif len(entries) >= size:
            break
        entries.append(entry)
    if waiting or not entries:
        entries.append(null)
    return entries, NO_ANSWER_ODDS if best is None else null.score - best.score


def _answer_text(contexts: Contexts, row: int, first: int, last: int) -> str:
    """Return the text of pieces `first` .. `last` (included) of the context of an example.

    It has the original case, accents and white space, and may begin inside a word. Combining marks
    after its last character, which are dropped as accents, are part of it. Google's
    `get_final_text` searches the joined pieces in the words of the span instead.
    """
    context = int(contexts.of_row[row])
    text, origin = contexts.texts[context], int(contexts.offsets[context])
    start, end = int(contexts.piece_starts[origin + first]), int(contexts.piece_ends[origin + last])
    while end < len(text) and unicodedata.category(text[end]).startswith("M"):
        end += 1
    return text[start:end].strip()
