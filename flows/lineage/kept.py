"""What of a store is read once where much is asked of few files: each request takes its time."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

from pipelines.io.file_systems import file_system

_MOST, _SMALL = 128 << 20, 8 << 20


class Kept:
    """Manifests and small remote files, which are immutable."""

    def __init__(self, most: int = 0) -> None:
        """Files are kept up to `most` bytes together."""
        self._files: dict[str, bytes | None] = {}
        self._left = most

    def small_file(self, url: str) -> bytes | None:
        """The whole of a remote file of at most 8 MiB; None where it is larger, or no room is left.

        Raises:
            OSError: it cannot be read.
        """
        if url not in self._files:
            if self._left < _SMALL:
                return None
            fs, path = file_system(url)
            head: bytes = fs.cat_file(path, start=0, end=_SMALL + 1)
            is_whole = len(head) <= _SMALL
            self._files[url] = head if is_whole else None
            self._left -= len(head) if is_whole else 0
        return self._files[url]


_KEPT: contextvars.ContextVar[Kept | None] = contextvars.ContextVar("_KEPT", default=None)


def kept_now() -> Kept:
    """What is kept; outside `kept_in_memory` nothing is for longer than this object."""
    return _KEPT.get() or Kept()


@contextlib.contextmanager
def kept_in_memory() -> Iterator[None]:
    """Within, manifests and remote files of at most 8 MiB, 128 MiB together, are read once."""
    if _KEPT.get() is not None:
        yield
        return
    token = _KEPT.set(Kept(_MOST))
    try:
        yield
    finally:
        _KEPT.reset(token)
