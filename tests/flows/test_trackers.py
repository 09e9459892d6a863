"""Trackers: what they are told of a training, and that they cannot harm it."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.fake_stages import FakeStages
from support.store_builder import prepared

from flows import trackers
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.trackers import (
    TRACKERS,
    CurveFollower,
    MetricValues,
    TrackedStep,
    Tracker,
    enabled_trackers,
    metric_values,
)
from schemas.errors import InputError
from schemas.manifest import Manifest

LINES = [
    {"kind": "train", "step": 10, "tokens": 100, "loss": 8.5, "gradient_norm": "inf"},
    {"kind": "train", "step": 20, "tokens": 200, "loss": 7.5, "learning_rate": 0.001},
    {"kind": "held-out", "step": 20, "held_out_mlm_loss": 7.25, "perplexity": 1408.1},
]
VARIABLES = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_API_KEY", "WANDB_MODE")


@pytest.fixture(autouse=True)
def no_tracker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(trackers, "_READ_SECONDS", 0.01)
    yield
    assert not [one for one in threading.enumerate() if one.name.endswith("-pretrain.phase-1")]


def step() -> TrackedStep:
    params = {"seed": "0", "init_checkpoint": "https://***@models.example/bert"}
    tags = {"bertloom.key": "ab" * 32, "bertloom.input.instances": made().content}
    return TrackedStep("pretrain.phase-1", "tiny", "ab" * 32, params, tags)


def made() -> Manifest:
    statistics = {"held_out": {"perplexity": 1408.1}, "metrics": {"dev": {"matthews": 0.25}}}
    return prepared(ArtifactStore("memory://trackers"), statistics=statistics)


def write(folder: Path, lines: list[dict[str, Any]]) -> None:
    (folder / "curves").mkdir(exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "curves" / "curves.jsonl").write_text(text)


def followers(folder: Path) -> list[CurveFollower]:
    return [CurveFollower(tracker, step(), folder=folder) for tracker in enabled_trackers()]


def train(folder: Path, lines: list[dict[str, Any]], *, fails: bool = False) -> list[str]:
    """Follow a training that writes these lines; return what could not be sent."""
    following = followers(folder)
    write(folder, lines)
    if fails:
        for follower in following:
            follower.cancel()
        return []
    return [error for follower in following if (error := follower.finish(made()))]


def test_a_line_is_told_by_group_and_name() -> None:
    assert metric_values(LINES[0]) == MetricValues(10, {"train/tokens": 100, "train/loss": 8.5})
    assert metric_values(LINES[2]).numbers == {
        "held-out/mlm_loss": 7.25,
        "held-out/perplexity": 1408.1,
    }
    of_trial = metric_values({"step": 3, "split": "train", "loss": 0.5, "rate": 0.1})
    assert of_trial == MetricValues(3, {"train/loss": 0.5, "train/rate": 0.1})


def test_no_tracker_is_enabled_without_its_variables() -> None:
    assert enabled_trackers({}) == []
    assert enabled_trackers({"WANDB_MODE": "disabled", "WANDB_API_KEY": "k"}) == []


def test_tracker_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    absent = tuple(tracker._replace(package=f"no_such_{tracker.package}") for tracker in TRACKERS)
    monkeypatch.setattr(trackers, "TRACKERS", absent)
    assert enabled_trackers({"MLFLOW_TRACKING_URI": "x", "WANDB_MODE": "offline"}) == []
    assert "bertloom[no_such_mlflow]" in caplog.text
    assert "bertloom[no_such_wandb]" in caplog.text


def test_mlflow_has_curves_figures_settings_and_lineage_of_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client_module = pytest.importorskip("mlflow.tracking")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    train(tmp_path, LINES[:1], fails=True)
    client = client_module.MlflowClient((tmp_path / "mlruns").as_uri())
    place = client.get_experiment_by_name("tiny").experiment_id
    [run] = client.search_runs([place])
    assert run.info.status == "FAILED"
    assert train(tmp_path, LINES) == []  # it goes on, in the same run, and tells nothing twice
    [run] = client.search_runs([place])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "pretrain.phase-1")
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(one.step, one.value) for one in history] == [(10, 8.5), (20, 7.5)]
    assert run.data.metrics["held-out/perplexity"] == 1408.1
    assert run.data.metrics["final/dev/matthews"] == 0.25
    assert run.data.params["seed"] == "0"
    assert run.data.tags["bertloom.key"] == "ab" * 32
    assert run.data.tags["bertloom.input.instances"] == made().content
    assert run.data.tags["bertloom.artifact"]
    told = [path.read_text() for path in (tmp_path / "mlruns").rglob("*") if path.is_file()]
    assert not any("secret" in text for text in told)


class Fake:
    """A tracker that fails as often as it is told to."""

    def __init__(self, failures: int) -> None:
        self.failures, self.last_step = failures, -1
        self.told: list[MetricValues] = []
        self.ends: list[bool] = []

    def open_run(self, _step: TrackedStep) -> Fake:
        return self

    def log(self, values: list[MetricValues]) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no answer from http://me:secret@tracker.example")
        self.told += values

    def end(self, summary: Mapping[str, float], tags: Mapping[str, str], *, is_done: bool) -> None:
        self.ends.append(is_done)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake(failures=0)
    tracker = Tracker("Fake", "json", fake.open_run, lambda _: True)
    monkeypatch.setattr(trackers, "TRACKERS", (tracker,))
    return fake


def test_curve_is_sent_when_tracker_answers_again(
    fake: Fake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake.failures = 2
    (follower,) = followers(tmp_path)
    write(tmp_path, LINES)
    follower.flush()
    while fake.failures:
        threading.Event().wait(0.01)
    assert follower.finish(made()) == ""
    assert [one.step for one in fake.told] == [10, 20, 20]
    assert fake.ends == [True]
    (record,) = caplog.records
    assert "secret" not in record.getMessage()


def test_tracker_that_always_fails_is_reported_without_secrets(fake: Fake, tmp_path: Path) -> None:
    fake.failures = 10_000
    (text,) = train(tmp_path, LINES)
    assert "Fake" in text
    assert "3 lines of the curve not sent" in text
    assert "secret" not in text


def test_lines_that_a_resumed_training_writes_again_are_sent_once(
    fake: Fake, tmp_path: Path
) -> None:
    (follower,) = followers(tmp_path)
    for lines in (LINES, LINES[:1], LINES):  # a resumed training cuts the end of its curve
        write(tmp_path, lines)
        follower.flush()
    follower.finish(made())
    assert [one.step for one in fake.told] == [10, 20, 20]


def test_listener_sends_steps_that_are_built(
    fake: Fake, fakes: FakeStages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "STAGES", ("build-tokens",))
    recipe = fakes.recipe(str(tmp_path / "store"))
    run_recipe(recipe, listeners=[], engine="local")
    assert fake.ends == [True]
    run_recipe(recipe, listeners=[], engine="local")  # cached
    assert fake.ends == [True]
    fakes.module.FAULTS["tokens"] = [InputError("bad tokens")]
    with pytest.raises(InputError):
        run_recipe(recipe, listeners=[], engine="local", rebuild=["build-tokens"])
    assert fake.ends == [True, False]


@pytest.mark.slow
def test_weights_and_biases_has_a_run_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    assert train(tmp_path, LINES) == []
    [file] = tmp_path.rglob(f"*{'ab' * 16}.wandb")
    wanted_texts = (b"train/loss", b"held-out/perplexity", b"final/dev/matthews", b"bertloom.key")
    deadline = time.monotonic() + 30  # a process of its own writes it, in its own time
    while any(text not in file.read_bytes() for text in wanted_texts):
        assert time.monotonic() < deadline, file.read_bytes()[:500]
        time.sleep(0.1)
    told = file.read_bytes()
    host = socket.gethostname().encode()
    assert not re.search(rb"\b%s\b" % re.escape(host), told)
    assert b"secret" not in told
    assert str(Path.cwd()).encode() not in told
    assert not list(tmp_path.rglob("requirements.txt"))
