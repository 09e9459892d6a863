"""Standard error without the tracebacks that Beam prints of errors it raises as well."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TextIO


class _WithoutTracebacks:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if text.startswith("Traceback (most recent call last)"):
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextlib.contextmanager
def without_tracebacks() -> Iterator[None]:
    """Beam's worker loop prints an error, logs it and sends it to the runner, which raises it."""
    with contextlib.redirect_stderr(_WithoutTracebacks(sys.stderr)):  # type: ignore[type-var]
        yield
