"""From a configuration to Beam's options; what is refused before anything starts. No Java here."""

from __future__ import annotations

import json
import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flows.run.step_execution import is_transient
from pipelines.runners import clusters, code, engine_jobs, preflight
from pipelines.runners.clusters import find_jars, java_command
from pipelines.runners.code import SameCode
from pipelines.runners.engine_jobs import ClusterView, NoSlotsError
from pipelines.runners.job_context import Submission, SubmittedJob
from pipelines.runners.preflight import check_execution, launch_lines, max_parallel_steps
from pipelines.runners.runner_spec import RUNNERS, WORKER_PROGRAM, Launch, worker_program
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

    launch = Launch.of(execution(name))
    assert launch.runner
    flags = [flag for flag in launch.flags if not flag.startswith("--dataflow_endpoint")]
    known = PipelineOptions(flags).get_all_options(drop_default=True)
    names = {flag.split("=")[0].removeprefix("--").removeprefix("no_") for flag in flags}
    assert names >= known.keys()


@pytest.mark.parametrize("name", sorted(GIVEN))
def test_each_remote_runner_says_what_it_needs(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"the {name} runner needs .*execution\.{name}\."):
        Launch.of(ExecutionConfig(runner=name))


def test_workers_of_an_engine_on_this_machine_are_started_by_our_own_program() -> None:
    flags = Launch.of(execution("flink")).flags
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
    flags = Launch.of(execution("flink", **fields)).flags
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
        Launch.of(there)
    assert Launch.of(there.model_copy(update={"shared_filesystem": True})).flags
    assert Launch.of(execution("flink", master="c:8081", worker_command="/opt/boot")).flags


def test_dataflow_jobs_bring_the_code_where_nothing_else_does() -> None:
    assert Launch.of(execution("dataflow", image=None)).packs_code
    assert not Launch.of(execution("dataflow")).packs_code
    by_hand = execution("dataflow", image=None).model_copy(
        update={"beam_options": ("--setup_file=./setup.py", "--number_of_worker_harness_threads=4")}
    )
    launch = Launch.of(by_hand)
    assert not launch.packs_code
    assert "--number_of_worker_harness_threads=1" not in launch.flags
    flags = Launch.of(
        execution("dataflow", image=None, packages=("b.whl",), max_num_workers=4)
    ).flags
    assert {"--extra_package=b.whl", "--max_num_workers=4", "--project=p"} <= {*flags}


def test_sparks_python_workers_live_from_stage_to_stage_and_are_as_many_as_its_cores() -> None:
    flags = Launch.of(execution("spark", master="local[3]")).flags
    assert {"--environment_cache_millis=10000", "--sdk_worker_parallelism=3"} <= {*flags}
    flags = Launch.of(execution("spark")).flags
    assert not [flag for flag in flags if flag.startswith("--sdk_worker_parallelism")]
    by_hand = ("--environment_cache_millis=0", "--sdk_worker_parallelism=1")
    given = execution("spark", master="local[3]").model_copy(update={"beam_options": by_hand})
    assert Launch.of(given).flags[-2:] == by_hand


def test_options_by_hand_go_on_to_work_and_are_not_said_twice() -> None:
    by_hand = ("--job_endpoint=localhost:9", "--environment_type=EXTERNAL")
    assert Launch.of(ExecutionConfig(runner="portable", beam_options=by_hand)).flags == by_hand
    twice = execution("flink", parallelism=2).model_copy(
        update={"beam_options": ("--parallelism=3",)}
    )
    with pytest.raises(ConfigError, match=r"--parallelism is said twice"):
        Launch.of(twice)
    both = execution("flink", worker_command="/b").model_copy(update={"beam_options": by_hand[1:]})
    with pytest.raises(ConfigError, match="both say how workers get their code"):
        Launch.of(both)
    named = execution("flink").model_copy(update={"beam_options": ("--job_name=mine",)})
    with pytest.raises(ConfigError, match="bertloom sets --job_name"):
        Launch.of(named)


# Where the store and the input are


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> ExecutionConfig:
    """Return a reachable Flink on another machine, with a program for workers."""
    monkeypatch.setattr(preflight, "_faults", lambda *_: ())
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
        check_execution(remote, store=store, inputs=inputs)


