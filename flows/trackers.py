"""Experiment trackers: send trainings and evaluations to MLflow and Weights & Biases.

A training writes its curve to a file; a thread of the run's process reads the file and sends new
lines. A tracker that fails or hangs cannot stop, slow down or change a training.
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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from flows.nested_values import flatten, numeric_leaves
from flows.run.events import Event, RunFinished, StepFailed, StepFinished, StepStarted
from model.processes.launcher import local_folder
from schemas.manifest import Manifest
from schemas.redaction import redact, redact_record

STAGES = ("pretrain", "finetune", "evaluate")
"""Stages that trackers get."""

_CURVES = ("curves/curves.jsonl", "curve.jsonl")
_READ_SECONDS = 2.0
_FINISH_SECONDS = 60.0
_MAX_CHARACTERS = 500
"""Length of a parameter or tag that every version of MLflow's server accepts."""

_MAX_METRICS, _MAX_PARAMS = 1000, 100
"""Number of metrics and parameters in one request to MLflow."""

_LOGGER = logging.getLogger(__name__)


class MetricValues(NamedTuple):
    """Metrics of one training step, by name such as `train/loss`."""

    step: int
    numbers: dict[str, float]


class TrackedStep(NamedTuple):
    """A step as trackers know it."""

    label: str
    recipe: str
    key: str
    """Cache key. A step that is resumed has the same key, and continues the tracker's run."""

    params: dict[str, str]
    tags: dict[str, str]


class TrackerRun(Protocol):
    """A run of a tracker. Its methods can raise anything."""

    last_step: int
    """Last training step that the tracker has, -1 for a new run."""

    def log(self, values: list[MetricValues]) -> None:
        """Send lines of a curve."""

    def end(self, summary: Mapping[str, float], tags: Mapping[str, str], *, is_done: bool) -> None:
        """Send the final metrics and end the run as finished or failed."""


class TrackerListener:
    """Listener that follows the curve of each step that is built, and sends its final metrics."""

    def __init__(self) -> None:
        """Follow nothing yet."""
        self._followers: dict[str, list[CurveFollower]] = {}

    def on_event(self, event: Event) -> None:
        """Start to follow a step, or send its end."""
        if isinstance(event, StepStarted) and event.step.stage.name in STAGES:
            folder = local_folder(event.work_folder) if event.work_folder else None
            self._followers[event.step.label] = [
                CurveFollower(tracker, tracked_step(event), folder=folder)
                for tracker in enabled_trackers()
            ]
        elif isinstance(event, StepFinished):
            for follower in self._followers.pop(event.step.label, ()):
                if error := follower.finish(event.result.manifest):
                    _LOGGER.warning("%s: %s", event.step.label, error)
        elif isinstance(event, StepFailed):
            self._cancel(event.step.label)
        elif isinstance(event, RunFinished):
            for label in list(self._followers):
                self._cancel(label)

    def _cancel(self, label: str) -> None:
        for follower in self._followers.pop(label, ()):
            follower.cancel()


def tracked_step(event: StepStarted) -> TrackedStep:
    """Return what is known of a step before it runs, without secrets."""
    step, run = event.step, event.run
    params = flatten(redact_record(step.config.model_dump(mode="json")), keep_empty=False)
    tags = {
        "bertloom.step": step.label,
        "bertloom.stage": step.stage.name,
        "bertloom.recipe": run.recipe.name,
        "bertloom.key": event.cache_key,
        "bertloom.run": run.run_id,
        **{f"bertloom.input.{name}": item.content for name, item in event.inputs.items()},
    }
    values = {name: str(value) for name, value in params.items()}
    return TrackedStep(step.label, run.recipe.name, event.cache_key, values, tags)


