"""A job that an earlier run submitted, and that its engine still works on."""

from __future__ import annotations

from pipelines.runners.dataflow import DATAFLOW_RUNNER
from pipelines.runners.launch import Launch
from pipelines.runners.submission import current_submission


def wait_for_earlier_job(job: str, launch: Launch) -> None:
    """Wait for its end, where there is one of this job's name: its work is not paid twice.

    What it finished is restored from its pieces then, by this run's own job.
    """
    if launch.runner == DATAFLOW_RUNNER:
        from pipelines.runners.dataflow_jobs import (
            wait_for_earlier_on_dataflow,  # start-up: 2 s, Beam's
        )

        wait_for_earlier_on_dataflow(launch, current_submission(job))
    if launch.engine is None:
        return
    from pipelines.runners.portable_jobs import wait_for_earlier  # start-up: 2 s, Beam's

    wait_for_earlier(launch.engine, current_submission(job))
