"""From a configuration to Beam's options; what is refused before anything starts. No Java here."""

from __future__ import annotations

import itertools
import json
import pickle
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest
from apache_beam.portability.api import beam_job_api_pb2
from pydantic import ValidationError

from flows.run.step_execution import is_transient
from pipelines.runners import code, engine_jobs, portable
from pipelines.runners.code import CodeVersionCheck
from pipelines.runners.engine_jobs import JobFollower, NoSlotsError
from pipelines.runners.job_context import Submission, SubmittedJob, submission_scope
from pipelines.runners.job_server import find_jars, server_command
from pipelines.runners.portable import WORKER_PROGRAM, PortableRunner, worker_program
from pipelines.runners.registry import RUNNERS, get_runner
from schemas.errors import ConfigError, RunnerError
from schemas.execution_configs import ExecutionConfig

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
    given = GIVEN.get(runner, {})
    own = {**given.get(runner, {}), **fields}
    return ExecutionConfig.model_validate({"runner": runner, **({runner: own} if own else {})})


@pytest.mark.parametrize("name", sorted(RUNNERS))
def test_each_runner_makes_options_that_beam_knows(name: str) -> None:
    from apache_beam.options.pipeline_options import PipelineOptions

    flags = get_runner(execution(name)).flags
    known = PipelineOptions(flags).get_all_options(drop_default=True)
    names = {flag.split("=")[0].removeprefix("--").removeprefix("no_") for flag in flags}
    assert names >= known.keys()


@pytest.mark.parametrize("name", sorted(GIVEN))
def test_each_remote_runner_says_what_it_needs(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"the {name} runner needs .*execution\.{name}\."):
        get_runner(ExecutionConfig(runner=name))


def test_workers_of_an_engine_on_this_machine_are_started_by_our_own_program() -> None:
    flags = get_runner(execution("flink")).flags
    assert flags[0] == "--environment_type=PROCESS"
    config = json.loads(flags[1].removeprefix("--environment_config="))
    assert config == {"command": worker_program()}
    assert Path(config["command"]).name == WORKER_PROGRAM


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"environment": "docker", "image": "i:1"}, ["--environment_type=DOCKER", "i:1"]),
        (
            {"environment": "external", "worker_pool": "h:50000"},
            ["--environment_type=EXTERNAL", "h:50000"],
        ),
    ],
)
def test_other_ways_for_workers_to_get_the_code(
    fields: dict[str, str], expected: list[str]
) -> None:
    flags = get_runner(execution("flink", **fields)).flags
    assert list(flags[:2]) == [expected[0], f"--environment_config={expected[1]}"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"environment": "docker"}, "image"),
        ({"image": "i:1"}, "image"),
        ({"environment": "external"}, "worker_pool"),
        ({"job_endpoint": "h:1", "job_server": "x.jar"}, "job_endpoint"),
        ({"parallelism": 0}, "parallelism"),
    ],
)
def test_contradictions_among_fields_are_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        execution("flink", **fields)


def test_workers_elsewhere_need_a_way_to_the_code() -> None:
    there = execution("flink", master="cluster.example:8081")
    with pytest.raises(ConfigError, match=r"no way to get bertloom's code: set execution\.flink\."):
        get_runner(there)
    assert get_runner(there.model_copy(update={"shared_filesystem": True})).flags
    assert get_runner(execution("flink", master="c:8081", worker_command="/opt/boot")).flags


def test_dataflow_jobs_bring_the_code_where_nothing_else_does() -> None:
    assert get_runner(execution("dataflow", image=None)).ships_worker_package
    assert not get_runner(execution("dataflow")).ships_worker_package
    by_hand = execution("dataflow", image=None).model_copy(
        update={"beam_options": ("--setup_file=./setup.py", "--number_of_worker_harness_threads=4")}
    )
    runner = get_runner(by_hand)
    assert not runner.ships_worker_package
    assert "--number_of_worker_harness_threads=1" not in runner.flags
    flags = get_runner(
        execution("dataflow", image=None, packages=("b.whl",), max_num_workers=4)
    ).flags
    assert {"--extra_package=b.whl", "--max_num_workers=4", "--project=p"} <= {*flags}


