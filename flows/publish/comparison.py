"""Comparison of a new corpus with the published one, by the counters of their manifests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flows.formatting import align_columns
from flows.record_counts import record_counts
from flows.run.cache_keys import describe_changes
from schemas.manifest import Manifest
from schemas.publish_configs import ChangeLimits

DOCUMENTS, VOCABULARY, TOKENS, INSTANCES = (
    "build-documents",
    "build-vocabulary",
    "build-tokens",
    "build-instances",
)

Corpus = Mapping[str, Manifest]
"""Manifests by step label, such as `build-instances.length-128`."""

_COUNTERS: dict[str, dict[str, str]] = {
    DOCUMENTS: {
        "raw-bytes": "",
        "documents-kept": "documents",
        "words": "",
        "duplicates-same-text": "",
    },
    "find-near-duplicates": {"documents-dropped-near-duplicate": ""},
    "find-contamination": {"documents-to-exclude": ""},
    VOCABULARY: {"vocabulary-size": ""},
    TOKENS: {"documents-kept": "documents", "tokens": "tokens"},
    INSTANCES: {"instances": "instances", "held-out-instances": ""},
}
"""Compared counters of stages, with their name in `ChangeLimits`; "" for no limit. Of other stages,
only the rates of dropped records are compared."""

_DUMP_NAME = re.compile(r"^([a-z][a-z0-9_]*)-(\d{8})-")
_HEADER = ("step", "metric", "published", "new", "change", "allowed", "")
_TOLERANCE = 1e-12  # rounding of differences of rates


class Row(NamedTuple):
    """One metric of both corpora: a count, or a rate between 0 and 1."""

    step: str
    metric: str
    """Name of the counter, such as `documents-kept@books` or `pages-dropped-redirect`."""

    old: float
    new: float
    limits: tuple[float, float] | None = None
    """Maximum decrease and increase, both included. None: no limit."""

    is_rate: bool = False
    """True if the values are fractions of all records."""

    @property
    def change(self) -> float:
        """Relative change of a count (0.02: 2 % more), or difference of a rate (0.02: 2 points)."""
        if self.is_rate or self.old == self.new:
            return self.new - self.old
        return self.new / self.old - 1 if self.old else float("inf")

    @property
    def is_within_limits(self) -> bool:
        """Return True if the change is within the limits."""
        down, up = self.limits or (float("inf"), float("inf"))
        return -down - _TOLERANCE <= self.change <= up + _TOLERANCE

    def cells(self) -> tuple[str, str, str, str]:
        """Return the old value, the new one, the change and the limits: `-2 to +25 %`."""
        unit = "points" if self.is_rate else "%"
        old, new = (
            f"{100 * value:.3f} %" if self.is_rate else f"{value:,}"
            for value in (self.old, self.new)
        )
        change = f"{100 * self.change:+.2f} {unit}"
        down, up = self.limits or (0, 0)
        return old, new, change, f"-{100 * down:g} to +{100 * up:g} {unit}" if self.limits else ""


class CorpusComparison(NamedTuple):
    """A new corpus compared with the published one."""

    rows: tuple[Row, ...]
    differences: tuple[str, ...]
    """Differences of the configurations and of the vocabularies, which can explain the changes."""

    problems: tuple[str, ...]
    """One sentence per exceeded limit and per missing step. (): the new corpus can be published."""

    def lines(self) -> list[str]:
        """Return the comparison as lines of text."""
        table = [
            (row.step, row.metric, *row.cells(), "" if row.is_within_limits else "EXCEEDED")
            for row in self.rows
        ]
        lines = align_columns([_HEADER, *table], right=(2, 3, 4))
        if self.differences:
            lines += ["", "differences of the configuration:"]
        return [*lines, *(f"  {text}" for text in self.differences)]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values; the change of a count that was 0 is null."""
        rows = [
            {
                **row._asdict(),
                "change": None if row.change == float("inf") else row.change,
                "is_within_limits": row.is_within_limits,
            }
            for row in self.rows
        ]
        return {**self._asdict(), "rows": rows}


