"""Base of the runners whose jobs run on an engine elsewhere and may outlive the run.

    a job of the same name is running  ->  cancel it, wait for its end
    submit the job, follow it
    the run is stopped                 ->  cancel it

A subclass finds, submits, polls and cancels the jobs of one engine.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from pipelines.runners.job_context import Submission, SubmittedJob, current_submission
from pipelines.runners.runner import BuildPipeline, Runner
from schemas.errors import BertloomError, ConfigError, RunnerError, raise_all
from schemas.execution_configs import ExecutionConfig

POLL_SECONDS = 0.5
_TERMINAL_STATES = frozenset({"DONE", "DRAINED", "FAILED", "CANCELLED", "UPDATED"})
SUCCESS_STATES = frozenset({"DONE", "DRAINED"})
_MAX_SHOWN = 3
_LOGGER = logging.getLogger(__name__)


class EngineUnreachableError(RunnerError):
    """An engine does not answer, or not as one."""


class EngineJob(Protocol):
    """A job that an engine has accepted."""

    submitted: SubmittedJob
    """Description of the job, complete at its end."""

    def poll(self) -> str:
        """Return Beam's name of the job's state, such as `RUNNING`.

        Raises:
            EngineUnreachableError: The engine does not answer.
            RunnerError: The engine lost the job.
        """

    def cancel(self) -> None:
        """Cancel the job, if `EngineRunner.cancel` may not find it. Default: nothing."""
        return

    def failure_reason(self, state: str) -> str:
        """Return why the job ended in a state other than `SUCCESS_STATES`."""


class EngineRunner(Runner, Protocol):
    """Runner whose jobs run on an engine elsewhere."""

    beam_runner: str
    """Class of Beam's runner."""

    can_share_disk: bool = True
    """True if `execution.shared_filesystem` makes local paths reachable."""

    is_here: bool = False
    """True if all workers are on this machine."""

    max_poll_seconds: float = POLL_SECONDS
    max_silent_seconds: float = 30.0
    """Seconds without an answer after which an engine is unavailable."""

    _execution: ExecutionConfig

    def __init__(self, execution: ExecutionConfig) -> None:
        self._execution = execution

    # Implemented by each engine

    def problems(self, urls: Sequence[str]) -> Iterator[BertloomError | None]:
        """Yield the result of each preflight check."""

    def describe_job(self, urls: Sequence[str]) -> Iterator[str]:
        """Yield the options of a job that are not in `flags`, and what is started, as lines."""

    def find_jobs(self, name: str) -> list[SubmittedJob]:
        """Return the unfinished jobs with a name.

        Raises:
            RunnerError: The engine does not answer.
        """

    def cancel(self, job_id: str) -> None:
        """Cancel a job.

        Raises:
            RunnerError: The engine does not answer.
        """

    def job_flags(
        self, submission: Submission, num_elements: int
    ) -> contextlib.AbstractContextManager[list[str]]:
        """Prepare a job, and return its options in addition to `flags`."""

    def submit(self, job: str, build: BuildPipeline, *, flags: list[str]) -> EngineJob:
        """Submit a job. See `Runner.run`."""

    # Jobs

    def cancel_earlier_jobs(self, job: str) -> None:
        submission = current_submission(job)
        if not (earlier_jobs := self.find_jobs(submission.name)):
            return
        for earlier in earlier_jobs:
            submission.log(f"{earlier.name}: canceling job {earlier.id}, left by an earlier run")
            self.cancel(earlier.id)
        self.wait_until_over(submission)

    def run(self, job: str, build: BuildPipeline, *, num_elements: int = 1) -> None:
        submission, state = current_submission(job), ""
        with self.job_flags(submission, num_elements) as own:
            flags = [*self.flags, *own, f"--job_name={submission.name}"]
            with self._cancelled_when_stopped(submission) as cancels:
                submitted = self.submit(job, build, flags=flags)
                # An engine may get a job after it was asked, and a job service may give up on one.
                cancels.insert(1, submitted.cancel)

                def has_ended() -> bool:
                    nonlocal state
                    state = submitted.poll()
                    return state in _TERMINAL_STATES

                self._wait_until(has_ended, submission)
                if state not in SUCCESS_STATES:
                    raise RunnerError(f"{job}: {submitted.failure_reason(state)}")

    def cancel_all(self, submission: Submission) -> None:
        """Cancel the jobs of a step."""
        for job in self.find_jobs(submission.name):
            self.cancel(job.id)

    def wait_until_over(self, submission: Submission) -> None:
        """Wait until a step has no unfinished job."""
        self._wait_until(lambda: not self.find_jobs(submission.name), submission)

    def _wait_until(self, has_ended: Callable[[], bool], submission: Submission) -> None:
        seconds, last_answer = POLL_SECONDS, time.monotonic()
        while True:
            try:
                if has_ended():
                    return
                last_answer = time.monotonic()
            except EngineUnreachableError as error:
                silent = time.monotonic() - last_answer
                if silent > self.max_silent_seconds:
                    raise RunnerError(
                        f"{submission.name}: no answer for {silent:.0f} s: {error}. The job may "
                        "still run"
                    ) from error
            submission.sleep(seconds)
            seconds = min(2 * seconds, self.max_poll_seconds)

    @contextlib.contextmanager
    def _cancelled_when_stopped(
        self, submission: Submission
    ) -> Iterator[list[Callable[[], object]]]:
        """Cancel jobs if a signal or a stopped run ends the block.

        Yields:
            Functions that cancel jobs, to which the block can add others.
        """
        cancel_all = functools.partial(self.cancel_all, submission)
        cancels: list[Callable[[], object]] = [cancel_all, cancel_all]
        try:
            yield cancels
        except BaseException as error:
            if submission.stop_event.is_set() or not isinstance(error, Exception):
                for cancel in cancels:
                    try:
                        cancel()
                    except RunnerError as failure:
                        _LOGGER.warning("%s may still run: %s", submission.name, failure)
            raise

    # Before a run

    def preflight(self, *, store: str, inputs: Sequence[str]) -> None:
        self._check_reachable(store, inputs)
        raise_all(self.problems([store, *inputs]))

    def _check_reachable(self, store: str, inputs: Sequence[str]) -> None:
        """Raise ConfigError if workers in other processes cannot open the store or the input."""
        self.check_store(store)
        local = [f"store {store}"] if is_local_url(store) else []
        local += [f"input {path}" for path in inputs if is_local_url(path)]
        is_shared = self.can_share_disk and self._execution.shared_filesystem
        if not local or self.is_here or is_shared:
            return
        more = f", and {len(local) - _MAX_SHOWN} more" if len(local) > _MAX_SHOWN else ""
        shared = "; or set execution.shared_filesystem=true if every machine has the same folder"
        remedy = f"Use a bucket (s3://, gs://){shared if self.can_share_disk else ''}"
        raise ConfigError(
            f"{', '.join(local[:_MAX_SHOWN])}{more}: on this machine's disk, which the workers of "
            f"runner {self.name!r} cannot read. {remedy}"
        )

    def describe(self, urls: Sequence[str]) -> list[str]:
        lines = [f"runner {self.name}: Beam's {self.beam_runner}"]
        lines += [f"  {flag}" for flag in self.flags]
        with contextlib.suppress(BertloomError):  # a problem, listed below
            lines += self.describe_job(urls)
        missing = [error for error in self.problems(urls) if error is not None]
        return lines + [f"missing: {error}" for error in missing]


def is_local_url(url: str) -> bool:
    """Return whether a URL is on this machine's disk."""
    return "://" not in url or urllib.parse.urlsplit(url).scheme in ("file", "local")


def error_of(check: Callable[[], Any]) -> BertloomError | None:
    """Return the error of a check; None if it passes."""
    try:
        check()
    except BertloomError as error:
        return error
    return None
