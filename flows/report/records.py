"""Records that stages leave for the report: text samples, dropped records, lengths."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from flows.report.steps import Built, Steps
from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactCorruptError
from schemas.manifest import Manifest

_SAMPLES = "__records__/samples.json"
_MAX_LENGTHS = 4


class Texts(NamedTuple):
    """Text samples of a run; values as `pipelines.documents.samples` writes them."""

    documents: Sequence[dict[str, Any]] = ()
    dropped: Sequence[dict[str, Any]] = ()
    instances: Sequence[tuple[str, list[dict[str, Any]]]] = ()
    """Samples of instances, by the name of the recipe's entry."""

    problem: str = ""
    """Why the samples cannot be read; "" if they can."""


def read_texts(store: ArtifactStore, steps: Steps) -> Texts:
    """Return the text samples of a run's corpus steps."""
    documents = steps.last_holding("documents")
    corpus = [*filter(None, [documents]), *steps.holding("near_duplicates", "contamination")]
    try:
        records = [read_record(store, built.manifest, _SAMPLES) for built in corpus]
        instances = [
            (built.name, read_record(store, built.manifest, _SAMPLES).get("instances", []))
            for built in steps.holding("instances")[:_MAX_LENGTHS]
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
    return read_record(store, built.manifest, "__records__/lengths.json")


def read_record(store: ArtifactStore, manifest: Manifest, name: str) -> dict[str, Any]:
    """Return a record file of an artifact as JSON values; empty if the stage writes none.

    Raises:
        ArtifactCorruptError: The file is missing or damaged.
    """
    entry = manifest.file(name)
    if entry is None:
        return {}
    path = f"{manifest.data_path}/{entry.stored_name}"
    try:
        record: dict[str, Any] = json.loads(store.backend.read(path))
    except (FileNotFoundError, ValueError) as error:
        raise ArtifactCorruptError(f"{store.url(path)}: expected a JSON record: {error}") from error
    return record
