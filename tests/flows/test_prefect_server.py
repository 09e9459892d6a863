"""Runs with an ephemeral Prefect server: ended by a signal, killed, and resumed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from support.paths import PYTHONPATH

from flows.prefect_server import EphemeralServer, prefect_api, start_server
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, read_run, run_ids

pytestmark = [pytest.mark.slow, pytest.mark.network]

# A stage that waits while a file exists.
SLOW = """

_tokens = tokens


def tokens(config, *, inputs, output, execution):
    import os
    import time

    while os.path.exists(os.environ["WAIT_FILE"]):
        Path(os.environ["WAIT_FILE"] + ".began").touch()
        time.sleep(0.02)
    return _tokens(config, inputs=inputs, output=output, execution=execution)
"""
RUN = f"""
import sys
from pathlib import Path

import pytest

from support.fake_stages import STAGES, installed
from flows.cli.console import handle_errors
from flows.running import run_recipe

code, store = Path(sys.argv[1]), sys.argv[2]
with installed(code, pytest.MonkeyPatch()) as fakes:
    fakes.write("stages", STAGES + {SLOW!r})
    recipe = fakes.recipe(store)
    with handle_errors(debug=lambda: True):
        run_recipe(recipe, log=print)
"""


class Runs:
    """Runs of the fake recipe in one store and one $PREFECT_HOME, each in its own process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wait_file = folder / "wait"
        self._began = folder / "wait.began"
        self._count = 0

    def start(self) -> subprocess.Popen[bytes]:
        self._count += 1
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"},
            "PYTHONPATH": PYTHONPATH,
            "PREFECT_HOME": str(self.folder / "prefect"),
            "WAIT_FILE": str(self.wait_file),
        }
        code = self.folder / f"code{self._count}"
        command = [sys.executable, "-c", RUN, str(code), str(self.folder / "store")]
        with (self.folder / f"run{self._count}.log").open("wb") as log:
            return subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def start_and_wait(self) -> subprocess.Popen[bytes]:
        """Start a run, and wait until it executes the stage that waits."""
        self.wait_file.touch()
        self._began.unlink(missing_ok=True)
        process = self.start()
        while not self._began.exists():
            assert process.poll() is None, self.log()
            time.sleep(0.05)
        return process

    def log(self) -> str:
        return (self.folder / f"run{self._count}.log").read_text()

    def records(self) -> list[RunRecord]:
        store = ArtifactStore(str(self.folder / "store"))
        return [read_run(store, run_id) for run_id in run_ids(store)]

    def prefect_states(self, table: str = "flow_run") -> list[str]:
        """Return the states of all flow runs or task runs in Prefect's database, oldest first."""
        with closing(sqlite3.connect(self.folder / "prefect" / "prefect.db")) as database:
            rows = database.execute(f"select state_type from {table} order by created")
            return [row[0] for row in rows]


def servers_of(pid: int) -> list[str]:
    """Return the command lines of the Prefect servers that a process started."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:  # it has just ended
            continue
        if any("prefect_server_process" in word for word in words) and str(pid) in words:
            commands.append(" ".join(words))
    return commands


def test_run_resumes_after_signal_and_after_kill(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    process = runs.start_and_wait()
    assert len(servers_of(process.pid)) == 1
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM, runs.log()
    assert [record.state for record in runs.records()] == ["interrupted"]
    assert runs.prefect_states() == ["CRASHED"]
    assert not servers_of(process.pid)
    assert list((tmp_path / "store" / "artifacts" / "build-tokens").rglob("part-*")) == []

    process = runs.start_and_wait()
    process.kill()
    process.wait()
    assert [record.state for record in runs.records()] == ["interrupted", "running"]
    while servers_of(process.pid):
        time.sleep(0.1)

    runs.wait_file.unlink()
    process = runs.start()
    assert process.wait() == 0, runs.log()
    records = runs.records()
    assert [record.state for record in records] == ["interrupted", "crashed", "completed"]
    assert runs.prefect_states() == ["CRASHED", "CRASHED", "COMPLETED"]
    assert [step.was_cached for step in records[-1].steps] == [True, True, False, False, False]


def test_ephemeral_server_refuses_requests_without_its_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from prefect.client.orchestration import get_client

    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    server = EphemeralServer()
    try:
        server.wait()
        _, secret = server.auth_string.split(":")
        with httpx.Client(base_url=server.url, trust_env=False) as client:
            asked = {
                str(auth): client.post("/flow_runs/filter", json={}, auth=auth).status_code
                for auth in (None, ("bertloom", "other"), ("bertloom", secret))
            }
        assert list(asked.values()) == [401, 401, 200]
        (command,) = servers_of(os.getpid())
        assert secret not in command
        with prefect_api(server), get_client(sync_client=True) as own:
            assert own.read_flow_runs() == []
    finally:
        server.stop()
    assert not any(
        secret.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    )


def test_configured_server_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert start_server() is None
