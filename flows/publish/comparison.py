"""A corpus beside the published one: what each step holds, how it changed, what is beyond a limit.

All of it comes from counters and statistics of the manifests; no shard is opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from flows.formatting import align_columns, format_bytes
from flows.lineage.diff import changes
from flows.nested_values import flatten
from flows.record_counts import record_counts
from pipelines import build_documents, build_instances, build_tokens, build_vocabulary
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.manifest import Manifest
from schemas.publish_configs import ChangeLimits

DOCUMENTS, VOCABULARY = build_documents.STAGE.name, build_vocabulary.STAGE.name
TOKENS, INSTANCES = build_tokens.STAGE.name, build_instances.STAGE.name

Corpus = Mapping[str, Manifest]
"""Manifests by step label, such as `build-instances.length-128`."""

_DUMP_NAME = re.compile(r"^([a-z][a-z0-9_]*)-(\d{8})-")
_TITLES = ("step", "figure", "published", "new", "change", "allowed", "")
_SHOWN_FILES = 3
_ROUNDING = 1e-12
"""Differences of shares carry rounding errors; a change of just the limit is within it."""


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
        return -self.limit.down - _ROUNDING <= self.change <= self.limit.up + _ROUNDING

    def texts(self) -> tuple[str, str, str, str]:
        """The old figure, the new one, the change and the limit: `+1.2 %`, `±2 %`."""
        digits, unit = (3, "points") if self.kind == "share" else (2, "%")
        moved = allowed = ""
        if self.change is not None:
            is_new = self.change == float("inf")
            moved = "from none" if is_new else f"{100 * self.change:+.{digits}f} {unit}"
        if self.limit is not None:
            down, up = (f"{100 * share:g}" for share in self.limit)
            allowed = f"±{up} {unit}" if down == up else f"-{down} to +{up} {unit}"
        return self._value(self.old), self._value(self.new), moved, allowed

    def _value(self, value: float | None) -> str:
        if value is None:
            return "none"
        if self.kind == "bytes":
            return format_bytes(int(value))
        return f"{100 * value:.3f} %" if self.kind == "share" else f"{value:,.0f}"


class CorpusComparison(NamedTuple):
    """A new corpus beside the published one."""

    rows: tuple[Row, ...]
    files: tuple[str, str]
    """The raw files of the published corpus and of the new one, as people read it."""

    differences: tuple[str, ...]
    """How the two are configured otherwise; figures may differ for that alone."""

    problems: tuple[str, ...]
    """A sentence for each thing that is beyond a limit; none: it may be published."""

    def _texts(self, beyond: str) -> list[tuple[str, ...]]:
        """Texts of each figure; the last is `beyond` for one that is beyond its limit."""
        return [
            (row.step, row.figure, *row.texts(), "" if row.is_within else beyond)
            for row in self.rows
        ]

    def lines(self) -> list[str]:
        """As aligned lines of plain text."""
        published, new = self.files
        lines = [f"published from: {published}", f"new one from:   {new}", ""]
        lines += align_columns([_TITLES, *self._texts("BEYOND")], right=(2, 3, 4))
        if self.differences:
            lines += ["", "configured otherwise:", *(f"  {text}" for text in self.differences)]
        return lines

    def to_json(self) -> dict[str, Any]:
        """As plain values; a change from nothing to something is null."""
        return {
            "published_files": self.files[0],
            "new_files": self.files[1],
            "rows": [
                {
                    "step": row.step,
                    "figure": row.figure,
                    "kind": row.kind,
                    "published": row.old,
                    "new": row.new,
                    "change": None if row.change == float("inf") else row.change,
                    "limit": list(row.limit) if row.limit else None,
                    "within": row.is_within,
                }
                for row in self.rows
            ],
            "differences": list(self.differences),
            "problems": list(self.problems),
        }

    def markdown(self, *, title: str, verdict: str) -> str:
        """As a page of Markdown that says what became of the new corpus (`verdict`)."""
        published, new = (_escaped(text) for text in self.files)
        lines = [f"# {_escaped(title)}", "", _escaped(verdict), ""]
        lines += [f"- published from: {published}", f"- new one from: {new}", ""]
        listed = {"Beyond the limits": self.problems, "Configured otherwise": self.differences}
        for heading, texts in listed.items():
            if texts:
                lines += [f"## {heading}", "", *(f"- {_escaped(text)}" for text in texts), ""]
        lines += ["## Figures", "", f"| {' | '.join(_TITLES)} |", "|---|---|--:|--:|--:|---|---|"]
        for row in self._texts("**beyond**"):
            lines.append(f"| {' | '.join(map(_escaped, row))} |")
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    # File names and configuration come from others; none may end a cell or become a tag.
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def compare_corpora(
    new: Corpus, old: Corpus, *, limits: ChangeLimits, vocabulary_overlap: float | None = None
) -> CorpusComparison:
    """Compare two corpora step by step.

    Args:
        new: the new corpus.
        old: the published one.
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
    if vocabulary_overlap is None and _vocabulary(new) == _vocabulary(old) != "":
        vocabulary_overlap = 1.0
    if vocabulary_overlap is not None:
        figure = "published word pieces that are kept"
        rows.append(Row(VOCABULARY, figure, "share", 1.0, vocabulary_overlap))
    rows.sort(key=lambda row: list(_FIGURES).index(_stage(row.step)))
    for row in rows:
        if not row.is_within:
            before, after, change, allowed = row.texts()
            figure = f"{row.step}: {row.figure} {before} -> {after}"
            problems.append(f"{figure} ({change}; allowed {allowed})")
    return CorpusComparison(
        rows=tuple(rows),
        files=(_files_text(old), _files_text(new)),
        differences=tuple(_differences(new, old)),
        problems=tuple(problems),
    )


