"""From a configuration to Beam's options; what is refused before anything starts. No Java here."""

from __future__ import annotations

import contextlib
import itertools
import json
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError

from pipelines.runners import code, portable
from pipelines.runners.code import CodeVersionCheck
from pipelines.runners.job_context import ErrorFiles
from pipelines.runners.job_server import find_jar, server_command
from pipelines.runners.portable import worker_program
from pipelines.runners.registry import RUNNERS, get_runner
from pipelines.shard_job.items import ItemProcessor
from pipelines.shard_job.job_files import JobFiles
from pipelines.stages import STAGES
from schemas.errors import ConfigError, RunnerError
from schemas.execution_configs import ExecutionConfig, FlinkConfig, JobServerConfig, SparkConfig

GIVEN: dict[str, dict[str, Any]] = {
    "portable": {"portable": {"job_endpoint": "localhost:1"}},
    "dataflow": {
        "dataflow": {
            "project": "p",
            "region": "r",
            "temp_location": "gs://b/t",
            "image": "gcr.io/p/bertloom",
        }
    },
    "flink": {"flink": {"master": "localhost:8081"}},
    "spark": {"spark": {"master": "spark://localhost:7077"}},
}


def execution(runner: str, **fields: Any) -> ExecutionConfig:
    """Return a configuration with the required fields of a runner, and `fields`."""
    needed = GIVEN.get(runner, {})
    own = {**needed.get(runner, {}), **fields}
    return ExecutionConfig.model_validate({"runner": runner, **({runner: own} if own else {})})


@pytest.mark.parametrize("name", sorted(RUNNERS))
def test_each_runner_makes_options_that_beam_knows(name: str) -> None:
    from apache_beam.options.pipeline_options import PipelineOptions

    flags = get_runner(execution(name)).flags
    known = PipelineOptions(flags).get_all_options(drop_default=True)
    names = {flag.split("=")[0].removeprefix("--").removeprefix("no_") for flag in flags}
    assert names >= known.keys()


def _flink(*options: str, **fields: Any) -> dict[str, Any]:
    return {
        "runner": "flink",
        "flink": {"master": "localhost:1", **fields},
        "beam_options": options,
    }


