"""One job on Google Cloud Dataflow: submitted, followed to its end, cancelled.

a job of the same name runs already  ->  attach: wait for its end
else                                 ->  package our code, submit
the run is stopped                   ->  cancel, or leave it (`detach`)
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.io.temporary_folders import temporary_folder
from pipelines.progress import current_progress
from pipelines.runners.causes import root_cause
from pipelines.runners.dataflow_api import DONE, OVER, DataflowApi
from pipelines.runners.launch import Launch
from pipelines.runners.submission import Submission, SubmittedJob
from pipelines.runners.worker_package import file_system_packages, write_worker_package
from schemas.errors import BertloomError, RunnerError

ROWS = "rows"
"""The counter of the rows that workers have written."""

_FIRST_LOOK_SECONDS = 0.5
_LOOK_SECONDS = 10.0
_GONE_LOOKS = 30
"""So many times in a row Dataflow may not answer before its job is left to it."""

_MESSAGE_LOOKS = 30
"""Looks for the message of a job that failed: it may take half a minute."""

_LOGGER = logging.getLogger(__name__)

# It warns of every wheel that it stages; ours has nothing compiled in it.
logging.getLogger("apache_beam.runners.portability.stager").setLevel(logging.ERROR)


def run_on_dataflow(
    job: str, build: Callable[[beam.Pipeline], None], *, launch: Launch, submission: Submission
) -> None:
    """Submit a job and follow it to its end.

    Args:
        job: what people call it, for errors.
        build: adds it to a pipeline.
        launch: how.
        submission: the step it is for.

    Raises:
        RunnerError: it failed or could not be submitted; says the cause.
    """
    api = DataflowApi(launch.flags)
    with temporary_folder("package") as folder:
        flags = [*launch.flags, f"--job_name={submission.name}"]
        if launch.packs_code:
            wanted = file_system_packages(submission.places)
            flags.append(
                f"--extra_package={write_worker_package(Path(folder), file_systems=wanted)}"
            )
        with _cancelled_when_stopped(api, submission):
            result = _submitted(job, build, flags=flags)
            told = SubmittedJob(
                submission.name, "dataflow", result.job_id(), api.url(result.job_id())
            )
            submission.told(told)
            state = _followed(api, told.id, submission)
    with _not_needed(told.name):
        submission.ended(told, api.paid(told.id))
    if state not in DONE:
        raise RunnerError(f"{job}: {_why(api, told.id, state, submission)}")


def _submitted(job: str, build: Callable[[beam.Pipeline], None], *, flags: list[str]) -> Any:
    options = PipelineOptions(flags)
    try:
        pipeline = beam.Pipeline(runner="DataflowRunner", options=options)
        build(pipeline)
        return pipeline.run()
    except BertloomError:
        raise
    except Exception as error:  # whatever Beam and Google's clients raise
        told = getattr(error, "message", None) or str(error)
        raise RunnerError(
            f"{job}: could not be submitted to Dataflow: {root_cause(str(told)) or repr(error)}"
        ) from error


# Following


def _followed(api: DataflowApi, job: str, submission: Submission) -> str:
    """The state that a job has ended in."""
    missed, seconds = 0, _FIRST_LOOK_SECONDS
    while True:
        try:
            state = api.state(job)
            missed = 0
        except RunnerError as error:
            missed += 1
            if missed >= _GONE_LOOKS:
                raise RunnerError(f"{error}; job {job} may still run") from error
            state = ""
        if state:
            with _not_needed(job):
                rows = int(api.counters(job).get(ROWS, 0))
                if progress := current_progress():
                    progress.rows = rows
        if state in OVER:
            return state
        submission.pause(seconds)
        seconds = min(2 * seconds, _LOOK_SECONDS)


@contextlib.contextmanager
def _not_needed(job: str) -> Iterator[None]:
    """What a job's counters say is for people: without it the job goes on."""
    try:
        yield
    except RunnerError as error:
        _LOGGER.debug("%s: %s", job, error)


def _why(api: DataflowApi, job: str, state: str, submission: Submission) -> str:
    named = state.removeprefix("JOB_STATE_").lower()
    if state == "JOB_STATE_FAILED":
        for _ in range(_MESSAGE_LOOKS):
            if found := api.why(job):
                return f"{found} (job {job} on Dataflow)"
            submission.pause(1.0)
    return f"job {job} ended as {named} on Dataflow, not by this run: {api.url(job)}"


# Cancelling


@contextlib.contextmanager
def _cancelled_when_stopped(api: DataflowApi, submission: Submission) -> Iterator[None]:
    """Cancel the job where a signal or a stopped run ends the block, if it is not left alone."""
    try:
        yield
    except BaseException as error:
        is_stopped = submission.stopping.is_set() or not isinstance(error, Exception)
        if is_stopped and submission.detach:
            submission.say(f"{submission.name} is left to Dataflow; run again to attach to it")
        elif is_stopped:
            try:
                for job in api.running(submission.name):
                    api.cancel(job.id)
            except RunnerError as failed:
                _LOGGER.warning("%s may still run: %s", submission.name, failed)
        raise


# Attaching


def wait_for_earlier_on_dataflow(launch: Launch, submission: Submission) -> bool:
    """Wait for the end of a job of the same name that an earlier run submitted.

    Returns:
        Whether there was one. What it finished is found in its pieces.

    Raises:
        RunnerError: Dataflow does not answer, or the run is to end.
    """
    api = DataflowApi(launch.flags)
    found = api.running(submission.name)
    with _cancelled_when_stopped(api, submission):
        for job in found:
            told = SubmittedJob(submission.name, "dataflow", job.id, api.url(job.id), attached=True)
            submission.told(told)
            state = _followed(api, job.id, submission)
            with _not_needed(job.name):
                submission.ended(told, api.paid(job.id))
            if state not in DONE:
                why = _why(api, job.id, state, submission)
                submission.say(f"{job.name}: the job of an earlier run failed: {why}")
    return bool(found)
