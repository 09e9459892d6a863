"""Notes on the counts of `build-documents` for readers of its manifest.

They report tolerated damage, records that are no text, repeated ids and files without documents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from pipelines.counters import TEXT_UNITS, Counters
from pipelines.documents.plan import DocumentItem
from pipelines.documents.statistics import JobStats
from schemas.corpus_configs import AnySource, DocumentsConfig

_SHOWN_FILES = 5

_CONVERT = "`iconv -f ENCODING -t UTF-8 FILE > NEW_FILE`"
_ADVICE = {
    "-dropped-undecodable": f". Their encoding is unknown, or they are damaged: {_CONVERT}",
    "-decoded-as-": f". If this is not their encoding, convert them: {_CONVERT}",
    "rows-cut": ". They are longer than max_document_bytes",
    "files-without-blank-line": (
        ". Each of these long files is one document. Set document_delimiter: line if each line is "
        "a text, or document_delimiter: file if each file is one"
    ),
}
"""Advice about records, by a part of the name of their counter."""


def document_notes(
    config: DocumentsConfig, items: Sequence[DocumentItem], stats: JobStats
) -> Iterator[str]:
    """Yield notes on the counts of a job, one or two sentences each."""
    for source in config.sources:
        notes = [
            *_damage(source, stats),
            *_languages(source, items),
            *_unusual_records(source, stats),
            *_empty_files(source, stats),
        ]
        yield from (f"source {source.name!r}: {note}" for note in notes)


def _damage(source: AnySource, stats: JobStats) -> Iterator[str]:
    truncated = stats.of_source("files-truncated", source.name)
    if truncated:
        yield f"{truncated} truncated files; kept their whole pages (on_corrupt: keep-whole-pages)"


def _languages(source: AnySource, items: Sequence[DocumentItem]) -> Iterator[str]:
    """Yield a note if dumps declare another language than the recipe."""
    headers = {item.split.file.header for item in items if item.split.source == source.name}
    declared = {json.loads(header)["declared_language"] for header in headers - {""}}
    base = source.language.split("-")[0]
    others = sorted(declared - {"", base, source.language})
    if base and others:
        yield (
            f"dumps declare language {', '.join(others)}, recipe says {source.language}. Fix "
            "`language` or remove it"
        )


def _unusual_records(source: AnySource, stats: JobStats) -> Iterator[str]:
    """Yield a note on each counter of records that were dropped or repaired."""
    for name, location in sorted(stats.locations.items()):
        counter, _, counted_source = name.rpartition("@")
        if counted_source == source.name:
            advice = next((text for part, text in _ADVICE.items() if part in counter), "")
            yield f"{counter} {stats.counters[name]:,}, the first of them {location}{advice}"


def _empty_files(source: AnySource, stats: JobStats) -> Iterator[str]:
    files = stats.files.get(source.name, {})
    empty = {name: counts for name, counts in files.items() if not counts["documents-kept"]}
    if empty:
        yield (f"{len(empty):,} of {len(files):,} inputs give no document: {describe_files(empty)}")


def describe_files(files: Mapping[str, Counters]) -> str:
    """Return what files contain, and why it was dropped."""
    shown = [f"{name} ({_describe_counts(files[name])})" for name in sorted(files)[:_SHOWN_FILES]]
    more = len(files) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _describe_counts(counts: Counters) -> str:
    records = ", ".join(
        f"{number:,} {name.removesuffix('-in')}"
        for name, number in counts.items()
        if name.endswith("-in") and name != "documents-in" and number
    )
    reasons = [
        f"{name.partition('-dropped-')[2]} {counts[name]:,}"
        for name in sorted(counts)
        if "-dropped-" in name and not name.startswith(TEXT_UNITS)
    ]
    reasons += [
        f"{name} {counts[name]:,}" for name in sorted(counts) if name.startswith("files-ignored-")
    ]
    dropped = f"; dropped: {', '.join(reasons)}" if reasons else ""
    return f"{records or 'empty'}{dropped}"
