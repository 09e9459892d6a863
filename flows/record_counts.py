"""Record counts of a stage, read from its counters: in = kept + dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RecordCounts:
    """Counts of one record type."""

    record_type: str
    """Plural, such as `documents`."""

    source: str
    """Name of the source, "" for all sources together."""

    total: int
    kept: int
    dropped_by_reason: tuple[tuple[str, int], ...]
    """Dropped records by reason, most frequent first."""

    @property
    def dropped(self) -> int:
        """Total number of dropped records."""
        return sum(count for _, count in self.dropped_by_reason)

    @property
    def is_balanced(self) -> bool:
        """Return whether in = kept + dropped; the report warns if not."""
        return self.total == self.kept + self.dropped

    @property
    def row(self) -> tuple[str, ...]:
        """Cells of a table: record type, in, kept, dropped, reasons."""
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in self.dropped_by_reason)
        numbers = (f"{number:,}" for number in (self.total, self.kept, self.dropped))
        return (self.record_type, *numbers, reasons)


def list_sources(counters: Mapping[str, int]) -> list[str]:
    """Return the sources with separate counters, such as `documents-kept@books`."""
    return sorted({name.partition("@")[2] for name in counters if "@" in name})


def record_counts(counters: Mapping[str, int]) -> list[RecordCounts]:
    """Return the counts of every record type: of all sources together, then by source."""
    return [
        counts
        for source in ("", *list_sources(counters))
        for counts in _counts_of_source(counters, source)
    ]


def _counts_of_source(counters: Mapping[str, int], source: str) -> Iterator[RecordCounts]:
    parts = [(*name.partition("@")[::2], count) for name, count in counters.items()]
    own = {name: count for name, of_source, count in parts if of_source == source}
    for record_type in (name.removesuffix("-in") for name in own if name.endswith("-in")):
        prefix = f"{record_type}-dropped-"
        dropped = {k.removeprefix(prefix): n for k, n in own.items() if k.startswith(prefix) and n}
        if f"{record_type}-kept" in own:
            yield RecordCounts(
                record_type=record_type,
                source=source,
                total=own[f"{record_type}-in"],
                kept=own[f"{record_type}-kept"],
                dropped_by_reason=tuple(sorted(dropped.items(), key=lambda x: (-x[1], x[0]))),
            )