def test_a_shared_folder_and_a_bucket_are_not_refused(remote: ExecutionConfig) -> None:
    shared = remote.model_copy(update={"shared_filesystem": True})
    check_execution(shared, store="/data/store", inputs=["/dumps/a"])
    check_execution(remote, store="s3://b/store", inputs=["gs://b/dump"])


def test_dataflow_shares_no_folder_with_anybody() -> None:
    how = execution("dataflow").model_copy(update={"shared_filesystem": True})
    with pytest.raises(ConfigError, match="this machine's disk"):
        check_execution(how, store="/data/store", inputs=[])


# Preflight checks of existing clusters


def test_nothing_at_an_endpoint_is_said(unused: int) -> None:
    for how in (
        execution("portable", job_endpoint=f"localhost:{unused}"),
        execution("flink", job_endpoint=f"localhost:{unused}", master=None),
    ):
        with pytest.raises(RunnerError, match=f"no job service answers at localhost:{unused}"):
            check_execution(how, store="/s", inputs=[])


def test_no_cluster_is_said(unused: int, tmp_path: Path, java: None) -> None:
    jar = tmp_path / "beam-runners-flink-1.19-job-server-2.77.0.jar"
    jar.touch()
    how = execution("flink", master=f"localhost:{unused}", job_server=str(jar))
    with pytest.raises(RunnerError, match=rf"no Flink answers .*localhost:{unused}"):
        check_execution(how, store="/s", inputs=[])
    assert max_parallel_steps(how) == 1


