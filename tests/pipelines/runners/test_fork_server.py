"""Workers that are forks of one process, and callers that cannot have one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.transforms import environments
from support.paths import PYTHONPATH

from pipelines.runners import fork_server
from pipelines.runners.engines import worker_program
from pipelines.runners.fork_server import SWITCH, server_name

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks workers on Linux only")

PROGRAM = """\
import os, sys, time
from pathlib import Path
from pipelines.runners.fork_server import fork_worker

def load():
    print("not to be seen")
    with open(os.environ["LOADS"], "a") as log:
        log.write(f"{os.getpid()}\\n")
    if "FAIL" in os.environ:
        raise ImportError("no such module")

caller = os.getpid()
worker = fork_worker(sys.argv[1:], load, idle_seconds=float(os.environ["IDLE"]))
if isinstance(worker, int):
    sys.exit(worker)
is_fork = os.getpid() != caller
print(is_fork, worker.arguments, os.getcwd(), os.environ.get("SPARK_FOLDER"), sys.stdin.read())
sys.stdout.flush()
if "wait" in worker.arguments:
    Path("pid").write_text(str(os.getpid()))
    time.sleep(600)
sys.exit(len(worker.arguments))
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    for name, value in {"LOADS": tmp_path / "loads", "TMPDIR": tmp_path, "IDLE": 60}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    yield [sys.executable, str(path)]
    for server in _loads(tmp_path):
        _end(server)


def _end(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def _loads(folder: Path) -> list[int]:
    """Processes that have loaded what workers need."""
    path = folder / "loads"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def _call(program: list[str], *arguments: str, folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [*program, *arguments], cwd=folder, input="in", capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout


def _run_on(process: int) -> bool:
    """Whether a process runs, and is no zombie."""
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def _wait_until(is_so: object) -> None:
    assert callable(is_so)
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.1)
    pytest.fail("waited for a minute")


def test_workers_are_forks_of_one_process_in_their_callers_place(
    program: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(["one", "two"]):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setenv("SPARK_FOLDER", name)
        code, said = _call(program, *["x"] * number, folder=folder)
        assert (code, said) == (number, f"True {['x'] * number} {folder} {name} in\n")
    assert len(_loads(tmp_path)) == 1


def test_what_imports_may_read_makes_another_server(
    program: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        assert _call(program, folder=tmp_path)[0] == 0
    assert len(_loads(tmp_path)) == 2


def test_other_code_is_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    before = server_name({})
    assert server_name({"PWD": "/elsewhere"}) == before
    assert server_name({"SOME": "thing"}) != before
    monkeypatch.setattr(fork_server, "code_digest", lambda: "another")
    assert server_name({}) != before


@pytest.mark.parametrize("ends", ["caller", "worker"])
def test_caller_and_worker_end_together(program: list[str], tmp_path: Path, ends: str) -> None:
    caller = subprocess.Popen([*program, "wait"], cwd=tmp_path, stdin=subprocess.DEVNULL)
    try:
        _wait_until((tmp_path / "pid").exists)
        _wait_until((tmp_path / "pid").read_text)
        worker = int((tmp_path / "pid").read_text())
        os.kill(caller.pid if ends == "caller" else worker, signal.SIGKILL)
        code = caller.wait(60)
        assert code == (-signal.SIGKILL if ends == "caller" else 128 + signal.SIGKILL)
        _wait_until(lambda: not _run_on(worker))
    finally:
        caller.kill()
        caller.wait()
    assert _call(program, folder=tmp_path)[0] == 0
    assert len(_loads(tmp_path)) == 1


def test_a_server_without_workers_ends(
    program: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDLE", "0.1")
    assert _call(program, folder=tmp_path)[0] == 0
    (server,) = _loads(tmp_path)
    _wait_until(lambda: not _run_on(server))
    names = [path.name for path in (tmp_path / f"bertloom-workers-{os.geteuid()}").iterdir()]
    assert names == ["lock"]


@pytest.mark.parametrize("why", ["fails", "off", "open to others"])
def test_a_caller_without_a_server_is_the_worker_itself(
    program: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "fails":
        monkeypatch.setenv("FAIL", "1")
    elif why == "off":
        monkeypatch.setenv(SWITCH, "0")
    else:
        (tmp_path / f"bertloom-workers-{os.geteuid()}").mkdir(mode=0o755)
    code, said = _call(program, "x", folder=tmp_path)
    assert code == 1
    assert said.endswith(f"False ['x'] {tmp_path} None in\n")
    assert len(_loads(tmp_path)) == (why == "fails")


def test_a_folder_with_a_long_name_has_a_server_too(
    program: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket's name has 108 bytes at most."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    assert _call(program, "x", folder=tmp_path)[1].endswith(f"True ['x'] {tmp_path} None in\n")
    assert len(_loads(tmp_path)) == 1


# Beam's workers


class _Parent(beam.DoFn):
    """The process that a worker was forked by."""

    def process(self, element: int) -> Iterator[str]:
        yield f"{element} {os.getppid()}"


def _run_job(to: Path) -> list[tuple[str, int]]:
    """A job of Beam's own runner, whose pool starts the worker by our program."""
    address, pool = BeamFnExternalWorkerPoolServicer.start(
        use_process=True, container_executable=worker_program()
    )
    runner = fn_runner.FnApiRunner(default_environment=environments.ExternalEnvironment(address))
    with beam.Pipeline(runner=runner, options=PipelineOptions([])) as pipeline:
        written = beam.io.WriteToText(str(to), shard_name_template="")
        _ = pipeline | beam.Create([1, 2, 3]) | beam.ParDo(_Parent()) | written
    pool.stop(None)
    told = [line.split() for line in to.read_text().splitlines()]
    return sorted((element, int(parent)) for element, parent in told)


@pytest.mark.network
def test_forked_workers_run_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)  # where `_Parent` is
    servers = []
    try:
        for number in range(2):
            told = _run_job(tmp_path / f"told-{number}")
            servers += [server for _, server in told]
            assert [element for element, _ in told] == ["1", "2", "3"]
        assert len(set(servers)) == 1
        assert os.getpid() not in servers
    finally:
        for server in servers:
            _end(server)
