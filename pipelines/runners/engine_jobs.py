"""Jobs on an engine behind a job service: submit, follow, cancel.

    a job of the same name is running  ->  attach: wait for its end
    otherwise                          ->  start a job server, wait for slots, submit
    the run is stopped                 ->  cancel, or leave it running (`detach`)

The job service reports the state of a job. The REST interface of a Flink cluster also reports that
it lost the job, or that the job waits for slots.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability import portable_runner

from pipelines.runners.clusters import ClusterJob, ClusterUnreachableError
from pipelines.runners.job_context import (
    Submission,
    SubmittedJob,
    cancelled_when_stopped,
    current_submission,
    root_cause,
)
from pipelines.runners.job_server import JobServer, get_job_server
from pipelines.runners.runner import BuildPipeline
from schemas.errors import RunnerError

if TYPE_CHECKING:
    from pipelines.runners.portable import PortableRunner

_CALL_SECONDS = 10.0
_POLL_SECONDS = 0.5
_MAX_SILENT_SECONDS = 30.0
"""Seconds without an answer after which a job service or cluster is unavailable."""

_SLOT_SECONDS = (20.0, 60.0)
"""Range of the seconds that a job waits for slots before it starts again with the free ones. Of two
jobs that wait for each other's slots, one does so before the other."""

_STATE = beam_job_api_pb2.JobState
_TERMINAL_STATES = frozenset(portable_runner.TERMINAL_STATES)
_MESSAGE = beam_job_api_pb2.JobMessage
_LOGGER = logging.getLogger(__name__)
_turn = threading.Lock()


class NoSlotsError(RunnerError):
    """A job waits for more slots than are free. Resubmit it with fewer."""


# The job service


@contextlib.contextmanager
def _job_service(endpoint: str) -> Iterator[Any]:
    """Yield the client of a job service; its errors are RunnerErrors."""
    try:
        with grpc.insecure_channel(endpoint) as channel:
            yield beam_job_api_pb2_grpc.JobServiceStub(channel)
    except grpc.RpcError as error:
        raise RunnerError(f"job service at {endpoint}: {error.details()}") from error


def list_jobs(endpoint: str, name: str) -> list[ClusterJob]:
    """Return the unfinished jobs of a job service with a name; none if it does not list jobs."""
    try:
        with _job_service(endpoint) as service:
            request = beam_job_api_pb2.GetJobsRequest()
            jobs = service.GetJobs(request, timeout=_CALL_SECONDS).job_info
    except RunnerError as error:  # Beam's own service for Python has no list
        _LOGGER.debug("no list of jobs: %s", error)
        return []
    return [
        ClusterJob(job.job_id, name)
        for job in jobs
        if job.job_name == name and job.state not in _TERMINAL_STATES
    ]


def cancel_job(endpoint: str, job_id: str) -> None:
    """Cancel a job of a job service."""
    with _job_service(endpoint) as service:
        request = beam_job_api_pb2.CancelJobRequest(job_id=job_id)
        service.Cancel(request, timeout=_CALL_SECONDS)


# Following


class JobFollower:
    """Follows a submitted job to its end."""

    def __init__(
        self, result: Any, *, runner: PortableRunner, server: JobServer | None, name: str
    ) -> None:
        """Take a job that has been submitted.

        Args:
            result: Beam's result of it.
            runner: Engine.
            server: Job server that this process started; None if another one is used.
            name: Name of the job in errors.
        """
        self._result, self._runner, self._server, self._name = result, runner, server, name
        self._submission = current_submission(name)
        self._cluster_id = ""
        self._waits_since: float | None = None
        self._max_wait_seconds = random.uniform(*_SLOT_SECONDS)  # noqa: S311
        self._errors: list[str] = []

    def wait(self) -> None:
        """Wait for the end of the job.

        Raises:
            NoSlotsError: It waits for more slots than are free.
            RunnerError: It failed, or the engine lost it. The message has the root cause.
        """
        reader = threading.Thread(target=self._read_messages, daemon=True)
        reader.start()
        state, last_answer = int(_STATE.UNSPECIFIED), time.monotonic()
        while state not in _TERMINAL_STATES:
            try:
                state = self._poll()
                last_answer = time.monotonic()
            except (grpc.RpcError, ClusterUnreachableError) as error:
                self._check_silence(time.monotonic() - last_answer, error)
            if state not in _TERMINAL_STATES:
                self._submission.sleep(_POLL_SECONDS)
        if not self._cluster_id:  # it ended before the cluster listed it
            self._report(ClusterJob(self._result._job_id, self._submission.name))
        if state in (_STATE.DONE, _STATE.DRAINED):
            return
        self._runner.is_waiting_for_slots(self._cluster_id)  # raises if the cluster lost the job
        reader.join(_CALL_SECONDS)
        raise RunnerError(f"{self._name}: {self._failure_reason(state)}")

    def _poll(self) -> int:
        """Return the state of the job."""
        request = beam_job_api_pb2.GetJobStateRequest(job_id=self._result._job_id)
        state = int(self._result._job_service.GetState(request, timeout=_CALL_SECONDS).state)
        if state not in _TERMINAL_STATES:
            self.poll_cluster()
        return state

    def poll_cluster(self) -> None:
        """Report the job once, and check that it does not wait for slots.

        Raises:
            NoSlotsError: It has waited for too long.
            RunnerError: The cluster does not answer, or lost the job.
        """
        name = self._submission.name
        if not self._cluster_id:
            own = [ClusterJob(self._result._job_id, name)]
            for job in self._runner.find_jobs(name) if self._runner.rest else own:
                self._report(job)
        elif not self._runner.is_waiting_for_slots(self._cluster_id):
            self._waits_since = None
        else:
            now = time.monotonic()
            self._waits_since = self._waits_since or now
            if (seconds := now - self._waits_since) > self._max_wait_seconds:
                raise NoSlotsError(f"{name}: no free slots for {seconds:.0f} s")

    def _report(self, job: ClusterJob) -> None:
        self._cluster_id = job.id
        self._submission.on_submitted(SubmittedJob(job.name, self._runner.name, job.id, job.url))

    def _check_silence(self, seconds: float, error: Exception) -> None:
        if self._server is not None:
            self._server.check()
        if seconds > _MAX_SILENT_SECONDS:
            reason = error.details() if isinstance(error, grpc.RpcError) else error
            raise RunnerError(
                f"{self._name}: no answer for {seconds:.0f} s: {reason}. The job may still run"
            ) from error

    def _read_messages(self) -> None:
        # The stream breaks off where the job service does, which polling notices as well.
        with contextlib.suppress(grpc.RpcError):
            for message in self._result._message_stream:
                response = message.message_response
                if response.importance == _MESSAGE.JOB_MESSAGE_ERROR:
                    self._errors.append(response.message_text)

    def _failure_reason(self, state: int) -> str:
        causes = [cause for text in reversed(self._errors) if (cause := root_cause(text))]
        if causes:
            return causes[0]
        if self._server is not None:
            return self._server.log_cause()
        return f"the engine ended it in state {_STATE.Enum.Name(state)}"