def test_sparks_python_workers_live_from_stage_to_stage_and_are_as_many_as_its_cores() -> None:
    flags = get_runner(execution("spark", master="local[3]")).flags
    assert {"--environment_cache_millis=10000", "--sdk_worker_parallelism=3"} <= {*flags}
    flags = get_runner(execution("spark")).flags
    assert not [flag for flag in flags if flag.startswith("--sdk_worker_parallelism")]
    by_hand = ("--environment_cache_millis=0", "--sdk_worker_parallelism=1")
    given = execution("spark", master="local[3]").model_copy(update={"beam_options": by_hand})
    assert get_runner(given).flags[-2:] == by_hand


def test_options_by_hand_go_on_to_work_and_are_not_said_twice() -> None:
    by_hand = ("--job_endpoint=localhost:9", "--environment_type=EXTERNAL")
    assert get_runner(ExecutionConfig(runner="portable", beam_options=by_hand)).flags == by_hand
    twice = execution("flink", parallelism=2).model_copy(
        update={"beam_options": ("--parallelism=3",)}
    )
    with pytest.raises(ConfigError, match=r"--parallelism is set twice"):
        get_runner(twice)
    both = execution("flink", worker_command="/b").model_copy(update={"beam_options": by_hand[1:]})
    with pytest.raises(ConfigError, match="both say how workers get their code"):
        get_runner(both)
    named = execution("flink").model_copy(update={"beam_options": ("--job_name=mine",)})
    with pytest.raises(ConfigError, match="bertloom sets --job_name"):
        get_runner(named)


# Where the store and the input are


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> ExecutionConfig:
    """Return a reachable Flink on another machine, with a program for workers."""
    monkeypatch.setattr(PortableRunner, "_problems", lambda *_: ())
    return execution("flink", master="cluster.example:8081", worker_command="/opt/boot")


