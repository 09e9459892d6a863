"""The Prefect server of a run: the configured one, or an ephemeral one of this process.

Prefect can start an ephemeral server itself. Ctrl-C ends that server before the run can report that
it was interrupted, and it outlives a process that is killed. The server here does neither.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from flows.prefect_settings import HOME, default_prefect_home
from flows.store.runs import RunRecord
from schemas.errors import RunnerError

_FLOW_SETTINGS = {
    # Prefect recognizes a killed run by its missing heartbeat.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    # The command prints a line per step; Prefect's log goes to its server.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
}
_SERVER_SETTINGS = {
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",  # no flow here uses blocks
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",  # 1 is a transaction per event
}
_POLL_SECONDS = 0.05
_START_SECONDS = 120.0
_END_SECONDS = 5.0


def configure_prefect() -> None:
    """Set heartbeats and a quiet console as defaults of Prefect's settings."""
    for name, value in _FLOW_SETTINGS.items():
        os.environ.setdefault(name, value)


class EphemeralServer:
    """Prefect server that only this process uses, on a free port.

    Other users of the machine can reach the port, so requests need `auth_string`. The server gets
    the string by its environment, which other users cannot read.
    """

    def __init__(self) -> None:
        """Start the server; `wait` returns when it is ready."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/api"
        self.auth_string = f"bertloom:{secrets.token_urlsafe(32)}"
        """User and password that the API expects."""

        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        script = Path(__file__).with_name("prefect_server_process.py")
        # A new session: Ctrl-C does not reach the server, so the run can report its end.
        self._process = subprocess.Popen(  # noqa: S603 - our own script, no shell
            [sys.executable, "-P", str(script), str(port), str(os.getpid())],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={
                **_SERVER_SETTINGS,
                **os.environ,
                # A profile in ~/.prefect that names no server is no reason to use that folder.
                HOME: default_prefect_home(),
                "PREFECT_SERVER_API_AUTH_STRING": self.auth_string,
            },
        )
        # Registered before Prefect's own hooks, so that it runs after what they send.
        atexit.register(self.stop)

    def wait(self) -> None:
        """Wait until the server answers.

        Raises:
            RunnerError: The server does not start.
        """
        import httpx  # only runs with Prefect need it

        deadline = time.monotonic() + _START_SECONDS
        with httpx.Client(trust_env=False) as client:
            while self.is_up() and time.monotonic() < deadline:
                with contextlib.suppress(httpx.TransportError):
                    if client.get(f"{self.url}/health").status_code == httpx.codes.OK:
                        return
                time.sleep(_POLL_SECONDS)
        self.stop()
        self._log.seek(0)
        last_line = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
        raise RunnerError(
            f"Prefect's server did not start: {''.join(last_line) or 'no answer in time'}. "
            "Start one with `prefect server start` and set PREFECT_API_URL, or use --engine local"
        )

    def is_up(self) -> bool:
        """Return whether the process of the server exists."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Stop the server."""
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_SERVERS: dict[int, EphemeralServer] = {}
"""Server by the process that started it: a forked process needs its own."""


def start_server() -> EphemeralServer | None:
    """Return the ephemeral server of this process, started if necessary.

    Returns:
        None if a server is configured, or if a flow of this process already uses one.

    Raises:
        ModuleNotFoundError: Prefect is not installed.
    """
    configure_prefect()
    if os.environ.get("PREFECT_API_URL"):
        return None
    from prefect.context import FlowRunContext  # loads Prefect
    from prefect.settings import get_current_settings

    if get_current_settings().api.url or FlowRunContext.get() is not None:
        return None
    server = _SERVERS.get(os.getpid())
    if server is None or not server.is_up():
        server = _SERVERS[os.getpid()] = EphemeralServer()
    return server


@contextlib.contextmanager
def prefect_api(server: EphemeralServer | None, *, heartbeats: bool = True) -> Iterator[None]:
    """Let Prefect use a server while the block runs.

    Args:
        server: Ephemeral server, which is waited for; None for the configured one.
        heartbeats: Whether flow runs send heartbeats, which lengthens the end of each by a second.
    """
    from prefect.settings import (  # loads Prefect
        PREFECT_API_AUTH_STRING,
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        temporary_settings,
    )

    updates: dict[Any, Any] = {} if heartbeats else {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
    if server is not None:
        server.wait()
        updates |= {PREFECT_API_URL: server.url, PREFECT_API_AUTH_STRING: server.auth_string}
    with temporary_settings(updates=updates):
        yield


def report_crashed(records: Sequence[RunRecord]) -> None:
    """Set the flow runs of runs that were killed to Crashed: they cannot do it themselves."""
    ids = [record.flow_run_id for record in records if record.flow_run_id]
    if not ids:
        return
    from prefect.client.orchestration import get_client  # loads Prefect
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.states import Crashed

    running = {"id": {"any_": ids}, "state": {"type": {"any_": ["RUNNING"]}}}
    chosen = FlowRunFilter.model_validate(running)
    with get_client(sync_client=True) as client:
        for flow_run in client.read_flow_runs(flow_run_filter=chosen):
            state: Any = Crashed(message="the process of the run was killed")
            client.set_flow_run_state(flow_run.id, state, force=True)
