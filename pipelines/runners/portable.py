"""Engines behind a Beam job service: their options, job server and preflight checks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.runners import job_server
from pipelines.runners.clusters import ClusterJob, connection_error
from pipelines.runners.job_context import Submission
from pipelines.runners.runner import (
    BuildPipeline,
    Runner,
    check_reachable,
    error_of,
    flag_names,
    indented,
    merge_flags,
)
from schemas.errors import BertloomError, ConfigError, RunnerError, raise_all
from schemas.execution_configs import ExecutionConfig, JobServerConfig, WorkerCodeConfig

WORKER_PROGRAM = "bertloom-beam-worker"
"""Name of the boot program `pipelines.runners.beam_worker`, next to this Python."""

SKIP_PIP_FREEZE_FLAG = "--experiments=disable_logging_submission_environment"
"""Keeps Beam from running `pip freeze` for each job."""

_ENVIRONMENT_FLAGS = {"--environment_type", "--environment_config", "--environment_options"}
_LOOPBACK = {"localhost", "127.0.0.1", "::1", "[::1]", ""}


class PortableRunner(Runner):
    """Any Beam job service: `execution.portable`, or options in `execution.beam_options`."""

    name = "portable"
    rest = ""
    """Address of the cluster's REST interface; "" without one."""

    _required = (
        "job_endpoint to HOST:PORT of a job service (or add --job_endpoint=HOST:PORT to "
        "execution.beam_options)"
    )

    def __init__(self, execution: ExecutionConfig) -> None:
        self._execution = execution
        self._config: WorkerCodeConfig = getattr(execution, self.name)
        by_hand = [f for f in execution.beam_options if f.startswith("--job_endpoint=")]
        own = getattr(self._config, "job_endpoint", None)
        self.endpoint: str = own or "".join(by_hand[-1:]).partition("=")[2]
        """HOST:PORT of a running job service; "" to start a job server."""

        self.master: str = getattr(self._config, "master", None) or ""
        """Address of the cluster; "" if only its job service is known."""

        self.parallelism: int | None = getattr(self._config, "parallelism", None)
        if not self.endpoint and not self.master:
            raise ConfigError(
                f"the {self.name} runner needs an address: set execution.{self.name}."
                f"{self._required}"
            )
        flags = [*self._environment_flags(), *self._own_flags()]
        if own:
            flags.append(f"--job_endpoint={own}")
        self.flags = merge_flags(flags, execution.beam_options)

    @property
    def server_config(self) -> JobServerConfig | None:
        """Configuration of the job server to start; None if one is running."""
        return None if self.endpoint else self._config  # type: ignore[return-value]

    @property
    def is_embedded(self) -> bool:
        """True if the engine runs inside its job server, without a cluster."""
        return self.master == "[local]" or self.master.startswith("local[")

    @property
    def _is_here(self) -> bool:
        """True if the engine, and so its workers, are on this machine."""
        if self.is_embedded and not self.endpoint:
            return True
        return all(_host(address) in _LOOPBACK for address in (self.master, self.endpoint))

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
        is_shared = self._is_here or self._execution.shared_filesystem
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

    def find_jobs(self, name: str) -> list[ClusterJob]:
        """Return the unfinished jobs with a name.

        Raises:
            RunnerError: The engine does not answer.
        """
        from pipelines.runners import engine_jobs  # lazy: loads Beam

        return engine_jobs.list_jobs(self.endpoint, name) if self.endpoint else []

    def cancel(self, job: ClusterJob) -> None:
        """Cancel a job.

        Raises:
            RunnerError: The engine does not answer.
        """
        from pipelines.runners import engine_jobs  # lazy: loads Beam

        engine_jobs.cancel_job(self.endpoint, job.id)

    def is_waiting_for_slots(self, job: str) -> bool:
        """Return whether a job waits for slots, if the engine says so."""
        del job
        return False

    def wait_for_slots(self, num_elements: int, submission: Submission) -> int:
        """Return the number of slots for a job, once they are free."""
        del submission
        cores = os.cpu_count() or 1 if self.is_embedded else num_elements
        return min(num_elements, self.parallelism or cores)

    def job_flags(self, num_slots: int | str) -> list[str]:
        """Return the options of a job, in addition to `flags`."""
        del num_slots
        return [SKIP_PIP_FREEZE_FLAG]

    def attach(self, job: str) -> None:
        """See `Runner.attach`."""
        from pipelines.runners.engine_jobs import attach  # lazy: loads Beam

        attach(self, job)

    def run(self, job: str, build: BuildPipeline, *, num_elements: int = 1) -> None:
        """See `Runner.run`."""
        from pipelines.runners.engine_jobs import run_job  # lazy: loads Beam

        run_job(self, job, build, num_elements=num_elements)

    # Before a run

    def preflight(self, *, store: str, inputs: Sequence[str]) -> None:
        """See `Runner.preflight`."""
        check_reachable(
            self._execution,
            store=store,
            inputs=inputs,
            is_here=self._is_here,
            can_share_disk=True,
        )
        if self._execution.detach and self.is_embedded:
            raise ConfigError(
                f"detach: {self.master} runs inside the job server, which ends with the run, and "
                "its jobs with it: leave detach out"
            )
        raise_all(self._problems())

    def _problems(self) -> Iterator[BertloomError | None]:
        program = worker_program()
        if any(program in flag for flag in self.flags) and not os.access(program, os.X_OK):
            yield ConfigError(
                f"{program}: worker program not found. Reinstall bertloom there (pip install), or "
                "set worker_command"
            )
        if self.server_config is not None:
            yield error_of(lambda: job_server.find_jars(self))
            yield error_of(job_server.find_java)
        yield error_of(self._check_answers)

    def _check_answers(self) -> None:
        """Raise RunnerError if a job service or cluster does not answer."""
        if self.endpoint and (why := connection_error(self.endpoint)):
            raise RunnerError(f"no job service answers at {self.endpoint}: {why}")

    def describe(self, urls: Sequence[str]) -> list[str]:
        """See `Runner.describe`."""
        del urls
        lines = [f"runner {self.name}: Beam's PortableRunner", *indented(self.flags)]
        if self.server_config is not None:
            lines += indented(["--job_endpoint=localhost:PORT"])
        lines += indented(self.job_flags(self._count_text()))
        # A dry run prints what is missing after the options; a run raises.
        for describe in (self._describe_server, self._describe_cluster):
            try:
                lines += describe()
            except BertloomError as error:
                lines.append(f"missing: {error}")
        return lines

    def _count_text(self) -> str:
        return "min(work items, cores)"

    def _describe_server(self) -> list[str]:
        if self.server_config is None:
            return []
        jars = job_server.find_jars(self).jars
        folder = os.path.commonpath([str(Path(jar).parent) for jar in jars]) if jars else ""
        text = f"{len(jars)} jars of {folder}" if len(jars) > 1 else "".join(jars)
        return [f"a job server is started for {self.master}: {text or 'to be downloaded'}"]

    def _describe_cluster(self) -> list[str]:
        return []


def worker_program() -> str:
    """Return the path of the boot program of this Python."""
    return str(Path(sys.executable).parent / WORKER_PROGRAM)


def _host(address: str) -> str:
    if address.startswith(("[local]", "local[")):
        return ""
    netloc = address.split("://", 1)[-1].split("/", 1)[0]
    return netloc.rpartition(":")[0] if ":" in netloc else netloc
