"""Jobs of engines: names, following, cancelling, slots, causes of failures. No Java."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.portability.api import beam_job_api_pb2
from support.waiting import is_running, wait_until

from benchmarks.local_server import LocalServer
from flows.run.step_execution import is_transient
from pipelines.runners import child_guard, engine
from pipelines.runners.flink import FlinkRunner
from pipelines.runners.job_context import (
    Submission,
    SubmittedJob,
    job_name,
    root_cause,
    submission_scope,
)
from pipelines.runners.job_service import ServiceJob
from pipelines.runners.portable import NoSlotsError
from pipelines.runners.registry import get_runner
from schemas.errors import ConfigError, RunnerError
from schemas.execution_configs import ExecutionConfig

_CHAIN = """\
org.apache.flink.runtime.JobException: Recovery is suppressed by NoRestartBackoffTimeStrategy
\tat org.apache.flink.runtime.executiongraph.Handler.handleFailure(Handler.java:180)
\t... 4 more
Caused by: java.lang.RuntimeException: java.util.concurrent.ExecutionException: \
java.lang.IllegalStateException: Process died with exit code 1
\tat org.apache.beam.vendor.guava.Throwables.propagate(Throwables.java:231)
"""
_JAVA = "java.lang.RuntimeException: java.util.concurrent.ExecutionException: java.lang."
_PYTHON = """\
java.lang.RuntimeException: Error received from SDK harness for instruction 4: \
Traceback (most recent call last):
  File "worker.py", line 1, in process
    raise
ValueError: no such file [while running 'DoWork']

\tat java.base/java.util.concurrent.CompletableFuture.reportGet(CompletableFuture.java:396)
"""
_OURS = f"{_PYTHON}schemas.errors.InputError: a.bz2: cut at byte 7\n\n\tat a.B.c(B.java:1)"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (_CHAIN, f"{_JAVA}IllegalStateException: Process died with exit code 1"),
        (_PYTHON, "ValueError: no such file [while running 'DoWork']"),
        (_OURS, "schemas.errors.InputError: a.bz2: cut at byte 7"),
        (f"{_OURS}\nCaused by: {_PYTHON}", "ValueError: no such file [while running 'DoWork']"),
        ("a.NullPointerException\n\tat a.B.c(B.java:1)\n]", "a.NullPointerException"),
        ("", ""),
    ],
)
def test_root_cause_is_last_line_without_frame(text: str, cause: str) -> None:
    assert root_cause(text) == cause


@pytest.mark.parametrize("recipe", ["english", "English.Wikipedia", "x" * 90, "日本語", "a--b__c"])
def test_job_name_keeps_the_rules_of_dataflow_and_ends_with_the_key(recipe: str) -> None:
    name = job_name(recipe, "build-instances.length-128", key="0123456789abcdef" * 4)
    assert len(name) <= 63
    assert re.fullmatch(PipelineOptionsValidator.JOB_PATTERN, name)
    assert name.startswith("bertloom-")
    assert name.endswith("-0123456789abcdef")


# A Flink's REST interface


class FakeFlink(LocalServer):
    """Flink cluster of two slots with one job."""

    def __init__(self) -> None:
        self.free_slots = 2
        self.jobs = [{"jid": "7", "name": "mine", "state": "RUNNING"}]
        self.tasks: dict[str, int] | None = {"RUNNING": 2}
        """Number of tasks of job 7 by state; None: the cluster does not know the job."""

        self.canceled_state = "CANCELED"
        """State of job 7 after a request to cancel it."""

        self.is_silent = False
        self.requests: list[str] = []
        super().__init__(_FlinkHandler, flink=self)
        self.master = self.url.removeprefix("http://")

    def response(self, path: str) -> Any:
        """Return the response to a request; None if there is no such page."""
        job = {"state": "RUNNING", "vertices": [{"tasks": {"SCHEDULED": 0, **(self.tasks or {})}}]}
        pages = {
            "/overview": {"slots-available": self.free_slots, "slots-total": 2},
            "/jobs/overview": {"jobs": self.jobs},
            "/jobs/7": job if self.tasks is not None else None,
        }
        if path == "/jobs/7?mode=cancel":
            self.jobs[0]["state"] = self.canceled_state
            return {}
        return pages.get(path)


class _FlinkHandler(BaseHTTPRequestHandler):
    flink: FakeFlink

    def do_GET(self) -> None:
        self.flink.requests.append(f"{self.command} {self.path}")
        if self.flink.is_silent:
            self.close_connection = True
            return
        response = self.flink.response(self.path)
        self.send_response(404 if response is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(response).encode())

    do_PATCH = do_GET  # noqa: N815


@pytest.fixture
def cluster() -> Iterator[FakeFlink]:
    with FakeFlink() as started:
        yield started


def _runner(cluster: FakeFlink, **fields: Any) -> FlinkRunner:
    config = {"runner": "flink", "flink": {"master": cluster.master, **fields}}
    runner = get_runner(ExecutionConfig.model_validate(config))
    assert isinstance(runner, FlinkRunner)
    return runner


_CANCEL = "PATCH /jobs/7?mode=cancel"


@pytest.mark.parametrize(
    ("name", "state", "is_canceled"),
    [
        ("mine", "RUNNING", True),
        ("mine", "RESTARTING", True),
        ("mine", "FINISHED", False),
        ("another", "RUNNING", False),
    ],
)
def test_run_cancels_unfinished_job_of_earlier_run(
    cluster: FakeFlink, name: str, state: str, is_canceled: bool
) -> None:
    lines: list[str] = []
    cluster.jobs[0]["state"] = state
    with submission_scope(Submission(name, log=lines.append)):
        _runner(cluster).cancel_earlier_jobs("build-documents")
    assert (_CANCEL in cluster.requests) == is_canceled
    assert bool(lines) == is_canceled


def test_run_waits_for_end_of_canceled_job(cluster: FakeFlink) -> None:
    cluster.canceled_state = "CANCELING"
    submission = _NeverWaits()
    with submission_scope(submission), pytest.raises(TimeoutError):
        _runner(cluster).cancel_earlier_jobs("build-documents")
    assert _CANCEL in cluster.requests


class _NeverWaits(Submission):
    """Submission that records its messages and raises TimeoutError where it would wait."""

    def __init__(self) -> None:
        self.lines: list[str]
        object.__setattr__(self, "lines", [])
        super().__init__("mine", log=self.lines.append)

    def sleep(self, seconds: float) -> None:
        raise TimeoutError


@pytest.mark.parametrize(
    ("parallelism", "free", "num_elements", "slots"),
    [
        (None, 2, 1, 1),
        (None, 2, 7, 2),
        (None, 1, 7, 1),
        (None, 0, 7, None),
        (2, 1, 1, 1),
        (2, 1, 5, None),
    ],
)
def test_job_takes_free_slots_and_waits_if_there_are_too_few(
    cluster: FakeFlink, parallelism: int | None, free: int, num_elements: int, slots: int | None
) -> None:
    runner, submission = _runner(cluster, parallelism=parallelism), _NeverWaits()
    cluster.free_slots = free
    with pytest.raises(TimeoutError) if slots is None else contextlib.nullcontext():
        assert runner.wait_for_slots(num_elements, submission) == slots
    assert bool(submission.lines) == (slots is None)


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the path of a job server next to a Java; none of them runs."""
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    path = tmp_path / "beam-runners-flink-1.19-job-server-2.77.0.jar"
    path.touch()
    return str(path)


