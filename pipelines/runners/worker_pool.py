"""Pool of workers for environments of type EXTERNAL, on the machine of an engine's process.

An engine asks it for a worker by an id that is unique among its own, and two task managers both
ask for `2-1`. Beam's own pool knows workers by these ids, so that the end of one ends the other's.
Here each request starts a process, regardless of its id, which ends as its engine closes the
channel that it takes work from; those that are left end with the pool.

Beam's protocol for pools has no authentication. Every process that reaches the port can start
workers, which run the code of the job that they connect to. Beam's own pool listens on all
interfaces. This one only listens on the loopback interface, and does not run as root by default.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from pipelines.runners.portable import worker_program
from schemas.errors import ConfigError, RunnerError

_END_SECONDS = 5.0
_POLL_SECONDS = 0.5
_THREADS = 4
_LOGGER = logging.getLogger(__name__)


class WorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """Starts a worker for each request. For any thread."""

    def __init__(self, command: Sequence[str]) -> None:
        """No worker is started yet.

        Args:
            command: Boot program of workers and its arguments.
        """
        self._command = list(command)
        self._lock = threading.Lock()
        self._workers: list[subprocess.Popen[bytes]] = []
        self._has_ended = False

    def StartWorker(self, request: Any, context: Any) -> Any:  # noqa: N802 (Beam's name)
        """Start the worker that an engine asks for."""
        del context
        named = {
            "id": request.worker_id,
            "provision_endpoint": request.provision_endpoint.url,
            "control_endpoint": request.control_endpoint.url,
            "logging_endpoint": request.logging_endpoint.url,
            "artifact_endpoint": request.artifact_endpoint.url,
        }
        arguments = [f"--{name}={value}" for name, value in named.items() if value]
        with self._lock:
            self._workers = [worker for worker in self._workers if worker.poll() is None]
            if self._has_ended:
                return beam_fn_api_pb2.StartWorkerResponse(error="the pool is ending")
            try:
                worker = subprocess.Popen([*self._command, *arguments])  # noqa: S603 (our own)
            except OSError as error:
                return beam_fn_api_pb2.StartWorkerResponse(error=f"{self._command[0]}: {error}")
            self._workers.append(worker)
        _LOGGER.info("worker %s is process %d", request.worker_id, worker.pid)
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request: Any, context: Any) -> Any:  # noqa: N802 (Beam's name)
        """Do nothing: ids are not unique, and a worker ends when its engine closes the channel."""
        del request, context
        return beam_fn_api_pb2.StopWorkerResponse()

    def end(self) -> None:
        """End all workers, and start no further ones."""
        with self._lock:
            self._has_ended = True
            workers, self._workers = self._workers, []
        for worker in workers:
            worker.terminate()
        for worker in workers:
            try:
                worker.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


@contextlib.contextmanager
def serving(port: int, *, command: Sequence[str] | None = None) -> Iterator[int]:
    """Serve a pool on the loopback interface while the `with` block runs, and yield its port.

    Args:
        port: Port to listen on; 0: any free port.
        command: Boot program of workers; None: this Python's.

    Raises:
        RunnerError: The port is taken.
    """
    pool = WorkerPool(command or [worker_program()])
    # Without this option a second server would take a port that another listens at.
    server = grpc.server(ThreadPoolExecutor(_THREADS), options=[("grpc.so_reuseport", 0)])
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    try:
        bound_port = server.add_insecure_port(f"localhost:{port}")
    except RuntimeError as error:
        raise RunnerError(
            f"localhost:{port}: the port is not free ({error}). Stop the other pool, or choose "
            "another port"
        ) from error
    server.start()
    try:
        yield int(bound_port)
    finally:
        server.stop(grace=None).wait()
        pool.end()


def serve(port: int, *, allow_root: bool, say: Callable[[str], None]) -> None:
    """Serve a pool until SIGTERM or Ctrl-C, and print where it listens and who can use it.

    Raises:
        ConfigError: The user is root, and `allow_root` is not set.
    """
    if os.geteuid() == 0 and not allow_root:
        raise ConfigError(
            "worker-pool: expected a user other than root, got root: every user of this machine "
            "could run code as root. Start it as another user, or pass --allow-root where no "
            "other user has access, such as in a container"
        )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit())
    with contextlib.suppress(SystemExit), serving(port) as bound_port:
        say(f"worker pool at localhost:{bound_port}")
        say(
            "warning: the pool has no authentication. Every user of this machine can run code as "
            "the user of the pool"
        )
        while True:  # a signal that another thread gets does not end the sleep
            time.sleep(_POLL_SECONDS)
