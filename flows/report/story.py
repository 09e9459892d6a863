"""A run in a few sentences: the most important result, what it read, what is worth a look."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from flows.formatting import format_bytes, format_count
from flows.record_counts import record_counts
from flows.report.corpus import Corpus
from flows.report.steps import Built, Steps, read_steps
from flows.run.stages import summarize
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, read_run, run_ids
from model.tables.document import Tables
from schemas.errors import StoreError
from schemas.trial_names import entry_label

_MAX_EARLIER_RUNS = 30
"""Earlier runs that are searched for one of the same recipe."""

_MIN_KEPT_SHARE = 0.5


class Story(NamedTuple):
    """Sentences of a run's report."""

    headline: str
    sentences: tuple[str, ...]
    look_at: tuple[tuple[str, str], ...]
    """Id of a section, and why it is worth a look."""


def tell(
    store: ArtifactStore,
    record: RunRecord,
    steps: Steps,
    *,
    corpus: Corpus | None,
    tables: Tables | None,
) -> Story:
    """Return the sentences about a run."""
    headline = _ending(record) or find_headline(steps, tables)
    sentences = (*_describe_corpus(steps), *_describe_pretraining(steps))
    sentences += tuple(_describe_changes(store, record, steps))
    others = tuple(sentence for sentence in sentences if sentence.rstrip(".") != headline)
    return Story(headline, others, tuple(_look_at(steps, corpus, tables)))


def _ending(record: RunRecord) -> str:
    """Return how a run ended that is not completed; "" for one that is."""
    labels = list(dict.fromkeys(entry_label(label) for label in record.failures if label))
    if record.state == "completed":
        return ""
    if record.state == "failed" and labels:
        return f"{', '.join(labels[:3])}{' ...' if len(labels) > 3 else ''} failed"
    verb = {"failed": "failed", "running": "is running"}.get(record.state, f"was {record.state}")
    return f"The run {verb}"


def find_headline(steps: Steps, tables: Tables | None) -> str:
    """Return the most important sentence about what a run built; "" for nothing."""
    if tables is not None and tables.headline:
        return tables.headline
    if evaluation := steps.last_holding("evaluation"):
        return f"{evaluation.name}: {summarize(evaluation.manifest)}"
    sentences = itertools.chain(_describe_pretraining(steps), _describe_corpus(steps))
    return next(sentences, "").rstrip(".")


def _describe_pretraining(steps: Steps) -> Iterator[str]:
    phases = steps.holding("checkpoint")
    if not phases:
        return
    updates = sum(phase.counters.get("steps", 0) for phase in phases)
    tokens = sum(phase.counters.get("tokens", 0) for phase in phases)
    trained = f"{updates:,} updates over {tokens:,} tokens"
    perplexity = phases[-1].statistics.get("held_out", {}).get("perplexity")
    if perplexity is None:
        yield f"Pretraining made {trained}."
    else:
        yield f"Pretraining reached a held-out perplexity of {perplexity:,.2f} after {trained}."


def _describe_corpus(steps: Steps) -> Iterator[str]:
    documents, tokens = (steps.last_holding(things) for things in ("documents", "tokens"))
    read = documents.counters if documents else {}
    counts = {
        "documents": read.get("documents-kept", 0),
        "words": read.get("words", 0),
        "tokens": tokens.counters.get("tokens", 0) if tokens else 0,
        "instances": sum(b.counters.get("instances", 0) for b in steps.holding("instances")),
    }
    parts = [f"{count:,} {noun}" for noun, count in counts.items() if count]
    if not parts:
        return
    source = f", made of {format_bytes(read['raw-bytes'])}" if read.get("raw-bytes") else ""
    listed = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    yield f"The corpus has {listed}{source}."


def _describe_changes(store: ArtifactStore, record: RunRecord, steps: Steps) -> Iterator[str]:
    """Yield how a run differs from the recipe's run before, if they share steps."""
    before = _find_run_before(store, record)
    if before is None:
        return
    others = {built.label: built for built in read_steps(store, before).built}
    changes = [
        text
        for built in steps.built
        if (other := others.get(built.label)) is not None
        and other.manifest.content_digest != built.manifest.content_digest
        for text in _list_changes(other, built)
    ]
    if changes:
        yield f"Compared with the run before ({before.run_id}): {'; '.join(changes[:4])}."
    elif others:
        yield f"All steps that it shares with the run before ({before.run_id}) are equal."


def _find_run_before(store: ArtifactStore, record: RunRecord) -> RunRecord | None:
    earlier = [run_id for run_id in run_ids(store) if run_id < record.run_id]
    for run_id in reversed(earlier[-_MAX_EARLIER_RUNS:]):
        try:
            found = read_run(store, run_id)
        except StoreError:
            continue
        if found.recipe.get("name") == record.recipe.get("name") and found.state == "completed":
            return found
    return None


def _list_changes(before: Built, after: Built) -> Iterator[str]:
    if "documents-kept" in after.counters and after.label == "build-documents":
        ends = (item.counters.get("documents-kept", 0) for item in (before, after))
        yield "documents {:,} \u2192 {:,}".format(*ends)
    held_out = [item.statistics.get("held_out") for item in (before, after)]
    if all(isinstance(values, dict) and "perplexity" in values for values in held_out):
        ends = (values["perplexity"] for values in held_out if values)
        yield "{} perplexity {:,.2f} \u2192 {:,.2f}".format(after.name, *ends)


def _look_at(
    steps: Steps, corpus: Corpus | None, tables: Tables | None
) -> Iterator[tuple[str, str]]:
    if steps.states["not run"]:
        yield "steps", f"{format_count(steps.states['not run'], 'step')} did not run"
    if corpus and corpus.documents:
        for item in record_counts(corpus.documents.counters):
            if not item.source and item.total and item.kept < _MIN_KEPT_SHARE * item.total:
                share = 100 * item.dropped / item.total
                yield "dropped", f"{share:.0f} % of the {item.record_type} were dropped"
    noted = list(
        dict.fromkeys(entry_label(built.label) for built in steps.built if built.manifest.notes)
    )
    if noted:
        yield "steps", f"notes on {', '.join(noted[:3])}{' ...' if len(noted) > 3 else ''}"
    if corpus and corpus.documents:
        yield "documents", "documents next to their source"
    if steps.holding("checkpoint"):
        yield "pretraining", "whether the held-out loss still falls"
    if tables and tables.main:
        yield "tasks", "every restart, next to the paper"
