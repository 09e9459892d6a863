"""Sending OpenLineage events to a server, configured by the variables of OpenLineage's client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.fake_stages import LABELS, FakeStages

from benchmarks.local_server import LocalServer
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run, run_ids

pytestmark = pytest.mark.network


class Server(LocalServer):
    """Keeps the events that it is sent."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.status = 201
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.keys.add(self.headers.get("Authorization"))
                if server.status == 201:
                    server.events.append(event)
                self.send_response(server.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        super().__init__(Handler)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("OPENLINEAGE_URL", server.url)
        monkeypatch.setenv("OPENLINEAGE_API_KEY", "a-secret-key")
        yield server


def test_run_sends_its_events_at_the_end(server: Server, fakes: FakeStages, tmp_path: Path) -> None:
    run_recipe(fakes.recipe(str(tmp_path / "store")), listeners=[], engine="local")
    types = [event["eventType"] for event in server.events]
    assert types.count("START") == types.count("COMPLETE") == len(LABELS) + 1
    assert server.keys == {"Bearer a-secret-key"}


def test_server_that_refuses_events_fails_no_run_and_logs_no_secret(
    server: Server, fakes: FakeStages, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.status = 403
    root = str(tmp_path / "store")
    run_recipe(fakes.recipe(root), listeners=[], engine="local")
    (run_id,) = run_ids(ArtifactStore(root))
    assert read_run(ArtifactStore(root), run_id).state == "completed"
    assert "0 of 12 OpenLineage events" in caplog.text
    assert "a-secret-key" not in caplog.text
    written = (path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert not any(b"a-secret-key" in data for data in written)


def test_wrong_configuration_fails_no_run(
    fakes: FakeStages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "no url")
    results = run_recipe(fakes.recipe(str(tmp_path / "store")), listeners=[], engine="local")
    assert len(results) == len(LABELS)