def test_all_that_is_missing_is_said_at_once(
    unused: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(preflight, "worker_program", lambda: str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    how = execution(
        "spark",
        master=f"spark://localhost:{unused}",
        job_server=str(tmp_path / "gone.jar"),
        worker_command=str(tmp_path / "none"),
    )
    with pytest.raises(ConfigError) as raised:
        check_execution(how, store="/s", inputs=[])
    text = str(raised.value)
    assert text.startswith("4 problems:\n  - ")
    for part in ("no such program", "gone.jar: there is nothing", "no java", "no Spark master"):
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
    """The engine of a configuration."""
    found = Launch.of(how).engine
    assert found is not None
    return found


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
    command = java_command(engine, jars, ports=[1, 2, 3])
    assert {"--flink-master=localhost:8081", "--job-port=1", "--expansion-port=3"} <= {*command}

    home = str(parts.parent)
    engine = engine_of(execution("spark", job_server=str(parts), home=home))
    jars = find_jars(engine)
    assert [Path(jar).name for jar in jars.engine_jars] == ["spark-core_2.12.jar"]
    assert Path(jars.runner).name == "beam-runners-spark-3-2.70.0.jar"
    command = java_command(engine, jars, ports=[1, 2, 3])
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
    lines = launch_lines(how.model_copy(update={"beam_options": ("--s3_secret_access_key=K",)}))
    assert lines[0] == "runner flink: Beam's PortableRunner"
    assert "  --environment_type=PROCESS" in lines
    assert "  --parallelism=min(pieces, free slots)" in lines
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


def _no_pause(_seconds: float) -> None:
    raise TimeoutError("it waited")


def _reserve(stack: ExitStack, how: ExecutionConfig, items: int, *, log: list[str]) -> int:
    return stack.enter_context(
        clusters.reserve_slots(engine_of(how), items, sleep=_no_pause, log=log.append)
    )


def test_job_gets_free_slots_and_waits_for_the_job_before_it(flink_pages: dict[str, Any]) -> None:
    how, log = execution("flink", master=flink_pages["at"]), list[str]()
    with ExitStack() as job:
        assert _reserve(job, how, 1, log=log) == 1
        with pytest.raises(TimeoutError), ExitStack() as other:
            _reserve(other, how, 1, log=log)
    with ExitStack() as job:
        assert _reserve(job, how, 7, log=log) == 2
    assert log == []
    flink_pages["/overview"]["slots-available"] = 0
    with pytest.raises(TimeoutError), ExitStack() as job:
        _reserve(job, how, 7, log=log)
    assert log == [f"no free slot on {flink_pages['at']}; waiting for one"]
    flink_pages["/overview"]["slots-available"] = 1
    with ExitStack() as job:
        assert _reserve(job, how, 7, log=log) == 1


def test_job_waits_for_all_slots_of_a_fixed_parallelism(flink_pages: dict[str, Any]) -> None:
    how = execution("flink", master=flink_pages["at"], parallelism=2)
    flink_pages["/overview"]["slots-available"] = 1
    with ExitStack() as job:
        assert _reserve(job, how, 1, log=[]) == 1
    with pytest.raises(TimeoutError), ExitStack() as job:
        _reserve(job, how, 5, log=[])


def test_more_slots_than_there_are_is_refused(
    flink_pages: dict[str, Any], tmp_path: Path, java: None
) -> None:
    jar = tmp_path / "beam-runners-flink-1.19-job-server-2.77.0.jar"
    jar.touch()
    how = execution("flink", master=flink_pages["at"], parallelism=3, job_server=str(jar))
    with pytest.raises(ConfigError, match="2 slots in all, expected at least 3"):
        check_execution(how, store="/s", inputs=[])


def test_engine_gets_one_step_at_a_time() -> None:
    assert max_parallel_steps(execution("flink", master="localhost:1")) == 1
    assert max_parallel_steps(execution("spark")) == 1
    assert max_parallel_steps(execution("portable")) == 1
    assert max_parallel_steps(execution("dataflow")) == 8


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
    assert [job.id for job in clusters.jobs_named(engine, "mine")] == ["2"]
    assert [job.id for job in clusters.cancel(engine, "mine")] == ["2"]
    assert flink_pages["asked"][-1] == "PATCH /jobs/2?mode=cancel"


def _listed(state: str) -> dict[str, Any]:
    return {"jobs": [{"jid": "7", "name": "mine", "state": state}]}


def test_a_job_of_an_earlier_run_is_waited_for(flink_pages: dict[str, Any]) -> None:
    from pipelines.runners.engine_jobs import wait_for_earlier

    engine = engine_of(execution("flink", master=flink_pages["at"]))
    flink_pages["/jobs/overview"] = _listed("RUNNING")
    told: list[SubmittedJob] = []

    def ends(job: SubmittedJob) -> None:
        told.append(job)
        flink_pages["/jobs/overview"] = _listed("FINISHED")

    assert wait_for_earlier(engine, Submission("mine", told=ends))
    (job,) = told
    assert (job.id, job.attached) == ("7", True)
    assert job.url == f"http://{flink_pages['at']}/#/job/7/overview"
    assert not wait_for_earlier(engine, Submission("another"))


@pytest.mark.parametrize("detach", [False, True])
def test_a_run_that_is_stopped_cancels_its_job_or_leaves_it(
    flink_pages: dict[str, Any], detach: bool
) -> None:
    from pipelines.runners.engine_jobs import wait_for_earlier

    engine = engine_of(execution("flink", master=flink_pages["at"]))
    flink_pages["/jobs/overview"] = _listed("RUNNING")
    flink_pages["/jobs/7?mode=cancel"] = {}
    said: list[str] = []
    stopped = Submission("mine", say=said.append, detach=detach)
    stopped.stopping.set()
    with pytest.raises(RunnerError, match="mine: stopped, as the run was"):
        wait_for_earlier(engine, stopped)
    assert ("PATCH /jobs/7?mode=cancel" in flink_pages["asked"]) != detach
    assert said == (["mine is left to flink; run again to attach to it"] if detach else [])


def test_job_without_cluster_address_gets_a_slot_per_item() -> None:
    with ExitStack() as job:
        assert _reserve(job, execution("spark"), 5, log=[]) == 5


def test_a_job_of_an_engine_that_ends_with_us_is_not_left_to_it() -> None:
    how = execution("flink", master="[local]").model_copy(update={"detach": True})
    with pytest.raises(ConfigError, match="works inside the job server"):
        check_execution(how, store="/s", inputs=[])


def test_a_dry_run_says_what_is_missing_beside_the_options(unused: int, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.jar")
    lines = launch_lines(execution("flink", master=f"localhost:{unused}", job_server=gone))
    assert "  --environment_type=PROCESS" in lines
    assert lines[-2].startswith(f"missing: {gone}: there is nothing")
    assert lines[-1].startswith(f"missing: http://localhost:{unused}/overview: does not answer")


# The workers' code


def test_work_is_not_unpacked_by_another_code(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pickle.dumps(SameCode())
    assert pickle.loads(packed).digest == code.code_digest()
    monkeypatch.setattr(code, "code_digest", lambda: "another")
    with pytest.raises(RunnerError, match=r"is not the one that submitted the job.*install"):
        pickle.loads(packed)


def test_work_is_not_unpacked_by_other_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pickle.dumps(SameCode())
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
    with pytest.raises(RunnerError, match="is not the one that submitted the job"):
        pickler.loads(packed)


class _Unpacks:
    def __setstate__(self, state: dict[str, Any]) -> None:
        raise AssertionError("the work was unpacked")

    def __getstate__(self) -> dict[str, Any]:
        return {"some": "state"}


def _tasks(**counts: int) -> dict[str, Any]:
    return {"state": "RUNNING", "vertices": [{"tasks": {"SCHEDULED": 0, **counts}}]}


def _view(pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> ClusterView:
    """Return the states of job 7, one per poll."""
    monkeypatch.setattr(engine_jobs, "_CLUSTER_SECONDS", 0.0)
    pages["/jobs/overview"] = _listed("RUNNING")
    pages["/jobs/7"] = _tasks(RUNNING=2)
    engine = engine_of(execution("flink", master=pages["at"]))
    view = ClusterView(engine, Submission("mine"), "of the job service")
    view.look()
    view.look()
    return view


def test_of_two_jobs_that_wait_for_slots_one_gives_way(
    flink_pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_jobs, "_PATIENCE_SECONDS", 1e-9)
    view = _view(flink_pages, monkeypatch)
    monkeypatch.setattr(engine_jobs, "_PATIENCE_SECONDS", 60.0)
    flink_pages["/jobs/7"] = _tasks(SCHEDULED=2)
    view.look()  # it has just begun to wait
    monkeypatch.setattr(engine_jobs, "_PATIENCE_SECONDS", 1e-9)
    monkeypatch.setattr(engine_jobs, "_ALONE_FACTOR", 1e12)
    view.look()  # behind one that works, or one that gives way itself
    flink_pages["/jobs/overview"]["jobs"].append({"jid": "8", "name": "other", "state": "RUNNING"})
    flink_pages["/jobs/8"] = _tasks(SCHEDULED=1)
    view.look()
    flink_pages["/jobs/overview"]["jobs"][1]["jid"] = "6"
    flink_pages["/jobs/6"] = _tasks(SCHEDULED=1)
    with pytest.raises(NoSlotsError, match="mine: no slots for"):
        view.look()
    flink_pages["/jobs/7"] = _tasks(SCHEDULED=1, RUNNING=1)
    view.look()


def test_a_job_that_nothing_is_free_for_begins_anew_after_a_while(
    flink_pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_jobs, "_PATIENCE_SECONDS", 1e-9)
    view = _view(flink_pages, monkeypatch)
    flink_pages["/jobs/7"] = _tasks(SCHEDULED=2)
    view.look()
    with pytest.raises(NoSlotsError):
        view.look()


def test_a_job_that_its_cluster_forgot_is_tried_again(
    flink_pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = _view(flink_pages, monkeypatch)
    view.check_known()
    del flink_pages["/jobs/7"]
    for look in (view.look, view.check_known):
        with pytest.raises(RunnerError, match="does not know job 7 any more") as failed:
            look()
        assert is_transient(failed.value)


def test_a_cluster_that_does_not_answer_is_waited_for(
    flink_pages: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = _view(flink_pages, monkeypatch)
    flink_pages["silent"] = True
    view.look()
    monkeypatch.setattr(engine_jobs, "_GONE_SECONDS", 0.0)
    with pytest.raises(RunnerError, match="has not answered for") as failed:
        view.look()
    assert is_transient(failed.value)
