"""Iterator that computes the next items in a thread."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")


class Prefetcher(Generic[Item]):
    """Iterator over another iterator's items that computes up to `ahead` of them in advance.

    Exceptions of the other iterator are raised here, in order. `close` or garbage collection stops
    the thread.
    """

    def __init__(self, items: Iterator[Item], *, ahead: int) -> None:
        """Start the thread; at most `ahead` items (at least one) wait in the queue."""
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
        """Stop the thread, wait for its end, and discard the queued items."""
        self._is_closed = True
        self._ready.clear()
        self._pool.shutdown(cancel_futures=True)
