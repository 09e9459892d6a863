"""The next items of an iterator, made in a thread while the last one is worked on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")


class Prefetcher(Generic[Item]):
    """An iterator over another's items, up to `ahead` of which are made before they are asked for.

    What the other raises is raised here, in its turn. `close`, the end of a `with` block or the
    end of this object's life stops the thread.
    """

    def __init__(self, items: Iterator[Item], *, ahead: int) -> None:
        """Start to make items, `ahead` of which (at least one) wait at most."""
        self._shared = _Shared[Item](ahead)
        # The thread knows what is shared but not this object, whose end can so stop it.
        self._thread = threading.Thread(
            target=_produce, args=(items, self._shared), name="bertloom-prefetch", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        shared = self._shared
        with shared.changed:
            shared.changed.wait_for(lambda: shared.ready or shared.is_over or shared.is_stopped)
            if shared.ready and not shared.is_stopped:
                item = shared.ready.popleft()
                shared.changed.notify_all()
                return item
            error, shared.error = shared.error, None
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        """Stop the thread and wait until it has ended; what was made ahead is forgotten."""
        self._shared.stop()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._shared.stop()


class _Shared(Generic[Item]):
    """What the thread and its consumer both see."""

    def __init__(self, ahead: int) -> None:
        self.ahead = max(1, ahead)
        self.changed = threading.Condition()
        self.ready: deque[Item] = deque()
        self.error: BaseException | None = None
        self.is_over = False
        self.is_stopped = False

    def stop(self) -> None:
        with self.changed:
            self.is_stopped = True
            self.ready.clear()
            self.changed.notify_all()

    def put(self, item: Item) -> bool:
        """Wait for room and add an item; False if it is not wanted any more."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.ready) < self.ahead or self.is_stopped)
            if not self.is_stopped:
                self.ready.append(item)
                self.changed.notify_all()
            return not self.is_stopped

    def end(self, error: BaseException | None) -> None:
        with self.changed:
            self.error, self.is_over = error, True
            self.changed.notify_all()


def _produce(items: Iterator[Item], shared: _Shared[Item]) -> None:
    error: BaseException | None = None
    try:
        for item in items:
            if not shared.put(item):
                break
    except BaseException as raised:  # handed over to the consumer, whatever it is
        error = raised
    shared.end(error)
