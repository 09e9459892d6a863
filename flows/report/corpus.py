"""Counters of a corpus: records and text kept and dropped by source, unknown templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flows.record_counts import RecordCounts, list_sources, record_counts
from flows.report.figures import Figure, try_draw
from flows.report.length_histograms import instance_figure, token_figure
from flows.report.run_steps import Steps
from flows.store.artifacts import ArtifactStore
from pipelines.counters import UNKNOWN_TEMPLATE

_MAX_TEMPLATES = 10
_DROPPED_CHARACTERS = "characters-dropped-"


class UnknownTemplates(NamedTuple):
    """Templates in the sentences of a source that no rule expands."""

    source: str
    number: int
    most_frequent: str
    """Names with their counts."""


class DroppedText(NamedTuple):
    """Text that was dropped within the documents of a source for one reason."""

    source: str
    reason: str
    sentences: int | None
    """Number of sentences; None if the text was not split into sentences."""

    characters: int
    share: float
    """Characters over those of the source that were kept or dropped for this reason."""


class Corpus(NamedTuple):
    """Counters and figures of the section about the corpus."""

    counters: Mapping[str, int]
    """Counters of the documents, and of tokens by source."""

    record_counts: Sequence[tuple[str, RecordCounts, str]]
    """Counts with the label of their step and the id of its artifact."""

    templates: Sequence[UnknownTemplates]
    dropped_text: Sequence[DroppedText]
    figures: Mapping[str, Figure]
    """Figures by title."""

    @property
    def sources(self) -> list[str]:
        """Sources with separate counters."""
        return list_sources(self.counters)

    def by_source(self, name: str) -> list[int | None]:
        """Return a counter for each source and the total; empty if it is not counted by source."""
        counts = [self.counters.get(f"{name}@{source}") for source in self.sources]
        is_counted = any(count is not None for count in counts)
        return [*counts, self.counters.get(name)] if is_counted else []


def read_corpus(store: ArtifactStore, steps: Steps) -> Corpus | None:
    """Return the section about the corpus; None for a run without corpus steps."""
    built = steps.of_type("documents", "near_duplicates", "vocabulary", "tokens", "instances")
    if not built:
        return None
    documents, tokens = steps.last_of_type("documents"), steps.last_of_type("tokens")
    counters = dict(documents.counters) if documents else {}
    figures = {}
    if tokens is not None:
        counters |= {k: n for k, n in tokens.counters.items() if k.partition("@")[0] == "tokens"}
        figures["Documents and sentences"] = try_draw(lambda: token_figure(store, tokens))
    if instances := steps.of_type("instances"):
        figures["Instances"] = try_draw(lambda: instance_figure(store, instances))
    return Corpus(
        counters=counters,
        record_counts=[
            (step.label, counts, step.id)
            for step in built
            for counts in record_counts(step.counters)
        ],
        templates=unknown_templates(documents.counters) if documents else [],
        dropped_text=dropped_text(documents.counters) if documents else [],
        figures=figures,
    )


def unknown_templates(counters: Mapping[str, int]) -> list[UnknownTemplates]:
    """Return the unknown templates of each source that counts them."""
    rows = []
    for source in list_sources(counters):
        if (number := counters.get(f"templates-unknown@{source}")) is None:
            continue
        by_name = {
            name.removeprefix(UNKNOWN_TEMPLATE).removesuffix(f"@{source}"): count
            for name, count in counters.items()
            if name.startswith(UNKNOWN_TEMPLATE) and name.endswith(f"@{source}")
        }
        ranked = sorted(by_name.items(), key=lambda item: (-item[1], item[0]))
        most_frequent = ", ".join(f"{name} {n:,}" for name, n in ranked[:_MAX_TEMPLATES])
        rows.append(UnknownTemplates(source, number, most_frequent))
    return rows


def dropped_text(counters: Mapping[str, int]) -> list[DroppedText]:
    """Return the text that was dropped within documents by source, the most of it first."""
    rows = []
    for source in list_sources(counters):
        kept = counters.get(f"characters@{source}", 0)
        for name, number in counters.items():
            reason = name.removeprefix(_DROPPED_CHARACTERS).removesuffix(f"@{source}")
            if number and name == f"{_DROPPED_CHARACTERS}{reason}@{source}":
                sentences = counters.get(f"sentences-dropped-{reason}@{source}")
                share = number / (number + kept)
                rows.append(DroppedText(source, reason, sentences, number, share))
    return sorted(rows, key=lambda row: (row.source, -row.characters, row.reason))