def test_preflight_refuses_more_slots_than_there_are(cluster: FakeFlink, jar: str) -> None:
    _runner(cluster, parallelism=2, job_server=jar).preflight(store="/s", inputs=[])
    with pytest.raises(ConfigError, match=r"2 slots in all, .*execution\.flink\.parallelism"):
        _runner(cluster, parallelism=3, job_server=jar).preflight(store="/s", inputs=[])


def test_dry_run_prints_the_options_of_a_job(cluster: FakeFlink, jar: str) -> None:
    lines = _runner(cluster, job_server=jar).describe([])
    assert lines[0] == "runner flink: Beam's PortableRunner"
    assert "  --environment_type=PROCESS" in lines
    assert "  --parallelism=min(work items, free slots)" in lines
    assert not [line for line in lines if line.startswith("missing")]


# Following a submitted job


class _Result:
    """Beam's result of a job, which runs until the test sets another state."""

    _job_id = "of the job service"
    _message_stream = ()
    state = beam_job_api_pb2.JobState.RUNNING

    @property
    def _job_service(self) -> Self:
        return self

    def GetState(self, *_: Any, **__: Any) -> Self:  # noqa: N802 (Beam's name)
        return self


class _Submitted(FlinkRunner):
    """Flink whose jobs need no job service."""

    def __init__(self, cluster: FakeFlink) -> None:
        fields = {"master": cluster.master, "job_endpoint": "localhost:1"}
        config = {"runner": "flink", "flink": fields}
        super().__init__(ExecutionConfig.model_validate(config))
        self.result = _Result()

    def submit(self, job: str, build: Any, *, flags: list[str]) -> ServiceJob:
        return ServiceJob(self.result, runner=self, endpoint="localhost:1", job=job)


@pytest.fixture
def runner(cluster: FakeFlink, monkeypatch: pytest.MonkeyPatch) -> _Submitted:
    monkeypatch.setattr(engine, "POLL_SECONDS", 0.01)
    runner = _Submitted(cluster)
    runner.max_poll_seconds = 0.01
    return runner


