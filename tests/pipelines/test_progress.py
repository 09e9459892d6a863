"""Progress of jobs as listeners get it."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.waiting import wait_until

from pipelines import progress
from pipelines.io.compression import decompressed
from pipelines.progress import (
    ItemProgress,
    Progress,
    ProgressUpdate,
    item_scope,
    progress_listener,
    report_fraction,
)
from pipelines.runners.direct import LocalRunner
from pipelines.runners.registry import RUNNERS
from pipelines.shard_job.job import run_shard_job
from pipelines.shard_job.work import WorkResult
from schemas.execution_configs import ExecutionConfig


@pytest.fixture(autouse=True)
def _report_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(progress, "_REPORT_SECONDS", 0.0)


def watch(*weights: int) -> Progress:
    """Return the progress of a job with items of these weights. Default: one item."""
    return Progress("build", weights=dict(enumerate(weights or (1,))))


class Updates(list[ProgressUpdate]):
    """Updates of a job."""

    def wait_for(self, done: float) -> None:
        wait_until(lambda: any(update.done == done for update in self))


@pytest.fixture
def updates() -> Iterator[Updates]:
    """Updates of the jobs that the test starts."""
    received = Updates()
    with progress_listener(received.append):
        yield received


def test_finished_items_count_by_their_weight(updates: Updates) -> None:
    with watch(30, 10) as job:
        job.record(1, ItemProgress(1.0, 3))
        updates.wait_for(0.5)
        job.record(0, ItemProgress(1.0, 4))
    assert updates[-1][:4] == ("build", 2, 2, "item")
    assert updates[-1].rows == 7


def test_part_of_an_item_counts_and_does_not_fall(updates: Updates) -> None:
    with watch():
        with item_scope(0):
            report_fraction(0.25)
            updates.wait_for(0.25)
            report_fraction(0.125)
            report_fraction(1.5)
        updates.wait_for(0.99)
        report_fraction(0.1)  # of no item
    assert [update.done for update in updates] == sorted(update.done for update in updates)
    assert updates[-1].done == 1


def test_fraction_of_compressed_item_is_reported(updates: Updates) -> None:
    data = gzip.compress(os.urandom(8 << 20))
    with watch(), item_scope(0):
        chunks = decompressed(io.BytesIO(data), "gz", start=0, end=len(data))
        for count, _ in enumerate(itertools.islice(chunks, 3), start=1):
            wait_until(lambda count=count: len({update.done for update in updates}) >= count)
        reported = {update.done for update in updates}
    assert all(done < 1 for done in reported)


class Item(NamedTuple):
    number: int
    weight: int


class WatchedWork:
    """Work that continues once the listener of its job has seen its progress."""

    def __init__(self, folder: Path) -> None:
        self.has_begun, self.has_pace = folder / "has begun", folder / "has pace"

    def setup(self) -> None:
        """Open nothing."""

    def process(self, item: Item) -> WorkResult:
        for fraction, file in ((0.3, self.has_begun), (0.6, self.has_pace)):
            while not file.exists():
                report_fraction(fraction)
                time.sleep(0.01)
        return WorkResult(item.number)

    def listen(self, update: ProgressUpdate) -> None:
        if 0 < update.done < update.total:
            self.has_begun.touch()
        if update.seconds_left():
            self.has_pace.touch()


@pytest.mark.parametrize(("runner", "workers"), [("local", 1), ("local", 2)])
def test_progress_of_job_rises_to_all_items(
    tmp_path: Path, updates: Updates, runner: str, workers: int
) -> None:
    items = [Item(number, 1 + number) for number in range(4)]
    execution = ExecutionConfig(runner=runner, workers=workers)
    work = WatchedWork(tmp_path)
    with progress_listener(work.listen):
        run_shard_job("job", items, work=work, output=f"{tmp_path}/shards", execution=execution)
    values = [update.done for update in updates]
    assert values == sorted(values)
    assert any(0 < value < 4 for value in values)
    assert values[-1] == 4
    assert any(left for left in (update.seconds_left() for update in updates))


def test_job_of_engine_sends_no_updates(
    tmp_path: Path, updates: Updates, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(LocalRunner):
        is_local = False

    monkeypatch.setitem(RUNNERS, "elsewhere", Elsewhere)
    execution = ExecutionConfig(runner="elsewhere")
    work = WatchedWork(tmp_path)
    work.has_begun.touch()
    work.has_pace.touch()
    output = tmp_path / "out"
    output.mkdir()
    run_shard_job("job", [Item(0, 1)], work=work, output=str(output), execution=execution)
    assert updates == []
    assert list(output.iterdir()) == []


def test_interrupted_job_does_not_end_at_100_percent(updates: Updates) -> None:
    with pytest.raises(KeyboardInterrupt), watch():
        raise KeyboardInterrupt
    assert all(update.done < 1 for update in updates)


def test_listener_that_fails_is_dropped(updates: Updates) -> None:
    calls = []

    def fail(update: ProgressUpdate) -> None:
        calls.append(update)
        raise RuntimeError("the page is gone")

    with progress_listener(fail), watch() as job:
        job.record(0, ItemProgress(0.5))
        updates.wait_for(0.5)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("update", "left"),
    [
        (ProgressUpdate("a", 25, 100, "step", seconds=10), 30),
        (ProgressUpdate("a", 60, 100, "step", seconds=10, first=50), 40),
        (ProgressUpdate("a", 50, 100, "step", seconds=10, first=50), None),
        (ProgressUpdate("a", 5, 0, "step", seconds=10), None),
    ],
)
def test_time_left_is_at_the_pace_of_this_start(update: ProgressUpdate, left: float | None) -> None:
    assert update.seconds_left() == left
