"""Google Cloud Dataflow. Each job installs bertloom's code on its workers, if no image has it.

Beam's runner submits jobs. Dataflow's own client follows and cancels them: Beam's waiting ignores
signals, its requests have no deadline, and its search by name misses jobs that have not started.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipelines.runners.engine import (
    EngineJob,
    EngineRunner,
    EngineUnreachableError,
    error_of,
    is_local_url,
)
from pipelines.runners.job_context import (
    Submission,
    SubmittedJob,
    current_submission,
    root_cause,
)
from pipelines.runners.runner import BuildPipeline, flag_names, merge_flags
from pipelines.runners.worker_package import (
    file_system_packages,
    package_name,
    worker_requirements,
    write_worker_package,
)
from schemas.errors import BertloomError, ConfigError, RunnerError
from schemas.execution_configs import DataflowConfig, ExecutionConfig

_REQUEST_SECONDS = 10.0
_STATE_PREFIX = "JOB_STATE_"
_CONSOLE = "https://console.cloud.google.com/dataflow/jobs"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_REMEDY = "pip install 'bertloom[dataflow]'"


class DataflowApi:
    """Client for the jobs of a project in a region."""

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
        values = {flag.partition("=")[0]: flag.partition("=")[2] for flag in flags}
        self.project, self.region = values["--project"], values["--region"]
        self._types = dataflow
        endpoint = values.get("--dataflow_endpoint", "")
        # As Beam's own client reads an endpoint.
        how = {
            "credentials": _credentials(values),
            "transport": "rest" if "localhost" in endpoint or "sandbox" in endpoint else None,
            "client_options": {"api_endpoint": endpoint.rstrip("/")} if endpoint else None,
        }
        self._jobs = dataflow.JobsV1Beta3Client(**how)
        self._messages = dataflow.MessagesV1Beta3Client(**how)

    def running(self, name: str) -> list[SubmittedJob]:
        """Return the unfinished jobs with a name."""
        request = self._types.ListJobsRequest(
            filter=self._types.ListJobsRequest.Filter.ACTIVE, name=name
        )
        jobs = self._call("list jobs", self._jobs.list_jobs, request, convert=list)
        return [self.submitted(name, job.id) for job in jobs if job.name == name]

    def submitted(self, name: str, job: str) -> SubmittedJob:
        """Return a job with its page."""
        page = f"{_CONSOLE}/{self.region}/{job}?project={self.project}"
        return SubmittedJob(name, "dataflow", job, page)

    def state(self, job: str) -> str:
        """Return the state of a job, such as `RUNNING`."""
        request = self._types.GetJobRequest(job_id=job)
        response = self._call(f"look at job {job}", self._jobs.get_job, request)
        return str(response.current_state.name).removeprefix(_STATE_PREFIX)

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
            EngineUnreachableError: Dataflow does not answer, or refuses.
        """
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        request.project_id, request.location = self.project, self.region
        try:
            return convert(method(request, timeout=_REQUEST_SECONDS))
        except (GoogleAPIError, GoogleAuthError, OSError) as error:
            reason = str(getattr(error, "message", "")) or str(error)
            raise EngineUnreachableError(
                f"Dataflow (project {self.project}, {self.region}) did not {action}: {reason}"
            ) from error


def failure(messages: Sequence[str]) -> str:
    """Return the cause in the error messages of a job, a worker's last message first.

    >>> failure(["Traceback ...\\nOSError: no disk left", "Workflow failed. Causes: S01 failed"])
    'OSError: no disk left'
    """
    of_job = [text for text in messages if text.startswith("Workflow failed")]
    of_workers = [text for text in messages if text not in of_job]
    return root_cause("\n".join([*of_job, *of_workers]))


def _credentials(values: Mapping[str, str]) -> Any:
    """Return the credentials of the environment, as Beam finds them.

    Raises:
        ConfigError: The environment has no credentials.
    """
    import google.auth
    from google.auth import credentials, exceptions, impersonated_credentials

    if "--no_auth" in values:
        return credentials.AnonymousCredentials()
    try:
        default_credentials, _ = google.auth.default(scopes=[_SCOPE])
    except exceptions.GoogleAuthError as error:
        raise ConfigError(
            f"no credentials for Google Cloud: {str(error).rstrip('.')}: "
            "gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to the "
            "file of a service account's key"
        ) from error
    if not (accounts := values.get("--impersonate_service_account", "")):
        return default_credentials
    *delegates, target = accounts.split(",")
    return impersonated_credentials.Credentials(
        source_credentials=default_credentials,
        target_principal=target,
        delegates=delegates,
        target_scopes=[_SCOPE],
    )


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

