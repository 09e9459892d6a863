"""Apache Flink, through Beam's job server and the REST interface of the cluster."""

from __future__ import annotations

import contextlib
import json
import random
import time
import urllib.error
import urllib.request
from collections import Counter
from typing import Any

from pipelines.runners.engine import EngineUnreachableError
from pipelines.runners.job_context import Submission, SubmittedJob
from pipelines.runners.portable import NoSlotsError, PortableRunner
from pipelines.runners.runner import flag_names
from schemas.errors import ConfigError, RunnerError
from schemas.execution_configs import ExecutionConfig

_REQUEST_SECONDS = 5.0
_POLL_SECONDS = 1.0
_SLOT_SECONDS = (20.0, 60.0)
"""Range of the seconds that a job waits for slots before it starts again with the free ones. Of two
jobs that wait for each other's slots, one does so before the other."""

_NOT_FOUND = 404
_TERMINAL_STATES = frozenset({"FINISHED", "FAILED", "CANCELED"})
_ACTIVE_STATES = ("DEPLOYING", "INITIALIZING", "RUNNING", "CANCELING")
_PARALLELISM_FLAG = "--parallelism"


class UnknownJobError(RunnerError):
    """A cluster does not know a job."""


class FlinkRunner(PortableRunner):
    """Apache Flink: `execution.flink.master`."""

    name = "flink"
    _required = (
        "master to HOST:PORT of the cluster's REST interface, or to [local] for a Flink inside the "
        "job server; or execution.flink.job_endpoint to HOST:PORT of a running job server"
    )

    def __init__(self, execution: ExecutionConfig) -> None:
        super().__init__(execution)
        master = "" if self.is_embedded else self.master.rstrip("/")
        self.rest = master if "://" in master or not master else f"http://{master}"
        self._waits_since: float | None = None
        self._max_wait_seconds = random.uniform(*_SLOT_SECONDS)  # noqa: S311

    def _own_flags(self) -> list[str]:
        return [f"{_PARALLELISM_FLAG}={self.parallelism}"] if self.parallelism else []

    def slot_flags(self, num_slots: int | str) -> list[str]:
        is_set = _PARALLELISM_FLAG in flag_names(self.flags) or not self.master
        parallelism = [] if is_set else [f"{_PARALLELISM_FLAG}={num_slots}"]
        return [*parallelism, *super().slot_flags(num_slots)]

    # The cluster

    def _request(self, path: str, *, method: str = "GET") -> Any:
        """Return the JSON response of the REST interface.

        Raises:
            UnknownJobError: There is no such job.
            EngineUnreachableError: The cluster does not answer, or answers something else.
        """
        url = f"{self.rest}{path}"
        request = urllib.request.Request(url, method=method)  # noqa: S310 - the user's address
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS) as response:  # noqa: S310
                return json.loads(response.read() or b"{}")
        except urllib.error.HTTPError as error:
            is_missing = error.code == _NOT_FOUND
            error_type = UnknownJobError if is_missing else EngineUnreachableError
            raise error_type(f"{url}: answers {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise EngineUnreachableError(f"{url}: no answer of a cluster: {reason}") from error

    def find_jobs(self, name: str) -> list[SubmittedJob]:
        if not self.rest:
            return super().find_jobs(name)
        return [
            SubmittedJob(name, self.name, job["jid"], f"{self.rest}/#/job/{job['jid']}/overview")
            for job in self._request("/jobs/overview")["jobs"]
            if job["name"] == name and job["state"] not in _TERMINAL_STATES
        ]

    def cancel(self, job_id: str) -> None:
        if not self.rest:
            super().cancel(job_id)
            return
        with contextlib.suppress(UnknownJobError):  # it has ended
            self._request(f"/jobs/{job_id}?mode=cancel", method="PATCH")

    def check_job(self, job_id: str) -> None:
        if not self.rest or not self._is_waiting_for_slots(job_id):
            self._waits_since = None
            return
        now = time.monotonic()
        self._waits_since = self._waits_since or now
        if (seconds := now - self._waits_since) > self._max_wait_seconds:
            self._waits_since = None
            raise NoSlotsError(f"job {job_id}: no free slots for {seconds:.0f} s")

    def _is_waiting_for_slots(self, job_id: str) -> bool:
        """Return whether no task of a job runs for want of slots.

        Raises:
            RunnerError: The cluster does not answer, or lost the job.
        """
        try:
            details = self._request(f"/jobs/{job_id}")
        except UnknownJobError as error:
            raise RunnerError(
                f"{self.master} does not know job {job_id} (JobManager restarted?). "
                "Finished work items are cached; rerun"
            ) from error
        tasks = Counter[str]()
        for vertex in details["vertices"]:
            tasks.update(vertex["tasks"])
        is_idle = not any(tasks[state] for state in _ACTIVE_STATES)
        return details["state"] == "RUNNING" and is_idle and tasks["SCHEDULED"] > 0

    def wait_for_slots(self, num_elements: int, submission: Submission) -> int:
        if not self.rest:
            return super().wait_for_slots(num_elements, submission)
        needed = min(num_elements, self.parallelism or 1)
        is_logged = False
        while (free := int(self._request("/overview")["slots-available"])) < needed:
            if not is_logged:
                submission.log(f"no free slot on {self.master}; waiting for one")
                is_logged = True
            submission.sleep(_POLL_SECONDS)
        return min(num_elements, self.parallelism or free)

    # Before a run

    def _check_answers(self) -> None:
        super()._check_answers()
        if not self.rest:
            return
        try:
            total = int(self._request("/overview")["slots-total"])
        except RunnerError as error:
            raise RunnerError(f"no Flink answers at execution.flink.master: {error}") from error
        needed = self.parallelism or 1
        if total < needed:
            raise ConfigError(
                f"{self.master}: has {total} slots in all, expected at least {needed} "
                "(execution.flink.parallelism): start task managers"
            )
