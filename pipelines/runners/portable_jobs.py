"""One job on an engine behind a job service: submitted, followed to its end, cancelled.

    a job of the same name runs already  ->  attach: wait for its end
    else                                 ->  job server, free slots, submit
    the run is stopped                   ->  cancel, or leave it (`detach`)

Beam's own waiting hears no signal and knows no end of waiting; here the state is asked for.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability.portable_runner import PortableRunner

from pipelines.runners import clusters
from pipelines.runners.causes import root_cause
from pipelines.runners.clusters import ClusterJob
from pipelines.runners.engines import LEAN_FLAG, Engine, parallelism_flags
from pipelines.runners.following import (
    CALL_SECONDS,
    LOOK_SECONDS,
    OVER,
    ClusterView,
    NoSlotsError,
    follow,
    wait_until_over,
)
from pipelines.runners.job_servers import JobServer, job_server
from pipelines.runners.launch import Launch
from pipelines.runners.submission import Submission, SubmittedJob
from schemas.errors import RunnerError

_LOGGER = logging.getLogger(__name__)


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
    pool = clusters.slot_pool(engine)
    while True:
        with pool.taken(pieces, pause=submission.pause, say=submission.say) as count:
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
                submission.say(f"{error}: begun anew with those that are free")
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
