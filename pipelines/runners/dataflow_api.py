"""What Google Cloud Dataflow says of its jobs, by its API: states, messages, metrics, cancelling.

Beam's runner submits a job; it hears no signal while it waits, and knows no job that it did not
submit itself. Beam is not needed here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pipelines.runners.causes import root_cause
from schemas.errors import ConfigError, RunnerError

ANSWER_SECONDS = 10.0
OVER = frozenset(
    f"JOB_STATE_{state}" for state in ("DONE", "FAILED", "CANCELLED", "UPDATED", "DRAINED")
)
DONE = frozenset({"JOB_STATE_DONE", "JOB_STATE_DRAINED"})
_CONSOLE = "https://console.cloud.google.com/dataflow/jobs"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_REMEDY = "pip install 'bertloom[dataflow]'"

_PAID = {
    # As Dataflow names them, and what they are.
    "TotalVcpuTime": "vcpu-seconds",
    "TotalMemoryUsage": "memory-mb-seconds",
    "TotalPdUsage": "disk-gb-seconds",
    "TotalSsdUsage": "ssd-gb-seconds",
    "TotalShuffleDataProcessed": "shuffle-bytes",
    "BillableShuffleDataProcessed": "billable-shuffle-bytes",
}


class DataflowJob(NamedTuple):
    """A job as Dataflow knows it."""

    id: str
    name: str
    state: str
    """`JOB_STATE_RUNNING`, say."""


class DataflowApi:
    """The jobs of a project in a region."""

    def __init__(self, flags: Sequence[str]) -> None:
        """Nothing is asked yet.

        Args:
            flags: Beam options, of which those about the project and the way to it count.

        Raises:
            ConfigError: the client is not installed, or there are no credentials.
        """
        try:
            from google.cloud import dataflow  # start-up: 500 ms, only where jobs go there
        except ImportError as error:
            raise ConfigError(f"Dataflow's client is not installed: {_REMEDY}") from error
        given = _named(flags)
        self.project, self.region = given["--project"], given["--region"]
        self._types = dataflow
        endpoint = given.get("--dataflow_endpoint", "")
        # As Beam's own client reads an endpoint.
        how = {
            "credentials": _credentials(given),
            "transport": "rest" if "localhost" in endpoint or "sandbox" in endpoint else None,
            "client_options": {"api_endpoint": endpoint.rstrip("/")} if endpoint else None,
        }
        self._jobs = dataflow.JobsV1Beta3Client(**how)
        self._messages = dataflow.MessagesV1Beta3Client(**how)
        self._metrics = dataflow.MetricsV1Beta3Client(**how)

    def _where(self, **more: Any) -> dict[str, Any]:
        return {"project_id": self.project, "location": self.region, **more}

    def url(self, job: str) -> str:
        """The page of a job."""
        return f"{_CONSOLE}/{self.region}/{job}?project={self.project}"

    def running(self, name: str) -> list[DataflowJob]:
        """The jobs of a name that have not ended.

        Raises:
            RunnerError: Dataflow does not answer, or refuses.
        """
        request = self._types.ListJobsRequest(
            **self._where(filter=self._types.ListJobsRequest.Filter.ACTIVE, name=name)
        )
        with self._asking("list jobs"):
            listed = list(self._jobs.list_jobs(request, timeout=ANSWER_SECONDS))
        found = [DataflowJob(job.id, job.name, job.current_state.name) for job in listed]
        return [job for job in found if job.name == name and job.state not in OVER]

    def state(self, job: str) -> str:
        """The state of a job, `JOB_STATE_RUNNING` say.

        Raises:
            RunnerError: Dataflow does not answer, or refuses.
        """
        request = self._types.GetJobRequest(**self._where(job_id=job))
        with self._asking(f"look at job {job}"):
            return str(self._jobs.get_job(request, timeout=ANSWER_SECONDS).current_state.name)

    def cancel(self, job: str) -> None:
        """Ask for the end of a job.

        Raises:
            RunnerError: Dataflow does not answer, or refuses.
        """
        wanted = self._types.Job(requested_state=self._types.JobState.JOB_STATE_CANCELLED)
        request = self._types.UpdateJobRequest(**self._where(job_id=job, job=wanted))
        with self._asking(f"cancel job {job}"):
            self._jobs.update_job(request, timeout=ANSWER_SECONDS)

    def why(self, job: str) -> str:
        """Why a job failed, in a sentence; "" while it does not say.

        Raises:
            RunnerError: Dataflow does not answer, or refuses.
        """
        request = self._types.ListJobMessagesRequest(
            **self._where(
                job_id=job,
                minimum_importance=self._types.JobMessageImportance.JOB_MESSAGE_ERROR,
            )
        )
        with self._asking(f"read the messages of job {job}"):
            listed = self._messages.list_job_messages(request, timeout=ANSWER_SECONDS)
            texts = [str(message.message_text) for message in listed]
        return failure(texts)

    def counters(self, job: str) -> dict[str, float]:
        """What a job's workers counted, as far as their work is committed.

        Raises:
            RunnerError: Dataflow does not answer, or refuses.
        """
        return {
            metric.name.name: float(metric.scalar)
            for metric in self._measured(job)
            if metric.name.origin == "user" and _is_number(metric.scalar)
        }

    def paid(self, job: str) -> dict[str, float]:
        """What a job took of what Dataflow bills, with its unit.

        Raises:
            RunnerError: Dataflow does not answer, or refuses.
        """
        return {
            _PAID[metric.name.name]: float(metric.scalar)
            for metric in self._measured(job)
            if metric.name.origin != "user"
            and metric.name.name in _PAID
            and _is_number(metric.scalar)
        }

    def _measured(self, job: str) -> list[Any]:
        request = self._types.GetJobMetricsRequest(**self._where(job_id=job))
        with self._asking(f"read the metrics of job {job}"):
            found = self._metrics.get_job_metrics(request, timeout=ANSWER_SECONDS).metrics
        # What is tentative counts bundles too that fail and are done again.
        return [metric for metric in found if "tentative" not in metric.name.context]

    @contextlib.contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        from google.api_core.exceptions import GoogleAPIError  # start-up: loaded with the client
        from google.auth.exceptions import GoogleAuthError  # start-up: loaded with the client

        try:
            yield
        except (GoogleAPIError, GoogleAuthError, OSError) as error:
            told = str(getattr(error, "message", "")) or str(error)
            raise RunnerError(
                f"Dataflow (project {self.project}, {self.region}) did not {what}: {told}"
            ) from error


def failure(messages: Sequence[str]) -> str:
    """What a job's messages of errors say of its cause, a worker's own words first.

    >>> failure(["Workflow failed. Causes: S01 failed", "no disk left"])
    'no disk left'
    """
    own = [text for text in messages if "Traceback (most recent call last)" in text]
    others = [text for text in messages if not text.startswith("Workflow failed")]
    for text in [*reversed(own), *others, *messages]:
        if cause := root_cause(text):
            return cause
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _named(flags: Sequence[str]) -> dict[str, str]:
    """Values of options by their names; "" for one that has none."""
    return {flag.partition("=")[0]: flag.partition("=")[2] for flag in flags}


def _credentials(given: Mapping[str, str]) -> Any:
    """Those of the environment, as Beam finds them.

    Raises:
        ConfigError: there are none.
    """
    import google.auth  # start-up: loaded with the client
    from google.auth import credentials, exceptions, impersonated_credentials

    if "--no_auth" in given:
        return credentials.AnonymousCredentials()
    try:
        found, _ = google.auth.default(scopes=[_SCOPE])
    except exceptions.GoogleAuthError as error:
        raise ConfigError(
            f"no credentials for Google Cloud: {str(error).rstrip('.')}: "
            "gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to the "
            "file of a service account's key"
        ) from error
    if not (accounts := given.get("--impersonate_service_account", "")):
        return found
    *delegates, target = accounts.split(",")
    return impersonated_credentials.Credentials(
        source_credentials=found,
        target_principal=target,
        delegates=delegates,
        target_scopes=[_SCOPE],
    )
