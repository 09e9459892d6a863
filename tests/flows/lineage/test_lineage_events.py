"""Lineage events: what they say of a run, and that they are what OpenLineage says they are."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.corpus_builder import small_recipe, small_sample
from support.fake_stages import FakeStages
from support.lineage_schema import Ours, Published, all_facets, check_datasets
from support.store_builder import describe

from flows.bert import recipe_steps
from flows.lineage.export.columns import table_of, tables
from flows.lineage.export.datasets import store_namespace
from flows.lineage.export.event_file import read_events
from flows.lineage.export.events import LineageEvents, close_abandoned
from flows.recipes.loader import load_recipe
from flows.run.graph import Step
from flows.run.step_execution import input_ref
from flows.store.artifacts import ArtifactStore, Attempt
from flows.store.runs import read_run, run_ids
from schemas import arrow
from schemas.errors import InputError
from schemas.manifest import FileEntry, Manifest, ProducedBy, RawInput
from schemas.recipe import Recipe

RUN = "20260102t030405-0badcafe"
SECRETS = ("AKIDKEY", "S3SECRET", "t0k3n", "hunter2")

Event = dict[str, Any]


def events_of(store: ArtifactStore, run_id: str) -> list[Event]:
    recorded = read_events(store, run_id)
    assert recorded.problems == []
    return [found.event for found in recorded.events]


def kinds(events: list[Event]) -> list[tuple[str, str]]:
    return [(event["eventType"], event["job"]["name"]) for event in events]


def only(events: list[Event], kind: str, label: str) -> Event:
    (found,) = [
        event
        for event in events
        if event["eventType"] == kind and event["job"]["name"].endswith(label)
    ]
    return found


# Runs


@pytest.fixture
def fakes(fakes: FakeStages, monkeypatch: pytest.MonkeyPatch) -> FakeStages:
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    monkeypatch.setattr("flows.report.page.write_report", lambda *_: "")  # has tests of its own
    return fakes


def run_locally(recipe: Recipe) -> tuple[ArtifactStore, str]:
    """Run a recipe; the store, and the id of the run."""
    from flows.running import run_recipe

    before = run_ids(ArtifactStore(recipe.store))
    try:
        run_recipe(recipe, log=lambda _: None, engine="local")
    finally:
        store = ArtifactStore(recipe.store)
        (run_id,) = set(run_ids(store)) - set(before)
    return store, run_id


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def written(step: Step, inputs: Mapping[str, Manifest], *, raw: str = "/data/raw.txt") -> Manifest:
    """A manifest as the step's stage would leave it, of files that nobody made."""
    is_corpus = step.stage.module.startswith("pipelines.")
    table = step.stage.name.removeprefix("build-") if is_corpus else ""
    name = "part-00000.arrow" if table else "result.json"
    key = digest(step.label, [manifest.content for manifest in inputs.values()])
    entry = FileEntry(
        path=name, object=name, size=100, sha256=key, rows=7 if table else None, logical=""
    )
    raw_input = RawInput(
        name="raw.txt", uri=raw, size=12, sha256=digest(raw), checksum="md5:" + "a" * 32
    )
    attempt = Attempt(key[:16], f"artifacts/{step.stage.name}/{key[:16]}", "")
    return describe(
        attempt,
        [entry],
        stage=step.stage.name,
        cache_key=key,
        content=f"sha256:{key}",
        statistics={"vocab_size": 2000} if table else {},
        table=table,
        raw_inputs=(raw_input,) if step.stage.raw_inputs else (),
        inputs=tuple(input_ref(given, manifest) for given, manifest in inputs.items()),
        produced_by=ProducedBy(
            run_id="20250101t000000-00000000",
            runner="local",
            host_kind="Linux",
            started="",
            ended="",
            seconds=1,
        ),
    )


def told(store: ArtifactStore, recipe: Recipe, **more: Any) -> dict[str, Manifest]:
    """Tell of a run of a recipe in which every artifact was there."""
    events = LineageEvents(store, recipe=recipe, run_id=RUN, **more)
    made: dict[str, Manifest] = {}
    events.run_started()
    for step in recipe_steps(recipe):
        inputs = {name: made[label] for name, label in step.inputs.items()}
        made[step.label] = written(step, inputs)
        events.step_started(step, inputs)
        events.step_completed(step, made[step.label], was_cached=True)
    events.run_ended("completed")
    return made


