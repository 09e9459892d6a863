"""Progress of training processes as listeners and the terminal get it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.waiting import wait_until

from model.training import progress
from model.training.progress import PROGRESS_FILE, ProgressFile, forward_progress
from pipelines.progress import ProgressUpdate, progress_listener


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ProgressUpdate]]:
    """Updates of the trainings that the test starts, reported without delay."""
    monkeypatch.setattr(progress, "_READ_SECONDS", 0.01)
    monkeypatch.setattr(progress, "_WRITE_SECONDS", 0.0)
    received: list[ProgressUpdate] = []
    with progress_listener(received.append):
        yield received


def test_progress_file_of_training_process_is_forwarded(
    tmp_path: Path, updates: list[ProgressUpdate]
) -> None:
    path = tmp_path / PROGRESS_FILE
    path.write_text(json.dumps(ProgressUpdate("old", 9, 9, "step")._asdict()))
    with forward_progress(tmp_path):
        file = ProgressFile(path, job="train", unit="step")
        file.write(5, total=10)
        file.write(10, total=10)
    assert {update.job for update in updates} == {"train"}
    assert updates[-1][1:4] == (10, 10, "step")
    assert updates[-1].first == 5


def test_each_job_of_a_process_has_its_bar(
    tmp_path: Path, updates: list[ProgressUpdate], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    class Bar:
        def __init__(self, job: str, *, total: float) -> None:
            self.job = job

        def show(self, done: float, details: Sequence[str] = ()) -> None:
            shown.append(f"{self.job} {done:g}")

        def close(self) -> None:
            shown.append(f"{self.job} closed")

    monkeypatch.setattr(progress, "TerminalBar", Bar)
    path = tmp_path / PROGRESS_FILE
    with forward_progress(tmp_path):
        for job, done in (("train", 10), ("train: dev", 40)):
            ProgressFile(path, job=job, unit="step").write(done, total=done)
            wait_until(lambda done=done: any(update.done == done for update in updates))
    assert shown == ["train 10", "train closed", "train: dev 40", "train: dev closed"]


def test_progress_file_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    for path in (tmp_path / "gone" / PROGRESS_FILE, None):
        ProgressFile(path, job="train", unit="step").write(1, total=2)
    assert list(tmp_path.iterdir()) == []