# Beam warns of every wheel that it stages; ours has nothing compiled in it.
logging.getLogger("apache_beam.runners.portability.stager").setLevel(logging.ERROR)


class DataflowRunner(EngineRunner):
    """Google Cloud Dataflow: `execution.dataflow`, or options in `execution.beam_options`."""

    name = "dataflow"
    beam_runner = "DataflowRunner"
    can_share_disk = False
    max_parallel_steps = 8
    max_poll_seconds = 10.0
    max_silent_seconds = 300.0

    def __init__(self, execution: ExecutionConfig) -> None:
        super().__init__(execution)
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

    @functools.cached_property
    def _api(self) -> DataflowApi:
        return DataflowApi(self.flags)

    def problems(self, urls: Sequence[str]) -> Iterator[BertloomError | None]:
        for flag in self.flags:
            name, _, package = flag.partition("=")
            if name == _EXTRA_PACKAGE and is_local_url(package) and not Path(package).is_file():
                yield ConfigError(f"{package}: no such file, which workers are to install")
        if self.ships_worker_package:
            yield error_of(lambda: worker_requirements(file_system_packages(urls)))
        # Credentials, the project, the region and whether the API is switched on, in one request.
        yield error_of(lambda: self._api.running("bertloom"))

    def describe_job(self, urls: Sequence[str]) -> Iterator[str]:
        if self.ships_worker_package:
            requirements = worker_requirements(file_system_packages(urls))
            yield f"  {_EXTRA_PACKAGE}={package_name()}"
            yield f"workers install this package, made for each job, and {', '.join(requirements)}"

    def find_jobs(self, name: str) -> list[SubmittedJob]:
        return self._api.running(name)

    def cancel(self, job_id: str) -> None:
        self._api.cancel(job_id)

    @contextlib.contextmanager
    def job_flags(self, submission: Submission, num_elements: int) -> Iterator[list[str]]:
        del num_elements
        if not self.ships_worker_package:
            yield []
            return
        with TemporaryDirectory(prefix="bertloom-package-") as folder:
            file_systems = file_system_packages(submission.urls)
            package = write_worker_package(Path(folder), file_systems=file_systems)
            yield [f"{_EXTRA_PACKAGE}={package}"]

    def submit(self, job: str, build: BuildPipeline, *, flags: list[str]) -> EngineJob:
        import apache_beam as beam  # lazy: `plan` checks the API without Beam
        from apache_beam.options.pipeline_options import PipelineOptions

        try:
            pipeline = beam.Pipeline(runner=self.beam_runner, options=PipelineOptions(flags))
            build(pipeline)
            result: Any = pipeline.run()
        except BertloomError:
            raise
        except Exception as error:  # of any class of Beam and of Google's clients
            text = getattr(error, "message", None) or str(error)
            raise RunnerError(
                f"{job}: could not be submitted to Dataflow: {root_cause(str(text)) or repr(error)}"
            ) from error
        submission = current_submission(job)
        submitted = _DataflowJob(self._api, str(result.job_id()), submission)
        submission.on_submitted(submitted.submitted)
        return submitted


class _DataflowJob(EngineJob):
    """Job that was submitted to Dataflow."""

    def __init__(self, api: DataflowApi, job_id: str, submission: Submission) -> None:
        self._api, self._submission = api, submission
        self.submitted = api.submitted(submission.name, job_id)

    def poll(self) -> str:
        return self._api.state(self.submitted.id)

    def failure_reason(self, state: str) -> str:
        if state == "FAILED":
            for _ in range(_MESSAGE_POLLS):
                if reason := self._api.failure_reason(self.submitted.id):
                    return f"{reason} (job {self.submitted.id} on Dataflow)"
                self._submission.sleep(1.0)
        return (
            f"job {self.submitted.id} was ended as {state.lower()} on Dataflow by someone else: "
            f"{self.submitted.url}"
        )


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
