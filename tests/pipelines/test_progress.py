"""What a job's progress tells those who listen."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from pipelines.telling import progress
from pipelines.telling.progress import Progress, Reading, ReadingFile, following, listening


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(progress, "_WRITE_SECONDS", 0.0)


def write_shard(path: Path, rows: int) -> None:
    table = pa.table({"text": ["a"] * rows})
    with pa.ipc.new_file(path, table.schema) as sink:
        sink.write_table(table)


def watch(folder: Path, *, total: int) -> Progress:
    fs, path = fsspec.core.url_to_fs(str(folder))
    return Progress("build", fs=fs, folder=path, total=total)


def test_shards_rows_and_bytes_are_told(tmp_path: Path) -> None:
    told: list[Reading] = []
    seen = threading.Event()

    def note(reading: Reading) -> None:
        told.append(reading)
        if reading.done == 1:
            seen.set()

    with listening(note), watch(tmp_path, total=2):
        write_shard(tmp_path / "part-0.arrow", 3)
        assert seen.wait(10)
        write_shard(tmp_path / "part-1.arrow", 4)
        (tmp_path / "notes.txt").write_text("no shard")
    last = told[-1]
    assert last[:4] == ("build", 2, 2, "shard")
    assert last.rows == 7
    assert last.bytes == sum(file.stat().st_size for file in tmp_path.glob("*.arrow"))


def test_a_store_that_is_away_stops_no_watching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its client raises: that of S3 has errors of its own for a server that is gone."""
    told: list[Reading] = []
    asked, seen = threading.Event(), threading.Event()

    def gone(*_: object, **__: object) -> None:
        asked.set()
        raise RuntimeError("Could not connect to the endpoint URL")

    def note(reading: Reading) -> None:
        told.append(reading)
        seen.set()

    with monkeypatch.context() as away, listening(note):
        watched = watch(tmp_path, total=1)
        away.setattr(watched._fs, "find", gone)
        with watched:
            assert asked.wait(10)
            assert told == []
            away.undo()
            assert seen.wait(10)


def test_a_shard_that_is_being_written_has_no_rows_yet(tmp_path: Path) -> None:
    (tmp_path / "part-0.arrow").write_bytes(b"ARROW1")
    told: list[Reading] = []
    with listening(told.append), watch(tmp_path, total=1):
        pass
    assert told[-1].rows == 0


def test_a_job_that_ends_is_done_also_with_fewer_shards_than_pieces(tmp_path: Path) -> None:
    told: list[Reading] = []
    with listening(told.append), watch(tmp_path, total=2):
        write_shard(tmp_path / "part-0.arrow", 3)
    assert told[-1][:4] == ("build", 2, 2, "shard")
    assert told[-1].rows == 3
    with pytest.raises(KeyboardInterrupt), listening(told.append), watch(tmp_path, total=9):
        raise KeyboardInterrupt
    assert (9, 9) not in {(reading.done, reading.total) for reading in told}


def test_only_jobs_of_the_block_are_told(tmp_path: Path) -> None:
    told: list[Reading] = []
    with listening(told.append):
        pass
    with watch(tmp_path, total=1):
        pass
    assert told == []


def test_a_listener_that_fails_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="pipelines")
    told: list[Reading] = []
    calls = []

    def fail(reading: Reading) -> None:
        calls.append(reading)
        raise RuntimeError("the page is gone")

    with listening(fail), listening(told.append):
        for _ in range(2):
            with watch(tmp_path, total=1):
                pass
        path = tmp_path / "reading.json"
        with following(tmp_path):
            for step in range(3):
                ReadingFile(path, job="train", unit="step").write(step, total=3)
    assert told
    assert len(calls) <= 3  # once a job
    assert "the page is gone" in caplog.text


def test_another_processs_readings_are_told(tmp_path: Path) -> None:
    told: list[Reading] = []
    path = tmp_path / "reading.json"
    path.write_text(json.dumps(Reading("old", 9, 9, "step")._asdict()))
    with listening(told.append), following(tmp_path):
        file = ReadingFile(path, job="train", unit="step")
        file.write(5, total=10)
        file.write(10, total=10)
    assert {reading.job for reading in told} == {"train"}
    assert told[-1][1:4] == (10, 10, "step")
    assert told[-1].first == 5


def test_nothing_is_written_where_nothing_can_be(tmp_path: Path) -> None:
    file = ReadingFile(tmp_path / "gone" / "reading.json", job="train", unit="step")
    file.write(1, total=2)
    ReadingFile(None, job="train", unit="step").write(1, total=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("reading", "left"),
    [
        (Reading("a", 25, 100, "step", seconds=10), 30),
        (Reading("a", 60, 100, "step", seconds=10, first=50), 40),
        (Reading("a", 50, 100, "step", seconds=10, first=50), None),
        (Reading("a", 5, 0, "step", seconds=10), None),
    ],
)
def test_time_left_is_at_the_pace_of_this_start(reading: Reading, left: float | None) -> None:
    assert reading.seconds_left() == left


def test_bars_take_lines_of_their_own() -> None:
    places = progress.Places()
    with places.taken() as first:
        with places.taken() as second:
            assert {first, second} == {0, 1}
        with places.taken() as again:
            assert again == second
