"""What a process of a race does: a module of its own, so that each starts quickly."""

from __future__ import annotations

from typing import Any

from flows.store.backend import open_backend

FILES = 25
REPEATS = 4096


def race(root: str, name: str, start: Any, results: Any) -> None:
    """Try to create each of the same files; report which were created."""
    backend = open_backend(root)
    start.wait(60)
    won = []
    for number in range(FILES):
        won.append(backend.create(f"keys/{number}.json", name.encode() * REPEATS))
        assert len(backend.read(f"keys/{number}.json")) == len(name) * REPEATS, "half written"
    results.put((name, won))
