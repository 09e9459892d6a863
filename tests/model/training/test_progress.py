"""Progress of training processes as listeners and the terminal get it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.log_records import own_records
from support.waiting import wait_until

from model.training import progress
from model.training.progress import (
    PROGRESS_FILE,
    Amounts,
    ProgressFile,
    TrainingProgress,
    forward_progress,
)
from pipelines.progress import ProgressUpdate, progress_listener
from schemas.model_configs import BudgetConfig


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
        file = ProgressFile(path, job="train", unit="step", total=10, done=5)
        file.write(10)
    assert {update.job for update in updates} == {"train"}
    assert updates[-1][1:4] == (10, 10, "step")
    assert updates[-1].first == 5


def test_each_job_of_a_process_has_its_bar_with_details_and_time_left(
    tmp_path: Path, updates: list[ProgressUpdate], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    class Bar:
        is_shown = True

        def __init__(self, job: str, *, total: float) -> None:
            self.job = job

        def show(self, done: float, details: Sequence[str] = ()) -> None:
            shown.append(f"{self.job} {done:g} {', '.join(details)}".rstrip())

        def close(self) -> None:
            shown.append(f"{self.job} closed")

    monkeypatch.setattr(progress, "TerminalBar", Bar)
    path = tmp_path / PROGRESS_FILE
    first = ProgressUpdate("train", 10, 30, "step", seconds=100, details=["step 10", "loss 2"])
    with forward_progress(tmp_path):
        for update in (first, ProgressUpdate("train: dev", 40, 40, "token")):
            path.with_name("new").write_text(json.dumps(update._asdict()))
            path.with_name("new").replace(path)
            wait_until(lambda job=update.job: any(update.job == job for update in updates))
    assert shown == [
        "train 10 step 10, loss 2, 3 min left",
        "train closed",
        "train: dev 40",
        "train: dev closed",
    ]


def test_progress_is_logged_without_a_terminal(
    tmp_path: Path,
    updates: list[ProgressUpdate],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    caplog.set_level(logging.INFO, logger="model")
    with forward_progress(tmp_path):
        training = TrainingProgress(
            "phase",
            path=tmp_path / PROGRESS_FILE,
            budget=BudgetConfig(max_steps=1_000),
            done=Amounts(),
        )
        training.details = ["loss 6.19"]
        training.update(Amounts(steps=60))
    line = own_records(caplog)[-1].getMessage()
    assert line.startswith("phase: step 60 of 1,000, loss 6.19, ")
    assert line.endswith(" left")


@pytest.mark.parametrize(
    ("budget", "position", "done", "total"),
    [
        (BudgetConfig(max_steps=200), "step 120 of 200", 120, 200),
        (BudgetConfig(max_tokens=130), "step 120, 120 tokens of 130 tokens", 120, 130),
        (BudgetConfig(max_minutes=0.5), "step 120, 1.0 min of 0.5 min", 0.5, 0.5),
    ],
)
def test_progress_is_in_the_unit_of_the_budget(
    tmp_path: Path,
    budget: BudgetConfig,
    position: str,
    done: float,
    total: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "_WRITE_SECONDS", 0.0)
    path = tmp_path / PROGRESS_FILE
    training = TrainingProgress("p", path=path, budget=budget, done=Amounts())
    training.update(Amounts(120, 120, 60.0))
    update = ProgressUpdate(**json.loads(path.read_text()))
    assert (update.done, update.total, update.details) == (done, total, [position])


def test_progress_file_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    for path in (tmp_path / "gone" / PROGRESS_FILE, None):
        ProgressFile(path, job="train", unit="step", total=2).write(1)
    assert list(tmp_path.iterdir()) == []
