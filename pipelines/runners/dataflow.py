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
from typing import Any

from pipelines.io.temporary_folders import temporary_folder
from pipelines.runners.job_context import (
    Submission,
    SubmittedJob,
    cancelled_when_stopped,
    current_submission,
    root_cause,
)
from pipelines.runners.runner import (
    BuildPipeline,
    Runner,
    check_reachable,
    error_of,
    flag_names,
    indented,
    is_local_url,
    merge_flags,
)
from pipelines.runners.worker_package import (
    file_system_packages,
    package_name,
    worker_requirements,
    write_worker_package,
)
from schemas.errors import BertloomError, ConfigError, RunnerError, raise_all
from schemas.execution_configs import DataflowConfig, ExecutionConfig

_REQUEST_SECONDS = 10.0
_TERMINAL_STATES = frozenset(
    f"JOB_STATE_{state}" for state in ("DONE", "FAILED", "CANCELLED", "UPDATED", "DRAINED")
)
_DONE = frozenset({"JOB_STATE_DONE", "JOB_STATE_DRAINED"})
_CONSOLE = "https://console.cloud.google.com/dataflow/jobs"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_REMEDY = "pip install 'bertloom[dataflow]'"

_BILLED = {
    "TotalVcpuTime": "vcpu-seconds",
    "TotalMemoryUsage": "memory-mb-seconds",
    "TotalPdUsage": "disk-gb-seconds",
    "TotalSsdUsage": "ssd-gb-seconds",
    "TotalShuffleDataProcessed": "shuffle-bytes",
    "BillableShuffleDataProcessed": "billable-shuffle-bytes",
}
"""Name and unit of billed resources by Dataflow's names."""


