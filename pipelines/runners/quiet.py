"""Standard error and log without the tracebacks that Beam writes of errors it raises as well."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import TextIO, cast

from schemas.errors import BertloomError


class _WithoutTracebacks:
    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        if text.startswith("Traceback (most recent call last)"):
            return len(text)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


class _NotRaisedOnPurpose(logging.Filter):
    """Leaves out what Beam logs of an error that the job raises in a sentence."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        while error is not None:
            if isinstance(error, BertloomError):
                return False
            error = error.__cause__ or error.__context__
        return True


logging.getLogger("apache_beam.runners.common").addFilter(_NotRaisedOnPurpose())

_lock = threading.Lock()
_inside = 0


@contextlib.contextmanager
def without_tracebacks() -> Iterator[None]:
    """Beam's worker loop prints an error, logs it and sends it to the runner, which raises it.

    Standard error is the whole process's, and jobs may overlap in threads: the first block that
    begins puts the filter in, and the last that ends takes it out.
    """
    global _inside
    with _lock:
        _inside += 1
        if not isinstance(sys.stderr, _WithoutTracebacks):
            sys.stderr = cast("TextIO", _WithoutTracebacks(sys.stderr))
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            # Somebody else's stream, put in since then, is left where it is.
            if _inside == 0 and isinstance(sys.stderr, _WithoutTracebacks):
                sys.stderr = sys.stderr.stream
