"""Artifacts written by hand into a store, for the tests of lineage: a corpus, a model, a grid."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.evaluation_builder import written
from support.store_builder import describe, produced_by

from flows.run.artifact_inputs import input_ref
from flows.store.artifacts import ArtifactStore
from flows.store.process_identity import this_process
from flows.store.runs import RunRecord, StepRecord, write_run
from pipelines.io.files import write_text_file
from schemas.manifest import Environment, Manifest, RawInput

RUN_ID = "20260101t000000000-00000001"
DUMP_SHA1 = hashlib.sha1(b"dump").hexdigest()


def raw_file(name: str, **more: str) -> RawInput:
    """Return the record of a raw file in /raw."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    return RawInput(name=name, uri=f"/raw/{name}", size_bytes=2000, sha256=digest, **more)


DUMP = raw_file("wiki.xml.bz2", checksum=f"sha1:{DUMP_SHA1}")


def put(
    store: ArtifactStore,
    stage: str,
    inputs: Mapping[str, Manifest] | None = None,
    *,
    key: str = "",
    text: str = "",
    raw: Sequence[RawInput] = (),
    **more: Any,
) -> Manifest:
    """Publish an artifact of one file.

    Args:
        store: Store to publish to.
        stage: Name of the stage.
        inputs: Input artifacts by name.
        key: Cache key. Default: derived from the text.
        text: Content of the file. Default: names of the stage and the inputs.
        raw: Raw files of the artifact.
        more: Other fields of the manifest.
    """
    manifests = dict(inputs or {})
    content = text or " ".join((stage, key, *(one.content_digest for one in manifests.values())))
    attempt = store.begin(stage)
    entry = write_text_file("made.txt", content, output=attempt.output)
    fields: dict[str, Any] = {
        "stage": stage,
        "cache_key": hashlib.sha256(f"{stage} {key or content}".encode()).hexdigest(),
        "cache_key_inputs": {"environment": {"numpy": "2.0.0"}},
        "counters": {"steps": 1000} if stage == "pretrain" else {},
        "raw_inputs": tuple(raw),
        "inputs": tuple(input_ref(name, one) for name, one in manifests.items()),
        "produced_by": produced_by(RUN_ID),
        "environment": Environment(python="3.11", platform="here", packages={"numpy": "2.0.0"}),
    }
    return store.commit(describe(attempt, [entry], **(fields | more))).manifest


def put_recipe(store: ArtifactStore, *, runs: int = 5) -> dict[str, Manifest]:
    """Everything of a recipe with one task, by step label, with its refs and its run's record."""
    made: dict[str, Manifest] = {}
    made["build-documents"] = put(store, "build-documents", raw=[DUMP])
    documents = {"documents": made["build-documents"]}
    made["build-vocabulary"] = put(
        store, "build-vocabulary", documents, statistics={"vocab_size": 2000}
    )
    vocabulary = {"vocabulary": made["build-vocabulary"]}
    made["build-tokens"] = put(
        store,
        "build-tokens",
        documents | vocabulary,
        counters={"tokens": 9000},
        table_name="tokens",
    )
    tokens = {"tokens": made["build-tokens"]}
    made["build-instances.short"] = put(store, "build-instances", tokens | vocabulary)
    instances = {"instances": made["build-instances.short"]}
    made["pretrain.phase-2"] = put(
        store,
        "pretrain",
        instances | vocabulary,
        statistics={"held_out": {"perplexity": 12.5, "loss": 2.5}},
    )
    checkpoint = {"checkpoint": made["pretrain.phase-2"]}
    made["build-examples.cola"] = put(
        store, "build-examples", raw=[raw_file("cola.tsv")], statistics={"splits": {"train": 4}}
    )
    examples = {"examples": made["build-examples.cola"]}
    said = written("cola", "cola", [0.1 * number for number in range(runs)])
    trials = {}
    for trial in said["cells"]:
        name, statistics = trial["name"], {"task": "cola", "metrics": trial["metrics"]}
        trials[name] = put(
            store, "finetune", examples | checkpoint, key=name, statistics=statistics
        )
        made[f"finetune.cola.{name}"] = trials[name]
    said["members"] = [said["best"]]
    made["evaluate.cola"] = put(store, "evaluate", examples | trials, statistics=said)
    made["tabulate"] = put(store, "tabulate", {"cola": made["evaluate.cola"]})
    for label, manifest in made.items():
        store.set_ref(f"mine/{label}", manifest)
    put_run(store, RUN_ID, made)
    return made


def put_run(store: ArtifactStore, run_id: str, made: Mapping[str, Manifest]) -> None:
    """The record of a run that came to these artifacts."""
    steps = tuple(
        StepRecord(label=label, manifest=one.manifest_path, was_cached=False, seconds=1.0)
        for label, one in made.items()
    )
    record = RunRecord(
        run_id=run_id,
        state="completed",
        started="2026-01-01T00:00:00+00:00",
        updated_at="2026-01-01T00:01:00+00:00",
        **this_process().model_dump(),
        recipe={"name": "mine"},
        steps=steps,
    )
    write_run(store, record)


def lose(store: ArtifactStore, manifest: Manifest) -> None:
    """Delete an artifact's manifest, as the collection of garbage does."""
    path = Path(store.root) / manifest.manifest_path
    assert json.loads(path.read_text())["artifact_id"] == manifest.artifact_id
    path.unlink()
