"""A real Prefect server with a worker, in processes that a test starts and ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from support.paths import ROOT

from benchmarks.local_server import free_ports

_STATES = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


class PrefectServer:
    """Its API, commands against it, and processes that end with it."""

    def __init__(self, folder: Path) -> None:
        [port] = free_ports(1)
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {
            **os.environ,
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": f"{self.url}/api",
            "PREFECT_SERVER_API_PORT": str(port),
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_WORKER_PREFETCH_SECONDS": "1",
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
            "PREFECT_SERVER_SERVICES_SCHEDULER_MAX_RUNS": "3",
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            "BERTLOOM_CACHE": str(folder / "cache"),
            "PWD": str(ROOT),
        }
        self.client = httpx.Client(base_url=f"{self.url}/api", trust_env=False, timeout=60)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> None:
        """Start `prefect ARGUMENTS` in a new process group."""
        log = self.folder / f"{arguments[0]}.log"
        with log.open("wb") as sink:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "prefect", *arguments],
                    cwd=ROOT,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    start_new_session=True,
                )
            )

    def command(self, *arguments: str) -> str:
        """Run `prefect ARGUMENTS` to its end; what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def wait_for(
        self,
        what: str,
        look: Callable[[], Any],
        *,
        seconds: float = 300,
        poll_seconds: float = 1.0,
    ) -> Any:
        """Poll until the result is truthy; fail with `what` after the time limit.

        Most looks are requests: the CPU time that the server takes for them delays the runs.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                if result := look():
                    return result
            time.sleep(poll_seconds)
        logs = {log.name: log.read_text()[-3000:] for log in self.folder.glob("*.log")}
        raise AssertionError(f"no {what} after {seconds} s: {logs}")

    def is_healthy(self) -> bool:
        return self.client.get("/health").status_code == httpx.codes.OK

    def post(self, path: str, **body: Any) -> Any:
        """Retry like Prefect's clients while the server's database is busy (503)."""
        for _ in range(5):
            answer = self.client.post(path, json=body)
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                break
            time.sleep(2)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def flow_runs(self, *, states: Sequence[str] = (), **chosen: Any) -> list[dict[str, Any]]:
        """Top-level flow runs, the first to start first."""
        wanted: dict[str, Any] = {"parent_task_run_id": {"is_null_": True}, **chosen}
        if states:
            wanted["state"] = {"type": {"any_": list(states)}}
        runs: list[dict[str, Any]] = self.post("/flow_runs/filter", flow_runs=wanted)
        return sorted(runs, key=lambda run: run["start_time"] or run["expected_start_time"])

    def ended(self, flow_run_id: str) -> dict[str, Any]:
        """A flow run, once it has ended."""

        def look() -> dict[str, Any] | None:
            run: dict[str, Any] = self.client.get(f"/flow_runs/{flow_run_id}").json()
            return run if run["state_type"] in _STATES else None

        run: dict[str, Any] = self.wait_for(f"end of {flow_run_id}", look)
        return run

    def task_states(self, flow_run_id: str) -> dict[str, str]:
        """Name of the state of each task run of a flow run, by its own name."""
        chosen = {"id": {"any_": [flow_run_id]}}
        runs = self.post("/task_runs/filter", flow_runs=chosen)
        return {run["name"]: run["state_name"] for run in runs}

    def stop(self) -> None:
        """End all that was started, and what that has started."""
        self.client.close()
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def running(folder: Path) -> Iterator[PrefectServer]:
    """A server that answers."""
    server = PrefectServer(folder)
    try:
        server.start("server", "start", "--host", "127.0.0.1")
        server.wait_for("server", server.is_healthy)
        yield server
    finally:
        server.stop()
