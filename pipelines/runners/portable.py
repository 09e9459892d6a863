"""Engines behind a Beam job service: their options, job server and preflight checks."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.runners.engine import POLL_SECONDS, EngineJob, EngineRunner, error_of
from pipelines.runners.job_context import Submission, SubmittedJob, current_submission
from pipelines.runners.job_server import (
    JobServer,
    connection_error,
    find_jar,
    find_java,
    get_job_server,
)
from pipelines.runners.runner import BuildPipeline, flag_names, merge_flags
from schemas.errors import BertloomError, ConfigError, RunnerError
from schemas.execution_configs import ExecutionConfig, FlinkConfig, SparkConfig, WorkerCodeConfig

WORKER_PROGRAM = "bertloom-beam-worker"
"""Name of the boot program `pipelines.runners.beam_worker`, next to this Python."""

SKIP_PIP_FREEZE_FLAG = "--experiments=disable_logging_submission_environment"
"""Keeps Beam from running `pip freeze` for each job."""

_ENVIRONMENT_FLAGS = {"--environment_type", "--environment_config", "--environment_options"}
_LOOPBACK = {"localhost", "127.0.0.1", "::1", "[::1]", ""}
_turn = threading.Lock()


class NoSlotsError(RunnerError):
    """A job waits for more slots than are free. Resubmit it with fewer."""


class PortableRunner(EngineRunner):
    """Any Beam job service: `execution.portable`, or options in `execution.beam_options`."""

    name = "portable"
    beam_runner = "PortableRunner"
    rest = ""
    """Address of the cluster's REST interface; "" without one."""

    _required = (
        "job_endpoint to HOST:PORT of a job service (or add --job_endpoint=HOST:PORT to "
        "execution.beam_options)"
    )

    def __init__(self, execution: ExecutionConfig) -> None:
        super().__init__(execution)
        self._config: WorkerCodeConfig = getattr(execution, self.name)
        by_hand = [f for f in execution.beam_options if f.startswith("--job_endpoint=")]
        own = getattr(self._config, "job_endpoint", None)
        self.endpoint: str = own or "".join(by_hand[-1:]).partition("=")[2]
        """HOST:PORT of a running job service; "" to start a job server."""

        self.master: str = getattr(self._config, "master", None) or ""
        """Address of the cluster; "" if only its job service is known."""

        has_server = isinstance(self._config, FlinkConfig | SparkConfig)
        self.server_config = self._config if has_server and not self.endpoint else None
        """Configuration of the job server to start; None if one is running."""

        self.parallelism: int | None = getattr(self._config, "parallelism", None)
        self._server: JobServer | None = None
        if not self.endpoint and not self.master:
            raise ConfigError(
                f"the {self.name} runner needs an address: set execution.{self.name}."
                f"{self._required}"
            )
        addresses = (self.master, self.endpoint)
        self.is_embedded = self.master == "[local]" or self.master.startswith("local[")
        """True if the engine runs inside its job server, without a cluster."""

        self.is_here = (self.is_embedded and not self.endpoint) or all(
            _host(address) in _LOOPBACK for address in addresses
        )
        flags = [*self._environment_flags(), *self._own_flags()]
        if own:
            flags.append(f"--job_endpoint={own}")
        self.flags = merge_flags(flags, execution.beam_options)

    def _own_flags(self) -> list[str]:
        """Return the flags of this engine's fields."""
        return []

    def _environment_flags(self) -> list[str]:
        """Return the flags that give workers bertloom's code; none if `beam_options` does."""
        config, where = self._config, f"execution.{self.name}"
        if by_hand := flag_names(self._execution.beam_options) & _ENVIRONMENT_FLAGS:
            if {"environment", "worker_command", "worker_pool", "image"} & config.model_fields_set:
                raise ConfigError(
                    f"{', '.join(sorted(by_hand))} in execution.beam_options and {where} both say "
                    "how workers get their code: leave one of them out"
                )
            return []
        if config.environment == "external":
            return ["--environment_type=EXTERNAL", f"--environment_config={config.worker_pool}"]
        if config.environment == "docker":
            return ["--environment_type=DOCKER", f"--environment_config={config.image}"]
        is_shared = self.is_here or self._execution.shared_filesystem
        if config.worker_command is None and not is_shared:
            raise ConfigError(
                f"workers of {self.master or self.endpoint} have no way to get bertloom's code: "
                f"set {where}.worker_command to the path of {WORKER_PROGRAM} on its machines, or "
                f"{where}.environment to docker or external; or execution.shared_filesystem=true, "
                f"where {Path(sys.executable).parent} is the same folder there"
            )
        command = json.dumps({"command": config.worker_command or worker_program()})
        return ["--environment_type=PROCESS", f"--environment_config={command}"]

    # Jobs

    def find_jobs(self, name: str) -> list[SubmittedJob]:
        from pipelines.runners import job_service  # lazy: loads Beam

        return job_service.list_jobs(self, name) if self.endpoint else []

    def cancel(self, job_id: str) -> None:
        from pipelines.runners import job_service  # lazy: loads Beam

        job_service.cancel_job(self.endpoint, job_id)

    def check_job(self, job_id: str) -> None:
        """Check a running job on its cluster, if that has a REST interface.

        Raises:
            NoSlotsError: The job has waited for slots for too long.
            RunnerError: The cluster does not answer, or lost the job.
        """

    def wait_for_slots(self, num_elements: int, submission: Submission) -> int:
        """Return the number of slots for a job, once they are free."""
        del submission
        cores = os.cpu_count() or 1 if self.is_embedded else num_elements
        return min(num_elements, self.parallelism or cores)

    def slot_flags(self, num_slots: int | str) -> list[str]:
        """Return the options of a job that gets some slots."""
        del num_slots
        return [SKIP_PIP_FREEZE_FLAG]

    @contextlib.contextmanager
    def job_flags(self, submission: Submission, num_elements: int) -> Iterator[list[str]]:
        """Start a job server, and wait for slots."""
        flags = []
        if self.server_config is not None:
            self._server = get_job_server(self.server_config, submission)
            flags += [f"--job_endpoint={self._server.endpoint}"]
        yield flags + self.slot_flags(self.wait_for_slots(num_elements, submission))

    def submit(self, job: str, build: BuildPipeline, *, flags: list[str]) -> EngineJob:
        from pipelines.runners import job_service  # lazy: loads Beam

        endpoint = self._server.endpoint if self._server else self.endpoint
        return job_service.submit_job(self, job, build, endpoint=endpoint, flags=flags)

    def run(self, job: str, build: BuildPipeline, *, num_elements: int = 1) -> None:
        """Wait for the job that another thread runs on an engine."""
        submission = current_submission(job)
        while not _turn.acquire(timeout=POLL_SECONDS):
            submission.sleep(0)
        try:
            while True:
                try:
                    super().run(job, build, num_elements=num_elements)
                    return
                except NoSlotsError as error:
                    submission.log(f"{error}; resubmitting with the free slots")
                    self.cancel_all(submission)
                    self.wait_until_over(submission)
        finally:
            _turn.release()

    # The job server that this process started

    def check_server(self) -> None:
        """Raise RunnerError if the job server has ended."""
        if self._server is not None:
            self._server.check()

    def server_log_cause(self) -> str:
        """Return the cause in the end of the job server's log; "" without a job server."""
        return self._server.log_cause() if self._server is not None else ""

    # Before a run

    def problems(self, urls: Sequence[str]) -> Iterator[BertloomError | None]:
        del urls
        program = worker_program()
        if any(program in flag for flag in self.flags) and not os.access(program, os.X_OK):
            yield ConfigError(
                f"{program}: worker program not found. Reinstall bertloom there (pip install), or "
                "set worker_command"
            )
        if (server := self.server_config) is not None:
            yield error_of(lambda: find_jar(server))
            yield error_of(find_java)
        yield error_of(self._check_answers)

    def _check_answers(self) -> None:
        """Raise RunnerError if a job service or cluster does not answer."""
        if self.endpoint and (why := connection_error(self.endpoint)):
            raise RunnerError(f"no job service answers at {self.endpoint}: {why}")

    def describe_job(self, urls: Sequence[str]) -> Iterator[str]:
        del urls
        if self.server_config is not None:
            yield "  --job_endpoint=localhost:PORT"
        slots = "min(work items, free slots)" if self.rest else "min(work items, cores)"
        yield from (f"  {flag}" for flag in self.slot_flags(slots))


def worker_program() -> str:
    """Return the path of the boot program of this Python."""
    return str(Path(sys.executable).parent / WORKER_PROGRAM)


def _host(address: str) -> str:
    if address.startswith(("[local]", "local[")):
        return ""
    netloc = address.split("://", 1)[-1].split("/", 1)[0]
    return netloc.rpartition(":")[0] if ":" in netloc else netloc