def _build_nothing(_: beam.Pipeline) -> None:
    """Add no transform."""


def _run(runner: _Submitted, **fields: Any) -> None:
    with submission_scope(Submission("mine", **fields)):
        runner.run("job", _build_nothing)


def test_submitted_job_is_reported_with_its_page(cluster: FakeFlink, runner: _Submitted) -> None:
    reported: list[SubmittedJob] = []

    def finish(job: SubmittedJob) -> None:
        reported.append(job)
        runner.result.state = beam_job_api_pb2.JobState.DONE

    _run(runner, on_submitted=finish)
    assert [job.id for job in reported] == ["7"]
    assert reported[0].url.endswith("/#/job/7/overview")


def test_job_that_ended_before_its_cluster_listed_it_is_reported(runner: _Submitted) -> None:
    reported: list[SubmittedJob] = []
    runner.result.state = beam_job_api_pb2.JobState.DONE
    _run(runner, on_submitted=reported.append)
    assert [job.id for job in reported] == ["of the job service"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupted_run_cancels_its_job(
    cluster: FakeFlink, runner: _Submitted, error: type[BaseException]
) -> None:
    def interrupt(_: SubmittedJob) -> None:
        raise error

    with pytest.raises(error):
        _run(runner, on_submitted=interrupt)
    assert _CANCEL in cluster.requests


def test_stopped_run_cancels_its_job(cluster: FakeFlink, runner: _Submitted) -> None:
    stop_event = threading.Event()
    stop_event.set()
    with pytest.raises(RunnerError, match="the run was stopped"):
        _run(runner, stop_event=stop_event)
    assert _CANCEL in cluster.requests


def test_failed_job_is_an_error(runner: _Submitted) -> None:
    runner.result.state = beam_job_api_pb2.JobState.FAILED
    with pytest.raises(RunnerError, match=r"^job: .*FAILED"):
        _run(runner)


@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
def test_job_that_its_cluster_forgot_is_retried(
    cluster: FakeFlink, runner: _Submitted, state: str
) -> None:
    def forget(_: SubmittedJob) -> None:
        cluster.tasks = None
        runner.result.state = beam_job_api_pb2.JobState.Enum.Value(state)

    with pytest.raises(RunnerError, match="does not know job 7 ") as raised:
        _run(runner, on_submitted=forget)
    assert is_transient(raised.value)


def test_silent_cluster_is_waited_for(cluster: FakeFlink, runner: _Submitted) -> None:
    def go_silent(_: SubmittedJob) -> None:
        cluster.is_silent = True

    runner.max_silent_seconds = 0.05
    with pytest.raises(RunnerError, match="no answer for") as raised:
        _run(runner, on_submitted=go_silent)
    assert is_transient(raised.value)
    cluster.is_silent, runner.result.state = False, beam_job_api_pb2.JobState.DONE
    _run(runner)


def test_job_that_waits_for_slots_for_too_long_is_resubmitted(
    cluster: FakeFlink, runner: _Submitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_max_wait_seconds", 0.0)
    cluster.tasks = {"SCHEDULED": 2}
    runner.check_job("7")  # it has just begun to wait
    cluster.tasks = {"SCHEDULED": 1, "RUNNING": 1}
    runner.check_job("7")  # it got a slot
    cluster.tasks = {"SCHEDULED": 2}
    runner.check_job("7")
    with pytest.raises(NoSlotsError):
        runner.check_job("7")

    def finish(_line: str) -> None:  # the message of the resubmission
        runner.result.state = beam_job_api_pb2.JobState.DONE

    _run(runner, log=finish)
    assert _CANCEL in cluster.requests


def test_job_waits_for_the_job_before_it(cluster: FakeFlink, runner: _Submitted) -> None:
    def submit_another(_: SubmittedJob) -> None:
        with submission_scope(_NeverWaits()):
            _Submitted(cluster).run("another", _build_nothing)

    runner.result.state = beam_job_api_pb2.JobState.DONE
    with pytest.raises(TimeoutError):
        _run(runner, on_submitted=submit_another)
    _run(runner)


# Processes


_LAUNCHER = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-I", sys.argv[1], sys.executable, "-c",
     "import os, time; print(os.getpid(), flush=True); time.sleep(600)"],
    stdin=subprocess.PIPE, start_new_session=True,
)
child.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_guarded_process_ends_with_its_launcher(number: int) -> None:
    launcher = subprocess.Popen(
        [sys.executable, "-c", _LAUNCHER, str(child_guard.__file__)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout is not None
    process = int(launcher.stdout.readline())
    assert is_running(process)
    launcher.send_signal(number)
    launcher.wait()
    wait_until(lambda: not is_running(process))
