"""Experiment trackers: send trainings and evaluations to MLflow and Weights & Biases.

A training writes its curve to a file. A thread of the run's process reads the file and sends new
lines, so no step waits for a tracker. Only the end of a run waits, for at most 10 seconds, until
the trackers have everything.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from flows.nested_values import flatten, numeric_leaves
from flows.run.events import Event, RunFinished, StepFailed, StepFinished, StepStarted
from model.training.workers import local_folder
from schemas.manifest import Manifest
from schemas.redaction import redact, redact_record

_STAGES = ("pretrain", "finetune", "evaluate")
_CURVES = ("curves/curves.jsonl", "curve.jsonl")
_READ_SECONDS, _FINISH_SECONDS = 2.0, 10.0
_LOGGER = logging.getLogger(__name__)


class TrackerRun(Protocol):
    """Run of a tracker. A resumed step continues the run that has its cache key."""

    last_step: int
    """Last training step that the tracker has, -1 for a new run."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of a training step. Can raise anything, as `end` can."""

    def end(self, manifest: Manifest | None) -> None:
        """Send the final metrics; end the run as finished, or as failed without a manifest."""


Tracker = Callable[[StepStarted], TrackerRun]
"""Opens the run of a step. Can raise anything."""


class TrackerListener:
    """Listener that follows the curve of each step that is built, and sends its final metrics."""

    def __init__(self, trackers: Sequence[Tracker] | None = None) -> None:
        """Follow nothing yet. Default of `trackers`: those that environment variables enable."""
        self._trackers = enabled_trackers() if trackers is None else trackers
        self._followers: dict[str, list[CurveFollower]] = {}
        self._ended: list[CurveFollower] = []

    def on_event(self, event: Event) -> None:
        """Start to follow a step, or let its end be sent; wait for all at the end of the run."""
        match event:
            case StepStarted(step=step) if step.stage.name in _STAGES:
                self._followers[step.label] = [
                    CurveFollower(tracker, event, after=self._ended) for tracker in self._trackers
                ]
            case StepFinished(step=step):
                self._end(step.label, event.result.manifest)
            case StepFailed(step=step):
                self._end(step.label)
            case RunFinished():
                for label in list(self._followers):
                    self._end(label)
                deadline = time.monotonic() + _FINISH_SECONDS
                for follower in self._ended:
                    follower.wait(deadline)
                self._ended.clear()

    def _end(self, label: str, manifest: Manifest | None = None) -> None:
        for follower in self._followers.pop(label, ()):
            follower.end(manifest)
            self._ended.append(follower)


