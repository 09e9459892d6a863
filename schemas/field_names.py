"""Names of configuration fields in messages: as recipes have them, or as options of a command."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

_FORMAT: ContextVar[Callable[[str], str]] = ContextVar("_FORMAT", default=str)


def field_name(field: str) -> str:
    """Return the name of a field for an error: the field itself, or the option that sets it.

    Args:
        field: Dotted path in its configuration, such as `data_files.dev`.
    """
    return _FORMAT.get()(field)


@contextlib.contextmanager
def use_field_names(format_field: Callable[[str], str]) -> Iterator[None]:
    """Let errors that the block raises name fields in another way; also a decorator."""
    token = _FORMAT.set(format_field)
    try:
        yield
    finally:
        _FORMAT.reset(token)
