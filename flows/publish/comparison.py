"""A corpus beside the published one: what each step holds, how it changed, what is beyond a limit.

All of it comes from counters and statistics of the manifests; no shard is opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from flows.formats import byte_text
from schemas.manifest import Manifest
from schemas.publish_configs import ChangeLimits

CORPUS_STAGES = ("build-documents", "build-vocabulary", "build-tokens", "build-instances")
"""The stages that a published corpus consists of, in order."""

_DUMP_NAME = re.compile(r"^([a-z][a-z0-9_]*)-(\d{8})-")
_SHOWN_FILES = 3


class Limit(NamedTuple):
    """How far a figure may move; both ends are included."""

    down: float
    up: float


class Row(NamedTuple):
    """One figure of both corpora."""

    step: str
    figure: str
    """Such as `documents` or `pages dropped, redirect`."""

    kind: Literal["count", "bytes", "share"]
    """Counts and bytes change by a share of the old figure; shares by the difference."""

    old: float | None
    """None where the published corpus has no such figure; `new` likewise."""

    new: float | None
    limit: Limit | None = None

    @property
    def change(self) -> float | None:
        """0.02 is two per cent more, or two points for a share; None where there is none."""
        if self.old is None or self.new is None:
            return None
        if self.kind == "share":
            return self.new - self.old
        if not self.old:
            return 0.0 if not self.new else float("inf")
        return self.new / self.old - 1

    @property
    def is_within(self) -> bool:
        """Whether the change is within the limit, or there is none."""
        if self.limit is None or self.change is None:
            return True
        # Differences of shares carry rounding errors; a change of just the limit is within it.
        slack = 1e-12
        return -self.limit.down - slack <= self.change <= self.limit.up + slack


class Comparison(NamedTuple):
    """A new corpus beside the published one."""

    rows: tuple[Row, ...]
    files: tuple[str, str]
    """The raw files of the published corpus and of the new one, as people read it."""

    differences: tuple[str, ...]
    """How the two are configured otherwise; figures may differ for that alone."""

    problems: tuple[str, ...]
    """A sentence for each thing that is beyond a limit; none: it may be published."""


def compare_corpora(
    new: Mapping[str, Manifest],
    old: Mapping[str, Manifest],
    *,
    limits: ChangeLimits,
    vocabulary_overlap: float | None = None,
) -> Comparison:
    """Compare two corpora step by step.

    Args:
        new: manifests by step label, such as `build-instances.length-128`.
        old: the same of the published corpus.
        limits: how much may differ.
        vocabulary_overlap: share of the published word pieces that the new vocabulary has too;
            None leaves it out unless both have the same file.
    """
    rows: list[Row] = []
    problems: list[str] = []
    for label in [*old, *(label for label in new if label not in old)]:
        if label not in new:
            problems.append(f"{label}: the published corpus has it, the new one has not")
        elif label in old:
            rows += _step_rows(label, new[label], old[label], limits=limits)
    overlap = _overlap(new, old, known=vocabulary_overlap)
    if overlap is not None:
        figure = "published word pieces that are kept"
        rows.append(Row("build-vocabulary", figure, "share", 1.0, overlap))
    rows.sort(key=lambda row: CORPUS_STAGES.index(row.step.partition(".")[0]))
    problems += [_problem(row) for row in rows if not row.is_within]
    return Comparison(
        rows=tuple(rows),
        files=(_files_text(old), _files_text(new)),
        differences=tuple(_differences(new, old)),
        problems=tuple(problems),
    )


def dump_dates(manifests: Mapping[str, Manifest]) -> dict[str, str]:
    """The date, eight digits, of each wiki's dump that a corpus was made from, by the wiki's name.

    Of a wiki with files of several dates it is the newest; raw files with other names have none.
    """
    documents = manifests.get("build-documents")
    raw = documents.raw_inputs if documents is not None else ()
    found: dict[str, str] = {}
    for item in raw:
        if match := _DUMP_NAME.match(item.name.rpartition("/")[2]):
            found[match[1]] = max(match[2], found.get(match[1], ""))
    return found


def change_text(row: Row) -> str:
    """The change of a figure for people: `+1.2 %`, or `+0.3 points` of a share."""
    if row.change is None:
        return ""
    if row.change == float("inf"):
        return "from none"
    return _signed(row.change, row.kind)


def value_text(row: Row, value: float | None) -> str:
    """One of a row's figures for people."""
    if value is None:
        return "none"
    if row.kind == "bytes":
        return byte_text(int(value))
    return f"{100 * value:.3f} %" if row.kind == "share" else f"{value:,.0f}"


def limit_text(row: Row) -> str:
    """A row's limit for people, "" where there is none."""
    if row.limit is None:
        return ""
    unit = "points" if row.kind == "share" else "%"
    down, up = (f"{100 * share:g}" for share in row.limit)
    return f"±{up} {unit}" if down == up else f"-{down} to +{up} {unit}"


def _signed(change: float, kind: str) -> str:
    return f"{100 * change:+.3f} points" if kind == "share" else f"{100 * change:+.2f} %"


def _problem(row: Row) -> str:
    old, new = value_text(row, row.old), value_text(row, row.new)
    return (
        f"{row.step}: {row.figure} {old} -> {new} ({change_text(row)}; allowed {limit_text(row)})"
    )


