"""Evaluation texts that occur in a corpus, for the command line and the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from flows.report.run_steps import Steps
from flows.store.artifacts import ArtifactStore
from model.tables.render import TextTable
from pipelines.contamination import PASSAGES_FILE
from schemas.errors import StoreError

_MAX_PASSAGE = 280
"""Maximum number of characters of a passage that are shown."""

_PASSAGE_HEADER = ("example", "field", "words", "in document", "passage")


class Contamination(NamedTuple):
    """The section about evaluation texts in the corpus."""

    artifact_id: str
    summary: str
    fields: TextTable
    splits: TextTable
    passages: TextTable
    """Longest passages that corpus and tasks share."""

    problem: str = ""
    """Why the passages are missing."""


def read_contamination(store: ArtifactStore, steps: Steps) -> Contamination | None:
    """Return the result of a run's find-contamination step; None without one."""
    built = steps.last_of_type("contamination")
    if built is None:
        return None
    manifest = built.manifest
    counters, config = manifest.counters, manifest.config
    passages, problem = list[dict[str, Any]](), ""
    try:
        with store.artifact(manifest).open(PASSAGES_FILE) as source:
            passages = json.load(source)
    except StoreError as error:
        problem = f"{PASSAGES_FILE} cannot be read: {error}"
    return Contamination(
        artifact_id=built.id,
        summary=(
            f"{counters['texts-contaminated']:,} of {counters['texts-in']:,} texts are in "
            f"{counters['documents-matched']:,} of {counters.get('documents-kept', 0):,} "
            f"documents; {counters['documents-to-exclude']:,} have "
            f"{config['min_overlap']:.0%} of a text or more. {counters['ngrams-common']:,} of "
            f"{counters['ngrams']:,} n-grams of {config['ngram_size']} words are in more than "
            f"{config['max_document_frequency']} documents and are ignored."
        ),
        fields=_fields_table(manifest.statistics["fields"]),
        splits=_splits_table(manifest.statistics["splits"]),
        passages=_passages_table(passages),
        problem=problem,
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _fields_table(rows: Sequence[dict[str, Any]]) -> TextTable:
    overlaps = [name for name in (rows[0] if rows else ()) if name.startswith("found-")]
    header = (
        *("task", "split", "field", "texts", "too short", "clean", "found"),
        *(f"{name.removeprefix('found-')} of it" for name in overlaps),
        *("share of texts", "share of n-grams"),
    )
    counts = ("texts", "too-short", "clean", "contaminated", *overlaps)
    cells = tuple(
        (
            *(row["task"], row["split"], row["field"]),
            *(f"{row[name]:,}" for name in counts),
            _percent(row["contaminated"], row["texts"]),
            _percent(row["ngrams-found"], row["ngrams"]),
        )
        for row in rows
    )
    return TextTable("Texts of tasks that are in the corpus", header, (cells,), (), texts=3)


def _splits_table(rows: Sequence[dict[str, Any]]) -> TextTable:
    header = ("task", "split", "examples", "with a text found", "share")
    cells = tuple(
        (
            *(row["task"], row["split"]),
            *(f"{row['examples']:,}", f"{row['examples-contaminated']:,}"),
            _percent(row["examples-contaminated"], row["examples"]),
        )
        for row in rows
    )
    return TextTable("Examples with such a text", header, (cells,), (), texts=2)


def _passages_table(rows: Sequence[dict[str, Any]]) -> TextTable:
    cells = tuple(
        (
            f"{row['task']} {row['split']} {row['example_id']}",
            row["field"],
            f"{row['longest_run']:,} of {row['words']:,}",
            f"{row['title'] or '(no title)'} ({row['document_id']})",
            _cut(row["passage"]),
        )
        for row in rows
    )
    return TextTable("The longest passages", _PASSAGE_HEADER, (cells,), (), texts=5)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_PASSAGE else f"{text[:_MAX_PASSAGE]} ..."
