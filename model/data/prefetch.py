"""The next items of an iterator, made in a thread while the last one is worked on."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")


class Prefetcher(Generic[Item]):
    """An iterator over another's items, up to `ahead` of which are made before they are asked for.

    What the other raises is raised here, in its turn. `close` or the end of this object's life
    stops the thread.
    """

    def __init__(self, items: Iterator[Item], *, ahead: int) -> None:
        """Start to make items, `ahead` of which (at least one) wait at most."""
        self._items, self._is_closed = items, False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="bertloom-prefetch")
        self._ready: deque[Future[Item | None]] = deque()
        for _ in range(max(1, ahead)):
            self._ready.append(self._pool.submit(next, items, None))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        if not self._ready:
            raise StopIteration
        try:
            item = self._ready.popleft().result()
        except (CancelledError, IndexError):  # another thread has closed it
            item = None
        except BaseException:
            self.close()
            raise
        if item is None or self._is_closed:
            self.close()
            raise StopIteration
        with contextlib.suppress(RuntimeError):  # closed meanwhile
            self._ready.append(self._pool.submit(next, self._items, None))
        return item

    def close(self) -> None:
        """Stop the thread and wait until it has ended; what was made ahead is forgotten."""
        self._is_closed = True
        self._ready.clear()
        self._pool.shutdown(cancel_futures=True)
