"""Errors as plain JSON values, which keep their class and attributes between processes."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

from schemas.errors import BertloomError, RunnerError


def serialize_error(error: BaseException) -> dict[str, Any]:
    """Return class, message, notes, and the attributes of bertloom's errors or of OSError."""
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


def deserialize_error(facts: dict[str, Any], *, name: str) -> Exception:
    """Return the error of these facts; errors of other libraries become a RunnerError.

    Args:
        facts: Result of `serialize_error`.
        name: Name of the work in the message of the RunnerError.
    """
    class_name, message = facts["class"], facts["message"]
    own = {cls.__name__: cls for cls in _subclasses(BertloomError)}.get(class_name)
    error: Exception
    if own is not None and "attributes" in facts:
        error = own.__new__(own, message)  # the arguments of constructors differ
        vars(error).update(facts["attributes"])
    elif "os" in facts:
        errno, text, path = facts["os"]
        builtin = getattr(builtins, class_name, OSError)
        error = builtin(message) if errno is None else builtin(errno, text, path)
    else:
        error = RunnerError(f"{name}: {class_name}: {message}")
    for note in facts["notes"]:
        error.add_note(note)
    return error


def _subclasses(cls: type[BertloomError]) -> Iterator[type[BertloomError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _subclasses(child)
