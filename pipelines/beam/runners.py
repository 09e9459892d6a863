"""Where a job runs: one function a runner, listed in `RUNNERS`.

A runner function turns an `ExecutionConfig` into a Beam runner and its options. To add one, write
a function and a line in `RUNNERS`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import NamedTuple

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.runners.runner import PipelineRunner, PipelineState
from apache_beam.transforms import environments

from pipelines.beam.quiet import without_tracebacks
from schemas.configs import ExecutionConfig
from schemas.errors import BertloomError, ConfigError, RunnerError


class Launch(NamedTuple):
    """A Beam runner with its options, and how many workers this machine gives it."""

    runner: PipelineRunner | str
    options: PipelineOptions
    lanes: int
    """Pieces of work are dealt to so many lanes; 0 lets the runner deal them out itself."""


def _fn_api_runner(
    options: PipelineOptions, environment: environments.Environment | None = None
) -> PipelineRunner:
    # Built by hand for two reasons: the default runner first tries to download Prism, and
    # `--runner=FnApiRunner` does not hand the pipeline's options on to worker processes.
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    provision = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return fn_runner.FnApiRunner(
        default_environment=environment,
        provision_info=fn_runner.ExtendedProvisionInfo(provision),
    )


def _worker_command() -> str:
    return shlex.join([sys.executable, "-m", "pipelines.beam.worker"])


def _options(execution: ExecutionConfig, *more: str) -> PipelineOptions:
    # `__main__` is a thin launcher: workers import what they need, nothing is pickled from it.
    # Beam reads sys.argv where it is given no flags; ours are not for Beam.
    return PipelineOptions([*more, *execution.options])


def _local(execution: ExecutionConfig) -> Launch:
    """This machine: in this process with one worker, in worker processes with more."""
    if execution.workers == 1:
        options = _options(execution)
        return Launch(_fn_api_runner(options), options, 1)
    options = _options(
        execution,
        f"--direct_num_workers={execution.workers}",
        "--default_sdk_harness_log_level=WARNING",
    )
    workers = environments.SubprocessSDKEnvironment.from_command_string(_worker_command())
    return Launch(_fn_api_runner(options, workers), options, execution.workers)


def _threads(execution: ExecutionConfig) -> Launch:
    """This machine, worker threads in one process: slower than processes, for comparison."""
    options = _options(
        execution,
        "--direct_running_mode=multi_threading",
        f"--direct_num_workers={execution.workers}",
    )
    return Launch(_fn_api_runner(options), options, execution.workers)


def _portable(execution: ExecutionConfig) -> Launch:
    """Any portable job service: give `--job_endpoint=HOST:PORT` and an environment in options."""
    if not any(flag.startswith("--job_endpoint") for flag in execution.options):
        raise ConfigError(
            "the portable runner needs to know its job service: add --job_endpoint=HOST:PORT (and "
            "--environment_type, --environment_config) to execution.options"
        )
    return Launch("PortableRunner", _options(execution), 0)


def _dataflow(execution: ExecutionConfig) -> Launch:
    """Google Cloud Dataflow: give `--project`, `--region`, `--temp_location` in options."""
    given = {flag.split("=", 1)[0] for flag in execution.options}
    missing = sorted({"--project", "--region", "--temp_location"} - given)
    if missing:
        raise ConfigError(
            f"the dataflow runner needs {', '.join(missing)} in execution.options, "
            f"found {', '.join(sorted(given)) or 'none'}"
        )
    return Launch("DataflowRunner", _options(execution), 0)


def _flink(execution: ExecutionConfig) -> Launch:
    """Apache Flink: give `--flink_master` and a job server jar in options."""
    return Launch("FlinkRunner", _options(execution), 0)


def _spark(execution: ExecutionConfig) -> Launch:
    """Apache Spark: give `--spark_master_url` and a job server jar in options."""
    return Launch("SparkRunner", _options(execution), 0)


RUNNERS: dict[str, Callable[[ExecutionConfig], Launch]] = {
    "local": _local,
    "threads": _threads,
    "portable": _portable,
    "dataflow": _dataflow,
    "flink": _flink,
    "spark": _spark,
}


def launch_for(execution: ExecutionConfig) -> Launch:
    """The Beam runner that a configuration names.

    Raises:
        ConfigError: the name is unknown, or an option that the runner needs is missing.
    """
    if execution.runner not in RUNNERS:
        raise ConfigError(
            f"unknown runner {execution.runner!r}: choose one of {', '.join(RUNNERS)}"
        )
    return RUNNERS[execution.runner](execution)


def run_pipeline(job: str, build: Callable[[beam.Pipeline], None], *, launch: Launch) -> None:
    """Build a pipeline and run it to its end.

    Raises:
        BertloomError: as a worker raised it, where it ran in this process.
        RunnerError: anything else that went wrong on the runner.
    """
    pipeline = beam.Pipeline(runner=launch.runner, options=launch.options)
    build(pipeline)
    try:
        with without_tracebacks():
            state = pipeline.run().wait_until_finish()
    except Exception as error:
        raise _explain(job, error) from error
    if state not in (PipelineState.DONE, None):
        raise RunnerError(
            f"{job}: the runner ended in state {state}, expected {PipelineState.DONE}; "
            "its own log says why"
        )


def _explain(job: str, error: BaseException) -> BertloomError:
    """The bertloom error a worker raised, dug out of the runner's own, or a `RunnerError`."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, BertloomError):
            return seen
        seen = seen.__cause__ or seen.__context__
    # Worker processes send their errors as text: the last line is what the worker raised.
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    marks = [line.strip() for line in lines if line.startswith("schemas.errors.")]
    last = marks[-1] if marks else (lines[-1].strip() if lines else repr(error))
    return RunnerError(f"{job}: {last.removeprefix('schemas.errors.')}")