class CurveFollower:
    """A thread that reads the curve of one step and sends it to one tracker."""

    def __init__(self, tracker: Tracker, step: TrackedStep, *, folder: Path | None) -> None:
        """Start the thread.

        Args:
            tracker: Where to send the curve.
            step: The step.
            folder: Work folder of the training, None if it has none on this machine.
        """
        self._tracker, self._step, self._folder = tracker, step, folder
        self._unsent: list[MetricValues] = []
        self._seen: set[tuple[int, str]] = set()
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._end: tuple[dict[str, float], dict[str, str], bool] | None = None
        self._failures, self._error = 0, ""
        name = f"{tracker.package}-{step.label}"
        self._thread = threading.Thread(target=self._follow, name=name, daemon=True)
        self._thread.start()

    def flush(self) -> None:
        """Read what the training has written so far."""
        with self._lock:
            for name in _CURVES if self._folder is not None else ():
                try:
                    self._read((self._folder or Path()) / name)
                except (OSError, ValueError, KeyError) as error:
                    self._note(error)

    def finish(self, manifest: Manifest) -> str:
        """Send the final metrics; return what could not be sent, "" if everything was."""
        self.flush()
        tags = {"bertloom.artifact": manifest.artifact_id, "bertloom.content": manifest.content}
        self._stop((dict(_final_metrics(manifest.statistics)), tags, True))
        if not self._thread.is_alive() and not self._error:
            return ""
        error = self._error or f"no answer in {_FINISH_SECONDS:.0f} s"
        return (
            f"{self._tracker.name} did not get everything ({self._failures} requests failed, "
            f"{len(self._unsent):,} lines of the curve not sent): {error}. The training is complete"
        )

    def cancel(self) -> None:
        """Send what the failed step has written, and end the tracker's run as failed."""
        self.flush()
        self._stop(({}, {}, False))

    def _stop(self, end: tuple[dict[str, float], dict[str, str], bool]) -> None:
        self._end = end
        self._wake.set()
        self._thread.join(_FINISH_SECONDS)

    def _follow(self) -> None:
        run: TrackerRun | None = None
        is_last = False
        while not is_last:
            is_last = self._end is not None
            self.flush()
            try:
                run = run or self._tracker.open_run(self._step)
                self._send(run)
                if is_last and self._end is not None:
                    summary, tags, is_done = self._end
                    run.end(summary, tags, is_done=is_done)
                self._error = ""
            except Exception as error:  # trackers can raise anything
                self._note(error)
            if not is_last:
                self._wake.wait(_READ_SECONDS)

    def _send(self, run: TrackerRun) -> None:
        with self._lock:
            values = list(self._unsent)
        if new := [item for item in values if item.step > run.last_step]:
            run.log(new)
        with self._lock:
            del self._unsent[: len(values)]

    def _read(self, path: Path) -> None:
        """Take the complete lines that are new; a resumed training writes some of them again."""
        if not path.is_file():
            return
        data = path.read_bytes()
        for line in data[: data.rfind(b"\n") + 1].splitlines():
            values = metric_values(json.loads(line))
            identity = (values.step, next(iter(values.numbers), ""))
            if identity not in self._seen:
                self._seen.add(identity)
                self._unsent.append(values)

    def _note(self, error: Exception) -> None:
        self._failures += 1
        self._error = redact(f"{type(error).__name__}: {error}")
        if self._failures == 1:
            _LOGGER.warning(
                "%s: %s is not reachable (%s). The training continues; bertloom tries again",
                self._step.label,
                self._tracker.name,
                self._error,
            )


def metric_values(line: Mapping[str, Any]) -> MetricValues:
    """Return a line of a curve as metrics: `loss` of kind `train` is `train/loss`."""
    group = str(line.get("kind") or line.get("split") or "train")
    prefix = "held_out_" if group == "held-out" else ""
    numbers = {
        f"{group}/{name.removeprefix(prefix)}": float(value)
        for name, value in line.items()
        if name not in ("step", "kind", "split")
        and isinstance(value, int | float)
        and math.isfinite(value)
    }
    return MetricValues(int(line["step"]), numbers)