def run_job(runner: PortableRunner, job: str, build: BuildPipeline, *, num_elements: int) -> None:
    """Submit a job and follow it to its end. See `Runner.run`."""
    submission = current_submission(job)
    server = None if runner.endpoint else get_job_server(runner, submission)
    with _taken_turn(submission):
        while True:
            flags = _job_flags(runner, server, runner.wait_for_slots(num_elements, submission))
            options = PipelineOptions([*flags, f"--job_name={submission.name}"])
            pipeline = beam.Pipeline(runner=portable_runner.PortableRunner(), options=options)
            build(pipeline)
            try:
                _submit_and_follow(runner, job, pipeline, server)
            except NoSlotsError as error:
                submission.log(f"{error}; resubmitting with the free slots")
                _cancel_all(runner, submission)
                _wait_until_over(runner, submission)
            else:
                return


@contextlib.contextmanager
def _taken_turn(submission: Submission) -> Iterator[None]:
    """Run the block while no other job of this process is on an engine."""
    while not _turn.acquire(timeout=_POLL_SECONDS):
        submission.sleep(0)
    try:
        yield
    finally:
        _turn.release()


def _job_flags(runner: PortableRunner, server: JobServer | None, slots: int) -> list[str]:
    flags = [*runner.flags, *runner.job_flags(slots)]
    if server is not None:
        flags.append(f"--job_endpoint={server.endpoint}")
        if runner.name == "spark" and not server.jars.is_whole:
            # Else Spark copies every jar of the job server to each worker, for each job.
            flags.append(f"--files_to_stage={server.jars.runner_jar}")
    return flags


def _submit_and_follow(
    runner: PortableRunner, job: str, pipeline: beam.Pipeline, server: JobServer | None
) -> None:
    submission = current_submission(job)
    endpoint = server.endpoint if server else runner.endpoint
    cancel = functools.partial(_cancel_all, runner, submission)
    # The cluster is asked before its job service, which may give up on the job and leave it
    # there, and after it: what was being submitted may have got there meanwhile.
    cancels: list[Callable[[], object]] = [cancel, cancel]
    with cancelled_when_stopped(submission, runner.name, cancels):
        try:
            result: Any = pipeline.run()
        except grpc.FutureTimeoutError as error:
            raise RunnerError(f"{job}: no job service answers at {endpoint}") from error
        except (RuntimeError, grpc.RpcError) as error:
            details = error.details() if isinstance(error, grpc.RpcError) else str(error)
            cause = root_cause(details or "") or (server.log_cause() if server else repr(error))
            raise RunnerError(f"{job}: could not be submitted to {endpoint}: {cause}") from error
        cancels.insert(1, functools.partial(cancel_job, endpoint, result._job_id))
        JobFollower(result, runner=runner, server=server, name=job).wait()


def _cancel_all(runner: PortableRunner, submission: Submission) -> None:
    for job in runner.find_jobs(submission.name):
        runner.cancel(job)


def _wait_until_over(runner: PortableRunner, submission: Submission) -> None:
    while runner.find_jobs(submission.name):
        submission.sleep(_POLL_SECONDS)


def attach(runner: PortableRunner, job: str) -> None:
    """Wait for the end of a job of the same name that an earlier run submitted, if any."""
    submission = current_submission(job)
    cancel = functools.partial(_cancel_all, runner, submission)
    for found in runner.find_jobs(submission.name):
        submission.on_submitted(
            SubmittedJob(found.name, runner.name, found.id, found.url, attached=True)
        )
    with cancelled_when_stopped(submission, runner.name, [cancel]):
        _wait_until_over(runner, submission)
