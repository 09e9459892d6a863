"""OpenLineage events of runs, read from a file or received by a server."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.fake_stages import LABELS, FakeStages
from support.lineage_schema import LineageSchemas
from support.store_builder import describe, file_entry

from benchmarks.local_server import LocalServer
from flows.bert import recipe_steps
from flows.lineage.openlineage import openlineage_listeners, send_aborts
from flows.recipes.loader import load_recipe
from flows.run.events import Event, RunFinished, RunStarted, StepFailed, StepFinished, StepStarted
from flows.run.run import Run
from flows.run.step_execution import StepResult
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore, Attempt
from flows.store.runs import read_run, run_ids
from schemas.arrow import tokens_schema
from schemas.errors import InputError
from schemas.manifest import Manifest, RawInput
from schemas.recipe import Recipe

SECRETS = ("AKIDKEY", "S3SECRET", "t0k3n", "hunter2")
LineageEvent = dict[str, Any]
ReadEvents = Callable[[], list[LineageEvent]]
Sample = tuple[dict[str, Manifest], list[LineageEvent]]


@pytest.fixture(autouse=True)
def no_transport(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith("OPENLINEAGE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def read_events(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ReadEvents:
    """Send events to a file with the client's file transport."""
    path = tmp_path / "events.ndjson"
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(path))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    return lambda: [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="session")
def schemas(real_data: Path) -> LineageSchemas:
    return LineageSchemas(real_data / "openlineage-spec")


def states(events: list[LineageEvent]) -> list[tuple[str, str]]:
    return [(event["eventType"], event["job"]["name"]) for event in events]


def find(events: list[LineageEvent], state: str, label: str) -> LineageEvent:
    (event,) = (e for e in events if (e["eventType"], e["job"]["name"]) == (state, label))
    return event


def run_fakes(fakes: FakeStages, root: Path) -> ArtifactStore:
    run_recipe(fakes.recipe(str(root)), listeners=[], engine="local")
    return ArtifactStore(str(root))


def test_run_and_each_step_start_and_complete(
    fakes: FakeStages, tmp_path: Path, read_events: ReadEvents
) -> None:
    run_fakes(fakes, tmp_path / "store")
    built = read_events()
    run_fakes(fakes, tmp_path / "store")
    cached = read_events()[len(built) :]
    expected = [("START", "bertloom.fake")]
    for label in LABELS:
        expected += [("START", f"bertloom.fake.{label}"), ("COMPLETE", f"bertloom.fake.{label}")]
    for events, tag in ((built, "miss"), (cached, "hit")):
        assert states(events) == [*expected, ("COMPLETE", "bertloom.fake")]
        ids = Counter(event["run"]["runId"] for event in events)
        assert set(ids.values()) == {2}
        assert {uuid.UUID(run_id).version for run_id in ids} == {7}
        for event in events[1:-1]:
            assert event["run"]["facets"]["parent"]["run"]["runId"] == events[0]["run"]["runId"]
        tags = find(events, "COMPLETE", "bertloom.fake.build-tokens")["run"]["facets"]["tags"]
        assert {"cache": tag}.items() <= {t["key"]: t["value"] for t in tags["tags"]}.items()
    assert not {e["run"]["runId"] for e in built} & {e["run"]["runId"] for e in cached}


def test_failed_step_has_error_without_secrets(
    fakes: FakeStages, tmp_path: Path, read_events: ReadEvents
) -> None:
    text = "no file s3://AKIDKEY:S3SECRET@bucket/x?token=t0k3n"
    fakes.module.FAULTS["tokens"] = [InputError(text)]
    with pytest.raises(InputError):
        run_fakes(fakes, tmp_path / "store")
    events = read_events()
    failed = find(events, "FAIL", "bertloom.fake.build-tokens")
    error = failed["run"]["facets"]["errorMessage"]["message"]
    assert error == "InputError: no file s3://***@bucket/x?token=***"
    assert failed["outputs"] == []
    assert states(events)[-1] == ("FAIL", "bertloom.fake")