def _final_metrics(statistics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in numeric_leaves(statistics.get("held_out", {})).items():
        yield f"held-out/{name}", value
    for split, metrics in statistics.get("metrics", {}).items():
        for name, value in numeric_leaves(metrics).items():
            yield f"{split}/{name}", value


# MLflow


class MlflowRun:
    """A run of MLflow in the experiment $MLFLOW_EXPERIMENT_NAME, or that of the recipe's name."""

    def __init__(self, step: TrackedStep) -> None:
        """Open the run that has the step's cache key, or create one."""
        # MLflow would wait four minutes for a server that does not answer.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.tracking import MlflowClient  # an optional dependency

        self._client = client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or step.recipe
        experiment = client.get_experiment_by_name(name)
        id_ = experiment.experiment_id if experiment else client.create_experiment(name)
        runs = client.search_runs([id_], filter_string=f"tags.`bertloom.key` = '{step.key}'")
        self.last_step = -1
        if runs:
            self._id = runs[0].info.run_id
            client.update_run(self._id, status="RUNNING")
            names = [n for n in client.get_run(self._id).data.metrics if n.endswith("/loss")]
            history = [item for n in names for item in client.get_metric_history(self._id, n)]
            self.last_step = max((item.step for item in history), default=-1)
            return
        tags = {name: value[:_MAX_CHARACTERS] for name, value in step.tags.items()}
        self._id = client.create_run(id_, run_name=step.label, tags=tags).info.run_id
        self._log_params(step.params)

    def _log_params(self, params: Mapping[str, str]) -> None:
        from mlflow.entities import Param  # an optional dependency

        items = [Param(_mlflow_name(k), v[:_MAX_CHARACTERS]) for k, v in params.items()]
        for start in range(0, len(items), _MAX_PARAMS):
            self._client.log_batch(self._id, params=items[start : start + _MAX_PARAMS])

    def log(self, values: list[MetricValues]) -> None:
        """Send lines of a curve."""
        from mlflow.entities import Metric  # an optional dependency

        now = int(time.time() * 1000)
        items = [
            Metric(_mlflow_name(name), value, now, item.step)
            for item in values
            for name, value in item.numbers.items()
        ]
        for start in range(0, len(items), _MAX_METRICS):
            self._client.log_batch(self._id, metrics=items[start : start + _MAX_METRICS])

    def end(self, summary: Mapping[str, float], tags: Mapping[str, str], *, is_done: bool) -> None:
        """Send the final metrics and end the run."""
        if summary:
            self.log([MetricValues(0, {f"final/{name}": v for name, v in summary.items()})])
        for name, value in tags.items():
            self._client.set_tag(self._id, name, value[:_MAX_CHARACTERS])
        self._client.set_terminated(self._id, "FINISHED" if is_done else "FAILED")


def _mlflow_name(name: str) -> str:
    """Return a name of the characters that MLflow accepts."""
    return re.sub(r"[^\w\-. /]", "_", name)


# Weights & Biases


class WandbRun:
    """A run of Weights & Biases in the project $WANDB_PROJECT, or that of the recipe's name."""

    def __init__(self, step: TrackedStep) -> None:
        """Open the run whose id is the step's cache key, or create one."""
        import wandb  # an optional dependency

        # Send nothing about this machine: no console, code, load, host name or packages.
        settings = wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True,
            x_disable_meta=True, x_disable_machine_info=True, x_save_requirements=False,
            init_timeout=20.0, host="unsaid", username="unsaid",
        )  # fmt: skip
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or step.recipe,
            group=step.recipe,
            id=step.key[:32],
            name=step.label,
            resume="allow",
            reinit="create_new",
            config={**step.params, **step.tags},
            settings=settings,
        )
        self.last_step = int(self._run.step or 0) - 1 if self._run.resumed else -1

    def log(self, values: list[MetricValues]) -> None:
        """Send lines of a curve."""
        for item in values:
            self._run.log(item.numbers, step=item.step)

    def end(self, summary: Mapping[str, float], tags: Mapping[str, str], *, is_done: bool) -> None:
        """Send the final metrics and end the run."""
        self._run.summary.update({f"final/{name}": value for name, value in summary.items()})
        self._run.config.update(dict(tags), allow_val_change=True)
        self._run.finish(exit_code=0 if is_done else 1)


# Which trackers are used


class Tracker(NamedTuple):
    """A kind of tracker."""

    name: str
    package: str
    """Package to import, and extra of bertloom that installs it."""

    open_run: Callable[[TrackedStep], TrackerRun]
    is_enabled: Callable[[Mapping[str, str]], bool]
    """Takes the environment variables."""


TRACKERS = (
    Tracker("MLflow", "mlflow", MlflowRun, lambda env: bool(env.get("MLFLOW_TRACKING_URI"))),
    Tracker(
        "Weights & Biases",
        "wandb",
        WandbRun,
        lambda env: (
            env.get("WANDB_MODE", "") != "disabled"
            and bool(env.get("WANDB_API_KEY") or env.get("WANDB_MODE") == "offline")
        ),
    ),
)


def enabled_trackers(environment: Mapping[str, str] | None = None) -> list[Tracker]:
    """Return the trackers whose environment variables are set and whose packages are installed."""
    env = os.environ if environment is None else environment
    requested = [tracker for tracker in TRACKERS if tracker.is_enabled(env)]
    installed = [t for t in requested if importlib.util.find_spec(t.package) is not None]
    for tracker in requested:
        if tracker not in installed:
            _LOGGER.warning(
                "%s is configured but not installed: pip install 'bertloom[%s]'",
                tracker.name,
                tracker.package,
            )
    return installed
