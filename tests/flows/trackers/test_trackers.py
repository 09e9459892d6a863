"""Trackers: what they are told of a training, and that they cannot harm it."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.store_builder import prepared

from flows.store.artifacts import ArtifactStore
from flows.trackers import tracking
from flows.trackers.records import TrackedStep, Values, tracked_step, values_of
from flows.trackers.tracking import TRACKERS, Tracker, tracked, wanted
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
    monkeypatch.setattr(tracking, "_LOOK_SECONDS", 0.01)
    yield
    assert not [one for one in threading.enumerate() if one.name.endswith("-pretrain.phase-1")]


def step() -> TrackedStep:
    config = {"seed": 0, "init_checkpoint": "https://me:secret@models.example/bert"}
    return tracked_step(
        "pretrain.phase-1", recipe="tiny", stage="pretrain", key="ab" * 32, config=config,
        inputs={"instances": made()}, run_id="run-1",
    )  # fmt: skip


def made() -> Manifest:
    statistics = {"held_out": {"perplexity": 1408.1}, "metrics": {"dev": {"matthews": 0.25}}}
    return prepared(ArtifactStore("memory://trackers"), statistics=statistics)


def write(folder: Path, lines: list[dict[str, Any]]) -> None:
    (folder / "curves").mkdir(exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "curves" / "curves.jsonl").write_text(text)


def train(folder: Path, lines: list[dict[str, Any]], *, fails: bool = False) -> list[str]:
    """A training that writes those lines; what could not be told."""
    with tracked("pretrain", step, work=str(folder)) as found:
        write(folder, lines)
        if fails:
            raise KeyboardInterrupt
        found.read_to_the_end()
        return found.finish(made())


def test_a_line_is_told_by_group_and_name() -> None:
    assert values_of(LINES[0]) == Values(10, {"train/tokens": 100, "train/loss": 8.5})
    assert values_of(LINES[2]).numbers == {"held-out/mlm_loss": 7.25, "held-out/perplexity": 1408.1}
    of_trial = values_of({"step": 3, "split": "train", "loss": 0.5, "rate": 0.1})
    assert of_trial == Values(3, {"train/loss": 0.5, "train/rate": 0.1})


def test_nothing_is_followed_where_nobody_asks(tmp_path: Path) -> None:
    assert wanted({}) == []
    assert wanted({"WANDB_MODE": "disabled", "WANDB_API_KEY": "k"}) == []
    before = threading.active_count()
    with tracked("pretrain", step, work=str(tmp_path)) as found:
        assert threading.active_count() == before
        assert found.finish(made()) == []


def test_what_is_asked_for_and_not_installed_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    absent = [one._replace(package=f"no_such_{one.package}") for one in TRACKERS]
    monkeypatch.setattr(tracking, "TRACKERS", tuple(absent))
    tracking._say_missing.cache_clear()
    asked = {"MLFLOW_TRACKING_URI": "x", "WANDB_MODE": "offline"}
    with caplog.at_level(logging.WARNING):
        assert wanted(asked) == wanted(asked) == []
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        "pip install 'bertloom[mlflow]'",
        "pip install 'bertloom[wandb]'",
    ]


def test_mlflow_has_curves_figures_settings_and_lineage_of_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client_module = pytest.importorskip("mlflow.tracking")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    with pytest.raises(KeyboardInterrupt):
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
        self.told: list[Values] = []
        self.ends: list[bool] = []

    def open_run(self, _step: TrackedStep) -> Fake:
        return self

    def log(self, values: list[Values]) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no answer from http://me:secret@tracker.example")
        self.told += values

    def end(self, summary: Mapping[str, float], tags: Mapping[str, str], *, is_done: bool) -> None:
        self.ends.append(is_done)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    found = Fake(failures=0)
    asked = Tracker("Fake", "json", "fake", "fake", lambda _: True, "FAKE")
    monkeypatch.setattr(tracking, "TRACKERS", (asked,))
    monkeypatch.setattr(tracking.importlib, "import_module", lambda _: found)
    return found


def test_a_tracker_that_fails_for_a_while_is_told_later(
    fake: Fake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake.failures = 2
    with tracked("pretrain", step, work=str(tmp_path)) as found:
        write(tmp_path, LINES)
        found.read_to_the_end()
        while fake.failures:
            threading.Event().wait(0.01)
        assert found.finish(made()) == []
    assert [one.step for one in fake.told] == [10, 20, 20]
    assert fake.ends == [True]
    [said] = [record.getMessage() for record in caplog.records]
    assert "the training goes on" in said
    assert "secret" not in said


def test_a_tracker_that_always_fails_is_said_and_changes_nothing(
    fake: Fake, tmp_path: Path
) -> None:
    fake.failures = 10_000
    [text] = train(tmp_path, LINES)
    assert text.startswith("Fake was not told all of it")
    assert "3 lines of the curve left" in text
    assert "secret" not in text


def test_a_curve_that_is_cut_and_written_again_is_told_once(fake: Fake, tmp_path: Path) -> None:
    with tracked("pretrain", step, work=str(tmp_path)) as found:
        write(tmp_path, LINES)
        found.read_to_the_end()
        write(tmp_path, LINES[:1])  # a run that goes on cuts what came after its checkpoint
        found.read_to_the_end()
        write(tmp_path, LINES)
        found.read_to_the_end()
        found.finish(made())
    assert [one.step for one in fake.told] == [10, 20, 20]


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