@pytest.mark.parametrize(
    ("store", "inputs", "said"),
    [
        ("/data/store", ["s3://b/dump"], "store /data/store: on this machine's disk"),
        ("s3://b/store", ["/dumps/a", "gs://b/c"], "^input /dumps/a: on this machine's disk"),
        ("file:///s", ["a", "b", "c"], "and 1 more: on this machine's disk"),
        ("memory://store", [], "lives in this process"),
    ],
)
def test_a_local_place_is_refused_to_workers_elsewhere(
    remote: ExecutionConfig, store: str, inputs: list[str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        get_runner(remote).preflight(store=store, inputs=inputs)


def test_a_shared_folder_and_a_bucket_are_not_refused(remote: ExecutionConfig) -> None:
    shared = remote.model_copy(update={"shared_filesystem": True})
    get_runner(shared).preflight(store="/data/store", inputs=["/dumps/a"])
    get_runner(remote).preflight(store="s3://b/store", inputs=["gs://b/dump"])


def test_dataflow_shares_no_folder_with_anybody() -> None:
    how = execution("dataflow").model_copy(update={"shared_filesystem": True})
    with pytest.raises(ConfigError, match="this machine's disk"):
        get_runner(how).preflight(store="/data/store", inputs=[])


# Preflight checks of existing clusters


def test_nothing_at_an_endpoint_is_said(unused: int) -> None:
    for how in (
        execution("portable", job_endpoint=f"localhost:{unused}"),
        execution("flink", job_endpoint=f"localhost:{unused}", master=None),
    ):
        with pytest.raises(RunnerError, match=f"no job service answers at localhost:{unused}"):
            get_runner(how).preflight(store="/s", inputs=[])


def test_no_cluster_is_said(unused: int, tmp_path: Path, java: None) -> None:
    jar = tmp_path / "beam-runners-flink-1.19-job-server-2.77.0.jar"
    jar.touch()
    how = execution("flink", master=f"localhost:{unused}", job_server=str(jar))
    with pytest.raises(RunnerError, match=rf"no Flink answers .*localhost:{unused}"):
        get_runner(how).preflight(store="/s", inputs=[])
    assert get_runner(how).max_parallel_steps == 1


def test_all_that_is_missing_is_said_at_once(
    unused: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(portable, "worker_program", lambda: str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    how = execution(
        "spark",
        master=f"spark://localhost:{unused}",
        job_server=str(tmp_path / "gone.jar"),
        worker_command=str(tmp_path / "none"),
    )
    with pytest.raises(ConfigError) as raised:
        get_runner(how).preflight(store="/s", inputs=[])
    text = str(raised.value)
    assert text.startswith("4 problems:\n  - ")
    for part in (
        "worker program not found",
        "gone.jar: no such file",
        "no java",
        "no Spark master",
    ):
        assert part in text
    assert "repo" in text
    assert "execution.spark.download=true" in text


@pytest.fixture
def unused() -> int:
    """A port that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name, which is never run here."""
    program = tmp_path / "java-home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(program.parents[1]))


# Job servers


def engine_of(how: ExecutionConfig) -> Any:
    """Return the engine of a configuration."""
    return get_runner(how)


def test_a_job_server_is_one_jar_or_a_folder_of_parts(tmp_path: Path, java: None) -> None:
    for name in (
        "beam/core.jar",
        "flink/beam-runners-flink-1.19-2.70.0.jar",
        "spark/beam-runners-spark-3-2.70.0.jar",
        "home/jars/spark-core_2.12.jar",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    parts = tmp_path
    (parts / "home" / "jars").rename(parts.parent / "jars")
    engine = engine_of(execution("flink", job_server=str(parts)))
    jars = find_jars(engine)
    assert [Path(jar).name for jar in jars.jars] == [
        "core.jar",
        "beam-runners-flink-1.19-2.70.0.jar",
    ]
    command, endpoint = server_command(engine, jars, "/artifacts")
    options = dict(itertools.pairwise(command))
    assert options["--flink-master"] == "localhost:8081"
    assert options["--artifacts-dir"] == "/artifacts"
    assert options["--job-port"] == endpoint.removeprefix("localhost:")
    assert options["-cp"].split(":") == [*jars.jars]

    home = str(parts.parent)
    engine = engine_of(execution("spark", job_server=str(parts), home=home))
    jars = find_jars(engine)
    assert [Path(jar).name for jar in jars.engine_jars] == ["spark-core_2.12.jar"]
    assert Path(jars.runner_jar).name == "beam-runners-spark-3-2.70.0.jar"
    command, _ = server_command(engine, jars, "/artifacts")
    (quick,) = [word for word in command if word.startswith("-Dspark.executor.extraJavaOptions=")]
    assert {*quick.partition("=")[2].split()} <= {*command}
    with pytest.raises(ConfigError, match=r"nowhere/jars: no jars of Spark.*SPARK_HOME"):
        find_jars(engine_of(execution("spark", job_server=str(parts), home="/nowhere")))

    whole = tmp_path / "beam-runners-flink-1.19-job-server-2.77.0.jar"
    whole.touch()
    assert find_jars(engine_of(execution("flink", job_server=str(parts)))).jars == (str(whole),)
    (tmp_path / "beam-runners-flink-1.20-job-server-2.77.0.jar").touch()
    with pytest.raises(ConfigError, match=r"2 job servers for flink: .*1\.19.*1\.20"):
        find_jars(engine_of(execution("flink", job_server=str(parts))))


def test_the_folder_may_be_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTLOOM_JOB_SERVERS", str(tmp_path))
    engine = engine_of(execution("flink"))
    with pytest.raises(ConfigError, match=r"no job server for flink among 0 jars"):
        find_jars(engine)
    (tmp_path / "beam-runners-flink-1.19-job-server-2.77.0.jar").touch()
    assert find_jars(engine).is_whole


def test_a_dry_run_prints_the_options(
    tmp_path: Path, java: None, flink_pages: dict[str, Any]
) -> None:
    (tmp_path / "beam-runners-flink-1.19-job-server-2.77.0.jar").touch()
    how = execution("flink", master=flink_pages["at"], job_server=str(tmp_path))
    lines = get_runner(
        how.model_copy(update={"beam_options": ("--s3_secret_access_key=K",)})
    ).describe([])
    assert lines[0] == "runner flink: Beam's PortableRunner"
    assert "  --environment_type=PROCESS" in lines
    assert "  --parallelism=min(work items, free slots)" in lines
    assert lines[-1] == f"http://{flink_pages['at']}: 2 of 2 slots free"


# Slots


@pytest.fixture
def flink_pages() -> Iterator[dict[str, Any]]:
    """Serve responses of Flink's REST interface by path; `at` is its address."""
    pages: dict[str, Any] = {"/overview": {"slots-available": 2, "slots-total": 2}, "asked": []}

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages["asked"].append(f"{self.command} {self.path}")
            if "silent" in pages:
                self.close_connection = True
                return
            found = pages.get(self.path)
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        do_PATCH = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pages["at"] = f"localhost:{server.server_port}"
    yield pages
    server.shutdown()
    server.server_close()


class _NeverWaits(Submission):
    """Submission that records its messages and raises TimeoutError where it would wait."""

    def __init__(self) -> None:
        self.lines: list[str]
        object.__setattr__(self, "lines", [])
        super().__init__("mine", log=self.lines.append)

    def sleep(self, seconds: float) -> None:
        raise TimeoutError


def test_job_takes_free_slots_and_waits_if_there_are_none(flink_pages: dict[str, Any]) -> None:
    runner, submission = engine_of(execution("flink", master=flink_pages["at"])), _NeverWaits()
    assert runner.wait_for_slots(1, submission) == 1
    assert runner.wait_for_slots(7, submission) == 2
    assert submission.lines == []
    flink_pages["/overview"]["slots-available"] = 0
    with pytest.raises(TimeoutError):
        runner.wait_for_slots(7, submission)
    assert submission.lines == [f"no free slot on {flink_pages['at']}; waiting for one"]
    flink_pages["/overview"]["slots-available"] = 1
    assert runner.wait_for_slots(7, submission) == 1


def test_job_waits_for_the_job_before_it() -> None:
    submission = _NeverWaits()
    with (
        engine_jobs._taken_turn(submission),
        pytest.raises(TimeoutError),
        engine_jobs._taken_turn(submission),
    ):
        pytest.fail("two turns at the same time")
    with engine_jobs._taken_turn(submission):
        pass


def test_job_waits_for_all_slots_of_a_fixed_parallelism(flink_pages: dict[str, Any]) -> None:
    runner = engine_of(execution("flink", master=flink_pages["at"], parallelism=2))
    flink_pages["/overview"]["slots-available"] = 1
    assert runner.wait_for_slots(1, _NeverWaits()) == 1
    with pytest.raises(TimeoutError):
        runner.wait_for_slots(5, _NeverWaits())


def test_more_slots_than_there_are_is_refused(
    flink_pages: dict[str, Any], tmp_path: Path, java: None
) -> None:
    jar = tmp_path / "beam-runners-flink-1.19-job-server-2.77.0.jar"
    jar.touch()
    how = execution("flink", master=flink_pages["at"], parallelism=3, job_server=str(jar))
    with pytest.raises(ConfigError, match="2 slots in all, expected at least 3"):
        get_runner(how).preflight(store="/s", inputs=[])


def test_engine_gets_one_step_at_a_time() -> None:
    assert get_runner(execution("flink", master="localhost:1")).max_parallel_steps == 1
    assert get_runner(execution("spark")).max_parallel_steps == 1
    assert get_runner(execution("portable")).max_parallel_steps == 1
    assert get_runner(execution("dataflow")).max_parallel_steps == 8


def test_flinks_jobs_are_found_and_cancelled_by_name(flink_pages: dict[str, Any]) -> None:
    engine = engine_of(execution("flink", master=flink_pages["at"]))
    flink_pages["/jobs/overview"] = {
        "jobs": [
            {"jid": "1", "name": "mine", "state": "FINISHED"},
            {"jid": "2", "name": "mine", "state": "RESTARTING"},
            {"jid": "3", "name": "another", "state": "RUNNING"},
        ]
    }
    flink_pages["/jobs/2?mode=cancel"] = {}
    (job,) = engine.find_jobs("mine")
    assert job.id == "2"
    engine.cancel(job)
    assert flink_pages["asked"][-1] == "PATCH /jobs/2?mode=cancel"


def _listed(state: str) -> dict[str, Any]:
    return {"jobs": [{"jid": "7", "name": "mine", "state": state}]}


def test_a_job_of_an_earlier_run_is_waited_for(flink_pages: dict[str, Any]) -> None:
    engine = engine_of(execution("flink", master=flink_pages["at"]))
    flink_pages["/jobs/overview"] = _listed("RUNNING")
    told: list[SubmittedJob] = []

    def ends(job: SubmittedJob) -> None:
        told.append(job)
        flink_pages["/jobs/overview"] = _listed("FINISHED")

    with submission_scope(Submission("mine", on_submitted=ends)):
        engine.attach("build-documents")
    (job,) = told
    assert (job.id, job.attached) == ("7", True)
    assert job.url == f"http://{flink_pages['at']}/#/job/7/overview"
    with submission_scope(Submission("another", on_submitted=told.append)):
        engine.attach("build-documents")
    assert told == [job]


@pytest.mark.parametrize("detach", [False, True])
def test_a_run_that_is_stopped_cancels_its_job_or_leaves_it(
    flink_pages: dict[str, Any], detach: bool
) -> None:
    engine = engine_of(execution("flink", master=flink_pages["at"]))
    flink_pages["/jobs/overview"] = _listed("RUNNING")
    flink_pages["/jobs/7?mode=cancel"] = {}
    said: list[str] = []
    stopped = Submission("mine", log=said.append, detach=detach)
    stopped.stop_event.set()
    with (
        submission_scope(stopped),
        pytest.raises(RunnerError, match="mine: cancelled because the run was stopped"),
    ):
        engine.attach("build-documents")
    assert ("PATCH /jobs/7?mode=cancel" in flink_pages["asked"]) != detach
    assert said == (["mine: detached, still running on flink; rerun to attach"] if detach else [])


def test_job_without_cluster_address_gets_a_slot_per_item() -> None:
    assert engine_of(execution("spark")).wait_for_slots(5, _NeverWaits()) == 5


def test_a_job_of_an_engine_that_ends_with_us_is_not_left_to_it() -> None:
    how = execution("flink", master="[local]").model_copy(update={"detach": True})
    with pytest.raises(ConfigError, match="runs inside the job server"):
        get_runner(how).preflight(store="/s", inputs=[])


def test_a_dry_run_says_what_is_missing_beside_the_options(unused: int, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.jar")
    lines = get_runner(execution("flink", master=f"localhost:{unused}", job_server=gone)).describe(
        []
    )
    assert "  --environment_type=PROCESS" in lines
    assert lines[-2].startswith(f"missing: {gone}: no such file")
    assert lines[-1].startswith(f"missing: http://localhost:{unused}/overview: no answer")


# The workers' code


def test_work_is_not_unpacked_by_another_code(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pickle.dumps(CodeVersionCheck())
    assert pickle.loads(packed).digest == code.code_digest()
    monkeypatch.setattr(code, "code_digest", lambda: "another")
    with pytest.raises(RunnerError, match=r"differs from submitted code .*install"):
        pickle.loads(packed)


def test_work_is_not_unpacked_by_other_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pickle.dumps(CodeVersionCheck())
    other = {**code.library_versions(), "pyarrow": "1.0", "python": "3.9"}
    monkeypatch.setattr(code, "library_versions", lambda: other)
    with pytest.raises(RunnerError, match=r"python 3\.9, expected 3\.1\d; pyarrow 1\.0, expected"):
        pickle.loads(packed)


def test_workers_libraries_are_those_that_keys_count() -> None:
    from pipelines import build_documents, build_instances, build_tokens, build_vocabulary

    jobs = (build_documents, build_vocabulary, build_tokens, build_instances)
    assert {*code.LIBRARIES} == {name for job in jobs for name in job.STAGE.libraries}


def test_a_dofn_refuses_another_code_before_its_work_is_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from apache_beam.internal import pickler

    from pipelines.beam.pipeline import _ProcessItems
    from pipelines.beam.shard_work import PlanFile
    from pipelines.runners.job_context import ErrorFiles

    packed = pickler.dumps(
        _ProcessItems(
            _Unpacks(),
            plan=PlanFile("memory://plan", _Unpacks),
            errors=ErrorFiles("memory://errors"),
            spill="",
            results=("memory://reports", 0),
            progress="memory://progress",
            workers=1,
        )
    )
    monkeypatch.setattr(code, "code_digest", lambda: "another")
    with pytest.raises(RunnerError, match="differs from submitted code"):
        pickler.loads(packed)


class _Unpacks:
    def __setstate__(self, state: dict[str, Any]) -> None:
        raise AssertionError("the work was unpacked")

    def __getstate__(self) -> dict[str, Any]:
        return {"some": "state"}


def _tasks(**counts: int) -> dict[str, Any]:
    return {"state": "RUNNING", "vertices": [{"tasks": {"SCHEDULED": 0, **counts}}]}


def _follower(pages: dict[str, Any]) -> JobFollower:
    """Return the follower of job 7, which has been seen running."""
    pages["/jobs/overview"] = _listed("RUNNING")
    pages["/jobs/7"] = _tasks(RUNNING=2)
    runner = engine_of(execution("flink", master=pages["at"]))
    with submission_scope(Submission("mine")):
        follower = JobFollower(_Result(), runner=runner, server=None, name="job")
    follower.poll_cluster()
    follower.poll_cluster()
    return follower


class _Result:
    """Result of a job that runs until the test sets another state."""

    _job_id = "of the job service"
    _message_stream = ()
    state = beam_job_api_pb2.JobState.RUNNING

    @property
    def _job_service(self) -> Self:
        return self

    def GetState(self, *_: Any, **__: Any) -> Self:  # noqa: N802 (Beam's name)
        return self


def test_job_that_waits_for_slots_for_too_long_is_resubmitted(
    flink_pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_jobs, "_SLOT_SECONDS", (0.0, 0.0))
    follower = _follower(flink_pages)
    flink_pages["/jobs/7"] = _tasks(SCHEDULED=2)
    follower.poll_cluster()  # it has just begun to wait
    flink_pages["/jobs/7"] = _tasks(SCHEDULED=1, RUNNING=1)
    follower.poll_cluster()  # it got a slot
    flink_pages["/jobs/7"] = _tasks(SCHEDULED=2)
    follower.poll_cluster()
    with pytest.raises(NoSlotsError, match="mine: no free slots for"):
        follower.poll_cluster()


def test_a_job_that_its_cluster_forgot_is_tried_again(flink_pages: dict[str, Any]) -> None:
    follower = _follower(flink_pages)
    del flink_pages["/jobs/7"]
    with pytest.raises(RunnerError, match="does not know job 7 any more") as failed:
        follower.wait()
    assert is_transient(failed.value)
    follower._result.state = beam_job_api_pb2.JobState.FAILED
    with pytest.raises(RunnerError, match="does not know job 7 any more") as failed:
        follower.wait()
    assert is_transient(failed.value)


def test_a_cluster_that_does_not_answer_is_waited_for(
    flink_pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_jobs, "_POLL_SECONDS", 0.01)
    follower = _follower(flink_pages)
    flink_pages["silent"] = True
    monkeypatch.setattr(engine_jobs, "_MAX_SILENT_SECONDS", 0.05)
    with pytest.raises(RunnerError, match="no answer for") as failed:
        follower.wait()
    assert is_transient(failed.value)
    follower._result.state = beam_job_api_pb2.JobState.DONE
    follower.wait()
