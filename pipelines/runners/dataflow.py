"""Jobs on Google Cloud Dataflow: submit, follow, cancel.

    a job of the same name is running  ->  attach: wait for its end
    otherwise                          ->  package the code, submit
    the run is stopped                 ->  cancel, or leave it running (`detach`)

Beam's runner submits jobs. Dataflow's own client follows and cancels them, as Beam's waiting
ignores signals and does not know the jobs of earlier runs.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipelines.io.temporary_folders import temporary_folder
from pipelines.runners.job_context import Submission, SubmittedJob, root_cause
from pipelines.runners.runner_spec import Launch
from pipelines.runners.worker_package import file_system_packages, write_worker_package
from schemas.errors import BertloomError, ConfigError, RunnerError

if TYPE_CHECKING:
    import apache_beam as beam

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
    """Client for the jobs of a project in a region."""

    def __init__(self, flags: Sequence[str]) -> None:
        """Nothing is asked yet.

        Args:
            flags: Beam options, of which those about the project and the way to it count.

        Raises:
            ConfigError: the client is not installed, or there are no credentials.
        """
        try:
            from google.cloud import dataflow  # lazy: only jobs on Dataflow need it
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
        """Return the page of a job."""
        return f"{_CONSOLE}/{self.region}/{job}?project={self.project}"

    def running(self, name: str) -> list[DataflowJob]:
        """Return the unfinished jobs with a name.

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
        """Return the state of a job, such as `JOB_STATE_RUNNING`.

        Raises:
            RunnerError: Dataflow does not answer, or refuses.
        """
        request = self._types.GetJobRequest(**self._where(job_id=job))
        with self._asking(f"look at job {job}"):
            return str(self._jobs.get_job(request, timeout=ANSWER_SECONDS).current_state.name)

    def cancel(self, job: str) -> None:
        """Cancel a job.

        Raises:
            RunnerError: Dataflow does not answer, or refuses.
        """
        wanted = self._types.Job(requested_state=self._types.JobState.JOB_STATE_CANCELLED)
        request = self._types.UpdateJobRequest(**self._where(job_id=job, job=wanted))
        with self._asking(f"cancel job {job}"):
            self._jobs.update_job(request, timeout=ANSWER_SECONDS)

    def why(self, job: str) -> str:
        """Return why a job failed; "" if it is not known yet.

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

    def paid(self, job: str) -> dict[str, float]:
        """Return the billed resources of a job, by name and unit.

        Raises:
            RunnerError: Dataflow does not answer, or refuses.
        """
        request = self._types.GetJobMetricsRequest(**self._where(job_id=job))
        with self._asking(f"read the metrics of job {job}"):
            found = self._metrics.get_job_metrics(request, timeout=ANSWER_SECONDS).metrics
        return {
            _PAID[metric.name.name]: float(metric.scalar)
            for metric in found
            # What is tentative counts bundles too that fail and are done again.
            if metric.name.name in _PAID and "tentative" not in metric.name.context
        }

    @contextlib.contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        try:
            yield
        except (GoogleAPIError, GoogleAuthError, OSError) as error:
            told = str(getattr(error, "message", "")) or str(error)
            raise RunnerError(
                f"Dataflow (project {self.project}, {self.region}) did not {what}: {told}"
            ) from error


def failure(messages: Sequence[str]) -> str:
    """Return the cause in the error messages of a job, a worker's message first.

    >>> failure(["Workflow failed. Causes: S01 failed", "no disk left"])
    'no disk left'
    """
    own = [text for text in messages if "Traceback (most recent call last)" in text]
    others = [text for text in messages if not text.startswith("Workflow failed")]
    for text in [*reversed(own), *others, *messages]:
        if cause := root_cause(text):
            return cause
    return ""


def _named(flags: Sequence[str]) -> dict[str, str]:
    """Values of options by their names; "" for one that has none."""
    return {flag.partition("=")[0]: flag.partition("=")[2] for flag in flags}


def _credentials(given: Mapping[str, str]) -> Any:
    """Return the credentials of the environment, as Beam finds them.

    Raises:
        ConfigError: The environment has no credentials.
    """
    import google.auth
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


_FIRST_LOOK_SECONDS = 0.5
_LOOK_SECONDS = 10.0
_GONE_LOOKS = 30
"""Number of failed requests in a row after which the job is left running."""

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
    import apache_beam as beam  # lazy: `plan` checks the API without Beam
    from apache_beam.options.pipeline_options import PipelineOptions

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
    """Return the final state of a job."""
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
        if state in OVER:
            return state
        submission.pause(seconds)
        seconds = min(2 * seconds, _LOOK_SECONDS)


@contextlib.contextmanager
def _not_needed(job: str) -> Iterator[None]:
    """Ignore errors of the block: counters are only shown."""
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
