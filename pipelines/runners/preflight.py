"""Preflight checks of a runner: report every configuration problem before a run starts."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pipelines.runners import clusters
from pipelines.runners.clusters import find_jars, find_java
from pipelines.runners.dataflow import DataflowApi
from pipelines.runners.runner_spec import (
    DATAFLOW_RUNNER,
    LEAN_FLAG,
    Engine,
    Launch,
    parallelism_flags,
    worker_program,
)
from pipelines.runners.worker_package import (
    file_system_packages,
    package_name,
    worker_requirements,
)
from schemas.errors import BertloomError, ConfigError, RunnerError, raise_all
from schemas.execution_configs import ExecutionConfig

_EXTRA_PACKAGE = "--extra_package="
_MAX_DATAFLOW_STEPS = 8
_SHOWN = 3


def check_execution(execution: ExecutionConfig, *, store: str, inputs: Iterable[str]) -> None:
    """See that jobs can run where the configuration says.

    Args:
        execution: where to run.
        store: root of the artifact store.
        inputs: paths and URLs of raw input.

    Raises:
        ConfigError: something is missing, or contradicts itself.
        RunnerError: a job service or a cluster does not answer.
    """
    launch = Launch.of(execution)
    if launch.is_local:
        return
    _check_places(execution, launch, store=store, inputs=inputs)
    if launch.engine is not None:
        if execution.detach and launch.engine.is_in_job_server:
            raise ConfigError(
                f"detach: {launch.engine.master} works inside the job server, which ends with the "
                "run, and its jobs with it: leave detach out"
            )
        raise_all(_faults(launch.engine, launch))
    elif launch.runner == DATAFLOW_RUNNER:
        raise_all(_dataflow_faults(launch, [store, *inputs]))


def _check_places(
    execution: ExecutionConfig, launch: Launch, *, store: str, inputs: Iterable[str]
) -> None:
    """Refuse a store or input that workers elsewhere cannot see."""
    if store.startswith("memory:"):
        raise ConfigError(
            f"store {store}: lives in this process, and the workers of runner "
            f"{execution.runner!r} are others: use a folder or a bucket"
        )
    is_here = launch.engine is not None and launch.engine.is_here
    if is_here or (execution.shared_filesystem and launch.engine is not None):
        return
    local = [f"store {store}"] if _is_local(store) else []
    local += [f"input {path}" for path in inputs if _is_local(path)]
    if local:
        more = f", and {len(local) - _SHOWN} more" if len(local) > _SHOWN else ""
        shared = (
            ""
            if launch.engine is None
            else "; or say execution.shared_filesystem=true, where it is the same folder on every "
            "machine of the engine"
        )
        raise ConfigError(
            f"{', '.join(local[:_SHOWN])}{more}: on this machine's disk, which the workers of "
            f"runner {execution.runner!r} do not see: put it in a bucket (s3://, gs://){shared}"
        )


def _is_local(url: str) -> bool:
    return "://" not in url or urllib.parse.urlsplit(url).scheme in ("file", "local")


def _dataflow_faults(launch: Launch, places: list[str]) -> Iterator[BertloomError | None]:
    packages = [flag.partition("=")[2] for flag in launch.flags if flag.startswith(_EXTRA_PACKAGE)]
    for package in packages:
        if _is_local(package) and not Path(package).is_file():
            yield ConfigError(f"{package}: there is no such file, and workers are to install it")
    if launch.packs_code:
        yield _raised(lambda: worker_requirements(file_system_packages(places)))
    # Credentials, the project, the region and whether the API is switched on, in one request.
    yield _raised(lambda: DataflowApi(launch.flags).running("bertloom"))


def _faults(engine: Engine, launch: Launch) -> Iterator[BertloomError | None]:
    program = worker_program()
    if any(program in flag for flag in launch.flags) and not os.access(program, os.X_OK):
        yield ConfigError(
            f"{program}: there is no such program, and the engine starts workers by it: install "
            "bertloom there again (pip install), or set worker_command"
        )
    if engine.server is not None:
        yield _raised(lambda: find_jars(engine, fetch=False))
        yield _raised(find_java)
    yield _raised(lambda: _check_answers(engine))


def _raised(look: object) -> BertloomError | None:
    assert callable(look)  # noqa: S101
    try:
        look()
    except BertloomError as error:
        return error
    return None


def _check_answers(engine: Engine) -> None:
    if engine.endpoint and (why := clusters.answers(engine.endpoint)):
        raise RunnerError(f"no job service answers at {engine.endpoint}: {why}")
    if engine.rest:
        try:
            found = clusters.slots(engine)
        except RunnerError as error:
            raise RunnerError(f"no Flink answers at execution.flink.master: {error}") from error
        if found.total < (engine.parallelism or 1):
            raise ConfigError(
                f"{engine.master}: has {found.total} slots in all, expected at least "
                f"{engine.parallelism or 1} (execution.flink.parallelism): start task managers"
            )
    elif engine.master.startswith("spark://") and (why := clusters.answers(engine.master)):
        raise RunnerError(f"no Spark master answers at {engine.master}: {why}")


def max_parallel_steps(execution: ExecutionConfig) -> int:
    """Return the default number of concurrent steps: an engine gets one job at a time."""
    return 1 if Launch.of(execution).engine is not None else _MAX_DATAFLOW_STEPS


def launch_lines(execution: ExecutionConfig, *, places: Iterable[str] = ()) -> list[str]:
    """The exact options that Beam gets, and what is started for it: for people, before a run.

    Args:
        execution: where to run.
        places: URLs of the store and of the input.

    Raises:
        ConfigError: something is missing, or contradicts itself.
    """
    launch = Launch.of(execution)
    lines = [f"runner {execution.runner}: Beam's {launch.runner}", *_indented(launch.flags)]
    if launch.packs_code:
        lines += _package_lines(places)
    engine = launch.engine
    if engine is None:
        return lines
    if engine.server is not None:
        lines += _indented(["--job_endpoint=localhost:PORT"])
    count: int | str = "min(pieces, free slots)" if engine.rest else "min(pieces, cores)"
    lines += _indented([*parallelism_flags(engine, launch.flags, count=count), LEAN_FLAG])
    # A dry run prints what is missing after the options; a run raises.
    for look in (_server_line, _slots_line):
        try:
            lines += look(engine)
        except BertloomError as error:
            lines.append(f"missing: {error}")
    return lines


def _package_lines(places: Iterable[str]) -> list[str]:
    try:
        wanted = worker_requirements(file_system_packages(places))
        name = package_name()
    except BertloomError as error:
        return [f"missing: {error}"]
    return [
        *_indented([f"{_EXTRA_PACKAGE}{name}"]),
        f"{name} is made for each job; workers install {', '.join(wanted)}",
    ]


def _server_line(engine: Engine) -> list[str]:
    if engine.server is None:
        return []
    jars = find_jars(engine, fetch=False).jars
    named = f"{len(jars)} jars of {_folder(jars)}" if len(jars) > 1 else "".join(jars)
    return [f"a job server is started for {engine.master}: {named or 'to be downloaded'}"]


def _slots_line(engine: Engine) -> list[str]:
    if not engine.rest:
        return []
    found = clusters.slots(engine)
    return [f"{engine.rest}: {found.free} of {found.total} slots free"]


def _folder(jars: Sequence[str]) -> str:
    return os.path.commonpath([str(Path(jar).parent) for jar in jars])


def _indented(flags: Iterable[str]) -> list[str]:
    return [f"  {flag}" for flag in flags]
