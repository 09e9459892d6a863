"""A run in a few sentences: what was run, how long it took, how good it is, what to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from flows.balances import balances
from flows.formats import byte_text, counted, time_text
from flows.report.corpus import Corpus
from flows.report.results import Results
from flows.report.steps import Built, Steps, read_steps, run_seconds
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, read_run, run_ids
from model.tables.evaluations import percent
from schemas.errors import StoreError
from schemas.trial_names import entry_label

_BASE: Literal["BERT_BASE"] = "BERT_BASE"
_EARLIER = 30
"""Runs that are looked through for one of the same recipe."""

_FEW_KEPT = 0.5


class Story(NamedTuple):
    """What a run's page begins with."""

    told: tuple[str, ...]
    look_at: tuple[tuple[str, str], ...]
    """Id of a section, and why it is worth a look."""


def tell(
    store: ArtifactStore,
    record: RunRecord,
    steps: Steps,
    *,
    corpus: Corpus | None,
    results: Results | None,
) -> Story:
    """The story of a run, of what its sections have read."""
    told = [_what(record, steps)]
    told += _corpus(corpus)
    told += _training(steps)
    told += _results(results)
    told += _earlier(store, record, steps)
    return Story(tuple(told), tuple(_look_at(record, steps, corpus, results)))


def _what(record: RunRecord, steps: Steps) -> str:
    states = steps.states
    done = ", ".join(f"{number:,} {state}" for state, number in states.items())
    seconds = run_seconds(record)
    took = f" in {time_text(seconds)}" if seconds is not None and record.state != "running" else ""
    ended = {"completed": "was completed", "running": "is running", "failed": "failed"}
    how = ended.get(record.state, f"was {record.state}")
    name = record.recipe.get("name", "?")
    return f"The run of {name} {how}{took}: {counted(states.total(), 'step')}, {done}."


def _corpus(corpus: Corpus | None) -> Iterator[str]:
    if corpus is None or corpus.documents is None:
        return
    counters = corpus.documents.counters
    raw, words = counters.get("raw-bytes"), counters.get("words")
    text = f"{counters['documents-kept']:,} documents came of it"
    if raw:
        text = f"It read {byte_text(raw)}; {text}"
    text += f", {words:,} words" if words else ""
    if corpus.tokens:
        text += f", {corpus.tokens.counters.get('tokens', 0):,} tokens"
    number = sum(built.counters.get("instances", 0) for built in corpus.instances)
    yield f"{text}, and {number:,} instances." if number else f"{text}."


def _training(steps: Steps) -> Iterator[str]:
    phases = steps.holding("checkpoint")
    if not phases:
        return
    last = phases[-1]
    updates = sum(phase.counters.get("steps", 0) for phase in phases)
    tokens = sum(phase.counters.get("tokens", 0) for phase in phases)
    text = f"Pretraining: {updates:,} updates over {tokens:,} tokens"
    if (found := last.statistics.get("held_out", {})).get("perplexity") is not None:
        text += f", held-out perplexity {found['perplexity']:,.2f} after {last.name}"
    yield f"{text}."


def _results(results: Results | None) -> Iterator[str]:
    for row in results.best[:6] if results else ():
        ours = percent(row.mean, row.sd) if row.sd is not None else percent(row.shown)
        of = row.task if row.entry == row.task else f"{row.task}, best of {row.entry}"
        text = f"{of}: {row.metric} {ours} on dev"
        if (paper := row.paper.get(_BASE)) is not None and row.shown is not None:
            gap = 100 * row.shown - paper
            text += f", the paper\u2019s BERT_BASE {paper:.1f} ({gap:+.1f})"
        yield f"{text}."


def _earlier(store: ArtifactStore, record: RunRecord, steps: Steps) -> Iterator[str]:
    """How it compares with the recipe's run before, where that has other artifacts."""
    before = _run_before(store, record)
    if before is None:
        return
    others = {built.label: built for built in read_steps(store, before).built}
    moved = [
        text
        for built in steps.built
        if (other := others.get(built.label)) is not None
        and other.manifest.content != built.manifest.content
        for text in _moved(other, built)
    ]
    if moved:
        yield f"Beside the run before ({before.run_id}): {'; '.join(moved[:4])}."
    elif others:
        yield f"Everything it shares with the run before ({before.run_id}) is the same."


def _run_before(store: ArtifactStore, record: RunRecord) -> RunRecord | None:
    earlier = [run_id for run_id in run_ids(store) if run_id < record.run_id]
    for run_id in reversed(earlier[-_EARLIER:]):
        try:
            found = read_run(store, run_id)
        except StoreError:
            continue
        if found.recipe.get("name") == record.recipe.get("name") and found.state == "completed":
            return found
    return None


def _moved(before: Built, after: Built) -> Iterator[str]:
    if "documents-kept" in after.counters and after.label == "build-documents":
        ends = (item.counters.get("documents-kept", 0) for item in (before, after))
        yield "documents {:,} \u2192 {:,}".format(*ends)
    held_out = [item.statistics.get("held_out") for item in (before, after)]
    if all(isinstance(found, dict) and "perplexity" in found for found in held_out):
        ends = (found["perplexity"] for found in held_out if found)
        yield "{} perplexity {:,.2f} \u2192 {:,.2f}".format(after.name, *ends)


def _look_at(
    record: RunRecord, steps: Steps, corpus: Corpus | None, results: Results | None
) -> Iterator[tuple[str, str]]:
    if record.failures:
        yield "failures", "what failed" if record.state == "failed" else "why it ended early"
    if steps.states["not run"]:
        yield "steps", f"{counted(steps.states['not run'], 'step')} did not run"
    if corpus and corpus.documents:
        for item in balances(corpus.documents.counters):
            if not item.source and item.went_in and item.kept < _FEW_KEPT * item.went_in:
                share = 100 * item.dropped / item.went_in
                yield "dropped", f"{share:.0f} % of the {item.things} were dropped"
    noted = list(
        dict.fromkeys(entry_label(built.label) for built in steps.built if built.manifest.notes)
    )
    if noted:
        yield "steps", f"notes on {', '.join(noted[:3])}{' ...' if len(noted) > 3 else ''}"
    if corpus and corpus.documents:
        yield "documents", "documents beside their source"
    if steps.holding("checkpoint"):
        yield "pretraining", "whether the held-out loss still falls"
    if results and results.best:
        yield "tasks", "how far the restarts lie apart"
