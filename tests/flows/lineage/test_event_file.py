"""Events in the store: none is lost, no half line is written, half lines of a crash are told."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flows.lineage.export.event_file import read_events, write_events
from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactNotFoundError


def line(number: int, *, time: int = 0) -> str:
    return json.dumps({"number": number, "eventTime": f"2026-01-01T00:00:{time:02d}+00:00"})


def numbers(store: ArtifactStore) -> list[int]:
    recorded = read_events(store, "run")
    assert recorded.problems == []
    return [found.event["number"] for found in recorded.events]


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    local = request.param == "local"
    return ArtifactStore(str(tmp_path) if local else f"memory://events-{uuid.uuid4().hex}")


def test_events_come_back_in_order(store: ArtifactStore) -> None:
    with pytest.raises(ArtifactNotFoundError, match="no lineage events"):
        read_events(store, "run")
    write_events(store, "run", [line(1), line(2)])
    write_events(store, "run", [line(3)], durable=True)
    write_events(store, "run", [line(4)])
    assert numbers(store) == [1, 2, 3, 4]
    assert store.backend.names("runs/run") == ["runs/run/openlineage.ndjson"]


def test_threads_lose_nothing(store: ArtifactStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: write_events(store, "run", [line(n)]), range(200)))
    assert sorted(numbers(store)) == list(range(200))


WRITER = """
import sys
from flows.store.artifacts import ArtifactStore
from flows.lineage.export.event_file import write_events
store = ArtifactStore(sys.argv[1])
for number in range(int(sys.argv[2]), int(sys.argv[2]) + 100):
    write_events(store, "run", ['{"number": %d, "text": "%s"}' % (number, "x" * 5000)])
"""


def test_processes_lose_nothing(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(first)])
        for first in (0, 100)
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert sorted(numbers(store)) == list(range(200))


def test_processes_on_object_stores_have_files_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = ArtifactStore(f"memory://events-{uuid.uuid4().hex}")
    write_events(store, "run", [line(1, time=1)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        write_events(store, "run", [line(2, time=2)])
        write_events(store, "run", [line(4, time=4)])
    write_events(store, "run", [line(3, time=3)])
    assert len(store.backend.names("runs/run")) == 2
    assert numbers(store) == [1, 2, 3, 4]


def test_files_on_object_stores_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.lineage.export.event_file._PART_BYTES", 150)
    store = ArtifactStore(f"memory://events-{uuid.uuid4().hex}")
    for number in range(10):
        write_events(store, "run", [line(number, time=number)])
    sizes = store.backend.sizes("runs/run")
    assert len(sizes) > 2
    assert max(sizes.values()) < 300
    assert numbers(store) == list(range(10))


def test_a_line_that_a_crash_cut_off_is_told_and_kept_apart(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    write_events(store, "run", [line(1)])
    path = tmp_path / "runs" / "run" / "openlineage.ndjson"
    with path.open("ab") as file:
        file.write(b'{"number": 2, "eve')
    recorded = read_events(store, "run")
    assert [found.event["number"] for found in recorded.events] == [1]
    assert len(recorded.problems) == 1
    assert "ndjson:2: expected an event" in recorded.problems[0]
    assert "its writer was stopped" in recorded.problems[0]
    write_events(store, "run", [line(3)])
    recorded = read_events(store, "run")
    assert [(found.line, found.event["number"]) for found in recorded.events] == [(1, 1), (3, 3)]
    assert len(recorded.problems) == 1


def test_short_write_leaves_no_half_line_and_raises_its_reason(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path))
    write_events(store, "run", [line(1)])
    file = tmp_path / "runs/run/openlineage.ndjson"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 10, hard))
        with pytest.raises(OSError) as raised:  # noqa: PT011 - its number is what counts
            write_events(store, "run", [line(2)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(file))
    assert numbers(store) == [1]