@pytest.fixture(scope="module")
def whole() -> tuple[Recipe, dict[str, Manifest], list[Event]]:
    """A run of all kinds of stages: a packaged recipe, from the corpus to the tables."""
    patch = pytest.MonkeyPatch()
    patch.delenv("OPENLINEAGE_URL", raising=False)
    store = ArtifactStore(f"memory://lineage-{uuid.uuid4().hex}")
    recipe = load_recipe("sample")
    made = told(store, recipe, flow_run_id="a-flow-run")
    patch.undo()
    return recipe, made, events_of(store, RUN)


@pytest.fixture(scope="session")
def published(real_data: Path) -> Published:
    return Published(real_data / "openlineage-spec")


@pytest.fixture(scope="session")
def ours() -> Ours:
    return Ours()


# What is said


def test_a_run_and_each_step_begin_and_end(fakes: FakeStages, tmp_path: Path) -> None:
    recipe = fakes.recipe(str(tmp_path / "store"))
    store, run_id = run_locally(recipe)
    found = events_of(store, run_id)
    labels = [step.label for step in recipe_steps(recipe)]
    expected = [("START", "bertloom.fake")]
    for label in labels:
        expected += [("START", f"bertloom.fake.{label}"), ("COMPLETE", f"bertloom.fake.{label}")]
    assert kinds(found) == [*expected, ("COMPLETE", "bertloom.fake")]
    ids = Counter(event["run"]["runId"] for event in found)
    assert set(ids.values()) == {2}
    assert len(ids) == len(labels) + 1
    assert {uuid.UUID(run).version for run in ids} == {7}
    top = found[0]["run"]["runId"]
    for event in found[1:-1]:
        parent = event["run"]["facets"]["parent"]
        assert parent["run"]["runId"] == parent["root"]["run"]["runId"] == top


def test_hits_are_told_like_the_rest(fakes: FakeStages, tmp_path: Path) -> None:
    recipe = fakes.recipe(str(tmp_path / "store"))
    first_store, first = run_locally(recipe)
    store, second = run_locally(recipe)

    def caches(run_id: str) -> set[str]:
        return {
            tag["value"]
            for event in events_of(store, run_id)
            for tag in event["run"]["facets"].get("tags", {}).get("tags", ())
            if tag["key"] == "cache"
        }

    assert (caches(first), caches(second)) == ({"miss"}, {"hit"})
    before, after = events_of(first_store, first), events_of(store, second)
    assert kinds(before) == kinds(after)
    assert not {e["run"]["runId"] for e in before} & {e["run"]["runId"] for e in after}
    made = only(after, "COMPLETE", "build-tokens")["outputs"][0]["facets"]["bertloom_artifact"]
    assert made["madeByRun"] == first
    assert made["wasCached"] is True


def test_a_failure_is_told_in_words(fakes: FakeStages, tmp_path: Path, ours: Ours) -> None:
    recipe = fakes.recipe(str(tmp_path / "store"))
    why = "no file s3://AKIDKEY:S3SECRET@bucket/x?token=t0k3n"
    fakes.module.FAULTS["tokens"] = [InputError(why)]
    with pytest.raises(InputError):
        run_locally(recipe)
    store = ArtifactStore(recipe.store)
    found = events_of(store, run_ids(store)[0])
    failed = only(found, "FAIL", "build-tokens")
    message = failed["run"]["facets"]["errorMessage"]
    assert message["message"] == "InputError: no file s3://***@bucket/x?token=***"
    assert "stackTrace" not in message
    assert failed["outputs"] == []
    assert [dataset["name"] for dataset in failed["inputs"]] == [
        "fake/build-documents",
        "fake/build-vocabulary",
    ]
    assert kinds(found)[-1] == ("FAIL", "bertloom.fake")
    assert [fault for event in found for fault in ours.faults(event)] == []


