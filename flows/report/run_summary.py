"""A run in a few sentences: its most important result, what it read, what changed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from flows.formatting import format_bytes, format_count
from flows.record_counts import record_counts
from flows.report.run_steps import Built, Steps, read_steps
from flows.run.stages import summarize
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, read_run, run_ids
from model.tables.document import Tables
from schemas.errors import StoreError
from schemas.trial_names import entry_label

_MAX_EARLIER_RUNS = 30
"""Earlier runs that are searched for one of the same recipe."""

_MIN_KEPT_RATIO = 0.5


class RunSummary(NamedTuple):
    """Sentences of a run's report."""

    headline: str
    paragraphs: tuple[str, ...]
    highlights: tuple[tuple[str, str], ...]
    """Id of a section, and why it is worth a look."""


def summarize_run(
    store: ArtifactStore, record: RunRecord, steps: Steps, *, tables: Tables | None
) -> RunSummary:
    """Return the sentences about a run."""
    headline = _ending(record) or find_headline(steps, tables)
    sentences = [
        *_describe_corpus(steps),
        *_describe_pretraining(steps),
        *_describe_changes(store, record, steps),
    ]
    others = tuple(sentence for sentence in sentences if sentence.rstrip(".") != headline)
    return RunSummary(headline, others, tuple(_highlights(steps)))


def _ending(record: RunRecord) -> str:
    """Return how a run ended; "" for a completed run."""
    if record.state == "completed":
        return ""
    labels = list(dict.fromkeys(entry_label(label) for label in record.failures if label))
    if record.state == "failed" and labels:
        return f"{_first(labels)} failed"
    verb = {"failed": "failed", "running": "is running"}.get(record.state, f"was {record.state}")
    return f"The run {verb}"


def _first(labels: list[str]) -> str:
    return ", ".join(labels[:3]) + (" ..." if len(labels) > 3 else "")


def find_headline(steps: Steps, tables: Tables | None) -> str:
    """Return the most important sentence about what a run built; "" for nothing."""
    if tables is not None and tables.headline:
        return tables.headline
    if evaluation := steps.last_of_type("evaluation"):
        return f"{evaluation.name}: {summarize(evaluation.manifest)}"
    sentences = itertools.chain(_describe_pretraining(steps), _describe_corpus(steps))
    return next(sentences, "").rstrip(".")


def _describe_pretraining(steps: Steps) -> Iterator[str]:
    phases = steps.of_type("checkpoint")
    if not phases:
        return
    updates, tokens = (sum(p.counters.get(name, 0) for p in phases) for name in ("steps", "tokens"))
    trained = f"{updates:,} updates over {tokens:,} tokens"
    perplexity = phases[-1].statistics.get("held_out", {}).get("perplexity")
    if perplexity is None:
        yield f"Pretraining made {trained}."
    else:
        caution = phases[-1].statistics.get("held_out_caution")
        sample = f" on {caution}" if caution else ""
        value = f"{perplexity:,.2f}{sample}"
        yield f"Pretraining reached a held-out perplexity of {value} after {trained}."


def _describe_corpus(steps: Steps) -> Iterator[str]:
    documents, tokens = steps.last_of_type("documents"), steps.last_of_type("tokens")
    read = documents.counters if documents else {}
    counts = {
        "documents": read.get("documents-kept", 0),
        "words": read.get("words", 0),
        "tokens": tokens.counters.get("tokens", 0) if tokens else 0,
        "instances": sum(b.counters.get("instances", 0) for b in steps.of_type("instances")),
    }
    *first, last = [f"{count:,} {noun}" for noun, count in counts.items() if count] or [""]
    if last:
        listed = f"{', '.join(first)} and {last}" if first else last
        source = f", made of {format_bytes(read['raw-bytes'])}" if read.get("raw-bytes") else ""
        yield f"The corpus has {listed}{source}."


def _describe_changes(store: ArtifactStore, record: RunRecord, steps: Steps) -> Iterator[str]:
    """Yield how a run differs from the previous run of the recipe, if they share steps."""
    previous = _find_previous_run(store, record)
    if previous is None:
        return
    others = {built.label: built for built in read_steps(store, previous).built}
    shared = [(others[built.label], built) for built in steps.built if built.label in others]
    different = [
        pair
        for pair in shared
        if pair[0].manifest.content_digest != pair[1].manifest.content_digest
    ]
    changes = [text for pair in different for text in _list_changes(*pair)]
    if changes:
        yield f"Compared with the previous run ({previous.run_id}): {'; '.join(changes[:4])}."
    elif different:
        labels = [after.label for _, after in different]
        yield f"It differs from the previous run ({previous.run_id}) in {_first(labels)}."
    elif shared:
        yield f"All steps shared with the previous run ({previous.run_id}) are equal."


def _find_previous_run(store: ArtifactStore, record: RunRecord) -> RunRecord | None:
    earlier = [run_id for run_id in run_ids(store) if run_id < record.run_id]
    for run_id in reversed(earlier[-_MAX_EARLIER_RUNS:]):
        try:
            run = read_run(store, run_id)
        except StoreError:
            continue
        if run.recipe_name == record.recipe_name and run.state == "completed":
            return run
    return None


def _list_changes(before: Built, after: Built) -> Iterator[str]:
    if after.label == "build-documents":
        counts = (item.counters.get("documents-kept", 0) for item in (before, after))
        yield "documents {:,} \u2192 {:,}".format(*counts)
    held_out = [item.statistics.get("held_out") or {} for item in (before, after)]
    if all("perplexity" in values for values in held_out):
        ends = (values["perplexity"] for values in held_out)
        caution = after.statistics.get("held_out_caution")
        sample = f" ({caution})" if caution else ""
        yield "{} perplexity {:,.2f} \u2192 {:,.2f}".format(after.name, *ends) + sample


def _highlights(steps: Steps) -> Iterator[tuple[str, str]]:
    if missing := steps.states["not run"]:
        yield "steps", f"{format_count(missing, 'step')} did not run"
    if documents := steps.last_of_type("documents"):
        for item in record_counts(documents.counters):
            if not item.source and item.kept < _MIN_KEPT_RATIO * item.total:
                percent = 100 * item.dropped / item.total
                yield "dropped", f"{percent:.0f} % of the {item.record_type} were dropped"
    if labels := [entry_label(built.label) for built in steps.built if built.manifest.notes]:
        yield "steps", f"notes on {_first(list(dict.fromkeys(labels)))}"
