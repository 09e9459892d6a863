"""What went into a stage and what became of it: in = kept + dropped, read from its counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Things that went in, and what became of them."""

    things: str
    source: str
    """"" for all sources together."""

    went_in: int
    kept: int
    reasons: tuple[tuple[str, int], ...]
    """Why things were dropped, and how many; the most frequent first."""

    @property
    def dropped(self) -> int:
        """In all."""
        return sum(number for _, number in self.reasons)

    @property
    def is_balanced(self) -> bool:
        """Whether in = kept + dropped, as every stage promises."""
        return self.went_in == self.kept + self.dropped

    @property
    def row(self) -> tuple[str, ...]:
        """(things, in, kept, dropped, reasons) for a table of texts."""
        why = ", ".join(f"{reason} {number:,}" for reason, number in self.reasons)
        return (self.things, f"{self.went_in:,}", f"{self.kept:,}", f"{self.dropped:,}", why)


def sources_of(counters: Mapping[str, int]) -> list[str]:
    """The sources that counters are kept of: `documents-kept@books`."""
    return sorted({name.partition("@")[2] for name in counters if "@" in name})


def balances(counters: Mapping[str, int]) -> list[Balance]:
    """All things that were counted in and kept (`pipelines.counters`), all sources first."""
    return [
        found for source in ("", *sources_of(counters)) for found in _of_source(counters, source)
    ]


def _of_source(counters: Mapping[str, int], source: str) -> Iterator[Balance]:
    named = [(*name.partition("@")[::2], number) for name, number in counters.items()]
    own = {name: number for name, of_source, number in named if of_source == source}
    for name, went_in in own.items():
        things = name.removesuffix("-in")
        if things == name or f"{things}-kept" not in own:
            continue
        prefix = f"{things}-dropped-"
        reasons = [(k.removeprefix(prefix), n) for k, n in own.items() if k.startswith(prefix)]
        yield Balance(
            things=things,
            source=source,
            went_in=went_in,
            kept=own[f"{things}-kept"],
            reasons=tuple(sorted((r for r in reasons if r[1]), key=lambda r: (-r[1], r[0]))),
        )
