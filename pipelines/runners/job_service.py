"""Client of a Beam job service, which submits and follows the jobs of portable runners."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability import portable_runner

from pipelines.runners.engine import SUCCESS_STATES, EngineJob, EngineUnreachableError
from pipelines.runners.job_context import SubmittedJob, current_submission, root_cause
from pipelines.runners.runner import BuildPipeline
from schemas.errors import RunnerError

if TYPE_CHECKING:
    from pipelines.runners.portable import PortableRunner

_CALL_SECONDS = 10.0
_STATE = beam_job_api_pb2.JobState
_MESSAGE = beam_job_api_pb2.JobMessage
_LOGGER = logging.getLogger(__name__)


@contextlib.contextmanager
def _job_service(endpoint: str) -> Iterator[Any]:
    """Yield the client of a job service; its errors are RunnerErrors."""
    try:
        with grpc.insecure_channel(endpoint) as channel:
            yield beam_job_api_pb2_grpc.JobServiceStub(channel)
    except grpc.RpcError as error:
        raise RunnerError(f"job service at {endpoint}: {error.details()}") from error


def list_jobs(runner: PortableRunner, name: str) -> list[SubmittedJob]:
    """Return the unfinished jobs of a job service with a name; none if it does not list jobs."""
    try:
        with _job_service(runner.endpoint) as service:
            request = beam_job_api_pb2.GetJobsRequest()
            jobs = service.GetJobs(request, timeout=_CALL_SECONDS).job_info
    except RunnerError as error:  # Beam's own service for Python has no list
        _LOGGER.debug("no list of jobs: %s", error)
        return []
    return [
        SubmittedJob(name, runner.name, job.job_id)
        for job in jobs
        if job.job_name == name and job.state not in portable_runner.TERMINAL_STATES
    ]


def cancel_job(endpoint: str, job_id: str) -> None:
    """Cancel a job of a job service."""
    with _job_service(endpoint) as service:
        request = beam_job_api_pb2.CancelJobRequest(job_id=job_id)
        service.Cancel(request, timeout=_CALL_SECONDS)


def submit_job(
    runner: PortableRunner, job: str, build: BuildPipeline, *, endpoint: str, flags: list[str]
) -> ServiceJob:
    """Build a pipeline and submit it to a job service.

    Raises:
        RunnerError: The job service does not answer, or refuses the job.
    """
    pipeline = beam.Pipeline(
        runner=portable_runner.PortableRunner(), options=PipelineOptions(flags)
    )
    build(pipeline)
    try:
        return ServiceJob(pipeline.run(), runner=runner, endpoint=endpoint, job=job)
    except grpc.FutureTimeoutError as error:
        raise RunnerError(f"{job}: no job service answers at {endpoint}") from error
    except (RuntimeError, grpc.RpcError) as error:
        details = error.details() if isinstance(error, grpc.RpcError) else str(error)
        cause = root_cause(details or "") or runner.server_log_cause() or repr(error)
        raise RunnerError(f"{job}: could not be submitted to {endpoint}: {cause}") from error


class ServiceJob(EngineJob):
    """Job that was submitted to a job service."""

    def __init__(self, result: Any, *, runner: PortableRunner, endpoint: str, job: str) -> None:
        """Start to read its messages.

        Args:
            result: Beam's result of the job.
            runner: Engine of the job.
            endpoint: HOST:PORT of the job service.
            job: Name of the job in errors.
        """
        self._result, self._runner, self._endpoint = result, runner, endpoint
        self._submission = current_submission(job)
        self.submitted = SubmittedJob(self._submission.name, runner.name, result._job_id)
        self._is_reported = False
        self._errors: list[str] = []
        self._reader = threading.Thread(target=self._read_messages, daemon=True)
        self._reader.start()

    def poll(self) -> str:
        """Report the job once its cluster lists it."""
        request = beam_job_api_pb2.GetJobStateRequest(job_id=self._result._job_id)
        try:
            state = self._result._job_service.GetState(request, timeout=_CALL_SECONDS).state
        except grpc.RpcError as error:
            self._runner.check_server()
            raise EngineUnreachableError(error.details()) from error
        name = str(_STATE.Enum.Name(state))
        if not self._is_reported:
            self._report(has_ended=state in portable_runner.TERMINAL_STATES)
        elif name not in SUCCESS_STATES:
            self._runner.check_job(self.submitted.id)
        return name

    def _report(self, *, has_ended: bool) -> None:
        on_cluster = self._runner.rest and not has_ended
        jobs = self._runner.find_jobs(self.submitted.name) if on_cluster else [self.submitted]
        for self.submitted in jobs:
            self._is_reported = True
            self._submission.on_submitted(self.submitted)

    def cancel(self) -> None:
        cancel_job(self._endpoint, self._result._job_id)

    def failure_reason(self, state: str) -> str:
        self._reader.join(_CALL_SECONDS)
        cause = root_cause("\n".join(self._errors)) or self._runner.server_log_cause()
        return cause or f"the engine ended it in state {state}"

    def _read_messages(self) -> None:
        # The stream breaks off where the job service does, which polling notices as well.
        with contextlib.suppress(grpc.RpcError):
            for message in self._result._message_stream:
                response = message.message_response
                if response.importance == _MESSAGE.JOB_MESSAGE_ERROR:
                    self._errors.append(response.message_text)