def test_interrupted_and_killed_runs_are_aborted(
    fakes: FakeStages, tmp_path: Path, read_events: ReadEvents
) -> None:
    fakes.module.FAULTS["vocabulary"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        run_fakes(fakes, tmp_path / "store")
    aborts = [("ABORT", "bertloom.fake.build-vocabulary"), ("ABORT", "bertloom.fake")]
    assert states(read_events())[-2:] == aborts
    started = read_events()[0]
    store = ArtifactStore(str(tmp_path / "store"))
    send_aborts(store, run_ids(store))  # as another process does for a killed run
    aborted = read_events()[-1]
    assert states([aborted]) == aborts[1:]
    assert aborted["run"]["runId"] == started["run"]["runId"]


# Events of all stages, with manifests made by the test


def manifest_of(event: StepStarted) -> Manifest:
    """Return a manifest as the stage of a step writes it."""
    step = event.step
    is_corpus = step.stage.package == "pipelines"
    table = step.stage.name.removeprefix("build-") if is_corpus else ""
    digest = uuid.uuid5(uuid.NAMESPACE_URL, step.label).hex * 2
    entry = file_entry("part-00000.arrow", size_bytes=100, sha256=digest, rows=7 if table else None)
    uri = "s3://AKIDKEY:S3SECRET@bucket/raw.txt?token=t0k3n"
    raw = RawInput(name="raw.txt", uri=uri, size_bytes=12, sha256=digest)
    return describe(
        Attempt(digest[:16], f"artifacts/{step.stage.name}/{digest[:16]}", ""),
        [entry],
        stage=step.stage.name,
        content_digest=f"sha256:{digest}",
        statistics={"vocab_size": 2000},
        table_name=table,
        raw_inputs=(raw,) if step.stage.raw_inputs else (),
    )


def emit_all(recipe: Recipe) -> dict[str, Manifest]:
    """Send the events of a run of every step of a recipe."""
    run = Run(recipe, recipe_steps(recipe), listeners=openlineage_listeners())
    manifests: dict[str, Manifest] = {}
    run.emit(RunStarted(run))
    for step in run.steps:
        inputs = {name: manifests[label] for name, label in step.inputs.items()}
        started = StepStarted(run, step, inputs, "key")
        manifest = manifests[step.label] = manifest_of(started)
        result = StepResult(step.label, manifest, was_cached=False, seconds=1)
        for event in (started, StepFinished(run, step, inputs, result)):
            run.emit(event)
    run.emit(RunFinished(run, "failed", {"": InputError("https://x/?password=hunter2")}))
    return manifests


@pytest.fixture
def sample(read_events: ReadEvents) -> Sample:
    """Manifests and events of a run of the packaged recipe, from the corpus to the tables."""
    root = f"memory://lineage-{uuid.uuid4().hex}"
    manifests = emit_all(load_recipe("sample").model_copy(update={"store": root}))
    return manifests, read_events()


def test_events_of_all_stages_are_valid_and_without_secrets(
    sample: Sample, schemas: LineageSchemas
) -> None:
    manifests, events = sample
    assert {"pretrain", "finetune", "evaluate", "tabulate"} <= {m.stage for m in manifests.values()}
    trials = [event for event in events if ".finetune." in event["job"]["name"]]
    for event in [event for event in events if event not in trials] + trials[:4]:
        assert schemas.errors(event) == []
    assert [secret for secret in SECRETS if secret in json.dumps(events)] == []


def test_artifacts_are_outputs_once_and_inputs_of_the_steps_that_read_them(
    sample: Sample,
) -> None:
    manifests, events = sample

    def versions(datasets: list[Any]) -> dict[str, str]:
        return {d["name"]: d["facets"]["version"]["datasetVersion"] for d in datasets}

    outputs = [dataset for event in events for dataset in event["outputs"]]
    assert len(outputs) == len(manifests)
    assert versions(outputs) == {f"sample/{k}": m.content_digest for k, m in manifests.items()}
    for step in recipe_steps(load_recipe("sample")):
        event = find(events, "COMPLETE", f"bertloom.sample.{step.label}")
        read = step.inputs.values()
        expected = {f"sample/{label}": manifests[label].content_digest for label in read}
        expected |= {r.name: f"sha256:{r.sha256}" for r in manifests[step.label].raw_inputs}
        assert versions(event["inputs"]) == expected


def test_output_has_schema_and_statistics(sample: Sample) -> None:
    _, events = sample
    event = find(events, "COMPLETE", "bertloom.sample.build-tokens")
    (output,) = event["outputs"]
    fields = [(field["name"], field["type"]) for field in output["facets"]["schema"]["fields"]]
    assert fields == [(field.name, str(field.type)) for field in tokens_schema(2000)]
    statistics = output["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"], statistics["fileCount"]) == (7, 100, 1)


