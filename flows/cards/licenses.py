"""Licenses and attribution of a corpus's sources, as the recipe states them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from schemas.manifest import Manifest, RawInput
from schemas.publish_configs import CardsConfig, SourceCard

UNKNOWN = "unknown"
"""The Hub's identifier of an unknown license."""


class SourceFacts(NamedTuple):
    """A source of documents as a card describes it."""

    name: str
    kind: str
    files: Sequence[RawInput]
    language: str
    """ISO 639 code; "" if the recipe states none."""

    card: SourceCard
    """License and attribution."""

    @property
    def license(self) -> str:
        """The Hub's identifier of the license."""
        return self.card.license or UNKNOWN


def source_facts(documents: Manifest, cards: CardsConfig) -> Iterator[SourceFacts]:
    """Yield the sources of a `build-documents` artifact in the order of its configuration."""
    sources = documents.config.get("sources", [])
    for source in sources:
        name = source["name"]
        files = [
            file
            for file in documents.raw_inputs
            if len(sources) == 1 or file.key_digest.startswith(f"{name}\t")
        ]
        card = cards.sources.get(name, SourceCard())
        yield SourceFacts(name, source["kind"], files, source.get("language", ""), card)
