"""What a Flink cluster says of itself by its REST interface: free slots, and jobs by name.

Other engines are not asked: they get one job at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pipelines.runners.engines import Engine
from schemas.errors import RunnerError

ANSWER_SECONDS = 5.0
_LOOK_SECONDS = 1.0
_NOT_FOUND = 404
_OVER = frozenset({"FINISHED", "FAILED", "CANCELED"})
_AT_WORK = ("DEPLOYING", "INITIALIZING", "RUNNING", "CANCELING")


class NoAnswerError(RunnerError):
    """A cluster does not answer, or not as one."""


class NoJobError(RunnerError):
    """A cluster does not know a job."""


class ClusterJob(NamedTuple):
    """A job of a cluster."""

    id: str
    name: str
    state: str
    url: str
    """Of its page; "" where there is none."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in _OVER


class Slots(NamedTuple):
    """How many pieces a cluster can work on at once."""

    free: int
    total: int


def answers(endpoint: str, *, seconds: float = ANSWER_SECONDS) -> str:
    """Why nothing answers at HOST:PORT; "" where something listens."""
    host, _, port = endpoint.split("://", 1)[-1].split("/", 1)[0].rpartition(":")
    if not port.isdigit():
        return f"expected HOST:PORT, found {endpoint!r}"
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except OSError as error:
        return str(error)
    return ""


def _request(url: str, *, method: str = "GET") -> Any:
    """The JSON that an address answers with.

    Raises:
        NoJobError: there is no such thing.
        NoAnswerError: it does not answer, or with something else.
    """
    if not url.startswith(("http://", "https://")):
        raise RunnerError(f"{url}: expected an address that begins with http:// or https://")
    request = urllib.request.Request(url, method=method)  # noqa: S310  checked above
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310
            text = answer.read()
        return json.loads(text) if text.strip() else {}
    except urllib.error.HTTPError as error:
        kind = NoJobError if error.code == _NOT_FOUND else NoAnswerError
        raise kind(f"{url}: answers {error.code} {error.reason}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise NoAnswerError(f"{url}: does not answer as a cluster: {reason}") from error


def slots(engine: Engine) -> Slots:
    """The slots of a cluster that can be asked (`engine.rest`).

    Raises:
        RunnerError: the cluster does not answer.
    """
    found = _request(f"{engine.rest}/overview")
    return Slots(int(found["slots-available"]), int(found["slots-total"]))


def jobs_named(engine: Engine, name: str) -> list[ClusterJob]:
    """The jobs of a Flink cluster that bear a name and have not ended."""
    return [job for job in _live_jobs(engine) if job.name == name]


def _live_jobs(engine: Engine) -> list[ClusterJob]:
    if not engine.rest:
        return []
    found = [
        ClusterJob(job["jid"], job["name"], job["state"], job_url(engine, job["jid"]))
        for job in _request(f"{engine.rest}/jobs/overview")["jobs"]
    ]
    return [job for job in found if not job.is_over]


def waits_for_slots(engine: Engine, job: str) -> bool:
    """Whether a job of a Flink cluster works on nothing, for want of slots.

    Raises:
        NoJobError: the cluster does not know it.
    """
    found = _request(f"{engine.rest}/jobs/{job}")
    tasks = Counter[str]()
    for vertex in found["vertices"]:
        tasks.update(vertex["tasks"])
    is_idle = not any(tasks[state] for state in _AT_WORK)
    return found["state"] == "RUNNING" and is_idle and tasks["SCHEDULED"] > 0


def waiting_jobs(engine: Engine) -> list[str]:
    """The ids of a Flink cluster's jobs that wait for slots."""
    found = []
    for job in _live_jobs(engine):
        with contextlib.suppress(NoJobError):  # over since it was listed
            if waits_for_slots(engine, job.id):
                found.append(job.id)
    return found


def job_url(engine: Engine, job: str) -> str:
    """The page of a Flink job."""
    return f"{engine.rest}/#/job/{job}/overview"


def cancel(engine: Engine, name: str) -> list[ClusterJob]:
    """Cancel the jobs of a Flink cluster that bear a name; those it was asked for."""
    found = jobs_named(engine, name)
    for job in found:
        with contextlib.suppress(NoJobError):  # over since it was listed
            _request(f"{engine.rest}/jobs/{job.id}?mode=cancel", method="PATCH")
    return found


# Slots that the jobs of this process share


class SlotPool:
    """Deals a cluster's free slots to the jobs of this process: each holds its own before it
    starts, so that no two wait for what the other holds."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._held = self._budget = 0

    @contextlib.contextmanager
    def taken(
        self, pieces: int, *, pause: Callable[[float], None], say: Callable[[str], None]
    ) -> Iterator[int]:
        """Hold slots for a job of so many pieces in this block; yields how many.

        Args:
            pieces: as many as the job has.
            pause: waits so many seconds, or raises where the run is to end.
            say: told once if there is none free.
        """
        is_told = False
        while not (got := self._take(max(1, pieces))):
            if not is_told:
                say(f"no free slot on {self._engine.master}; waiting for one")
                is_told = True
            pause(_LOOK_SECONDS)
        try:
            yield got
        finally:
            with self._lock:
                self._held -= got

    def _take(self, pieces: int) -> int:
        with self._lock:
            if not self._engine.rest:
                if self._held and not self._engine.shares_nothing:
                    return 0
                here = os.cpu_count() or 1 if self._engine.is_in_job_server else pieces
                got = min(pieces, self._engine.parallelism or here)
                self._held += got
                return got
            found = slots(self._engine)
            wanted = min(pieces, self._engine.parallelism or pieces)
            if self._held == 0:  # what others leave us is asked for when nothing of ours runs
                self._budget = found.free
            # Slots of ours that are not taken up yet look free, and others may take up some.
            free = min(self._budget - self._held, found.free)
            fixed = self._engine.parallelism
            if fixed and free < min(fixed, pieces):
                return 0
            got = max(0, min(wanted, free))
            self._held += got
            return got


_POOLS: dict[str, SlotPool] = {}
_POOLS_LOCK = threading.Lock()


def slot_pool(engine: Engine) -> SlotPool:
    """The pool of a cluster, one for all of this process."""
    with _POOLS_LOCK:
        return _POOLS.setdefault(engine.rest or engine.endpoint or engine.master, SlotPool(engine))
