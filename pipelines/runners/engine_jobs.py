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
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability.portable_runner import PortableRunner

from pipelines.runners import clusters
from pipelines.runners.clusters import ClusterJob, JobServer, job_server
from pipelines.runners.job_context import Submission, SubmittedJob, root_cause
from pipelines.runners.runner_spec import LEAN_FLAG, Engine, Launch, parallelism_flags
from schemas.errors import RunnerError

CALL_SECONDS = 10.0
LOOK_SECONDS = 0.5
_CLUSTER_SECONDS = 2.0
"""Seconds between two requests for the state of a job."""

_GONE_SECONDS = 30.0
"""Seconds without an answer after which a job service or cluster is unavailable."""

_PATIENCE_SECONDS = 20.0
"""Seconds that a job waits for slots while another job waits, too."""

_ALONE_FACTOR = 3.0
"""Factor of `_PATIENCE_SECONDS` while other jobs are running."""

_STATE = beam_job_api_pb2.JobState
OVER = frozenset({_STATE.DONE, _STATE.DRAINED, _STATE.FAILED, _STATE.CANCELLED, _STATE.UPDATED})
_MESSAGE = beam_job_api_pb2.JobMessage
_LOGGER = logging.getLogger(__name__)


class NoSlotsError(RunnerError):
    """A job waits for more slots than are free. Resubmit it with fewer."""


