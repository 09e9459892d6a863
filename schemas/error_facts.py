"""Errors as plain JSON values, to cross from one process to another with their class and facts."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

from schemas.errors import BertloomError, RunnerError


def error_facts(error: BaseException) -> dict[str, Any]:
    """Class, message and notes; attributes of ours, number and path of the system's errors."""
    facts: dict[str, Any] = {
        "class": type(error).__name__,
        "message": str(error),
        "notes": list(getattr(error, "__notes__", ())),
    }
    if isinstance(error, BertloomError):
        facts["attributes"] = {
            name: value
            for name, value in vars(error).items()
            if isinstance(value, (str, int, float, bool, type(None))) and name != "__notes__"
        }
    elif isinstance(error, OSError):
        facts["os"] = [error.errno, error.strerror, error.filename and str(error.filename)]
    return facts


def error_from(facts: dict[str, Any], *, name: str) -> Exception:
    """The error of these facts: one of ours or the system's by its class, else a RunnerError.

    Args:
        facts: as from `error_facts`.
        name: what people call the work, for the RunnerError.
    """
    error = _without_notes(facts, name)
    for note in facts["notes"]:
        error.add_note(note)
    return error


def _without_notes(facts: dict[str, Any], name: str) -> Exception:
    kind, message = facts["class"], facts["message"]
    own = {known.__name__: known for known in _descendants(BertloomError)}.get(kind)
    if own is not None and "attributes" in facts:
        # Not by its constructor: each class has its own, and the message is whole already.
        error = own.__new__(own, message)
        vars(error).update(facts["attributes"])
        return error
    if "os" in facts:
        number, words, path = facts["os"]
        named = getattr(builtins, kind, None)
        system = named if isinstance(named, type) and issubclass(named, OSError) else OSError
        return system(message) if number is None else system(number, words, path)
    return RunnerError(f"{name}: {kind}: {message}")


def _descendants(kind: type[BertloomError]) -> Iterator[type[BertloomError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _descendants(child)
