"""Sending events to a server: one that answers, is away, fails once, is slow, wants a key."""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from support.cli_runner import Cli

from benchmarks.local_server import LocalServer
from flows.lineage.export.event_file import write_events
from flows.lineage.export.events import LineageEvents
from flows.lineage.export.push import Pushed, push
from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactNotFoundError, ConfigError
from schemas.recipe import Recipe

pytestmark = pytest.mark.network

RUN = "20260102t030405-0badcafe"


class Server(LocalServer):
    """Takes events, and answers as it is told."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.headers: list[dict[str, str]] = []
        self.paths: set[str] = set()
        self.answers: list[int] = []
        """Status codes of the next requests; 201 after them."""
        self.delay = 0.0
        taken = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                time.sleep(taken.delay)
                status = taken.answers.pop(0) if taken.answers else 201
                taken.paths.add(self.path)
                taken.headers.append(dict(self.headers))
                if status == 201:
                    taken.numbers.append(event.get("number", -1))
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

        super().__init__(Handler)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        yield found


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENLINEAGE_URL", "OPENLINEAGE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    found = ArtifactStore(str(tmp_path / "store"))
    lines = [json.dumps({"number": number, "eventTime": ""}) for number in range(6)]
    write_events(found, RUN, lines)
    return found


def closed_url() -> str:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{opened.getsockname()[1]}"


def test_events_are_sent_once(store: ArtifactStore, server: Server) -> None:
    said: list[str] = []
    assert push(store, RUN, url=server.url, say=said.append) == Pushed(6, 0)
    assert server.numbers == list(range(6))
    assert server.paths == {"/api/v1/lineage"}
    assert {headers["Content-Type"] for headers in server.headers} == {"application/json"}
    assert push(store, RUN, url=f"{server.url}/", say=said.append) == Pushed(0, 0)
    write_events(store, RUN, [json.dumps({"number": 6})])
    assert push(store, RUN, url=server.url, say=said.append) == Pushed(1, 0)
    assert server.numbers == list(range(7))
    assert push(store, RUN, url=server.url, say=said.append, again=True) == Pushed(7, 0)
    assert server.numbers == [*range(7), *range(7)]
    assert said == []


def test_each_server_is_served_by_itself(store: ArtifactStore, server: Server) -> None:
    push(store, RUN, url=server.url, say=print)
    with Server() as other:
        assert push(store, RUN, url=other.url, say=print) == Pushed(6, 0)


@pytest.mark.parametrize("status", [500, 503, 400, 302])
def test_one_failure_ends_it_and_the_rest_is_sent_next_time(
    store: ArtifactStore, server: Server, status: int
) -> None:
    server.answers = [201, 201, status]
    said: list[str] = []
    assert push(store, RUN, url=server.url, say=said.append) == Pushed(2, 4)
    (line,) = said
    assert "2 of 6 events sent" in line
    assert f"bertloom push-lineage {RUN} --url {server.url}" in line
    assert (str(status) in line) or (status == 302 and "redirects" in line)
    assert push(store, RUN, url=server.url, say=said.append) == Pushed(4, 0)
    assert server.numbers == list(range(6))


def test_a_server_that_is_away_is_told_in_one_line(store: ArtifactStore) -> None:
    said: list[str] = []
    assert push(store, RUN, url=closed_url(), say=said.append) == Pushed(0, 6)
    assert len(said) == 1
    assert "0 of 6 events sent" in said[0]
    assert "it cannot be reached ([Errno" in said[0]
    names = [name.rpartition("/")[2] for name in store.backend.names(f"runs/{RUN}")]
    assert names == ["openlineage.ndjson"]


def test_a_slow_server_is_left_in_time(store: ArtifactStore, server: Server) -> None:
    server.delay = 0.05
    said: list[str] = []
    pushed = push(store, RUN, url=server.url, say=said.append, seconds=0.02)
    assert pushed == Pushed(1, 5)
    assert "takes longer than 0.02 s" in said[0]


def test_a_server_that_never_answers_is_left(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.lineage.export.push._TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said: list[str] = []
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert push(store, RUN, url=url, say=said.append) == Pushed(0, 6)
    assert "did not answer within 0.1 s" in said[0]


def test_half_a_line_is_passed_over(store: ArtifactStore, server: Server) -> None:
    path = Path(store.url(f"runs/{RUN}/openlineage.ndjson"))
    with path.open("ab") as file:
        file.write(b'{"number"')
    said: list[str] = []
    assert push(store, RUN, url=server.url, say=said.append) == Pushed(6, 0)
    assert "7: expected an event" in said[0]


def test_keys_and_passwords_are_sent_and_written_nowhere(
    store: ArtifactStore,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "hunter2")
    push(store, RUN, url=server.url, say=print)
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer hunter2"}
    monkeypatch.delenv("OPENLINEAGE_API_KEY")
    server.answers = [201, 401]
    said: list[str] = []
    address = server.url.replace("//", "//user:swordfish@")
    push(store, RUN, url=address, say=said.append, again=True)
    assert server.headers[-1]["Authorization"].startswith("Basic ")
    assert "answered 401" in said[0]
    files = [store.backend.read(name) for name in store.backend.names("runs")]
    everything = b"".join(files).decode() + "".join(said) + caplog.text
    for secret in ("hunter2", "swordfish"):
        assert secret not in everything


@pytest.mark.parametrize("url", ["localhost:5000", "ftp://host", "http://", "s3://bucket/x"])
def test_what_is_no_server_is_refused(store: ArtifactStore, url: str) -> None:
    with pytest.raises(ConfigError, match="expected the URL of a server"):
        push(store, RUN, url=url, say=print)


def test_a_run_without_events_is_told(store: ArtifactStore, server: Server) -> None:
    with pytest.raises(ArtifactNotFoundError, match="no lineage events"):
        push(store, "20200101t000000-00000000", url=server.url, say=print)


def test_all_of_it_again_goes_on_where_it_failed(store: ArtifactStore, server: Server) -> None:
    push(store, RUN, url=server.url, say=print)
    server.answers = [201, 500, 500]
    assert push(store, RUN, url=server.url, say=print, again=True) == Pushed(1, 5)
    assert push(store, RUN, url=server.url, say=print, again=True) == Pushed(0, 6)
    server.numbers.pop()
    assert push(store, RUN, url=server.url, say=print) == Pushed(6, 0)
    assert server.numbers == [*range(6), *range(6)]


# At the end of a run


def small_run(url: str, monkeypatch: pytest.MonkeyPatch, said: list[str]) -> ArtifactStore:
    monkeypatch.setenv("OPENLINEAGE_URL", url)
    store = ArtifactStore(f"memory://push-{uuid.uuid4().hex}")
    source = {"name": "mine", "kind": "text", "paths": ["x.txt"]}
    recipe = Recipe.model_validate({"name": "r", "build_documents": {"sources": [source]}})
    events = LineageEvents(store, recipe=recipe, run_id=RUN, say=said.append)
    events.run_started()
    events.run_ended("completed")
    return store


def test_the_end_of_a_run_sends_its_events(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    store = small_run(server.url, monkeypatch, said)
    assert len(server.numbers) == 2
    assert said == []
    assert push(store, RUN, url=server.url, say=print) == Pushed(0, 0)


def test_a_run_ends_well_without_its_server(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    store = small_run(closed_url(), monkeypatch, said)
    assert len(said) == 1
    assert push(store, RUN, url=server.url, say=print) == Pushed(2, 0)


def test_a_run_ends_well_with_a_url_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    small_run("localhost:5000", monkeypatch, said)
    assert len(said) == 1
    assert "expected the URL of a server" in said[0]


# The command


def test_the_command(
    store: ArtifactStore, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(capsys)
    place = ("--store", store.root)
    server.answers = [201, 500]
    said = cli("push-lineage", RUN, "--url", server.url, *place)
    assert said.code == 1
    assert "1 of 6 events sent" in said.err
    said = cli("push-lineage", RUN, "--url", server.url, *place)
    assert (said.code, said.out) == (0, f"{RUN}: 5 events sent\n")
    said = cli("push-lineage", RUN, "--url", server.url, "--again", *place)
    assert (said.code, said.out) == (0, f"{RUN}: 6 events sent\n")
    said = cli("push-lineage", RUN, *place)
    assert said.code == 2
    assert "--url" in said.err
    said = cli("push-lineage", "--url", server.url, *place)
    assert said.code == 1
    assert "no runs" in said.err
