"""Counters of a corpus: records kept and dropped by source, unknown templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flows.record_counts import RecordCounts, list_sources, record_counts
from flows.report.figures import Figure, kept_figure
from flows.report.lengths import instance_figure, token_figure
from flows.report.steps import Built, Steps
from flows.store.artifacts import ArtifactStore
from pipelines.counters import UNKNOWN_TEMPLATE

_MOST_TEMPLATES = 10
_MAX_WORD_LENGTH = 20  # characters, on average; a text without spaces has more between two of them


class Templates(NamedTuple):
    """Templates within the sentences of a source that no rule is known for."""

    source: str
    number: int
    per_word: float | None
    """Share of the source's words; None where words are not counted."""

    most_often: str
    """Their names, and how often each was found."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The section about the corpus."""

    counters: Mapping[str, int]
    """Counters of the documents and tokens."""

    record_counts: Sequence[tuple[str, RecordCounts]]
    """Each with the label of its step."""

    templates: Sequence[Templates]
    documents: Built | None
    vocabulary: Built | None
    tokens: Built | None
    instances: Sequence[Built]
    figures: Mapping[str, Figure]
    """Figures by title."""

    @property
    def sources(self) -> list[str]:
        """Names of the recipe's sources that anything is counted by."""
        return list_sources(self.counters)

    def by_source(self, name: str) -> list[int | None]:
        """A count of each source and of all together; empty where it is not counted by source."""
        found = [self.counters.get(f"{name}@{source}") for source in self.sources]
        return [*found, self.counters.get(name)] if any(n is not None for n in found) else []


def read_corpus(store: ArtifactStore, steps: Steps) -> Corpus | None:
    """None where a run has no artifact of a corpus."""
    own = steps.holding("documents", "vocabulary", "tokens", "instances")
    if not own:
        return None
    documents, tokens = (steps.last_holding(things) for things in ("documents", "tokens"))
    instances = steps.holding("instances")
    counters = dict(documents.counters) if documents else {}
    if tokens is not None:
        counters |= {k: n for k, n in tokens.counters.items() if k.partition("@")[0] == "tokens"}
    figures = {}
    if tokens is not None:
        figures["Documents and sentences"] = kept_figure(
            store,
            "tokens",
            made_of=[("", tokens.manifest.artifact_id)],
            draw=lambda name: token_figure(store, tokens, name=name),
        )
    if instances:
        figures["Instances"] = kept_figure(
            store,
            "instances",
            made_of=[(item.label, item.manifest.artifact_id) for item in instances],
            draw=lambda name: instance_figure(store, instances, name=name),
        )
    return Corpus(
        counters=counters,
        record_counts=[
            (item.label, found) for item in own for found in record_counts(item.counters)
        ],
        templates=unknown_templates(documents.counters) if documents else [],
        documents=documents,
        vocabulary=steps.last_holding("vocabulary"),
        tokens=tokens,
        instances=instances,
        figures=figures,
    )


def unknown_templates(counters: Mapping[str, int]) -> list[Templates]:
    """Return the unknown templates of each source that has any."""
    found = []
    for source in list_sources(counters):
        if (number := counters.get(f"templates-unknown@{source}")) is None:
            continue
        named = [
            (name.removeprefix(UNKNOWN_TEMPLATE).removesuffix(f"@{source}"), count)
            for name, count in counters.items()
            if name.startswith(UNKNOWN_TEMPLATE) and name.endswith(f"@{source}")
        ]
        named.sort(key=lambda item: (-item[1], item[0]))
        most_often = ", ".join(f"{name} {count:,}" for name, count in named[:_MOST_TEMPLATES])
        words = _words(counters, source)
        found.append(Templates(source, number, number / words if words else None, most_often))
    return found


def _words(counters: Mapping[str, int], source: str) -> int:
    """Return the number of words of a source; without spaces, two characters are a word."""
    words = counters.get(f"words@{source}", 0)
    characters = counters.get(f"characters@{source}", 0)
    return characters // 2 if characters > _MAX_WORD_LENGTH * words else words
