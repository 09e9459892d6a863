"""Prefect's API for a process without a server: one of its own, that starts early and ends with it.

Prefect starts such a server by itself, but in the process group of the terminal, so that Ctrl-C
ends it before a run can say that it was interrupted; it outlives a process that is killed; and it
starts only when the flow does. The database is in $PREFECT_HOME, or else in a folder of bertloom's
cache: what the user keeps in ~/.prefect is left alone.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from flows.prefect_settings import HOME, default_prefect_home
from flows.run.run import Run
from flows.run.session import mark_killed_runs
from flows.store.runs import RunRecord
from schemas.errors import ConfigError, RunnerError

_SETTINGS = {
    # A run that was killed is known by its missing heartbeat.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    # The steps' own lines say what happens; Prefect's log goes to its server all the same.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
}
_LOOK_SECONDS = 0.05
_START_SECONDS = 120.0
_END_SECONDS = 5.0
_ORPHAN_SECONDS = 1.0


@contextlib.contextmanager
def require_prefect() -> Iterator[None]:
    """Say how to get Prefect, or to do without, where the block's imports do not find it.

    Raises:
        ConfigError: Prefect is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prefect":
            raise
        raise ConfigError(
            "Prefect is not installed: pip install 'bertloom[flows]', or use --engine local"
        ) from error


def configure_prefect() -> None:
    """Heartbeats and a quiet console, for the command: unless the user says otherwise."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)


class EphemeralServer:
    """Prefect server that only this process uses, on a free port.

    Other users of the machine can reach the port, so the server only answers requests with
    `auth_string`. It gets the string by its environment, which other users cannot read.
    """

    def __init__(self) -> None:
        """Start it; it is not up yet then."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self.auth_string = f"bertloom:{secrets.token_urlsafe(32)}"
        """User and password that the API expects."""

        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        # A session of its own: Ctrl-C is for the flow, which still has to tell how it ended.
        self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
            [sys.executable, "-m", "flows.prefect_server", str(self._port), str(os.getpid())],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            env={**_environment(), "PREFECT_SERVER_API_AUTH_STRING": self.auth_string},
        )
        # Before Prefect has registered anything, and so after all that it sends at the end.
        atexit.register(self.stop)

    @property
    def url(self) -> str:
        """The address of the API."""
        return f"http://127.0.0.1:{self._port}/api"

    def wait(self) -> None:
        """Until it answers.

        Raises:
            RunnerError: it does not start.
        """
        import httpx  # start-up: 90 ms

        # Not Prefect's own setting: whoever loads Prefect before bertloom has its 20 s, and a first
        # start on an empty database has taken 16 s on an idle machine.
        deadline = time.monotonic() + _START_SECONDS
        with httpx.Client(trust_env=False) as client:
            while self._process.poll() is None and time.monotonic() < deadline:
                with contextlib.suppress(httpx.TransportError):
                    if client.get(f"{self.url}/health").status_code == httpx.codes.OK:
                        return
                time.sleep(_LOOK_SECONDS)
        self.stop()
        self._said.seek(0)
        told = self._said.read().decode(errors="replace").strip().splitlines()[-1:]
        raise RunnerError(
            f"Prefect's server did not start: {''.join(told) or 'it did not answer in time'}. "
            "Start one with `prefect server start` and set PREFECT_API_URL, or use --engine local"
        )

    def is_up(self) -> bool:
        """Whether its process is there."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End it."""
        if self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_SERVERS: dict[int, EphemeralServer] = {}


def start_server() -> EphemeralServer | None:
    """The server of this process, starting if there is none; None where one is configured."""
    configure_prefect()
    if os.environ.get("PREFECT_API_URL"):
        return None
    from prefect.context import FlowRunContext  # start-up: 1.3 s
    from prefect.settings import get_current_settings

    if get_current_settings().api.url or FlowRunContext.get() is not None:
        return None  # a profile names one; or this is part of a flow, which has one
    server = _SERVERS.get(os.getpid())
    if server is None or not server.is_up():
        server = _SERVERS[os.getpid()] = EphemeralServer()
    return server


@contextlib.contextmanager
def prefect_api(server: EphemeralServer | None, *, heartbeats: bool = True) -> Iterator[None]:
    """Prefect talks to `server` in this block, or to what is configured.

    Args:
        server: waited for until it answers.
        heartbeats: whether flow runs say that they live; the end of each waits a second for that.
    """
    # start-up: 1.2 s
    from prefect.settings import (
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


def run_with_prefect(run: Run, *, part: str = "") -> None:
    """Run a prepared run as a Prefect flow, on the configured server or an ephemeral one.

    Args:
        run: The run; its results are in it afterwards.
        part: Part of the recipe whose flow runs, see `flows.bert.recipe_steps`.

    Raises:
        ConfigError: Prefect is not installed.
        RunnerError: The ephemeral server does not start.
        BertloomError: A step failed.
    """
    with require_prefect():
        server = start_server()
        from flows.prefect_flows import run_prepared  # loads Prefect, while the server starts
    is_cached = bool(run.planned) and all(step.state == "cached" for step in run.planned)
    with prefect_api(server, heartbeats=not is_cached):
        report_crashed(mark_killed_runs(run.recipe))
        run_prepared(run, part=part)


def report_crashed(records: Sequence[RunRecord]) -> None:
    """Set the flow runs of runs that were killed to Crashed: they cannot do it themselves."""
    ids = [record.flow_run_id for record in records if record.flow_run_id]
    if not ids:
        return
    from prefect.client.orchestration import get_client  # loads Prefect
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.states import Crashed

    running = {"id": {"any_": ids}, "state": {"type": {"any_": ["RUNNING"]}}}
    with get_client(sync_client=True) as client:
        # Flow runs of another server are not found on this one.
        for flow_run in client.read_flow_runs(
            flow_run_filter=FlowRunFilter.model_validate(running)
        ):
            state: Any = Crashed(message="the process of the run was killed")
            client.set_flow_run_state(flow_run.id, state, force=True)


def _environment() -> dict[str, str]:
    # The code that starts it is the code that it runs, whatever lies where the user happens to be.
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONSAFEPATH": "1",
        # Registering Prefect's kinds of blocks takes half a second, and no flow here has any.
        "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    }
    if (
        home := default_prefect_home()
    ):  # a profile in ~/.prefect that names no server is no reason to use it
        own[HOME] = home
    return {**os.environ, **own}


def main(arguments: list[str]) -> int:
    """Serve on a port, without services and pages, until the process that asked for it is gone."""
    port, launcher = int(arguments[0]), int(arguments[1])

    def end_with_launcher() -> None:
        while os.getppid() == launcher:
            time.sleep(_ORPHAN_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_launcher, name="launcher", daemon=True).start()
    import uvicorn  # start-up: 2.8 s, with the next
    from prefect.server.api.server import create_app

    app = create_app(ephemeral=True, final=True)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", lifespan="on")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
