"""A step as a run of Weights & Biases, whose id is its cache key's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from flows.trackers.records import TrackedStep, TrackerRun, Values


def open_run(step: TrackedStep) -> TrackerRun:
    """The run of a step in the project $WANDB_PROJECT, or that of the recipe's name."""
    import wandb  # start-up: 3 s, and it may not be installed

    # Nothing of this machine is told: neither its console nor its code, load, host or packages.
    quiet = wandb.Settings(
        console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True,
        x_disable_meta=True, x_disable_machine_info=True, x_save_requirements=False,
        init_timeout=20.0, host="unsaid", username="unsaid",
    )  # fmt: skip
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT") or step.recipe,
        group=step.recipe,
        id=step.key[:32],
        name=step.label,
        resume="allow",
        reinit="create_new",
        config={**step.params, **step.tags},
        settings=quiet,
    )
    return _WandbRun(run)


class _WandbRun:
    def __init__(self, run: Any) -> None:
        self._run = run
        self.last_step = int(run.step or 0) - 1 if run.resumed else -1

    def log(self, values: list[Values]) -> None:
        for one in values:
            self._run.log(one.numbers, step=one.step)

    def end(self, summary: Mapping[str, float], tags: Mapping[str, str], *, is_done: bool) -> None:
        self._run.summary.update({f"final/{name}": value for name, value in summary.items()})
        self._run.config.update(dict(tags), allow_val_change=True)
        self._run.finish(exit_code=0 if is_done else 1)