class CurveFollower:
    """Thread that reads the curve of one step and sends it to one tracker."""

    def __init__(
        self, tracker: Tracker, event: StepStarted, *, after: Sequence[CurveFollower] = ()
    ) -> None:
        """Start the thread. It first waits for those `after` that follow an earlier try."""
        self._tracker, self._event = tracker, event
        folder = local_folder(event.work_folder) if event.work_folder else None
        self._files = [folder / name for name in _CURVES] if folder is not None else []
        self._sent: set[tuple[int, str]] = set()
        self._manifest: Manifest | None = None
        self._is_ended, self._error = threading.Event(), ""
        self._name = f"{event.step.label}: {tracker.__name__}"
        self._thread = threading.Thread(target=self._follow, name=self._name, daemon=True)
        self._earlier = [follower._thread for follower in after if follower._name == self._name]
        self._thread.start()

    def end(self, manifest: Manifest | None) -> None:
        """Let the thread send the rest and end; there is no manifest if the step failed."""
        self._manifest = manifest
        self._is_ended.set()

    def wait(self, deadline: float) -> None:
        """Wait for the thread until a time of the monotonic clock; log what the tracker lacks."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive() or self._error:
            error = self._error or f"no answer in {_FINISH_SECONDS:g} s"
            _LOGGER.warning("%s did not get all metrics: %s", self._name, error)

    def _follow(self) -> None:
        run: TrackerRun | None = None
        is_last = False
        for thread in self._earlier:
            thread.join()
        while not is_last:
            is_last = self._is_ended.wait(_READ_SECONDS)
            try:
                run = run or self._tracker(self._event)
                self._send_curve(run)
                if is_last:
                    run.end(self._manifest)
                self._error = ""
            except Exception as error:
                if not self._error:
                    _LOGGER.warning("%s failed; bertloom tries again", self._name)
                self._error = redact(f"{type(error).__name__}: {error}")

    def _send_curve(self, run: TrackerRun) -> None:
        """Send the complete lines that are new. A resumed training writes some of them again."""
        for path in filter(Path.is_file, self._files):
            data = path.read_bytes()
            for line in data[: data.rfind(b"\n") + 1].splitlines():
                step, metrics = read_point(json.loads(line))
                key = (step, next(iter(metrics), ""))
                if key not in self._sent and step > run.last_step:
                    run.log(step, metrics)
                    self._sent.add(key)


def read_point(line: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
    """Return step and metrics of a line of a curve: `loss` of kind `train` is `train/loss`."""
    group = str(line.get("kind") or line.get("split") or "train")
    metrics = {
        f"{group}/{name.removeprefix('held_out_')}": float(value)
        for name, value in line.items()
        if name != "step" and isinstance(value, int | float) and math.isfinite(value)
    }
    return int(line["step"]), metrics


def _params(event: StepStarted) -> dict[str, str]:
    """Return the configuration of a step, flattened and without secrets."""
    values = flatten(redact_record(event.step.config.model_dump(mode="json")))
    return {name: str(value) for name, value in values.items()}


def _tags(event: StepStarted) -> dict[str, str]:
    """Return what identifies a step and its inputs."""
    return {
        "bertloom.step": event.step.label,
        "bertloom.recipe": event.run.recipe.name,
        "bertloom.key": event.cache_key,
        "bertloom.run": event.run.run_id,
        **{f"bertloom.input.{name}": item.content_digest for name, item in event.inputs.items()},
    }


def _final_metrics(manifest: Manifest) -> dict[str, float]:
    """Return the held-out metrics of a pretraining, and the scores of every split."""
    held_out, scores = (manifest.statistics.get(name, {}) for name in ("held_out", "metrics"))
    leaves = numeric_leaves({"held-out": held_out, **scores})
    return {f"final/{name.replace('.', '/', 1)}": value for name, value in leaves.items()}


def enabled_trackers() -> list[Tracker]:
    """Return the trackers whose environment variables are set and whose packages are installed."""
    trackers: list[Tracker] = []
    mode, key = os.environ.get("WANDB_MODE"), os.environ.get("WANDB_API_KEY")
    for package, tracker, is_enabled in (
        ("mlflow", MLflow, os.environ.get("MLFLOW_TRACKING_URI")),
        ("wandb", WeightsAndBiases, mode == "offline" or (key and mode != "disabled")),
    ):
        if is_enabled and importlib.util.find_spec(package) is None:
            _LOGGER.warning("%s is not installed: pip install 'bertloom[%s]'", package, package)
        elif is_enabled:
            trackers.append(tracker)
    return trackers


class MLflow:
    """Run in the experiment $MLFLOW_EXPERIMENT_NAME, or that of the recipe's name."""

    def __init__(self, event: StepStarted) -> None:
        """Open the run that has the cache key, or create one."""
        # By default MLflow waits four minutes for a server that does not answer.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.entities import Metric, Param  # an optional dependency
        from mlflow.tracking import MlflowClient

        self._metric, self._client = Metric, MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or event.run.recipe.name
        experiment = self._client.get_experiment_by_name(name)
        id_ = experiment.experiment_id if experiment else self._client.create_experiment(name)
        runs = self._client.search_runs([id_], f"tags.`bertloom.key` = '{event.cache_key}'")
        self.last_step = -1
        if runs:
            self._id = runs[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            for name in filter(lambda name: name.endswith("/loss"), runs[0].data.metrics):
                history = self._client.get_metric_history(self._id, name)
                self.last_step = max(self.last_step, *(item.step for item in history))
            return
        run = self._client.create_run(id_, None, _tags(event), event.step.label)
        self._id = run.info.run_id
        params = [Param(_mlflow_name(name), value) for name, value in _params(event).items()]
        self._client.log_batch(self._id, params=params)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of a training step."""
        now = int(time.time() * 1000)
        items = [self._metric(_mlflow_name(k), v, now, step) for k, v in metrics.items()]
        self._client.log_batch(self._id, metrics=items)

    def end(self, manifest: Manifest | None) -> None:
        """Send the final metrics and end the run."""
        if manifest is not None:
            self.log(0, _final_metrics(manifest))
            self._client.set_tag(self._id, "bertloom.artifact", manifest.artifact_id)
        self._client.set_terminated(self._id, "FINISHED" if manifest else "FAILED")


def _mlflow_name(name: str) -> str:
    """Return a name of the characters that MLflow accepts."""
    return re.sub(r"[^\w\-. /]", "_", name)


class WeightsAndBiases:
    """Run in the project $WANDB_PROJECT, or that of the recipe's name."""

    def __init__(self, event: StepStarted) -> None:
        """Open the run whose id is the cache key, or create one."""
        import wandb  # an optional dependency

        # Send nothing about this machine: no console, code, load, host name or packages.
        settings = wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True,
            x_disable_meta=True, x_disable_machine_info=True, x_save_requirements=False,
            init_timeout=20.0, host="hidden", username="hidden",
        )  # fmt: skip
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or event.run.recipe.name,
            group=event.run.recipe.name,
            id=event.cache_key[:32],
            name=event.step.label,
            resume="allow",
            reinit="create_new",
            config={**_params(event), **_tags(event)},
            settings=settings,
        )
        self.last_step = int(self._run.step or 0) - 1 if self._run.resumed else -1

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of a training step."""
        self._run.log(dict(metrics), step=step)

    def end(self, manifest: Manifest | None) -> None:
        """Send the final metrics and end the run."""
        if manifest is not None:
            self._run.summary.update(_final_metrics(manifest))
            artifact = {"bertloom.artifact": manifest.artifact_id}
            self._run.config.update(artifact, allow_val_change=True)
        self._run.finish(exit_code=0 if manifest else 1)
