"""Records that stages write for the report: dropped records, lengths."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from flows.report.run_steps import Built, Steps
from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactCorruptError

_DROPPED_FILE, _LENGTHS_FILE = "__records__/dropped.json", "__records__/lengths.json"


class Dropped(NamedTuple):
    """Dropped records of a run; values as `pipelines.documents.dropped` writes them."""

    reasons: Sequence[dict[str, Any]] = ()
    problem: str = ""
    """Why the records cannot be read."""


def read_dropped(store: ArtifactStore, steps: Steps) -> Dropped:
    """Return the reasons of the records that a run's corpus steps dropped."""
    corpus = [
        *steps.of_type("documents")[-1:],
        *steps.of_type("near_duplicates", "contamination"),
    ]
    try:
        records = [_read_record(store, built, _DROPPED_FILE) for built in corpus]
    except ArtifactCorruptError as error:
        return Dropped(problem=f"Not read: {error}")
    return Dropped([reason for record in records for reason in record.get("dropped", ())])


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
