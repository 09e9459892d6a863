"""Trackers: what they receive of a training, and that their failures change nothing."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.fake_stages import FakeStages
from support.log_records import own_records
from support.store_builder import prepared
from support.waiting import wait_until

from flows import trackers
from flows.bert import recipe_steps
from flows.recipes.loader import load_recipe
from flows.run.events import RunFinished, StepFailed, StepFinished, StepStarted
from flows.run.run import Run
from flows.run.step_execution import StepResult
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.trackers import TrackerListener, enabled_trackers
from schemas.manifest import Manifest

LINES = [
    {"kind": "train", "step": 10, "tokens": 100, "loss": 8.5, "gradient_norm": "inf"},
    {"kind": "train", "step": 20, "tokens": 200, "loss": 7.5, "learning_rate": 0.001},
    {"kind": "held-out", "step": 20, "held_out_mlm_loss": 7.25, "perplexity": 1408.1},
]
KEY = "ab" * 32


@pytest.fixture(autouse=True)
def no_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("MLFLOW_", "WANDB_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(trackers, "_READ_SECONDS", 0.01)


def artifact() -> Manifest:
    statistics = {"held_out": {"perplexity": 1408.1}, "metrics": {"dev": {"matthews": 0.25}}}
    return prepared(ArtifactStore("memory://trackers"), statistics=statistics)


def write(folder: Path, lines: list[dict[str, Any]]) -> None:
    (folder / "curves").mkdir(exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "curves" / "curves.jsonl").write_text(text)


class Training:
    """A pretraining whose curve a test writes, followed by a listener."""

    def __init__(self, folder: Path, listener: TrackerListener) -> None:
        recipe = load_recipe("sample").model_copy(update={"store": "memory://trackers"})
        self.run = Run(recipe, recipe_steps(recipe))
        self.step = next(s for s in self.run.steps if s.stage.name == "pretrain")
        url = "https://me:secret@models.example/bert"
        config = self.step.config.model_copy(update={"init_checkpoint": url})
        object.__setattr__(self.step, "config", config)
        self.folder, self.inputs, self.listener = folder, {"instances": artifact()}, listener
        self.start()

    def start(self) -> None:
        folder = str(self.folder)
        self.listener.on_event(StepStarted(self.run, self.step, self.inputs, KEY, folder))

    def finish(self) -> None:
        result = StepResult(self.step.label, artifact(), was_cached=False, seconds=1)
        self.listener.on_event(StepFinished(self.run, self.step, self.inputs, result))

    def fail(self) -> None:
        self.listener.on_event(StepFailed(self.run, self.step, self.inputs, OSError("disk")))

    def end_run(self) -> None:
        self.listener.on_event(RunFinished(self.run, "completed"))


def train(folder: Path, lines: list[dict[str, Any]]) -> Training:
    write(folder, lines)
    return Training(folder, TrackerListener())


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, []),
        ({"WANDB_MODE": "disabled", "WANDB_API_KEY": "k"}, []),
        ({"WANDB_API_KEY": "k"}, ["WeightsAndBiases"]),
        ({"MLFLOW_TRACKING_URI": "x", "WANDB_MODE": "offline"}, ["MLflow", "WeightsAndBiases"]),
    ],
)
def test_environment_variables_enable_trackers(
    variables: dict[str, str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    pytest.importorskip("mlflow")
    pytest.importorskip("wandb")
    assert [tracker.__name__ for tracker in enabled_trackers()] == expected


def test_mlflow_has_one_run_of_a_failed_and_resumed_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    training = train(tmp_path, LINES[:1])
    training.fail()
    training.end_run()
    client = tracking.MlflowClient((tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("sample").experiment_id
    [run] = client.search_runs([experiment])
    assert run.info.status == "FAILED"
    training = train(tmp_path, LINES)
    training.finish()
    training.end_run()
    [run] = client.search_runs([experiment])
    assert (run.info.status, run.info.run_name) == ("FINISHED", training.step.label)
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(item.step, item.value) for item in history] == [(10, 8.5), (20, 7.5)]
    assert run.data.metrics["held-out/perplexity"] == 1408.1
    assert run.data.metrics["final/held-out/perplexity"] == 1408.1
    assert run.data.metrics["final/dev/matthews"] == 0.25
    assert run.data.params["seed"] == "0"
    assert run.data.tags["bertloom.key"] == KEY
    assert run.data.tags["bertloom.input.instances"] == artifact().content_digest
    assert run.data.tags["bertloom.artifact"]
    files = [path.read_text() for path in (tmp_path / "mlruns").rglob("*") if path.is_file()]
    assert not any("secret" in text for text in files)


class FakeTracker:
    """Tracker that fails a number of times."""

    def __init__(self, failures: int = 0) -> None:
        self.failures, self.last_step = failures, -1
        self.steps: list[int] = []
        self.ends: list[bool] = []

    def open(self, _event: StepStarted) -> FakeTracker:
        return self

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no answer from http://me:secret@tracker.example")
        self.steps.append(step)

    def end(self, manifest: Manifest | None) -> None:
        self.ends.append(manifest is not None)


def test_curve_is_sent_once_when_tracker_answers_again_and_training_resumes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeTracker(failures=2)
    training = Training(tmp_path, TrackerListener([fake.open]))
    for lines in (LINES, LINES[:1], LINES):  # a resumed training cuts the end of its curve
        write(tmp_path, lines)
        wait_until(lambda: not fake.failures and len(fake.steps) == 3)
    training.finish()
    training.end_run()
    assert (fake.steps, fake.ends) == ([10, 20, 20], [True])
    assert len(own_records(caplog)) == 1
    fake = FakeTracker(failures=10_000)
    training = Training(tmp_path, TrackerListener([fake.open]))
    training.listener.on_event(RunFinished(training.run, "interrupted"))
    assert "ConnectionError" in caplog.text
    assert "secret" not in caplog.text
    assert not [t for t in threading.enumerate() if t.name.startswith(training.step.label)]


class BlockedTracker(FakeTracker):
    """Tracker that does not answer until a test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.released.wait()
        super().log(step, metrics)


