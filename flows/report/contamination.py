"""Evaluation texts that were found in a corpus, as the command and the report show them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flows.report.steps import Steps
from flows.store.artifacts import ArtifactStore
from pipelines.contamination.names import PASSAGES_FILE
from schemas.errors import StoreError
from schemas.manifest import Manifest

_PASSAGE = 280
"""Characters that are shown of a passage."""

Columns = list[tuple[str, list[str]]]
"""A table: title and cells of each column."""


@dataclass(frozen=True, kw_only=True)
class Contamination:
    """The section about evaluation texts in the corpus."""

    summary: str
    fields: Columns
    splits: Columns
    passages: Columns
    """The longest that corpus and tasks share."""

    problem: str = ""
    """Why the passages are not shown."""


def read_contamination(store: ArtifactStore, steps: Steps) -> Contamination | None:
    """None where a run has no such search."""
    found = steps.last_holding("contamination")
    return contamination_of(store, found.manifest) if found else None


def contamination_of(store: ArtifactStore, manifest: Manifest) -> Contamination:
    """Result of a find-contamination artifact."""
    counters, statistics = manifest.counters, manifest.statistics
    passages, problem = list[dict[str, Any]](), ""
    try:
        passages = _passages(store, manifest)
    except (OSError, StoreError, ValueError) as error:
        problem = f"{PASSAGES_FILE} cannot be read: {error}"
    looked = counters.get("documents-kept", 0)
    return Contamination(
        summary=(
            f"{counters['texts-contaminated']:,} of {counters['texts-in']:,} texts are in "
            f"{counters['documents-with-a-text']:,} of {looked:,} documents; "
            f"{counters['documents-to-leave-out']:,} have "
            f"{manifest.config['min_overlap']:.0%} of a "
            f"text or more. {counters['ngrams-common']:,} of {counters['ngrams']:,} runs of "
            f"{manifest.config['ngram_size']} words are in more than "
            f"{manifest.config['max_document_frequency']} documents and count for nothing."
        ),
        fields=_field_columns(statistics["fields"]),
        splits=_split_columns(statistics["splits"]),
        passages=_passage_columns(passages),
        problem=problem,
    )


def _passages(store: ArtifactStore, manifest: Manifest) -> list[dict[str, Any]]:
    entry = manifest.file(PASSAGES_FILE)
    if entry is None:
        raise StoreError(f"{manifest.manifest_path}: the artifact lists no {PASSAGES_FILE}")
    found: list[dict[str, Any]] = json.loads(
        store.backend.read(f"{manifest.data_path}/{entry.stored_name}")
    )
    return found


def share(part: int, whole: int) -> str:
    """A share in percent; a dash of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _field_columns(rows: Sequence[dict[str, Any]]) -> Columns:
    shares = [name for name in (rows[0] if rows else ()) if name.startswith("found-")]
    titles = {
        "texts": "texts",
        "too-short": "too short",
        "clean": "clean",
        "contaminated": "found",
        **{name: f"{name.removeprefix('found-')} of it" for name in shares},
    }
    return [
        ("task", [row["task"] for row in rows]),
        ("split", [row["split"] for row in rows]),
        ("field", [row["field"] for row in rows]),
        *((title, [f"{row[name]:,}" for row in rows]) for name, title in titles.items()),
        ("share of texts", [share(row["contaminated"], row["texts"]) for row in rows]),
        ("share of runs", [share(row["ngrams-found"], row["ngrams"]) for row in rows]),
    ]


def _split_columns(rows: Sequence[dict[str, Any]]) -> Columns:
    return [
        ("task", [row["task"] for row in rows]),
        ("split", [row["split"] for row in rows]),
        ("examples", [f"{row['examples']:,}" for row in rows]),
        ("with a text found", [f"{row['examples-contaminated']:,}" for row in rows]),
        ("share", [share(row["examples-contaminated"], row["examples"]) for row in rows]),
    ]


def _passage_columns(rows: Sequence[dict[str, Any]]) -> Columns:
    cut = [row["passage"][:_PASSAGE] for row in rows]
    return [
        ("example", [f"{row['task']} {row['split']} {row['example_id']}" for row in rows]),
        ("field", [row["field"] for row in rows]),
        ("words", [f"{row['longest_run']:,} of {row['words']:,}" for row in rows]),
        ("in document", [f"{row['title'] or '(no title)'} ({row['document_id']})" for row in rows]),
        ("at word", [f"{row['document_word']:,}" for row in rows]),
        (
            "passage",
            [
                text + (" ..." if text != row["passage"] else "")
                for text, row in zip(cut, rows, strict=True)
            ],
        ),
    ]