def _step_rows(label: str, new: Manifest, old: Manifest, *, limits: ChangeLimits) -> Iterator[Row]:
    stage = label.partition(".")[0]
    ends = old.counters, new.counters

    def counted(
        figure: str,
        name: str,
        limit: Limit | None = None,
        kind: Literal["count", "bytes"] = "count",
    ) -> Iterator[Row]:
        before, after = (counters.get(name) for counters in ends)
        if before is not None or after is not None:
            yield Row(label, figure, kind, before or 0, after or 0, limit)

    documents = Limit(limits.documents_shrink, limits.documents_growth)
    if stage == "build-documents":
        yield from counted("raw bytes", "raw-bytes", kind="bytes")
        yield from counted("documents", "documents-kept", documents)
        for source in _sources(*ends):
            yield from counted(f"documents of {source}", f"documents-kept@{source}", documents)
        yield from counted("words", "words")
        yield from counted("duplicates", "duplicates-same-text")
    elif stage == "build-vocabulary":
        yield from counted("word pieces", "vocabulary-size")
    elif stage == "build-tokens":
        yield from counted("documents", "documents-kept", documents)
        yield from counted("tokens", "tokens", Limit(limits.tokens_shrink, limits.tokens_growth))
        change = limits.unknown_rate_change
        before, after = (_share(counters, "unknown-tokens", "tokens") for counters in ends)
        yield Row(label, "unknown tokens", "share", before, after, Limit(change, change))
    else:
        allowed = Limit(limits.instances_shrink, limits.instances_growth)
        yield from counted("instances", "instances", allowed)
        yield from counted("held-out instances", "held-out-instances")
    yield from _drop_rows(label, *ends, limit=limits.drop_share_change)
    yield Row(label, "size", "bytes", old.size, new.size)


def _sources(old: Mapping[str, int], new: Mapping[str, int]) -> list[str]:
    """Names of the sources, where there is more than one."""
    prefix = "documents-kept@"
    names = {name.removeprefix(prefix) for name in {*old, *new} if name.startswith(prefix)}
    return sorted(names) if len(names) > 1 else []


def _drop_rows(
    label: str, old: Mapping[str, int], new: Mapping[str, int], *, limit: float
) -> Iterator[Row]:
    """The share of each kind of record that was dropped, in all and by reason."""
    # Things that only one of them counts are another way of working, such as a vocabulary that is
    # taken as given and not learnt.
    names = {name for name in {*old, *new} if "@" not in name}
    counted = (name for name in names if name.endswith("-in") and name in old and name in new)
    for things in sorted(name.removesuffix("-in") for name in counted):
        prefix = f"{things}-dropped-"
        reasons = sorted(name for name in names if name.startswith(prefix))
        total = [
            sum(counters.get(reason, 0) for reason in reasons) / counters.get(f"{things}-in", 0)
            if counters.get(f"{things}-in")
            else 0.0
            for counters in (old, new)
        ]
        if not any(total):
            continue
        title, both = f"{things.replace('-', ' ')} dropped", Limit(limit, limit)
        yield Row(label, title, "share", total[0], total[1], both)
        for reason in reasons if len(reasons) > 1 else ():
            shares = [_share(counters, reason, f"{things}-in") for counters in (old, new)]
            if any(shares):
                why = reason.removeprefix(prefix).replace("-", " ")
                yield Row(label, f"{title}, {why}", "share", shares[0], shares[1], both)


def _share(counters: Mapping[str, int], part: str, whole: str) -> float:
    return counters.get(part, 0) / counters[whole] if counters.get(whole) else 0.0


def _overlap(
    new: Mapping[str, Manifest], old: Mapping[str, Manifest], *, known: float | None
) -> float | None:
    if known is not None:
        return known
    pieces = [
        manifests["build-vocabulary"].file("vocab.txt") if "build-vocabulary" in manifests else None
        for manifests in (new, old)
    ]
    first, second = pieces
    same = first is not None and second is not None and first.sha256 == second.sha256
    return 1.0 if same else None


def _files_text(manifests: Mapping[str, Manifest]) -> str:
    documents = manifests.get("build-documents")
    names = [item.name for item in documents.raw_inputs] if documents is not None else []
    if len(names) <= _SHOWN_FILES:
        return ", ".join(names) or "none"
    return f"{names[0]} to {names[-1]}, {len(names):,} files"


def _differences(new: Mapping[str, Manifest], old: Mapping[str, Manifest]) -> Iterator[str]:
    """How two corpora are configured otherwise, one text a field."""
    for label in new:
        if label not in old:
            yield f"{label}: the published corpus has none"
            continue
        before, after = old[label], new[label]
        if before.stage_version != after.stage_version:
            yield f"{label}: version of the stage {before.stage_version} -> {after.stage_version}"
        fields = (
            dict(_leaves(manifest.key_spec.get("config", {}))) for manifest in (before, after)
        )
        was, now = fields
        for field in sorted({*was, *now}):
            if was.get(field) != now.get(field):
                ends = (str(found.get(field, "(none)")) for found in (was, now))
                yield f"{label}: {field} {' -> '.join(ends)}"


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a configuration; sources by their names, as their order does not matter."""
    named = isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value)
    if named:
        value = {str(item.get("name", number)): item for number, item in enumerate(value)}
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