@pytest.mark.parametrize(
    ("config", "error", "match"),
    [
        ({"runner": "moon"}, ConfigError, "'moon': choose one of local"),
        *(({"runner": name}, ConfigError, rf"execution\.{name}\.") for name in GIVEN),
        (
            {"runner": "spark", "spark": {"master": "yarn", "worker_command": "/b"}},
            ConfigError,
            r"spark\.master: .*yarn",
        ),
        (_flink(environment="docker"), ValidationError, "image"),
        (_flink(image="i:1"), ValidationError, "image"),
        (_flink(environment="external"), ValidationError, "worker_pool"),
        (_flink(job_endpoint="h:1", job_server="x.jar"), ValidationError, "job_endpoint"),
        (_flink(parallelism=0), ValidationError, "parallelism"),
        # Workers elsewhere need a way to the code.
        (_flink(master="cluster.example:1"), ConfigError, r"set execution\.flink\.worker_command"),
        (_flink("--parallelism=3", parallelism=2), ConfigError, "--parallelism"),
        (_flink("--environment_type=EXTERNAL", worker_command="/b"), ConfigError, "environment_"),
        (_flink("--job_name=mine"), ConfigError, "--job_name"),
    ],
)
def test_invalid_configuration_is_refused(
    config: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        get_runner(ExecutionConfig.model_validate(config))


def test_shared_folder_is_a_way_to_the_code() -> None:
    config = {**_flink(master="cluster.example:1"), "shared_filesystem": True}
    assert get_runner(ExecutionConfig.model_validate(config)).flags


@pytest.mark.parametrize(
    ("fields", "environment", "config"),
    [
        ({}, "PROCESS", json.dumps({"command": worker_program()})),
        ({"worker_command": "/opt/boot"}, "PROCESS", json.dumps({"command": "/opt/boot"})),
        ({"environment": "docker", "image": "i:1"}, "DOCKER", "i:1"),
        ({"environment": "external", "worker_pool": "h:50000"}, "EXTERNAL", "h:50000"),
    ],
)
def test_workers_get_the_code_by_their_environment(
    fields: dict[str, str], environment: str, config: str
) -> None:
    flags = get_runner(execution("flink", **fields)).flags
    assert flags == (f"--environment_type={environment}", f"--environment_config={config}")


def test_dataflow_job_ships_the_code_unless_an_option_does() -> None:
    runner = get_runner(execution("dataflow", image=None))
    assert runner.ships_worker_package
    assert "--number_of_worker_harness_threads=1" in runner.flags
    assert not get_runner(execution("dataflow")).ships_worker_package
    options = ("--setup_file=./setup.py", "--number_of_worker_harness_threads=4")
    config = execution("dataflow", image=None, packages=("b.whl",))
    runner = get_runner(config.model_copy(update={"beam_options": options}))
    assert not runner.ships_worker_package
    assert "--extra_package=b.whl" in runner.flags
    assert "--number_of_worker_harness_threads=1" not in runner.flags


def test_spark_gets_a_worker_per_core_and_keeps_them_between_stages() -> None:
    config = execution("spark", master="local[3]")
    assert {"--environment_cache_millis=10000", "--sdk_worker_parallelism=3"} <= {
        *get_runner(config).flags
    }
    options = ("--environment_cache_millis=0", "--sdk_worker_parallelism=1")
    runner = get_runner(config.model_copy(update={"beam_options": options}))
    assert runner.flags[-2:] == options


def test_beam_options_alone_configure_a_portable_runner() -> None:
    options = ("--job_endpoint=localhost:9", "--environment_type=EXTERNAL")
    assert get_runner(ExecutionConfig(runner="portable", beam_options=options)).flags == options


# Preflight checks


@pytest.fixture
def listening() -> Iterator[int]:
    """Port that something listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


@pytest.fixture
def unused() -> int:
    """Port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


_SHARED = {"shared_filesystem": True}


@pytest.mark.parametrize(
    ("store", "inputs", "changes", "message"),
    [
        ("/data/store", ["s3://b/dump"], {}, "^store /data/store: on this machine's disk"),
        ("s3://b/store", ["/dumps/a", "gs://b/c"], {}, "^input /dumps/a: on this machine's disk"),
        ("file:///s", ["a", "b", "c"], {}, "and 1 more: on this machine's disk"),
        ("memory://store", [], {}, "lives in this process"),
        ("/data/store", ["/dumps/a"], _SHARED, None),
        ("s3://b/store", ["gs://b/dump"], {}, None),
    ],
)
def test_workers_elsewhere_cannot_read_this_machines_disk(
    listening: int, store: str, inputs: list[str], changes: dict[str, Any], message: str | None
) -> None:
    # The job service is here, and its Flink elsewhere.
    fields = {"master": "cluster.example:8081", "job_endpoint": f"localhost:{listening}"}
    config = execution("flink", **fields, worker_command="/opt/boot").model_copy(update=changes)
    runner = get_runner(config)
    runner.rest = ""  # the test has no Flink
    expected = pytest.raises(ConfigError, match=message) if message else contextlib.nullcontext()
    with expected:
        runner.preflight(store=store, inputs=inputs)


def test_dataflow_shares_no_folder() -> None:
    config = execution("dataflow").model_copy(update=_SHARED)
    with pytest.raises(ConfigError, match="this machine's disk"):
        get_runner(config).preflight(store="/data/store", inputs=[])


@pytest.mark.parametrize("name", ["portable", "flink"])
def test_job_service_that_does_not_answer_is_named(unused: int, name: str) -> None:
    fields = {"master": None} if name == "flink" else {}
    runner = get_runner(execution(name, job_endpoint=f"localhost:{unused}", **fields))
    with pytest.raises(RunnerError, match=f"no job service answers at localhost:{unused}"):
        runner.preflight(store="/s", inputs=[])


@pytest.mark.parametrize("name", ["flink", "spark"])
def test_preflight_and_dry_run_report_all_that_is_missing(
    unused: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr(portable, "worker_program", lambda: str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    master = f"spark://localhost:{unused}" if name == "spark" else f"localhost:{unused}"
    missing = str(tmp_path / "gone.jar")
    config = execution(
        name, master=master, job_server=missing, worker_command=str(tmp_path / "none")
    )
    with pytest.raises(ConfigError) as raised:
        get_runner(config).preflight(store="/s", inputs=[])
    lines = [line for line in get_runner(config).describe([]) if line.startswith("missing: ")]
    assert len(lines) == 4
    for part in ("worker program", missing, "no java", f"localhost:{unused}"):
        assert part in str(raised.value)
        assert any(part in line for line in lines)
    assert f"execution.{name}.download=true" in str(raised.value)


# Job servers


@pytest.mark.parametrize(("name", "config"), [("flink", FlinkConfig), ("spark", SparkConfig)])
def test_job_server_is_one_jar_of_the_folder_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, config: type[JobServerConfig]
) -> None:
    monkeypatch.setenv("BERTLOOM_JOB_SERVERS", str(tmp_path))
    with pytest.raises(ConfigError, match=rf"beam-runners-{name}.*got none.*download"):
        find_jar(config())
    jars = [f"beam-runners-{name}-{version}-job-server-2.77.0.jar" for version in ("1", "2")]
    (tmp_path / jars[0]).touch()
    assert find_jar(config()) == str(tmp_path / jars[0])
    (tmp_path / jars[1]).touch()
    with pytest.raises(ConfigError, match=f"{jars[0]}, {jars[1]}"):
        find_jar(config())
    assert find_jar(config(job_server=str(tmp_path / jars[1]))) == str(tmp_path / jars[1])


def test_command_of_job_server_starts_its_jar_for_the_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java, jar = tmp_path / "bin" / "java", tmp_path / "server.jar"
    java.parent.mkdir()
    java.touch(0o755)
    jar.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    config = SparkConfig(master="spark://localhost:7077", job_server=str(jar))
    command, endpoint = server_command(config, "/artifacts")
    options = dict(itertools.pairwise(command))
    assert (command[0], options["-jar"]) == (str(java), str(jar))
    assert options["--spark-master-url"] == "spark://localhost:7077"
    assert options["--artifacts-dir"] == "/artifacts"
    assert options["--job-port"] == endpoint.removeprefix("localhost:")
    (text,) = [word for word in command if word.startswith("-Dspark.executor.extraJavaOptions=")]
    assert {*text.partition("=")[2].split()} <= {*command}


# The workers' code


@pytest.mark.parametrize(
    ("function", "other", "message"),
    [
        ("code_digest", "another", r"differs from submitted code .*install"),
        (
            "library_versions",
            {**code.library_versions(), "pyarrow": "1.0", "python": "3.9"},
            r"python 3\.9, expected 3\.1\d; pyarrow 1\.0, expected",
        ),
    ],
)
def test_work_is_not_unpickled_by_other_code_or_libraries(
    monkeypatch: pytest.MonkeyPatch, function: str, other: object, message: str
) -> None:
    packed = pickle.dumps(CodeVersionCheck())
    assert pickle.loads(packed).digest == code.code_digest()
    monkeypatch.setattr(code, function, lambda: other)
    with pytest.raises(RunnerError, match=message):
        pickle.loads(packed)


def test_workers_libraries_are_those_that_keys_count() -> None:
    assert {*code.LIBRARIES} == {name for stage in STAGES for name in stage.libraries}


class _Item(NamedTuple):
    number: int


def test_error_of_item_that_succeeds_later_is_not_raised() -> None:
    errors, item = ErrorFiles("memory://healed/errors"), _Item(3)
    with pytest.raises(OSError, match="full"), errors.recording(item):
        raise OSError("the disk is full")
    with errors.recording(item):
        pass
    with pytest.raises(RunnerError, match="no worker answers"), errors.reraise("job"):
        raise RunnerError("no worker answers")


def test_error_of_item_that_fails_again_is_raised() -> None:
    errors, item = ErrorFiles("memory://failed/errors"), _Item(3)
    for reason in ("first", "second"):
        with pytest.raises(ConfigError), errors.recording(item):
            raise ConfigError(reason)
    with pytest.raises(ConfigError, match="second"), errors.reraise("job"):
        raise RunnerError("an item failed")


def test_dofn_refuses_other_code_before_its_work_is_unpickled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from apache_beam.internal import pickler

    from pipelines.shard_job.pipeline import _ProcessItems

    processor = ItemProcessor(_Unpacks(), JobFiles("memory://job"))
    do_fn = _ProcessItems("job", processor, item_type=_Unpacks, spill="", workers=1)
    packed = pickler.dumps(do_fn)
    monkeypatch.setattr(code, "code_digest", lambda: "another")
    with pytest.raises(RunnerError, match="differs from submitted code"):
        pickler.loads(packed)


class _Unpacks:
    def __setstate__(self, state: dict[str, Any]) -> None:
        raise AssertionError("the work was unpacked")

    def __getstate__(self) -> dict[str, Any]:
        return {"some": "state"}
