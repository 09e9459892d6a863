"""Pool of workers next to an engine: two task managers request the same id."""

from __future__ import annotations

import ipaddress
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, endpoints_pb2
from support.waiting import wait_until

from pipelines.runners.worker_pool import serve, serving
from schemas.errors import ConfigError, RunnerError

pytestmark = pytest.mark.network

# Prints its arguments and runs until it is terminated.
_WORKER = """
import os, sys, time
folder, *arguments = sys.argv[1:]
open(f"{folder}/{os.getpid()}", "w").write(" ".join(arguments))
time.sleep(600)
"""


@pytest.fixture
def started(tmp_path: Path) -> Path:
    folder = tmp_path / "started"
    folder.mkdir()
    return folder


@pytest.fixture
def port(started: Path) -> Iterator[int]:
    with serving(0, command=[sys.executable, "-c", _WORKER, str(started)]) as port:
        yield port


def _start(port: int, worker: str, *, control: str) -> str:
    request = beam_fn_api_pb2.StartWorkerRequest(
        worker_id=worker,
        control_endpoint=endpoints_pb2.ApiServiceDescriptor(url=control),
        provision_endpoint=endpoints_pb2.ApiServiceDescriptor(url=f"{control}1"),
    )
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        stub = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
        return str(stub.StartWorker(request, timeout=300).error)


def _stop(port: int, worker: str) -> None:
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        stub = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
        stub.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id=worker), timeout=300)


def _running(folder: Path, count: int) -> dict[int, list[str]]:
    """Wait for the given number of started workers; return them by process."""
    arguments: dict[int, list[str]] = {}

    def look() -> bool:
        arguments.update({int(path.name): path.read_text().split() for path in folder.iterdir()})
        return len(arguments) >= count and all(arguments.values())

    wait_until(look)
    return arguments


def test_workers_of_one_id_are_independent_processes(port: int, started: Path) -> None:
    assert _start(port, "2-1", control="one:1") == _start(port, "2-1", control="two:2") == ""
    arguments = _running(started, 2)
    assert sorted(arguments.values()) == [
        ["--id=2-1", f"--provision_endpoint={control}1", f"--control_endpoint={control}"]
        for control in ("one:1", "two:2")
    ]
    _stop(port, "2-1")
    assert all(psutil.pid_exists(worker) for worker in arguments)


def test_workers_end_with_the_pool(started: Path) -> None:
    with serving(0, command=[sys.executable, "-c", _WORKER, str(started)]) as port:
        _start(port, "1-1", control="one:1")
        (worker,) = _running(started, 1)
    assert not psutil.pid_exists(worker)


def test_missing_boot_program_and_taken_port_are_errors(tmp_path: Path) -> None:
    with serving(0, command=[str(tmp_path / "none")]) as port:
        assert "none" in _start(port, "1-1", control="one:1")
        with pytest.raises(RunnerError, match=f"localhost:{port}"), serving(port):
            pytest.fail("a second pool listens there")


@pytest.mark.parametrize(
    "command",
    [["flows", "worker-pool"], ["pipelines.runners.beam_worker", "--worker_pool"]],
    ids=["command", "boot-program"],
)
def test_pool_serves_until_sigterm(command: list[str]) -> None:
    pool = subprocess.Popen(
        [sys.executable, "-m", *command, "--port=0", "--allow-root"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert pool.stdout is not None
    said = pool.stdout.readline()
    assert said.startswith("worker pool at localhost:")
    assert not _start(int(said.rsplit(":", 1)[1]), "1-1", control="localhost:9")
    pool.terminate()
    assert pool.wait(300) == 0


@pytest.mark.parametrize("is_allowed", [True, False])
def test_root_serves_only_with_the_option(
    monkeypatch: pytest.MonkeyPatch, is_allowed: bool
) -> None:
    def stop(line: str) -> None:
        raise InterruptedError(line)

    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(InterruptedError if is_allowed else ConfigError):
        serve(0, allow_root=is_allowed, say=stop)


def test_pool_listens_on_the_loopback_interface_only(port: int) -> None:
    listening = {
        connection.laddr.ip.removeprefix("::ffff:")  # IPv4 on a socket for both
        for connection in psutil.Process().net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    }
    assert listening
    assert all(ipaddress.ip_address(address).is_loopback for address in listening)


# A signal that reaches a thread of gRPC's or of a request's wakes no lock that the main thread
# waits for.
_SIGNALLED_THREAD = """
import signal, threading, time

from pipelines.runners.worker_pool import serve

said = threading.Event()

def signalled():
    said.wait()
    time.sleep(1.0)  # the main thread waits by then
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    time.sleep(600)

threading.Thread(target=signalled, daemon=True).start()
serve(0, allow_root=True, say=lambda line: said.set())
"""


def test_signal_that_another_thread_gets_ends_the_pool() -> None:
    assert subprocess.run([sys.executable, "-c", _SIGNALLED_THREAD], timeout=300).returncode == 0