def test_step_does_not_wait_for_tracker_and_end_of_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trackers, "_FINISH_SECONDS", 0.01)
    blocked = BlockedTracker()
    write(tmp_path, LINES)
    training = Training(tmp_path, TrackerListener([blocked.open]))
    training.finish()
    assert (blocked.ends, own_records(caplog)) == ([], [])
    monkeypatch.setattr(trackers, "_FINISH_SECONDS", 600.0)
    blocked.released.set()
    training.end_run()
    assert (blocked.steps, blocked.ends) == ([10, 20, 20], [True])
    assert own_records(caplog) == []


def test_retried_step_is_sent_after_its_failed_try(tmp_path: Path) -> None:
    blocked = BlockedTracker()
    ends_at_open: list[list[bool]] = []

    def open_run(_event: StepStarted) -> BlockedTracker:
        ends_at_open.append(list(blocked.ends))
        return blocked

    write(tmp_path, LINES[:1])
    training = Training(tmp_path, TrackerListener([open_run]))
    training.fail()
    training.start()
    blocked.released.set()
    training.finish()
    training.end_run()
    assert ends_at_open == [[], [False]]
    assert blocked.ends == [False, True]


def test_end_of_run_waits_once_for_all_trackers_that_do_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trackers, "_FINISH_SECONDS", 0.01)
    waits: list[float] = []
    wait = trackers.CurveFollower.wait
    monkeypatch.setattr(
        trackers.CurveFollower, "wait", lambda self, end: (waits.append(end), wait(self, end))
    )
    blocked = [BlockedTracker() for _ in range(3)]
    write(tmp_path, LINES)
    training = Training(tmp_path, TrackerListener([tracker.open for tracker in blocked]))
    training.finish()
    training.end_run()
    assert len(waits) == 3
    assert len(set(waits)) == 1  # one deadline for all
    assert len(own_records(caplog)) == 3
    for tracker in blocked:
        tracker.released.set()


def test_cached_steps_and_corpus_steps_send_nothing(fakes: FakeStages, tmp_path: Path) -> None:
    fake = FakeTracker()
    recipe = fakes.recipe(str(tmp_path / "store"))
    run_recipe(recipe, listeners=[TrackerListener([fake.open])], engine="local")
    training = Training(tmp_path, TrackerListener([fake.open]))
    training.fail()
    training.finish()  # without StepStarted, as a cached step
    training.end_run()
    assert fake.ends == [False]


@pytest.mark.slow
def test_weights_and_biases_has_a_run_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    training = train(tmp_path, LINES)
    training.finish()
    training.end_run()
    texts = (b"train/loss", b"held-out/perplexity", b"final/dev/matthews", b"bertloom.key")

    def read() -> bytes:
        return b"".join(file.read_bytes() for file in tmp_path.rglob(f"*{KEY[:32]}.wandb"))

    # A process of W&B writes the file.
    wait_until(lambda: all(text in read() for text in texts))
    data = read()
    host = socket.gethostname().encode()
    assert not re.search(rb"\b%s\b" % re.escape(host), data)
    assert b"secret" not in data
    assert str(Path.cwd()).encode() not in data
    assert not list(tmp_path.rglob("requirements.txt"))
