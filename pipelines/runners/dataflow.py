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

        values = {flag.partition("=")[0]: flag.partition("=")[2] for flag in self.flags}
        self._values: Mapping[str, str] = values
        self._project, self._region = values["--project"], values["--region"]

    def problems(self, urls: Sequence[str]) -> Iterator[BertloomError | None]:
        for flag in self.flags:
            name, _, package = flag.partition("=")
            if name == _EXTRA_PACKAGE and is_local_url(package) and not Path(package).is_file():
                yield ConfigError(f"{package}: no such file, which workers are to install")
        if self.ships_worker_package:
            yield error_of(lambda: worker_requirements(file_system_packages(urls)))
        # Credentials, the project, the region and whether the API is switched on, in one request.
        yield error_of(lambda: self.find_jobs("bertloom"))

    def describe_job(self, urls: Sequence[str]) -> Iterator[str]:
        if self.ships_worker_package:
            requirements = worker_requirements(file_system_packages(urls))
            yield f"  {_EXTRA_PACKAGE}={package_name()}"
            yield f"workers install this package, made for each job, and {', '.join(requirements)}"

    # Requests to Dataflow

    @functools.cached_property
    def _types(self) -> Any:
        try:
            from google.cloud import dataflow  # lazy: only jobs on Dataflow need it
        except ImportError as error:
            raise ConfigError(f"Dataflow's client is not installed: {_REMEDY}") from error
        return dataflow

    @functools.cached_property
    def _clients(self) -> tuple[Any, Any]:
        """Clients of jobs and of their messages."""
        endpoint = self._values.get("--dataflow_endpoint", "")
        # As Beam's own client reads an endpoint.
        options = {
            "credentials": _credentials(self._values),
            "transport": "rest" if "localhost" in endpoint or "sandbox" in endpoint else None,
            "client_options": {"api_endpoint": endpoint.rstrip("/")} if endpoint else None,
        }
        types = self._types
        return types.JobsV1Beta3Client(**options), types.MessagesV1Beta3Client(**options)

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

        request.project_id, request.location = self._project, self._region
        try:
            return convert(method(request, timeout=_REQUEST_SECONDS))
        except (GoogleAPIError, GoogleAuthError, OSError) as error:
            reason = str(getattr(error, "message", "")) or str(error)
            raise EngineUnreachableError(
                f"Dataflow (project {self._project}, {self._region}) did not {action}: {reason}"
            ) from error

    def find_jobs(self, name: str) -> list[SubmittedJob]:
        types, (client, _) = self._types, self._clients
        request = types.ListJobsRequest(filter=types.ListJobsRequest.Filter.ACTIVE, name=name)
        jobs = self._call("list jobs", client.list_jobs, request, convert=list)
        return [self._submitted(name, job.id) for job in jobs if job.name == name]

    def _submitted(self, name: str, job_id: str) -> SubmittedJob:
        """Return a job with its page."""
        page = f"{_CONSOLE}/{self._region}/{job_id}?project={self._project}"
        return SubmittedJob(name, self.name, job_id, page)

    def cancel(self, job_id: str) -> None:
        types, (client, _) = self._types, self._clients
        cancelled = types.Job(requested_state=types.JobState.JOB_STATE_CANCELLED)
        request = types.UpdateJobRequest(job_id=job_id, job=cancelled)
        self._call(f"cancel job {job_id}", client.update_job, request)

    def job_state(self, job_id: str) -> str:
        """Return the state of a job, such as `RUNNING`."""
        request = self._types.GetJobRequest(job_id=job_id)
        response = self._call(f"look at job {job_id}", self._clients[0].get_job, request)
        return str(response.current_state.name).removeprefix(_STATE_PREFIX)

    def job_error(self, job_id: str) -> str:
        """Return why a job failed, if possible in the words of its worker; "" if not known yet."""
        types, (_, client) = self._types, self._clients
        importance = types.JobMessageImportance.JOB_MESSAGE_ERROR
        request = types.ListJobMessagesRequest(job_id=job_id, minimum_importance=importance)
        action = f"read the messages of job {job_id}"
        messages = self._call(action, client.list_job_messages, request, convert=list)
        texts = [str(message.message_text) for message in messages]
        texts.sort(key=lambda text: not text.startswith("Workflow failed"))
        return root_cause("\n".join(texts))

    # Jobs

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
        submitted = self._submitted(submission.name, str(result.job_id()))
        submission.on_submitted(submitted)
        return _DataflowJob(self, submitted, submission)


class _DataflowJob(EngineJob):
    """Job that was submitted to Dataflow."""

    def __init__(
        self, runner: DataflowRunner, submitted: SubmittedJob, submission: Submission
    ) -> None:
        self._runner, self.submitted, self._submission = runner, submitted, submission

    def poll(self) -> str:
        return self._runner.job_state(self.submitted.id)

    def failure_reason(self, state: str) -> str:
        if state == "FAILED":
            for _ in range(_MESSAGE_POLLS):
                if reason := self._runner.job_error(self.submitted.id):
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
