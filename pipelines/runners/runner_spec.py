"""Runner and Beam options of an `ExecutionConfig`: one function per runner, listed in `RUNNERS`.

Nothing here reads a disk or a network; `pipelines.runners.preflight` does, before a run.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from schemas.errors import ConfigError
from schemas.execution_configs import (
    DataflowConfig,
    ExecutionConfig,
    FlinkConfig,
    JobServerConfig,
    SparkConfig,
    WorkerCodeConfig,
)

PORTABLE_RUNNER = "PortableRunner"
WORKER_PROGRAM = "bertloom-beam-worker"
"""Name of the boot program `pipelines.runners.beam_worker`, next to this Python."""

IN_JOB_SERVER = "[local]"
"""The master of a Flink inside its job server."""

LEAN_FLAG = "--experiments=disable_logging_submission_environment"
"""Else Beam runs `pip freeze` for each job, and sends along what it says."""

_CACHE = "--environment_cache_millis"
_CACHE_MILLIS = 10_000
"""Spark's executors end their Python workers after each stage of a job, of which ours have four to
seven, and start others; not those whose time has not run out."""

_WORKERS = "--sdk_worker_parallelism"
_LOCAL = re.compile(r"local\[(\d+)\]")
"""A Spark inside its job server: without more workers than one, one Python works for all cores."""

_ENVIRONMENT_FLAGS = {"--environment_type", "--environment_config", "--environment_options"}
_LOOPBACK = {"localhost", "127.0.0.1", "::1", "[::1]", ""}


class Engine(NamedTuple):
    """An engine behind a job service."""

    name: str
    """`flink`, `spark` or `portable`."""

    master: str = ""
    """Address of its cluster; "" if only its job service is known."""

    endpoint: str = ""
    """HOST:PORT of a running job service; "": start a job server."""

    rest: str = ""
    """Address of a Flink cluster's REST interface; "" without one."""

    parallelism: int | None = None
    server: JobServerConfig | None = None
    """Job server to start if `endpoint` is ""."""

    @property
    def is_in_job_server(self) -> bool:
        """True if the engine runs inside its job server, without a cluster."""
        return self.master == IN_JOB_SERVER or self.master.startswith("local[")

    @property
    def is_here(self) -> bool:
        """True if its addresses are on this machine, and so its workers."""
        if self.is_in_job_server and not self.endpoint:
            return True
        return all(_host(address) in _LOOPBACK for address in (self.master, self.endpoint))


def _host(address: str) -> str:
    if address.startswith(("[local", "local[")):
        return ""
    netloc = address.split("://", 1)[-1].split("/", 1)[0]
    return netloc.rpartition(":")[0] if ":" in netloc else netloc