def dump_dates(corpus: Corpus) -> dict[str, str]:
    """The date, eight digits, of each wiki's dump that a corpus was made from, by the wiki's name.

    Of a wiki with files of several dates it is the newest; raw files with other names have none.
    """
    found: dict[str, str] = {}
    for name in _raw_names(corpus):
        if match := _DUMP_NAME.match(name.rpartition("/")[2]):
            found[match[1]] = max(match[2], found.get(match[1], ""))
    return found


def _stage(label: str) -> str:
    return label.partition(".")[0]


def _raw_names(corpus: Corpus) -> list[str]:
    return [item.name for item in corpus[DOCUMENTS].raw_inputs] if DOCUMENTS in corpus else []


def _vocabulary(corpus: Corpus) -> str:
    """Digest of the vocabulary's file; "" for none."""
    entry = corpus[VOCABULARY].file(VOCAB_FILE) if VOCABULARY in corpus else None
    return entry.sha256 if entry is not None else ""


# Figures


class _Figure(NamedTuple):
    """A counter that is compared."""

    title: str
    counter: str
    kind: Literal["count", "bytes"] = "count"
    limits: str = ""
    """What `ChangeLimits` calls it; "" for no limit."""

    by_source: bool = False
    """Whether each source is compared as well, where there is more than one."""


_FIGURES: Mapping[str, tuple[_Figure, ...]] = {  # by stage, in order
    DOCUMENTS: (
        _Figure("raw bytes", "raw-bytes", "bytes"),
        _Figure("documents", "documents-kept", limits="documents", by_source=True),
        _Figure("words", "words"),
        _Figure("duplicates", "duplicates-same-text"),
    ),
    VOCABULARY: (_Figure("word pieces", "vocabulary-size"),),
    TOKENS: (
        _Figure("documents", "documents-kept", limits="documents"),
        _Figure("tokens", "tokens", limits="tokens"),
    ),
    INSTANCES: (
        _Figure("instances", "instances", limits="instances"),
        _Figure("held-out instances", "held-out-instances"),
    ),
}


def _step_rows(label: str, new: Manifest, old: Manifest, *, limits: ChangeLimits) -> Iterator[Row]:
    before, after = old.counters, new.counters
    for figure in _FIGURES[_stage(label)]:
        limit = None
        if figure.limits:
            down, up = (
                getattr(limits, f"max_{figure.limits}_{way}") for way in ("decrease", "increase")
            )
            limit = Limit(down, up)
        counted = {figure.counter: figure.title}
        prefix = f"{figure.counter}@"
        by_source = sorted(name for name in {*before, *after} if name.startswith(prefix))
        if figure.by_source and len(by_source) > 1:
            counted |= {n: f"{figure.title} of {n.removeprefix(prefix)}" for n in by_source}
        for counter, title in counted.items():
            if counter in before or counter in after:
                ends = before.get(counter, 0), after.get(counter, 0)
                yield Row(label, title, figure.kind, *ends, limit)
    if _stage(label) == TOKENS:
        old_rate, new_rate = (
            counters.get("unknown-tokens", 0) / max(counters.get("tokens", 0), 1)
            for counters in (before, after)
        )
        allowed = Limit(limits.max_unk_rate_change, limits.max_unk_rate_change)
        yield Row(label, "unknown tokens", "share", old_rate, new_rate, allowed)
    yield from _drop_rows(label, before, after, limit=limits.max_drop_rate_change)
    yield Row(label, "size", "bytes", old.size, new.size)


def _drop_rows(
    label: str, old: Mapping[str, int], new: Mapping[str, int], *, limit: float
) -> Iterator[Row]:
    """The share of each kind of record that was dropped, in all and by reason."""
    before, after = (
        {b.record_type: b for b in record_counts(c) if not b.source} for c in (old, new)
    )
    both = Limit(limit, limit)
    # Things that only one of them counts are another way of working, such as a vocabulary that is
    # taken as given and not learnt.
    for things in sorted(before.keys() & after.keys()):
        ends = before[things], after[things]
        title = f"{things.replace('-', ' ')} dropped"
        counts = {title: [end.dropped for end in ends]}
        reasons = sorted({reason for end in ends for reason, _ in end.dropped_by_reason})
        for reason in reasons if len(reasons) > 1 else ():
            figure = f"{title}, {reason.replace('-', ' ')}"
            counts[figure] = [dict(end.dropped_by_reason).get(reason, 0) for end in ends]
        for figure, dropped in counts.items():
            shares = [n / max(end.total, 1) for n, end in zip(dropped, ends, strict=True)]
            if any(shares):
                yield Row(label, figure, "share", shares[0], shares[1], both)


# What else differs


def _files_text(corpus: Corpus) -> str:
    names = _raw_names(corpus)
    if len(names) <= _SHOWN_FILES:
        return ", ".join(names) or "none"
    return f"{names[0]} to {names[-1]}, {len(names):,} files"


def _differences(new: Corpus, old: Corpus) -> Iterator[str]:
    """How two corpora are configured otherwise, one text a field."""
    for label in new:
        if label not in old:
            yield f"{label}: the published corpus has none"
            continue
        before, after = old[label], new[label]
        if before.stage_version != after.stage_version:
            yield f"{label}: version of the stage {before.stage_version} -> {after.stage_version}"
        was, now = (
            # Sources by their names: their order does not matter.
            flatten(manifest.key_spec.get("config", {}))
            for manifest in (before, after)
        )
        for change in changes(was, now):
            ends = (change.before, change.after)
            was_and_is = ("(none)" if end is None else str(end) for end in ends)
            yield f"{label}: {change.name} {' -> '.join(was_and_is)}"