def test_a_step_tried_again_is_another_run(fakes: FakeStages, tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    recipe = fakes.recipe(store.root)
    step = next(iter(recipe_steps(recipe)))
    events = LineageEvents(store, recipe=recipe, run_id=RUN)
    for error in (OSError("the disk is away"), KeyboardInterrupt()):
        events.step_started(step, {})
        events.step_failed(step, error)
    found = events_of(store, RUN)
    assert [event["eventType"] for event in found] == ["START", "FAIL", "START", "ABORT"]
    first, again = found[0]["run"]["runId"], found[2]["run"]["runId"]
    assert first != again
    with pytest.raises(RuntimeError, match="has not started"):
        events.step_failed(step, OSError())


@pytest.mark.parametrize("state", ["interrupted", "failed", "crashed"])
def test_what_is_open_ends_with_the_run(
    fakes: FakeStages, tmp_path: Path, ours: Ours, state: str
) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    recipe = fakes.recipe(store.root)
    step = next(iter(recipe_steps(recipe)))
    events = LineageEvents(store, recipe=recipe, run_id=RUN)
    events.run_started()
    events.step_started(step, {})
    # Another object, as in another process: which steps are open is in the file.
    LineageEvents(store, recipe=recipe, run_id=RUN).run_ended(state)
    found = events_of(store, RUN)
    last = "FAIL" if state == "failed" else "ABORT"
    assert kinds(found)[2:] == [
        ("ABORT", "bertloom.fake.build-documents"),
        (last, "bertloom.fake"),
    ]
    assert found[2]["run"]["runId"] == found[1]["run"]["runId"]
    assert found[3]["run"]["runId"] == found[0]["run"]["runId"]
    assert [fault for event in found for fault in ours.faults(event)] == []


def test_a_dead_run_is_closed_once(fakes: FakeStages, tmp_path: Path, ours: Ours) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    recipe = fakes.recipe(store.root)
    documents, vocabulary, *_ = recipe_steps(recipe)
    events = LineageEvents(store, recipe=recipe, run_id=RUN)
    events.run_started()
    events.step_started(documents, {})
    made = written(documents, {})
    events.step_completed(documents, made, was_cached=False)
    events.step_started(vocabulary, {"documents": made})
    before = (tmp_path / "store" / "runs" / RUN / "openlineage.ndjson").read_bytes()
    assert (close_abandoned(store, RUN), close_abandoned(store, RUN)) == (2, 0)
    assert close_abandoned(store, "20200101t000000-00000000") == 0
    after = (tmp_path / "store" / "runs" / RUN / "openlineage.ndjson").read_bytes()
    assert after.startswith(before)
    found = events_of(store, RUN)
    assert kinds(found)[-2:] == [
        ("ABORT", "bertloom.fake.build-vocabulary"),
        ("ABORT", "bertloom.fake"),
    ]
    assert found[-2]["inputs"] == found[-3]["inputs"] != []
    assert [fault for event in found for fault in ours.faults(event)] == []


# Datasets


def test_artifacts_are_outputs_once_and_inputs_where_used(
    whole: tuple[Recipe, dict[str, Manifest], list[Event]],
) -> None:
    recipe, made, events = whole
    kinds_of_stages = {manifest.stage for manifest in made.values()}
    assert {"pretrain", "finetune", "evaluate", "tabulate"} <= kinds_of_stages
    check_datasets(recipe, made, events)


def test_each_kind_of_step_names_what_does_its_work(
    whole: tuple[Recipe, dict[str, Manifest], list[Event]],
) -> None:
    engines = {
        event["job"]["name"].split(".")[2]: event["run"]["facets"]["processing_engine"]["name"]
        for event in whole[2][1:-1]
    }
    assert engines["build-tokens"] == "Apache Beam (local)"
    assert engines["pretrain"] == engines["finetune"] == engines["evaluate"] == "torch"
    assert engines["build-examples"] == engines["tabulate"] == "python"
    assert whole[2][0]["run"]["facets"]["processing_engine"]["name"] == "prefect"


def test_parameters_are_the_configuration(
    whole: tuple[Recipe, dict[str, Manifest], list[Event]],
) -> None:
    recipe, _, events = whole
    step = next(step for step in recipe_steps(recipe) if step.stage.name == "build-instances")
    given = only(events, "START", step.label)["run"]["facets"]["executionParameters"]
    found = {item["key"]: item["value"] for item in given["parameters"]}
    config = step.config.model_dump(mode="json")
    assert found["max_seq_length"] == str(config["max_seq_length"])
    assert found["masking.max_predictions"] == str(config["masking"]["max_predictions"])
    assert found["pairing"] == "nsp"


def test_columns_lead_back_to_columns(
    whole: tuple[Recipe, dict[str, Manifest], list[Event]],
) -> None:
    recipe, _, events = whole

    def sources(label: str) -> dict[str, set[tuple[str, str]]]:
        facets = only(events, "COMPLETE", label)["outputs"][0]["facets"]
        return {
            column: {(source["name"], source["field"]) for source in item["inputFields"]}
            for column, item in facets["columnLineage"]["fields"].items()
        }

    documents = f"{recipe.name}/build-documents"
    assert sources("build-tokens") == {
        "document_id": {(documents, "document_id")},
        "token_ids": {(documents, "sentences")},
        "sentence_lengths": {(documents, "sentences")},
        "split_id": {(documents, "document_id"), (documents, "revision_id")},
    }
    label = next(
        step.label for step in recipe_steps(recipe) if step.stage.name == "build-instances"
    )
    found = sources(label)
    assert found["masked_lm_ids"] == {(f"{recipe.name}/build-tokens", "token_ids")}
    assert "duplicate" not in found


@pytest.mark.parametrize("vocab_size", [2000, 1 << 16, 70000])
def test_tables_are_those_of_the_schemas(vocab_size: int) -> None:
    schemas: dict[str, pa.Schema] = {
        "documents": arrow.DOCUMENTS,
        "vocabulary": arrow.WORD_COUNTS,
        "sketches": arrow.SKETCHES,
        "tokens": arrow.tokens_schema(vocab_size),
        "instances": arrow.instances_schema(vocab_size),
        **{schema.metadata[arrow.TABLE_KEY].decode(): schema for schema in arrow.EXAMPLES.values()},
    }
    assert set(schemas) == set(tables())
    for name, schema in schemas.items():
        table = table_of(name, vocab_size=vocab_size)
        assert table is not None
        found = [(column.name, column.type) for column in table.columns]
        assert found == [(column.name, str(column.type)) for column in schema]
        used = {source for column in table.columns for source in column.sources}
        used |= {*table.decided_by}
        assert not table.made_from or used <= set(schemas[table.made_from].names)
    assert table_of("tokens", vocab_size=None) is None
    assert table_of("documents", vocab_size=None) is not None
    assert table_of("something", vocab_size=5) is None


# Validity


def test_events_of_all_stages_are_valid(
    whole: tuple[Recipe, dict[str, Manifest], list[Event]], published: Published, ours: Ours
) -> None:
    events = whole[2]
    # Of a grid's trials, which are alike, two.
    trials = [event for event in events if ".finetune." in event["job"]["name"]]
    for event in [event for event in events if event not in trials] + trials[:4]:
        assert published.faults(event) == []
        assert ours.faults(event) == []


@pytest.mark.slow
def test_events_of_a_real_corpus_are_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: Published, ours: Ours
) -> None:
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    monkeypatch.setattr("flows.report.page.write_report", lambda *_: "")
    recipe = small_recipe(small_sample(tmp_path / "sample")).model_copy(
        update={"store": str(tmp_path / "a store")}
    )
    store, run_id = run_locally(recipe)
    found = events_of(store, run_id)
    for event in found:
        assert published.faults(event) == []
        assert ours.faults(event) == []
    record = read_run(store, run_id)
    made = {step.label: store.read_manifest(step.manifest) for step in record.steps}
    check_datasets(recipe, made, found)
    tokens = only(found, "COMPLETE", "build-tokens")
    output = tokens["outputs"][0]
    manifest = made["build-tokens"]
    assert output["namespace"] == f"file://{tmp_path}/a%20store"
    assert output["facets"]["version"]["datasetVersion"] == manifest.content
    assert output["facets"]["storage"] == output["facets"]["storage"] | {
        "storageLayer": "file",
        "fileFormat": "arrow",
    }
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == sum(
        entry.rows or 0 for entry in manifest.files
    )
    fields = output["facets"]["schema"]["fields"]
    schema = arrow.tokens_schema(manifest.statistics["vocab_size"])
    assert [(field["name"], field["type"]) for field in fields] == [
        (field.name, str(field.type)) for field in schema
    ]
    documents = next(item for item in tokens["inputs"] if item["name"].endswith("documents"))
    read = documents["inputFacets"]["inputStatistics"]["rowCount"]
    assert read == manifest.counters["documents-in"]
    raw = only(found, "COMPLETE", "build-documents")["inputs"]
    dump = next(item for item in raw if item["name"].endswith(".bz2"))
    tags = {tag["key"]: tag["value"] for tag in dump["facets"]["tags"]["tags"]}
    assert dump["namespace"] == "file"
    assert tags["checksum"].startswith("sha1:")


