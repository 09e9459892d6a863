"""A step as a run of MLflow, found again by its cache key."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from flows.trackers.records import TrackedStep, TrackerRun, Values

_LONGEST = 500
"""Characters of a parameter or tag that every version of its servers takes."""

_MOST = {"metrics": 1000, "params": 100}
_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # else a server that is away is waited for 4 minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}


def open_run(step: TrackedStep) -> TrackerRun:
    """The run of a step in the experiment $MLFLOW_EXPERIMENT_NAME, or that of the recipe's name."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient  # start-up: 2 s, and it may not be installed

    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or step.recipe
    experiment = client.get_experiment_by_name(name)
    place = experiment.experiment_id if experiment else client.create_experiment(name)
    found = client.search_runs([place], filter_string=f"tags.`bertloom.key` = '{step.key}'")
    if found:
        return _MlflowRun(client, found[0].info.run_id, is_new=False)
    tags = {name: value[:_LONGEST] for name, value in step.tags.items()}
    run = client.create_run(place, run_name=step.label, tags=tags)
    opened = _MlflowRun(client, run.info.run_id, is_new=True)
    opened.log_params(step.params)
    return opened


class _MlflowRun:
    def __init__(self, client: Any, run_id: str, *, is_new: bool) -> None:
        self._client, self._id = client, run_id
        self.last_step = -1
        if not is_new:
            client.update_run(run_id, status="RUNNING")
            told = client.get_run(run_id).data.metrics
            names = [name for name in told if name.endswith("/loss")]
            steps = [one.step for name in names for one in client.get_metric_history(run_id, name)]
            self.last_step = max(steps, default=-1)

    def log_params(self, params: Mapping[str, str]) -> None:
        from mlflow.entities import Param  # start-up: it may not be installed

        found = [Param(_name(key), value[:_LONGEST]) for key, value in params.items()]
        for begin in range(0, len(found), _MOST["params"]):
            self._client.log_batch(self._id, params=found[begin : begin + _MOST["params"]])

    def log(self, values: list[Values]) -> None:
        from mlflow.entities import Metric  # start-up: it may not be installed

        now = int(time.time() * 1000)
        found = [
            Metric(_name(name), value, now, one.step)
            for one in values
            for name, value in one.numbers.items()
        ]
        for begin in range(0, len(found), _MOST["metrics"]):
            self._client.log_batch(self._id, metrics=found[begin : begin + _MOST["metrics"]])

    def end(self, summary: Mapping[str, float], tags: Mapping[str, str], *, is_done: bool) -> None:
        if summary:
            self.log([Values(0, {f"final/{name}": value for name, value in summary.items()})])
        for name, value in tags.items():
            self._client.set_tag(self._id, name, value[:_LONGEST])
        self._client.set_terminated(self._id, "FINISHED" if is_done else "FAILED")


def _name(text: str) -> str:
    """A name of the letters that MLflow takes."""
    return re.sub(r"[^\w\-./ ]", "_", text)
