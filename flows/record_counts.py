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
        """Whether in = kept + dropped."""
        return self.total == self.kept + self.dropped

    @property
    def row(self) -> tuple[str, ...]:
        """Cells of a table: record type, in, kept, dropped, reasons."""
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in self.dropped_by_reason)
        return (
            self.record_type,
            f"{self.total:,}",
            f"{self.kept:,}",
            f"{self.dropped:,}",
            reasons,
        )


def list_sources(counters: Mapping[str, int]) -> list[str]:
    """Return the sources that have counters of their own: `documents-kept@books`."""
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
    for name, total in own.items():
        record_type = name.removesuffix("-in")
        if record_type == name or f"{record_type}-kept" not in own:
            continue
        prefix = f"{record_type}-dropped-"
        dropped = [
            (key.removeprefix(prefix), count)
            for key, count in own.items()
            if key.startswith(prefix) and count
        ]
        yield RecordCounts(
            record_type=record_type,
            source=source,
            total=total,
            kept=own[f"{record_type}-kept"],
            dropped_by_reason=tuple(sorted(dropped, key=lambda item: (-item[1], item[0]))),
        )
