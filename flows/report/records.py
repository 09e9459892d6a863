"""Records that stages write for the report: text samples, dropped records, lengths."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from flows.report.run_steps import Built, Steps
from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactCorruptError

_SAMPLES_FILE, _LENGTHS_FILE = "__records__/samples.json", "__records__/lengths.json"
_MAX_INSTANCE_SETS = 4


class Texts(NamedTuple):
    """Text samples of a run; values as `pipelines.documents.samples` writes them."""

    documents: Sequence[dict[str, Any]] = ()
    dropped: Sequence[dict[str, Any]] = ()
    instances: Sequence[tuple[str, list[dict[str, Any]]]] = ()
    """Samples of instances, by the name of the recipe's entry."""

    problem: str = ""
    """Why the samples cannot be read."""


def read_texts(store: ArtifactStore, steps: Steps) -> Texts:
    """Return the text samples of a run's corpus steps."""
    corpus = [
        *steps.of_type("documents")[-1:],
        *steps.of_type("near_duplicates", "contamination"),
    ]
    try:
        records = [_read_record(store, built, _SAMPLES_FILE) for built in corpus]
        instances = [
            (built.name, _read_record(store, built, _SAMPLES_FILE).get("instances", []))
            for built in steps.of_type("instances")[:_MAX_INSTANCE_SETS]
        ]
    except ArtifactCorruptError as error:
        return Texts(problem=f"Not read: {error}")
    return Texts(
        documents=[sample for record in records for sample in record.get("documents", ())],
        dropped=[reason for record in records for reason in record.get("dropped", ())],
        instances=instances,
    )


def read_lengths(store: ArtifactStore, built: Built) -> dict[str, Any]:
    """Return the lengths that a step recorded (`pipelines.lengths`).

    Raises:
        ArtifactCorruptError: The record is missing or damaged.
    """
    return _read_record(store, built, _LENGTHS_FILE)


def _read_record(store: ArtifactStore, built: Built, path: str) -> dict[str, Any]:
    """Return a record file as JSON values; empty if the stage writes none."""
    if built.manifest.file(path) is None:
        return {}
    with store.artifact(built.manifest).open(path) as source:
        record: dict[str, Any] = json.load(source)
    return record
