"""Runners by name."""

from __future__ import annotations

from collections.abc import Callable

from pipelines.runners.dataflow import DataflowRunner
from pipelines.runners.direct import LocalRunner
from pipelines.runners.flink import FlinkRunner
from pipelines.runners.portable import PortableRunner
from pipelines.runners.runner import Runner
from pipelines.runners.spark import SparkRunner
from schemas.errors import ConfigError
from schemas.execution_configs import ExecutionConfig

RUNNERS: dict[str, Callable[[ExecutionConfig], Runner]] = {
    "local": LocalRunner,
    "portable": PortableRunner,
    "dataflow": DataflowRunner,
    "flink": FlinkRunner,
    "spark": SparkRunner,
}


def check_known(runner: str) -> None:
    """Raise ConfigError if there is no runner of this name."""
    if runner not in RUNNERS:
        raise ConfigError(f"unknown runner {runner!r}: choose one of {', '.join(RUNNERS)}")


def get_runner(execution: ExecutionConfig) -> Runner:
    """Return the runner of a configuration.

    Raises:
        ConfigError: The runner is unknown, or an option is missing or contradicts another.

    >>> get_runner(ExecutionConfig(workers=4)).workers
    4
    """
    check_known(execution.runner)
    return RUNNERS[execution.runner](execution)