Change = Callable[[Event], Any]


def facets(event: Event) -> Any:
    return event["run"]["facets"]


def dataset(event: Event) -> Any:
    return event["outputs"][0]


FAULTS: dict[str, tuple[str, Change]] = {
    "eventType": ("published", lambda e: e.update(eventType="FINISHED")),
    "no producer": ("published", lambda e: e.pop("producer")),
    "producer is no URI": ("published", lambda e: e.update(producer="bertloom 1.0")),
    "no time of day": ("published", lambda e: e.update(eventTime="2026-01-02")),
    "no UUID": ("published", lambda e: e["run"].update(runId="run-1")),
    "rowCount as text": (
        "published",
        lambda e: dataset(e)["outputFacets"]["outputStatistics"].update(rowCount="ten"),
    ),
    "facet without producer": ("published", lambda e: facets(e)["parent"].pop("_producer")),
    "facet of another schema": (
        "published",
        lambda e: facets(e)["tags"].update(_schemaURL=facets(e)["parent"]["_schemaURL"]),
    ),
    "parent without job": ("published", lambda e: facets(e)["parent"].pop("job")),
    "schema with numbers": (
        "published",
        lambda e: dataset(e)["facets"]["schema"].update(fields=[{"name": 1}]),
    ),
    "a facet we do not write": (
        "ours",
        lambda e: facets(e).update(environmentVariables=facets(e)["parent"]),
    ),
    "no output": ("ours", lambda e: e.update(outputs=[])),
    "no cache tag": ("ours", lambda e: facets(e)["tags"].update(tags=[])),
    "other UUID": ("ours", lambda e: e["run"].update(runId=str(uuid.uuid4()))),
    "credentials": ("ours", lambda e: dataset(e).update(namespace="s3://key:secret@bucket")),
    "output of a failure": ("ours", lambda e: e.update(eventType="FAIL")),
    "version is no digest": (
        "ours",
        lambda e: dataset(e)["facets"]["version"].update(datasetVersion="3"),
    ),
    "another key": ("ours", lambda e: e.update(note="")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_injected_faults_are_found(
    fault: str,
    whole: tuple[Recipe, dict[str, Manifest], list[Event]],
    ours: Ours,
    request: pytest.FixtureRequest,
) -> None:
    by, change = FAULTS[fault]
    schemas = ours if by == "ours" else request.getfixturevalue("published")
    event = copy.deepcopy(only(whole[2], "COMPLETE", "build-tokens"))
    assert schemas.faults(event) == []
    change(event)
    assert schemas.faults(event)
    assert ours.faults(event)  # the stricter one finds all of them


def test_our_facets_are_where_they_say(
    whole: tuple[Recipe, dict[str, Manifest], list[Event]], ours: Ours
) -> None:
    found = {
        (name, facet["_schemaURL"])
        for event in whole[2]
        for name, facet in all_facets(event)
        if name.startswith("bertloom_")
    }
    assert {name for name, _ in found} == {"bertloom_run", "bertloom_artifact"}
    for name, url in found:
        assert url == f"{ours.schema['$id']}#/$defs/{name}"
        assert name in ours.schema["$defs"]


# Secrets


def test_secrets_are_in_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "hunter2")
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    sources = [
        {
            "name": "mine",
            "kind": "text",
            "paths": ["s3://AKIDKEY:S3SECRET@bucket/raw.txt?token=t0k3n"],
        }
    ]
    recipe = Recipe.model_validate({"name": "r", "build_documents": {"sources": sources}})
    step = next(iter(recipe_steps(recipe)))
    store = ArtifactStore(f"memory://lineage-{uuid.uuid4().hex}")
    events = LineageEvents(store, recipe=recipe, run_id=RUN)
    events.run_started()
    for uri in (
        "s3://AKIDKEY:S3SECRET@bucket/raw.txt",
        "https://host/raw.txt?token=t0k3n&sig=hunter2",
    ):
        events.step_started(step, {})
        made = written(step, {}, raw=uri)
        events.step_completed(step, made, was_cached=False)
    events.run_ended("failed", "https://AKIDKEY:S3SECRET@host/?password=hunter2")
    found = events_of(store, RUN)
    text = json.dumps(found)
    assert [secret for secret in SECRETS if secret in text] == []
    names = {(item["namespace"], item["name"]) for event in found for item in event["inputs"]}
    assert names == {("s3://bucket", "raw.txt"), ("https://host", "raw.txt")}
    assert re.search(r"s3://bucket/raw.txt\?token=\*\*\*", text)


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("s3://AKIDKEY:S3SECRET@bucket/corpora/", "s3://bucket/corpora"),
        ("gs://bucket/x?token=t0k3n#y", "gs://bucket/x"),
        ("/data/a store", "file:///data/a%20store"),
        ("memory:///store", "memory:///store"),
    ],
)
def test_a_store_is_named_without_credentials(root: str, expected: str) -> None:
    assert store_namespace(root) == expected


# Costs


def test_writing_events_loads_no_transports() -> None:
    code = """
import sys
import flows.run.stages
before = set(sys.modules)
import flows.lineage.export.events
heavy = {"requests", "httpx", "httpx2", "pyarrow", "torch", "apache_beam", "prefect"}
assert not heavy & (set(sys.modules) - before), heavy & (set(sys.modules) - before)
assert not [name for name in sys.modules if name.startswith("openlineage.")]
import openlineage.client  # and whoever wants all of it gets it
assert openlineage.client.OpenLineageClient and "openlineage.client.serde" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
