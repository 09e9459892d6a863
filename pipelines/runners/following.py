"""Following a job on an engine to its end: told of once, its slots waited for, its cluster seen.

The job service says how a job is. A Flink cluster says more by its REST interface: that it no
longer knows the job, as after its job manager was started anew, or that the job waits for slots.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from apache_beam.portability.api import beam_job_api_pb2

from pipelines.runners import clusters
from pipelines.runners.causes import root_cause
from pipelines.runners.engines import Engine
from pipelines.runners.job_servers import JobServer
from pipelines.runners.submission import Submission, SubmittedJob
from schemas.errors import RunnerError

CALL_SECONDS = 10.0
LOOK_SECONDS = 0.5
_CLUSTER_SECONDS = 2.0
"""How often a cluster is asked for a job."""

_GONE_SECONDS = 30.0
"""After so many without an answer a job service, or a cluster, is taken to be gone."""

_PATIENCE_SECONDS = 20.0
"""For so long a job waits for slots beside one that waits for them as well."""

_ALONE_FACTOR = 3.0
"""So many times as long behind jobs that work."""

_STATE = beam_job_api_pb2.JobState
OVER = frozenset({_STATE.DONE, _STATE.DRAINED, _STATE.FAILED, _STATE.CANCELLED, _STATE.UPDATED})
_MESSAGE = beam_job_api_pb2.JobMessage
_LOGGER = logging.getLogger(__name__)


class NoSlotsError(RunnerError):
    """A job waits for more slots than are free; it is to begin anew with fewer."""


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
    """What a cluster says of a job: its id and page, told of once, and whether it works on it."""

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
            RunnerError: the cluster is gone, or does not know the job any more.
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
        RunnerError: it failed, or nobody knows of it any more; says the root cause.
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
