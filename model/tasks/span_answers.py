"""Answers of a question, checked against their passage."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from model.tasks.files import is_text

NOT_FOUND = -1
"""Start of an answer that does not occur in the context."""


class Answers(NamedTuple):
    """Answers of one question.

    Attributes:
        texts: Texts of the file; if only white space differs, texts of the context.
        starts: Character offsets into the context, or NOT_FOUND.
        notes: Distinct kebab-case names of corrections and oddities.
    """

    texts: list[str]
    starts: list[int]
    notes: tuple[str, ...]

    @property
    def is_found(self) -> bool:
        """True if any answer occurs in the context."""
        return any(start != NOT_FOUND for start in self.starts)


class WrongAnswersError(ValueError):
    """Answers have an unsupported structure."""


def check_answers(given: Any, context: str, *, keeps_blank: bool = False) -> Answers:
    """Find each answer in its context.

    If an answer is not at its given start, its nearest occurrence is used: first with equal white
    space, then with any.

    Args:
        given: `[{"text": ..., "answer_start": ...}, ...]` (the official files) or
            `{"text": [...], "answer_start": [...]}` (Hugging Face).
        context: Passage.
        keeps_blank: Keep an answer that is only white space, as not found, because the official
            scripts compare with it.

    Raises:
        WrongAnswersError: The answers have neither structure.
    """
    texts: list[str] = []
    starts: list[int] = []
    notes: list[str] = []
    for text, start in _pairs(given):
        if not text.strip():
            notes.append("empty-answer" if keeps_blank else "empty-answer-left-out")
            if keeps_blank:
                texts.append(text)
                starts.append(NOT_FOUND)
            continue
        found, at, note = _find(text, start, context)
        texts.append(found)
        starts.append(at)
        if note:
            notes.append(note)
    return Answers(texts, starts, tuple(dict.fromkeys(notes)))


def _pairs(given: Any) -> list[tuple[str, int | None]]:
    if isinstance(given, dict) and {"text", "answer_start"} <= given.keys():
        texts, starts = given["text"], given["answer_start"]
        if not isinstance(texts, list) or not isinstance(starts, list):
            raise WrongAnswersError("answers.text and answers.answer_start: expected lists")
        if len(texts) != len(starts):
            raise WrongAnswersError(f"{len(texts)} answer texts and {len(starts)} starts")
        pairs = list(zip(texts, starts, strict=True))
    elif isinstance(given, list) and all(isinstance(item, dict) for item in given):
        pairs = [(item.get("text"), item.get("answer_start")) for item in given]
    else:
        raise WrongAnswersError(f"answers: expected a list of objects, found {given!r:.60}")
    for text, start in pairs:
        if not is_text(text):
            raise WrongAnswersError(f"text of an answer: expected text, found {text!r:.60}")
        if start is not None and (isinstance(start, bool) or not isinstance(start, int)):
            raise WrongAnswersError(f"answer_start: expected a number, found {start!r:.60}")
    return pairs


def _find(text: str, start: int | None, context: str) -> tuple[str, int, str]:
    """Return the answer's text, its start, and what was mended ("" for nothing)."""
    near = start or 0
    if start is not None and start >= 0 and context.startswith(text, start):
        return text, start, ""
    found = _nearest(text, context, near, positions=range(len(context)))
    if found is not None:
        return text, found, "answer-start-mended"
    # Compare with one space in the place of each run of white space.
    positions = [run.start() for run in re.finditer(r"\s+|\S", context)]
    collapsed = "".join(" " if context[at].isspace() else context[at] for at in positions)
    phrase = " ".join(text.split())
    found = _nearest(phrase, collapsed, near, positions=positions)
    if found is not None:
        first, last = positions[found], positions[found + len(phrase) - 1]
        return context[first : last + 1], first, "answer-space-mended"
    return text, NOT_FOUND, "answer-not-in-context"


def _nearest(text: str, context: str, near: int, *, positions: Sequence[int]) -> int | None:
    """Return the index of the occurrence that is nearest to a position, the first of equals.

    Args:
        text: Text to look for.
        context: Text to look in.
        near: Position, counted as `positions` are.
        positions: Position of each character of the context, ascending.
    """
    at = bisect.bisect_left(positions, near)
    found = []
    # Search backwards in the reversed text: `str.rfind` takes quadratic time, `str.find` does not.
    head = context[: max(0, at + len(text) - 1)]
    if (before := head[::-1].find(text[::-1])) >= 0:
        found.append(len(head) - before - len(text))
    if (after := context.find(text, at)) >= 0:
        found.append(after)
    return min(found, key=lambda index: abs(positions[index] - near), default=None)