def test_each_try_of_a_step_is_a_run(read_events: ReadEvents, tmp_path: Path) -> None:
    recipe = load_recipe("sample").model_copy(update={"store": str(tmp_path / "store")})
    run = Run(recipe, recipe_steps(recipe), listeners=openlineage_listeners())
    step = run.steps[0]
    tries: list[Event] = [
        StepStarted(run, step, {}, "key"),
        StepFailed(run, step, {}, OSError("disk"), retry_delay=1),
    ]
    for event in (RunStarted(run), *tries, *tries, RunFinished(run, "failed")):
        run.emit(event)
    events = read_events()[1:-1]
    assert [event["eventType"] for event in events] == ["START", "FAIL", "START", "FAIL"]
    assert len({event["run"]["runId"] for event in events}) == 2


# Collectors


class Collector(LocalServer):
    """Keeps the events that it receives."""

    def __init__(self) -> None:
        self.events: list[LineageEvent] = []
        self.keys: set[str | None] = set()
        self.status = 201
        self.answer = threading.Event()
        self.answer.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                collector.keys.add(self.headers.get("Authorization"))
                collector.events.append(event)
                collector.answer.wait()
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        super().__init__(Handler)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as collector:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("OPENLINEAGE_URL", collector.url)
        monkeypatch.setenv("OPENLINEAGE_API_KEY", "hunter2")
        yield collector
        collector.answer.set()


@pytest.mark.network
@pytest.mark.parametrize("fault", ["", "refuses", "hangs", "is absent", "has no URL"])
def test_faulty_collector_neither_fails_nor_delays_a_run(
    fault: str,
    collector: Collector,
    fakes: FakeStages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if fault:
        monkeypatch.setattr("flows.lineage.openlineage.listener._CLOSE_SECONDS", 0.5)
    if fault == "refuses":
        collector.status = 403
    elif fault == "hangs":
        collector.answer.clear()
    elif fault:
        url = "http://127.0.0.1:9" if fault == "is absent" else "no URL"
        monkeypatch.setenv("OPENLINEAGE_URL", url)
    clock = time.monotonic()
    store = run_fakes(fakes, tmp_path / "store")
    assert time.monotonic() - clock < 60
    assert read_run(store, run_ids(store)[0]).state == "completed"
    assert ("OpenLineage" in caplog.text) == bool(fault)
    if not fault:
        assert len(collector.events) == 2 * len(LABELS) + 2
        assert collector.keys == {"Bearer hunter2"}
    assert "hunter2" not in caplog.text
    written = (path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert not any(b"hunter2" in data for data in written)


def test_missing_client_is_a_warning_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    monkeypatch.delitem(sys.modules, "flows.lineage.openlineage.listener", raising=False)
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    assert openlineage_listeners() == []
    assert "bertloom[openlineage]" in caplog.text