class _Silence:
    """For how long something has not answered."""

    def __init__(self) -> None:
        self._since: float | None = None

    def heard(self) -> None:
        self._since = None

    def missed(self) -> float:
        """Count a miss; seconds since the first one in a row."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        return now - self._since


class ClusterView:
    """State of a job on its cluster: id and page, reported once, and waiting for slots."""

    def __init__(self, engine: Engine, submission: Submission, job_id: str) -> None:
        """Nothing is known yet.

        Args:
            engine: where it runs.
            submission: the step it is for.
            job_id: the job service's.
        """
        self._engine, self._submission, self._job_id = engine, submission, job_id
        self._found = ""  # the cluster's own id of it
        self._is_told = False
        self._next = 0.0
        self._silence = _Silence()
        self._waits_since: float | None = None

    def look(self, *, is_last: bool = False) -> None:
        """Ask the cluster, if it is time to.

        Args:
            is_last: whether the job service says that the job is over.

        Raises:
            NoSlotsError: the job has been waiting for slots.
            RunnerError: The cluster does not answer, or lost the job.
        """
        if not self._engine.rest:
            self._tell(SubmittedJob(self._submission.name, self._engine.name, self._job_id))
            return
        if not is_last and time.monotonic() < self._next:
            return
        try:
            self._ask(is_last=is_last)
            self._silence.heard()
        except clusters.NoJobError as error:
            raise self._lost() from error
        except clusters.NoAnswerError as error:
            seconds = self._silence.missed()
            if not is_last and seconds > _GONE_SECONDS:
                raise RunnerError(
                    f"{self._engine.master} has not answered for {seconds:.0f} s: {error}"
                ) from error
        self._next = time.monotonic() + _CLUSTER_SECONDS

    def check_known(self) -> None:
        """See that a job that failed did so on its cluster.

        Raises:
            RunnerError: it was lost with the cluster's job manager.
        """
        if self._found:
            try:
                clusters.waits_for_slots(self._engine, self._found)
            except (clusters.NoJobError, clusters.NoAnswerError) as error:
                raise self._lost() from error

    def _lost(self) -> RunnerError:
        return RunnerError(
            f"{self._submission.name}: {self._engine.master} does not know job {self._found} any "
            "more, as after its job manager ended; what was finished is kept"
        )

    def _ask(self, *, is_last: bool) -> None:
        if not self._found:
            named = clusters.jobs_named(self._engine, self._submission.name)
            if named:
                self._found = named[0].id
            for job in named:
                self._tell(SubmittedJob(job.name, self._engine.name, job.id, job.url))
            if is_last:  # over before it was seen
                self._tell(SubmittedJob(self._submission.name, self._engine.name, self._job_id))
        elif not is_last:
            self._check_slots()

    def _tell(self, job: SubmittedJob) -> None:
        if not self._is_told:
            self._is_told = True
            self._submission.told(job)

    def _check_slots(self) -> None:
        """Raise where the job has been waiting for slots for too long.

        Of two jobs that each hold a part of what they wait for, the one with the greater id gives
        way at once, so that the other gets its slots.
        """
        now = time.monotonic()
        if not clusters.waits_for_slots(self._engine, self._found):
            self._waits_since = None
            return
        self._waits_since = now if self._waits_since is None else self._waits_since
        waited = now - self._waits_since
        if waited < _PATIENCE_SECONDS:
            return
        gives_way = any(job < self._found for job in clusters.waiting_jobs(self._engine))
        if gives_way or waited > _ALONE_FACTOR * _PATIENCE_SECONDS:
            raise NoSlotsError(f"{self._submission.name}: no slots for {waited:.0f} s")


def follow(
    job: str,
    result: Any,
    *,
    submission: Submission,
    server: JobServer | None,
    view: ClusterView,
) -> None:
    """Wait for the end of a job that was submitted.

    Args:
        job: what people call it, for errors.
        result: Beam's.
        submission: the step it is for.
        server: the job server that was started for it.
        view: what its cluster says.

    Raises:
        NoSlotsError: it waits for more slots than there are.
        RunnerError: It failed, or the engine lost it. The message has the root cause.
    """
    errors: list[str] = []
    reader = threading.Thread(target=_read_messages, args=(result, errors), daemon=True)
    reader.start()
    silence = _Silence()
    while True:
        try:
            state = _state(result)
            silence.heard()
        except grpc.RpcError as error:
            if server is not None:
                server.check()
            if silence.missed() > _GONE_SECONDS:
                raise RunnerError(
                    f"{job}: the job service is gone ({error.details()}); its job may still run"
                ) from error
            state = _STATE.UNSPECIFIED
        view.look(is_last=state in OVER)
        if state in OVER:
            break
        submission.pause(LOOK_SECONDS)
    if state in (_STATE.DONE, _STATE.DRAINED):
        return
    view.check_known()
    reader.join(CALL_SECONDS)
    name = _STATE.Enum.Name(state)
    raise RunnerError(f"{job}: {_why(errors, server) or f'the engine ended it in state {name}'}")


def _state(result: Any) -> int:
    request = beam_job_api_pb2.GetJobStateRequest(job_id=result._job_id)
    return int(result._job_service.GetState(request, timeout=CALL_SECONDS).state)


def _read_messages(result: Any, errors: list[str]) -> None:
    # The stream breaks off where the job service does, which the state tells as well.
    with contextlib.suppress(grpc.RpcError):
        for message in result._message_stream:
            if not message.HasField("message_response"):
                continue
            told = message.message_response
            _LOGGER.debug("%s", told.message_text)
            if told.importance == _MESSAGE.JOB_MESSAGE_ERROR:
                errors.append(told.message_text)


def _why(errors: list[str], server: JobServer | None) -> str:
    for text in reversed(errors):
        if cause := root_cause(text):
            return cause
    return server.last_words() if server is not None else ""


def wait_until_over(engine: Engine, name: str, *, pause: Callable[[float], None]) -> None:
    """Wait until a Flink cluster has no job of a name that has not ended."""
    while clusters.jobs_named(engine, name):
        pause(LOOK_SECONDS)


def run_on_engine(
    job: str,
    build: Callable[[beam.Pipeline], None],
    *,
    launch: Launch,
    engine: Engine,
    submission: Submission,
    pieces: int,
) -> None:
    """Submit a job and follow it to its end.

    Args:
        job: what people call it, for errors.
        build: adds it to a pipeline.
        launch: how.
        engine: where.
        submission: the step it is for.
        pieces: how many it works on.

    Raises:
        RunnerError: it failed or could not be submitted; says the root cause.
    """
    server = None if engine.endpoint else job_server(engine, pause=submission.pause)
    endpoint = engine.endpoint or (server.endpoint if server else "")
    while True:
        with clusters.reserve_slots(
            engine, pieces, sleep=submission.pause, log=submission.say
        ) as count:
            flags = [*launch.flags, *_submission_flags(engine, server, launch.flags, count=count)]
            options = PipelineOptions([*flags, f"--job_name={submission.name}"])
            pipeline = beam.Pipeline(runner=PortableRunner(), options=options)
            build(pipeline)
            try:
                _run(
                    job, pipeline, engine=engine, endpoint=endpoint, server=server,
                    submission=submission,
                )  # fmt: skip
            except NoSlotsError as error:
                submission.say(f"{error}; resubmitting with the free slots")
                clusters.cancel(engine, submission.name)
                wait_until_over(engine, submission.name, pause=submission.pause)
            else:
                return


def _run(
    job: str,
    pipeline: beam.Pipeline,
    *,
    engine: Engine,
    endpoint: str,
    server: JobServer | None,
    submission: Submission,
) -> None:
    """Submit a pipeline and follow it; cancel it where the run is stopped meanwhile."""
    with _cancelled_when_stopped(engine, submission) as cancels:
        try:
            result: Any = pipeline.run()
        except (RuntimeError, grpc.RpcError, grpc.FutureTimeoutError) as error:
            raise RunnerError(f"{job}: {_not_submitted(error, endpoint, server)}") from error
        cancels.append(functools.partial(_cancel, endpoint, result._job_id))
        view = ClusterView(engine, submission, result._job_id)
        follow(job, result, submission=submission, server=server, view=view)


def _submission_flags(
    engine: Engine, server: JobServer | None, flags: tuple[str, ...], *, count: int
) -> list[str]:
    found = [] if server is None else [f"--job_endpoint={server.endpoint}"]
    found += parallelism_flags(engine, flags, count=count)
    found.append(LEAN_FLAG)
    if server is not None and engine.name == "spark" and not server.jars.is_whole:
        # Else Spark copies every jar of the job server to each worker, for each job.
        found.append(f"--files_to_stage={server.jars.runner}")
    return found


def _not_submitted(error: Exception, endpoint: str, server: JobServer | None) -> str:
    if isinstance(error, grpc.FutureTimeoutError):
        return f"no job service answers at {endpoint}"
    details = error.details() if isinstance(error, grpc.RpcError) else str(error)
    cause = root_cause(details or "") or (server.last_words() if server else repr(error))
    return f"could not be submitted to {endpoint}: {cause}"


# Cancelling


@contextlib.contextmanager
def _cancelled_when_stopped(
    engine: Engine, submission: Submission
) -> Iterator[list[Callable[[], None]]]:
    """Cancel the job where a signal or a stopped run ends the block, if it is not left alone."""
    cancels: list[Callable[[], None]] = []
    try:
        yield cancels
    except BaseException as error:
        is_stopped = submission.stopping.is_set() or not isinstance(error, Exception)
        if is_stopped and not submission.detach:
            # The cluster is asked before its job service, which may give up on the job and leave
            # it there, and after it: what was being submitted may have got there meanwhile.
            ask = functools.partial(clusters.cancel, engine, submission.name)
            asked: list[Callable[[], object]] = [ask, *cancels, ask]
            for cancel in asked:
                try:
                    cancel()
                except (RunnerError, grpc.RpcError) as failed:
                    _LOGGER.warning("%s may still run: %s", submission.name, failed)
        elif is_stopped:
            submission.say(f"{submission.name} is left to {engine.name}; run again to attach to it")
        raise


def _cancel(endpoint: str, job_id: str) -> None:
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        service.Cancel(beam_job_api_pb2.CancelJobRequest(job_id=job_id), timeout=CALL_SECONDS)


# Attaching


def wait_for_earlier(engine: Engine, submission: Submission) -> bool:
    """Wait for the end of a job of the same name that an earlier run submitted.

    Returns:
        Whether there was one. What it finished is found in its pieces.
    """
    if engine.rest:
        found = clusters.jobs_named(engine, submission.name)
        for job in found:
            _tell_attached(engine, submission, job)
        with _cancelled_when_stopped(engine, submission):
            wait_until_over(engine, submission.name, pause=submission.pause)
        return bool(found)
    return bool(engine.endpoint) and _wait_for_listed(engine, submission)


def _wait_for_listed(engine: Engine, submission: Submission) -> bool:
    """The same by the list of jobs of a job service that runs."""
    with grpc.insecure_channel(engine.endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        try:
            request = beam_job_api_pb2.GetJobsRequest()
            listed = service.GetJobs(request, timeout=CALL_SECONDS).job_info
        except grpc.RpcError as error:
            # Beam's own service for Python has no such list.
            _LOGGER.debug("%s lists no jobs: %s", engine.endpoint, error.details())
            return False
        found = [job for job in listed if job.job_name == submission.name and job.state not in OVER]
        for job in found:
            _tell_attached(engine, submission, ClusterJob(job.job_id, job.job_name, "", ""))
            request = beam_job_api_pb2.GetJobStateRequest(job_id=job.job_id)
            with _cancelled_when_stopped(engine, submission) as cancels:
                cancels.append(functools.partial(_cancel, engine.endpoint, job.job_id))
                while service.GetState(request, timeout=CALL_SECONDS).state not in OVER:
                    submission.pause(LOOK_SECONDS)
        return bool(found)


def _tell_attached(engine: Engine, submission: Submission, job: ClusterJob) -> None:
    submission.told(SubmittedJob(submission.name, engine.name, job.id, job.url, attached=True))
