"""Where a job runs: one function a runner, listed in `RUNNERS`.

A runner function turns an `ExecutionConfig` into the name of a Beam runner and its options. To add
one, write a function and a line in `RUNNERS`. Beam is loaded by `pipelines.runners.run`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

from pipelines.runners.dataflow import DATAFLOW_RUNNER, dataflow_flags
from pipelines.runners.engines import (
    PORTABLE_RUNNER,
    Engine,
    flink_engine,
    flink_flags,
    portable_flags,
    spark_engine,
    spark_flags,
)
from schemas.errors import ConfigError
from schemas.execution_configs import ExecutionConfig

THIS_MACHINE = "FnApiRunner"
RUNNERS_HERE = frozenset({"local", "threads"})
"""Those whose steps share this machine's cores."""


class Launch(NamedTuple):
    """A Beam runner with its options, and how many workers this machine gives it."""

    runner: str
    """Beam's name of it."""

    flags: tuple[str, ...]
    """Options as on Beam's command line."""

    is_local: bool = False
    """Whether the job runs in this process and its worker processes."""

    workers: int = 1
    """Number of processes that work items are given to. 1: this process."""

    max_elements: int = 4096
    """Maximum number of elements in the graph of a job; if there are more items, elements share
    them."""

    packs_code: bool = False
    """Whether a job brings its workers a package of our code."""

    engine: Engine | None = None
    """What the job is handed to through a job service; None where there is no such."""

    @classmethod
    def of(cls, execution: ExecutionConfig) -> Self:
        """The launch that a configuration asks for.

        Raises:
            ConfigError: its runner is unknown, or an option that the runner needs is missing or
                contradicts another.

        >>> Launch.of(ExecutionConfig(workers=4)).workers
        4
        """
        check_known(execution.runner)
        return cls(*RUNNERS[execution.runner](execution))


def check_known(runner: str) -> None:
    """See that there is such a runner.

    Raises:
        ConfigError: there is none.
    """
    if runner not in RUNNERS:
        raise ConfigError(f"unknown runner {runner!r}: choose one of {', '.join(RUNNERS)}")


def _local(execution: ExecutionConfig) -> Launch:
    """This machine: in this process with one worker, in worker processes with more."""
    flags = execution.beam_options
    return Launch(THIS_MACHINE, flags, is_local=True, workers=execution.workers, max_elements=1)


def _threads(execution: ExecutionConfig) -> Launch:
    """This machine, worker threads in one process: slower than processes, for comparison."""
    flags = (
        "--direct_running_mode=multi_threading",
        f"--direct_num_workers={execution.workers}",
        *execution.beam_options,
    )
    return Launch(THIS_MACHINE, flags, is_local=True)


def _portable(execution: ExecutionConfig) -> Launch:
    """Any portable job service: `execution.portable`, or options written by hand."""
    flags, engine = portable_flags(execution)
    return Launch(PORTABLE_RUNNER, flags, engine=engine)


def _dataflow(execution: ExecutionConfig) -> Launch:
    """Google Cloud Dataflow: `execution.dataflow`, or options written by hand."""
    flags, has_code = dataflow_flags(execution)
    return Launch(DATAFLOW_RUNNER, flags, packs_code=not has_code)


def _flink(execution: ExecutionConfig) -> Launch:
    """Apache Flink: `execution.flink.master`, through Beam's job server."""
    engine = flink_engine(execution)
    return Launch(PORTABLE_RUNNER, flink_flags(execution, engine), engine=engine)


def _spark(execution: ExecutionConfig) -> Launch:
    """Apache Spark: `execution.spark.master`, through Beam's job server."""
    engine = spark_engine(execution)
    return Launch(PORTABLE_RUNNER, spark_flags(execution, engine), engine=engine)


RUNNERS: dict[str, Callable[[ExecutionConfig], Launch]] = {
    "local": _local,
    "threads": _threads,
    "portable": _portable,
    "dataflow": _dataflow,
    "flink": _flink,
    "spark": _spark,
}