class DataflowApi:
    """Client for the jobs of a project in a region. Raises RunnerError where Dataflow refuses."""

    def __init__(self, flags: Sequence[str]) -> None:
        """Send no request yet.

        Args:
            flags: Beam options, of which those about the project and the endpoint are used.

        Raises:
            ConfigError: The client is not installed, or there are no credentials.
        """
        try:
            from google.cloud import dataflow  # lazy: only jobs on Dataflow need it
        except ImportError as error:
            raise ConfigError(f"Dataflow's client is not installed: {_REMEDY}") from error
        given = {flag.partition("=")[0]: flag.partition("=")[2] for flag in flags}
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

    def url(self, job: str) -> str:
        """Return the page of a job."""
        return f"{_CONSOLE}/{self.region}/{job}?project={self.project}"

    def running(self, name: str) -> list[str]:
        """Return the ids of the unfinished jobs with a name."""
        request = self._types.ListJobsRequest(
            filter=self._types.ListJobsRequest.Filter.ACTIVE, name=name
        )
        jobs = self._call("list jobs", self._jobs.list_jobs, request, convert=list)
        return [
            job.id
            for job in jobs
            if job.name == name and job.current_state.name not in _TERMINAL_STATES
        ]

    def state(self, job: str) -> str:
        """Return the state of a job, such as `JOB_STATE_RUNNING`."""
        request = self._types.GetJobRequest(job_id=job)
        return str(self._call(f"look at job {job}", self._jobs.get_job, request).current_state.name)

    def cancel(self, job: str) -> None:
        """Cancel a job."""
        cancelled = self._types.Job(requested_state=self._types.JobState.JOB_STATE_CANCELLED)
        request = self._types.UpdateJobRequest(job_id=job, job=cancelled)
        self._call(f"cancel job {job}", self._jobs.update_job, request)

    def failure_reason(self, job: str) -> str:
        """Return why a job failed; "" if it is not known yet."""
        importance = self._types.JobMessageImportance.JOB_MESSAGE_ERROR
        request = self._types.ListJobMessagesRequest(job_id=job, minimum_importance=importance)
        messages = self._call(
            f"read the messages of job {job}",
            self._messages.list_job_messages,
            request,
            convert=list,
        )
        return failure([str(message.message_text) for message in messages])

    def billed_resources(self, job: str) -> dict[str, float]:
        """Return the billed resources of a job, by name and unit."""
        request = self._types.GetJobMetricsRequest(job_id=job)
        found = self._call(f"read metrics of job {job}", self._metrics.get_job_metrics, request)
        return {
            _BILLED[metric.name.name]: float(metric.scalar)
            for metric in found.metrics
            # Tentative metrics also count bundles that fail and are repeated.
            if metric.name.name in _BILLED and "tentative" not in metric.name.context
        }

    def _call(
        self,
        action: str,
        method: Callable[..., Any],
        request: Any,
        *,
        convert: Callable[[Any], Any] = lambda response: response,
    ) -> Any:
        """Return the response of Dataflow, converted, as more pages are more requests.

        Raises:
            RunnerError: Dataflow does not answer, or refuses.
        """
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        request.project_id, request.location = self.project, self.region
        try:
            return convert(method(request, timeout=_REQUEST_SECONDS))
        except (GoogleAPIError, GoogleAuthError, OSError) as error:
            reason = str(getattr(error, "message", "")) or str(error)
            raise RunnerError(
                f"Dataflow (project {self.project}, {self.region}) did not {action}: {reason}"
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


_FIRST_POLL_SECONDS = 0.5
_MAX_POLL_SECONDS = 10.0
_MAX_FAILED_POLLS = 30
"""Number of failed requests in a row after which the job is left running."""

_MESSAGE_POLLS = 30
"""Number of requests for the message of a failed job, which may take half a minute to appear."""

_NEEDED = ("--project", "--region", "--temp_location")
_INSTALL_CODE = frozenset(
    {"--sdk_container_image", "--extra_package", "--extra_packages", "--setup_file"}
)
_EXTRA_PACKAGE = "--extra_package"
_FLAGS = {
    "machine_type": "worker_machine_type",
    "image": "sdk_container_image",
    "endpoint": "dataflow_endpoint",
}
"""Beam's names of options where they differ from those of the fields."""

_GOALS = {"cost": "COST_OPTIMIZED", "speed": "SPEED_OPTIMIZED"}
_DEFAULTS = {
    # Each process of a worker has a core: more threads take memory, and wait for one another.
    "--number_of_worker_harness_threads": "--number_of_worker_harness_threads=1",
    # By default, Beam sends the contents of `__main__`: a launcher here, a notebook elsewhere.
    "--save_main_session": "--no_save_main_session",
}
_LOGGER = logging.getLogger(__name__)

# It warns of every wheel that it stages; ours has nothing compiled in it.
logging.getLogger("apache_beam.runners.portability.stager").setLevel(logging.ERROR)


class DataflowRunner(Runner):
    """Google Cloud Dataflow: `execution.dataflow`, or options in `execution.beam_options`."""

    name = "dataflow"
    max_parallel_steps = 8

    def __init__(self, execution: ExecutionConfig) -> None:
        self._execution = execution
        flags = merge_flags(_own_flags(execution.dataflow), execution.beam_options)
        names = flag_names(flags)
        missing = [name for name in _NEEDED if name not in names]
        if missing:
            fields = ", ".join(f"execution.dataflow.{name.removeprefix('--')}" for name in missing)
            raise ConfigError(
                f"the dataflow runner needs {', '.join(missing)}: set {fields}; "
                f"found {', '.join(sorted(names)) or 'none'}"
            )
        defaults = [flag for name, flag in _DEFAULTS.items() if not names & {name, flag}]
        self.flags = (*flags, *defaults)
        self.ships_worker_package = not names & _INSTALL_CODE
        """True if each job installs a package of bertloom on its workers."""

    # Before a run

    def preflight(self, *, store: str, inputs: Sequence[str]) -> None:
        """See `Runner.preflight`."""
        check_reachable(self._execution, store=store, inputs=inputs)
        raise_all(self._problems([store, *inputs]))

    def _problems(self, urls: Sequence[str]) -> Iterator[BertloomError | None]:
        for flag in self.flags:
            name, _, package = flag.partition("=")
            if name == _EXTRA_PACKAGE and is_local_url(package) and not Path(package).is_file():
                yield ConfigError(f"{package}: no such file, which workers are to install")
        if self.ships_worker_package:
            yield error_of(lambda: worker_requirements(file_system_packages(urls)))
        # Credentials, the project, the region and whether the API is switched on, in one request.
        yield error_of(lambda: DataflowApi(self.flags).running("bertloom"))

    def describe(self, urls: Sequence[str]) -> list[str]:
        """See `Runner.describe`."""
        lines = ["runner dataflow: Beam's DataflowRunner", *indented(self.flags)]
        if not self.ships_worker_package:
            return lines
        try:
            requirements = worker_requirements(file_system_packages(urls))
            name = package_name()
        except BertloomError as error:
            return [*lines, f"missing: {error}"]
        lines += indented([f"{_EXTRA_PACKAGE}={name}"])
        return [*lines, f"{name} is made for each job; workers install {', '.join(requirements)}"]

    # Jobs

    def attach(self, job: str) -> None:
        """See `Runner.attach`."""
        api, submission = DataflowApi(self.flags), current_submission(job)
        for job_id in api.running(submission.name):
            with _cancelled_when_stopped(api, submission):
                state, submitted = _follow(api, job_id, submission, is_attached=True)
                if state not in _DONE:
                    reason = _failure_reason(api, submitted, state, submission)
                    submission.log(f"{submitted.name}: job of an earlier run failed: {reason}")

    def run(self, job: str, build: BuildPipeline, *, num_elements: int = 1) -> None:
        """See `Runner.run`."""
        del num_elements
        api, submission = DataflowApi(self.flags), current_submission(job)
        flags = [*self.flags, f"--job_name={submission.name}"]
        with temporary_folder("package") as folder, _cancelled_when_stopped(api, submission):
            if self.ships_worker_package:
                file_systems = file_system_packages(submission.urls)
                package = write_worker_package(Path(folder), file_systems=file_systems)
                flags.append(f"{_EXTRA_PACKAGE}={package}")
            job_id = _submit(job, build, flags=flags)
            state, submitted = _follow(api, job_id, submission)
        if state not in _DONE:
            raise RunnerError(f"{job}: {_failure_reason(api, submitted, state, submission)}")


def _own_flags(config: DataflowConfig) -> list[str]:
    values = config.model_dump(exclude_none=True)
    packages = values.pop("packages", ())
    if "flexrs_goal" in values:
        values["flexrs_goal"] = _GOALS[values["flexrs_goal"]]
    has_public_ips = values.pop("use_public_ips", None)
    flags = [f"--{_FLAGS.get(name, name)}={value}" for name, value in values.items()]
    if has_public_ips is not None:
        flags.append("--use_public_ips" if has_public_ips else "--no_use_public_ips")
    return flags + [f"{_EXTRA_PACKAGE}={package}" for package in packages]


def _submit(job: str, build: BuildPipeline, *, flags: list[str]) -> str:
    """Submit a job, and return its id."""
    import apache_beam as beam  # lazy: `plan` checks the API without Beam
    from apache_beam.options.pipeline_options import PipelineOptions

    try:
        pipeline = beam.Pipeline(runner="DataflowRunner", options=PipelineOptions(flags))
        build(pipeline)
        result: Any = pipeline.run()
        return str(result.job_id())
    except BertloomError:
        raise
    except Exception as error:  # of any class of Beam and of Google's clients
        text = getattr(error, "message", None) or str(error)
        raise RunnerError(
            f"{job}: could not be submitted to Dataflow: {root_cause(str(text)) or repr(error)}"
        ) from error


def _follow(
    api: DataflowApi, job_id: str, submission: Submission, *, is_attached: bool = False
) -> tuple[str, SubmittedJob]:
    """Report a job, wait for its end, and return its final state."""
    job = SubmittedJob(submission.name, "dataflow", job_id, api.url(job_id), attached=is_attached)
    submission.on_submitted(job)
    failed_polls, seconds, state = 0, _FIRST_POLL_SECONDS, ""
    while True:
        try:
            state, failed_polls = api.state(job_id), 0
        except RunnerError as error:
            failed_polls += 1
            if failed_polls >= _MAX_FAILED_POLLS:
                raise RunnerError(f"{error}; job {job_id} may still run") from error
        if state in _TERMINAL_STATES:
            break
        submission.sleep(seconds)
        seconds = min(2 * seconds, _MAX_POLL_SECONDS)
    try:
        submission.on_finished(job, api.billed_resources(job_id))
    except RunnerError as error:  # they are only shown
        _LOGGER.debug("%s: no billed resources: %s", job_id, error)
    return state, job


def _failure_reason(api: DataflowApi, job: SubmittedJob, state: str, submission: Submission) -> str:
    if state == "JOB_STATE_FAILED":
        for _ in range(_MESSAGE_POLLS):
            if reason := api.failure_reason(job.id):
                return f"{reason} (job {job.id} on Dataflow)"
            submission.sleep(1.0)
    name = state.removeprefix("JOB_STATE_").lower()
    return f"job {job.id} was ended as {name} on Dataflow by someone else: {job.url}"


def _cancelled_when_stopped(
    api: DataflowApi, submission: Submission
) -> contextlib.AbstractContextManager[None]:
    def cancel() -> None:
        for job_id in api.running(submission.name):
            api.cancel(job_id)

    return cancelled_when_stopped(submission, "Dataflow", [cancel])
