"""Checks that all backends pass, and a function for processes that race to create files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flows.store.backend import StoreBackend, open_backend

FILES = 25
REPEATS = 4096


def race(root: str, name: str, start: Any, results: Any) -> None:
    """Create files that other processes create as well; report which calls succeeded."""
    backend = open_backend(root)
    start.wait(300)
    created = []
    for number in range(FILES):
        created.append(backend.put_if_absent(f"keys/{number}.json", name.encode() * REPEATS))
        assert len(backend.read(f"keys/{number}.json")) == len(name) * REPEATS, "half written"
    results.put((name, created))


def check_swaps(backend: StoreBackend) -> None:
    """Check compare-and-swap."""
    assert not backend.compare_and_swap("x/file", b"new", expected=b"old")
    assert backend.compare_and_swap("x/file", b"1", expected=None)
    assert not backend.compare_and_swap("x/file", b"2", expected=None)
    assert not backend.compare_and_swap("x/file", b"2", expected=b"0")
    assert backend.read("x/file") == b"1"
    assert backend.compare_and_swap("x/file", b"2", expected=b"1")
    # Repeated, as by a client whose response was lost.
    assert backend.compare_and_swap("x/file", b"2", expected=b"1")
    assert backend.read("x/file") == b"2"


def check_that_one_swap_wins(backend: StoreBackend) -> None:
    """Check that one of several swaps with the same expectation succeeds."""
    backend.put_if_absent("counter", b"0")
    with ThreadPoolExecutor(8) as pool:
        swapped = list(
            pool.map(
                lambda n: backend.compare_and_swap("counter", b"%d" % n, expected=b"0"), (1, 2, 3)
            )
        )
    assert swapped.count(True) == 1
    assert backend.read("counter") == b"%d" % (1 + swapped.index(True))