def flags_once(own: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    """Return the flags of fields, followed by `beam_options`.

    Raises:
        ConfigError: A field and an option set the same flag.
    """
    made = {flag.split("=", 1)[0] for flag in own}
    for flag in options:
        name = flag.split("=", 1)[0]
        if name in made:
            raise ConfigError(
                f"{name} is said twice: in execution.beam_options ({flag}), and by a field of "
                "execution. Leave one of them out"
            )
        if name in ("--runner", "--job_name"):
            raise ConfigError(f"{flag} cannot be in execution.beam_options: bertloom sets {name}")
    return (*own, *options)


def flink_engine(execution: ExecutionConfig) -> Engine:
    """Return the Flink of a configuration."""
    config: FlinkConfig = execution.flink
    master = config.master or ""
    if not master and not config.job_endpoint:
        raise ConfigError(
            "the flink runner needs to know its cluster: set execution.flink.master to HOST:PORT "
            "of its REST interface, or to [local] for a Flink inside the job server; or "
            "execution.flink.job_endpoint, for a job server that runs"
        )
    rest = "" if not master or master == IN_JOB_SERVER else master.rstrip("/")
    if rest and "://" not in rest:
        rest = f"http://{rest}"
    return Engine(
        "flink",
        master,
        endpoint=config.job_endpoint or "",
        rest=rest,
        parallelism=config.parallelism,
        server=None if config.job_endpoint else config,
    )


def spark_engine(execution: ExecutionConfig) -> Engine:
    """Return the Spark of a configuration."""
    config: SparkConfig = execution.spark
    master = config.master or ""
    if not master and not config.job_endpoint:
        raise ConfigError(
            "the spark runner needs to know its cluster: set execution.spark.master to "
            "spark://HOST:PORT, or to local[2] for a Spark inside the job server; or "
            "execution.spark.job_endpoint, for a job server that runs"
        )
    if master and not master.startswith(("spark://", "local")):
        raise ConfigError(
            f"execution.spark.master: expected spark://HOST:PORT or local[N], found {master!r}"
        )
    return Engine(
        "spark",
        master,
        endpoint=config.job_endpoint or "",
        parallelism=config.parallelism,
        server=None if config.job_endpoint else config,
    )


def flink_flags(execution: ExecutionConfig, engine: Engine) -> tuple[str, ...]:
    """Return Beam's options of a Flink job, without name and number of slots."""
    own = [*environment_flags(execution.flink, execution, engine), *_endpoint_flags(engine)]
    if engine.parallelism:
        own.append(f"--parallelism={engine.parallelism}")
    return flags_once(own, execution.beam_options)


def spark_flags(execution: ExecutionConfig, engine: Engine) -> tuple[str, ...]:
    """Return Beam's options of a Spark job, without its name."""
    own = [*environment_flags(execution.spark, execution, engine), *_endpoint_flags(engine)]
    given = {flag.split("=", 1)[0] for flag in execution.beam_options}
    if _CACHE not in given:
        own.append(f"{_CACHE}={_CACHE_MILLIS}")
    if _WORKERS not in given and (cores := _LOCAL.fullmatch(engine.master)):
        own.append(f"{_WORKERS}={cores[1]}")
    return flags_once(own, execution.beam_options)


def portable_flags(execution: ExecutionConfig) -> tuple[tuple[str, ...], Engine]:
    """Return Beam's options of a job on a job service, and the engine."""
    config = execution.portable
    by_hand = [
        flag.split("=", 1)[1]
        for flag in execution.beam_options
        if flag.startswith("--job_endpoint=")
    ]
    endpoint = config.job_endpoint or (by_hand[-1] if by_hand else "")
    if not endpoint:
        raise ConfigError(
            "the portable runner needs to know its job service: set execution.portable."
            "job_endpoint to HOST:PORT (or add --job_endpoint=HOST:PORT to execution.beam_options)"
        )
    engine = Engine("portable", endpoint=endpoint)
    own = environment_flags(config, execution, engine)
    if config.job_endpoint:
        own.append(f"--job_endpoint={endpoint}")
    return flags_once(own, execution.beam_options), engine


def environment_flags(
    config: WorkerCodeConfig, execution: ExecutionConfig, engine: Engine
) -> list[str]:
    """Return the flags that give workers bertloom's code; none if `beam_options` does.

    Raises:
        ConfigError: No way, or more than one, is configured.
    """
    by_hand = {flag.split("=", 1)[0] for flag in execution.beam_options} & _ENVIRONMENT_FLAGS
    where = f"execution.{engine.name}"
    if by_hand:
        if {"environment", "worker_command", "worker_pool", "image"} & config.model_fields_set:
            raise ConfigError(
                f"{', '.join(sorted(by_hand))} in execution.beam_options and {where} both say how "
                "workers get their code: leave one of them out"
            )
        return []
    if config.environment == "external":
        return ["--environment_type=EXTERNAL", f"--environment_config={config.worker_pool}"]
    if config.environment == "docker":
        return ["--environment_type=DOCKER", f"--environment_config={config.image}"]
    if config.worker_command is None and not (engine.is_here or execution.shared_filesystem):
        raise ConfigError(
            f"workers of {engine.master or engine.endpoint} have no way to get bertloom's code: "
            f"set {where}.worker_command to the path of {WORKER_PROGRAM} on its machines, or "
            f"{where}.environment to docker or external; or execution.shared_filesystem=true, "
            f"where {Path(sys.executable).parent} is the same folder there"
        )
    command = config.worker_command or worker_program()
    return [
        "--environment_type=PROCESS",
        f"--environment_config={json.dumps({'command': command})}",
    ]


def parallelism_flags(engine: Engine, flags: Sequence[str], *, count: int | str) -> list[str]:
    """Return the flag for the number of slots, unless the engine or `beam_options` decides it."""
    is_given = any(flag.startswith("--parallelism=") for flag in flags)
    is_known = engine.name == "flink" and bool(engine.rest or engine.is_in_job_server)
    return [f"--parallelism={count}"] if is_known and not is_given else []


def worker_program() -> str:
    """Return the path of the boot program of this Python."""
    return str(Path(sys.executable).parent / WORKER_PROGRAM)


def _endpoint_flags(engine: Engine) -> list[str]:
    return [f"--job_endpoint={engine.endpoint}"] if engine.endpoint else []


DATAFLOW_RUNNER = "DataflowRunner"

_NEEDED = ("--project", "--region", "--temp_location")
_BRING_CODE = frozenset(
    {"--sdk_container_image", "--extra_package", "--extra_packages", "--setup_file"}
)
_GOALS = {"cost": "COST_OPTIMIZED", "speed": "SPEED_OPTIMIZED"}
_DEFAULTS = {
    # Each process of a worker has a core: more threads take memory, and wait for one another.
    "--number_of_worker_harness_threads": "--number_of_worker_harness_threads=1",
    # By default, Beam sends the contents of `__main__`: a launcher here, a notebook elsewhere.
    "--save_main_session": "--no_save_main_session",
}


def dataflow_flags(execution: ExecutionConfig) -> tuple[tuple[str, ...], bool]:
    """Return the options without the name, and whether they install bertloom on workers.

    Raises:
        ConfigError: A required option is missing, or set twice.
    """
    flags = flags_once(_own_flags(execution.dataflow), execution.beam_options)
    named = {flag.split("=", 1)[0] for flag in flags}
    missing = [name for name in _NEEDED if name not in named]
    if missing:
        fields = ", ".join(f"execution.dataflow.{name.removeprefix('--')}" for name in missing)
        raise ConfigError(
            f"the dataflow runner needs {', '.join(missing)}: set {fields}; "
            f"found {', '.join(sorted(named)) or 'none'}"
        )
    defaults = [flag for name, flag in _DEFAULTS.items() if not named & {name, flag}]
    return (*flags, *defaults), bool(named & _BRING_CODE)


def _own_flags(config: DataflowConfig) -> list[str]:
    given = {
        "--project": config.project,
        "--region": config.region,
        "--temp_location": config.temp_location,
        "--staging_location": config.staging_location,
        "--service_account_email": config.service_account_email,
        "--worker_machine_type": config.machine_type,
        "--disk_size_gb": config.disk_size_gb,
        "--max_num_workers": config.max_num_workers,
        "--number_of_worker_harness_threads": config.number_of_worker_harness_threads,
        "--network": config.network,
        "--subnetwork": config.subnetwork,
        "--flexrs_goal": config.flexrs_goal and _GOALS[config.flexrs_goal],
        "--sdk_container_image": config.image,
        "--dataflow_endpoint": config.endpoint,
    }
    own = [f"{name}={value}" for name, value in given.items() if value is not None]
    if config.use_public_ips is not None:
        own.append("--use_public_ips" if config.use_public_ips else "--no_use_public_ips")
    return own + [f"--extra_package={package}" for package in config.packages]


THIS_MACHINE = "FnApiRunner"
RUNNERS_HERE = frozenset({"local", "threads"})
"""Runners whose steps share this machine's cores."""


class Launch(NamedTuple):
    """A Beam runner with its options, and how many workers this machine gives it."""

    runner: str
    """Beam's name of it."""

    flags: tuple[str, ...]
    """Options as on Beam's command line."""

    is_local: bool = False
    """True if the job runs in this process and its worker processes."""

    workers: int = 1
    """Number of processes that work items are given to. 1: this process."""

    max_elements: int = 4096
    """Maximum number of elements in the graph of a job; if there are more items, elements share
    them."""

    packs_code: bool = False
    """True if a job installs a package of bertloom on its workers."""

    engine: Engine | None = None
    """Engine with a job service; None for other runners."""

    @classmethod
    def of(cls, execution: ExecutionConfig) -> Self:
        """Return the runner and options of a configuration.

        Raises:
            ConfigError: The runner is unknown, or an option is missing or contradicts another.

        >>> Launch.of(ExecutionConfig(workers=4)).workers
        4
        """
        check_known(execution.runner)
        return cls(*RUNNERS[execution.runner](execution))


def check_known(runner: str) -> None:
    """Check that a runner exists.

    Raises:
        ConfigError: The runner does not exist.
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