def compare_corpora(new: Corpus, old: Corpus, *, limits: ChangeLimits) -> CorpusComparison:
    """Compare a new corpus with the published one, step by step."""
    rows: list[Row] = []
    problems: list[str] = []
    for label, manifest in old.items():
        if label in new:
            rows += _count_rows(label, new[label].counters, manifest.counters, limits=limits)
            rows += _rate_rows(label, new[label].counters, manifest.counters, limits=limits)
        else:
            problems.append(f"{label}: expected this step as in the published corpus, got none")
    for row in rows:
        if not row.is_within_limits:
            before, after, change, allowed = row.cells()
            text = f"{row.step}: {row.metric} {before} -> {after}"
            problems.append(f"{text} ({change}; allowed {allowed})")
    return CorpusComparison(tuple(rows), tuple(_differences(new, old)), tuple(problems))


def dump_dates(corpus: Corpus) -> dict[str, str]:
    """Return the date (YYYYMMDD) of the newest dump file of each wiki that a corpus was built from.

    Raw files with other names than those of dumps have no date.
    """
    dates: dict[str, str] = {}
    for item in corpus[DOCUMENTS].raw_inputs if DOCUMENTS in corpus else ():
        if match := _DUMP_NAME.match(item.name.rpartition("/")[2]):
            dates[match[1]] = max(match[2], dates.get(match[1], ""))
    return dates


def _count_rows(
    label: str, new: Mapping[str, int], old: Mapping[str, int], *, limits: ChangeLimits
) -> Iterator[Row]:
    """Yield the counters of a step, each followed by those of several sources."""
    for name, limit in _COUNTERS.get(label.partition(".")[0], {}).items():
        allowed = None
        if limit:
            down, up = f"max_{limit}_decrease", f"max_{limit}_increase"
            allowed = (getattr(limits, down), getattr(limits, up))
        by_source = sorted(each for each in {*new, *old} if each.startswith(f"{name}@"))
        for counter in (name, *(by_source if limit and len(by_source) > 1 else ())):
            if counter in new or counter in old:
                yield Row(label, counter, old.get(counter, 0), new.get(counter, 0), allowed)


def _rate_rows(
    label: str, new: Mapping[str, int], old: Mapping[str, int], *, limits: ChangeLimits
) -> Iterator[Row]:
    """Yield the rate of unknown tokens, and those of dropped records by type and reason."""
    limit = limits.max_unk_rate_change
    if label == TOKENS:
        before, after = (
            counters.get("unknown-tokens", 0) / max(counters.get("tokens", 0), 1)
            for counters in (old, new)
        )
        yield Row(label, "unknown-tokens", before, after, (limit, limit), is_rate=True)
    limit = limits.max_drop_rate_change
    old_rates, new_rates = _drop_rates(old), _drop_rates(new)
    # A record type that only one of them counts comes from another configuration, for example a
    # vocabulary from a file.
    for record_type in sorted(old_rates.keys() & new_rates.keys()):
        of_old, of_new = old_rates[record_type], new_rates[record_type]
        for reason in sorted({*of_old, *of_new}):
            name = f"{record_type}-dropped-{reason}".removesuffix("-")
            before, after = of_old.get(reason, 0.0), of_new.get(reason, 0.0)
            yield Row(label, name, before, after, (limit, limit), is_rate=True)


def _drop_rates(counters: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Return the rates of dropped records by record type and reason; "" for all reasons."""
    return {
        counts.record_type: {
            reason: number / max(counts.total, 1)
            for reason, number in (("", counts.dropped), *counts.dropped_by_reason)
        }
        for counts in record_counts(counters)
        if not counts.source
    }


def _differences(new: Corpus, old: Corpus) -> Iterator[str]:
    for label, manifest in new.items():
        if label not in old:
            yield f"{label}: not in the published corpus"
            continue
        before, after = (
            {key: each.cache_key_inputs.get(key) for key in ("stage_version", "config")}
            for each in (old[label], manifest)
        )
        yield from (f"{label}: {text}" for text in describe_changes(before, after))
        if label == VOCABULARY and manifest.content_digest != old[label].content_digest:
            yield f"{label}: another vocabulary"
