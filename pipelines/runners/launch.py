"""Where a job runs: one function a runner, listed in `RUNNERS`.

A runner function turns an `ExecutionConfig` into the name of a Beam runner and its options. To add
one, write a function and a line in `RUNNERS`. Beam is loaded by `pipelines.runners.run`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

from schemas.configs import ExecutionConfig
from schemas.errors import ConfigError

THIS_MACHINE = "FnApiRunner"


class Launch(NamedTuple):
    """A Beam runner with its options, and how many workers this machine gives it."""

    runner: str
    """Beam's name of it."""

    flags: tuple[str, ...]
    """Options as on Beam's command line."""

    lanes: int
    """Pieces of work are dealt to so many lanes; 0 lets the runner deal them out itself."""

    has_processes: bool = False
    """Whether each worker is a process of this machine."""

    @classmethod
    def of(cls, execution: ExecutionConfig) -> Self:
        """The launch that a configuration asks for.

        Raises:
            ConfigError: its runner is unknown, or an option that the runner needs is missing.

        >>> Launch.of(ExecutionConfig(workers=4)).lanes
        4
        """
        if execution.runner not in RUNNERS:
            raise ConfigError(
                f"unknown runner {execution.runner!r}: choose one of {', '.join(RUNNERS)}"
            )
        return cls(*RUNNERS[execution.runner](execution))


def _local(execution: ExecutionConfig) -> Launch:
    """This machine: in this process with one worker, in worker processes with more."""
    if execution.workers == 1:
        return Launch(THIS_MACHINE, execution.options, 1)
    flags = (
        f"--direct_num_workers={execution.workers}",
        "--default_sdk_harness_log_level=WARNING",
        *execution.options,
    )
    return Launch(THIS_MACHINE, flags, execution.workers, has_processes=True)


def _threads(execution: ExecutionConfig) -> Launch:
    """This machine, worker threads in one process: slower than processes, for comparison."""
    flags = (
        "--direct_running_mode=multi_threading",
        f"--direct_num_workers={execution.workers}",
        *execution.options,
    )
    return Launch(THIS_MACHINE, flags, execution.workers)


def _portable(execution: ExecutionConfig) -> Launch:
    """Any portable job service: give `--job_endpoint=HOST:PORT` and an environment in options."""
    if not any(flag.startswith("--job_endpoint") for flag in execution.options):
        raise ConfigError(
            "the portable runner needs to know its job service: add --job_endpoint=HOST:PORT (and "
            "--environment_type, --environment_config) to execution.options"
        )
    return Launch("PortableRunner", execution.options, 0)


def _dataflow(execution: ExecutionConfig) -> Launch:
    """Google Cloud Dataflow: give `--project`, `--region`, `--temp_location` in options."""
    given = {flag.split("=", 1)[0] for flag in execution.options}
    missing = sorted({"--project", "--region", "--temp_location"} - given)
    if missing:
        raise ConfigError(
            f"the dataflow runner needs {', '.join(missing)} in execution.options, "
            f"found {', '.join(sorted(given)) or 'none'}"
        )
    return Launch("DataflowRunner", execution.options, 0)


def _flink(execution: ExecutionConfig) -> Launch:
    """Apache Flink: give `--flink_master` and a job server jar in options."""
    return Launch("FlinkRunner", execution.options, 0)


def _spark(execution: ExecutionConfig) -> Launch:
    """Apache Spark: give `--spark_master_url` and a job server jar in options."""
    return Launch("SparkRunner", execution.options, 0)


RUNNERS: dict[str, Callable[[ExecutionConfig], Launch]] = {
    "local": _local,
    "threads": _threads,
    "portable": _portable,
    "dataflow": _dataflow,
    "flink": _flink,
    "spark": _spark,
}
