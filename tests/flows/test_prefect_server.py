"""Runs with Prefect's temporary server: ended by a signal, killed, and resumed."""

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
        run_recipe(recipe, log=print, engine="prefect")
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


def is_running(pid: int) -> bool:
    """Return whether a process runs. One that has ended and was not waited for has no words."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    """Return the child processes of a process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in tasks for child in path.read_text().split()]


def server_of(pid: int) -> int:
    """Return the process id of the Prefect server of a run: the child of one of its children."""
    [server] = [
        server
        for child in children_of(pid)
        for server in children_of(child)
        if b"prefect.server.api.server:create_app" in Path(f"/proc/{server}/cmdline").read_bytes()
    ]
    return server


def wait_for_end(pid: int) -> None:
    """Wait until a process that is not our child has ended."""
    while is_running(pid):
        time.sleep(0.05)


def check_secret(server: int, folder: Path) -> None:
    """Check that a server answers its own run only, and that other users cannot see the secret."""
    environment = dict(
        line.split("=", 1)
        for line in Path(f"/proc/{server}/environ").read_text().split("\0")
        if "=" in line
    )
    words = Path(f"/proc/{server}/cmdline").read_text().split("\0")
    user, secret = environment["PREFECT_SERVER_API_AUTH_STRING"].split(":")
    url = f"http://127.0.0.1:{words[words.index('--port') + 1]}/api"
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        statuses = [
            client.post("/flow_runs/filter", json={}, auth=auth).status_code
            for auth in (None, (user, "other"), (user, secret))
        ]
    assert statuses == [401, 401, 200]
    assert len(secret) > 30
    assert not any(secret in word for word in words)
    files = (path for path in folder.rglob("*") if path.is_file())
    assert not any(secret.encode() in path.read_bytes() for path in files)


def test_run_ends_its_server_and_resumes_after_signals_and_kill(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    for number in (signal.SIGINT, signal.SIGTERM):
        process = runs.start_and_wait()
        server = server_of(process.pid)
        check_secret(server, tmp_path)
        os.killpg(process.pid, number)  # as a terminal does after Ctrl-C
        assert process.wait() == 128 + number, runs.log()
        assert not is_running(server)
    assert [record.state for record in runs.records()] == ["interrupted", "interrupted"]
    assert runs.prefect_states() == ["CRASHED", "CRASHED"]
    assert list((tmp_path / "store" / "artifacts" / "build-tokens").rglob("part-*")) == []

    process = runs.start_and_wait()
    server = server_of(process.pid)
    process.kill()
    process.wait()
    assert [record.state for record in runs.records()] == ["interrupted", "interrupted", "running"]
    wait_for_end(server)

    runs.wait_file.unlink()
    process = runs.start()
    assert process.wait() == 0, runs.log()
    records = runs.records()
    states = ["interrupted", "interrupted", "crashed", "completed"]
    assert [record.state for record in records] == states
    assert runs.prefect_states() == ["CRASHED", "CRASHED", "CRASHED", "COMPLETED"]
    assert [step.was_cached for step in records[-1].steps] == [True, True, False, False, False]
