"""What a process of a race does: a module of its own, so that each starts quickly.

And what every backend promises, whoever races.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flows.store.backend import StoreBackend, open_backend

FILES = 25
REPEATS = 4096


def race(root: str, name: str, start: Any, results: Any) -> None:
    """Try to create each of the same files; report which were created."""
    backend = open_backend(root)
    start.wait(60)
    won = []
    for number in range(FILES):
        won.append(backend.put_if_absent(f"keys/{number}.json", name.encode() * REPEATS))
        assert len(backend.read(f"keys/{number}.json")) == len(name) * REPEATS, "half written"
    results.put((name, won))


def check_swaps(backend: StoreBackend) -> None:
    """What every backend promises of `swap` and `remove`."""
    assert not backend.compare_and_swap("x/file", b"new", expected=b"old")  # there is none
    assert backend.compare_and_swap("x/file", b"1", expected=None)
    assert not backend.compare_and_swap("x/file", b"2", expected=None)
    assert not backend.compare_and_swap("x/file", b"2", expected=b"0")
    assert backend.read("x/file") == b"1"
    assert backend.compare_and_swap("x/file", b"2", expected=b"1")
    assert backend.compare_and_swap(
        "x/file", b"2", expected=b"1"
    )  # as after an answer that got lost
    assert backend.read("x/file") == b"2"
    assert backend.compare_and_delete("x/file", expected=b"1") is None
    assert backend.read("x/file") == b"2"
    assert backend.compare_and_delete("x/file", expected=b"2") is not None
    assert backend.compare_and_delete("x/file", expected=b"2") is None
    assert backend.names("x") == []


def check_that_one_swap_wins(backend: StoreBackend) -> None:
    """Of many that saw the same, one changes it; and each of many additions counts."""
    backend.put_if_absent("counter", b"0")
    with ThreadPoolExecutor(8) as pool:
        won = list(
            pool.map(
                lambda n: backend.compare_and_swap("counter", b"%d" % n, expected=b"0"), (1, 2, 3)
            )
        )
    assert won.count(True) == 1
    assert backend.read("counter") == b"%d" % (1 + won.index(True))
