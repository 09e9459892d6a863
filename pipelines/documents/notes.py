"""Counts of `build-documents`, and notes on them for readers of its manifest.

Notes report tolerated damage, records that are not text, repeated ids, files without documents, and
documents that seem to be split at the wrong lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.counters import (
    DROPPED_TEMPLATE,
    MAX_EXAMPLES,
    TEXT_UNITS,
    UNKNOWN_TEMPLATE,
    Counters,
    Example,
)
from pipelines.documents.build_shard import read_examples
from pipelines.documents.duplicates import SAME_ID, Duplicates, excluded_rows
from pipelines.documents.plan import DocumentItem, raw_files
from pipelines.documents.records import kept_counts
from pipelines.io.shards import open_shard
from pipelines.shard_job.work import WorkResult
from schemas.arrow import DUPLICATES
from schemas.corpus_configs import DocumentsConfig, TextSource
from schemas.manifest import FileEntry

_SHOWN_FILES = 5
_SHOWN_TEMPLATES = 20
"""Maximum number of unknown and of dropped templates of a source with counters."""

_FEW_WORDS, _MANY_DOCUMENTS = 100, 20
"""With fewer words on average, many documents are probably paragraphs."""


REPEATED_ID = "documents-dropped-repeated-id"


def count_repeated_ids(
    shards: Iterable[FileEntry], duplicates: Duplicates, *, output: str
) -> dict[str, Counters]:
    """Return the counts of the documents with repeated ids, by shard.

    Args:
        shards: Shards of documents.
        duplicates: Written table of duplicates.
        output: URL of the folder of the files.
    """
    table = f"{output}/{duplicates.file.stored_name}"
    counts: dict[str, Counters] = {}
    for entry in shards:
        if entry.path in duplicates.repeated_ids:
            rows = excluded_rows(table, shard=entry.path, expected=DUPLICATES)[SAME_ID]
            counts[entry.path] = _count_rows(f"{output}/{entry.stored_name}", rows)
    return counts


def _count_rows(shard: str, rows: npt.NDArray[np.uint32]) -> Counters:
    """Return the counts of rows of a shard."""
    counters, first = Counters(), 0
    with open_shard(shard, columns=("sentences",)) as reader:
        for number in range(reader.num_record_batches):
            column = reader.get_batch(number).column("sentences")
            end = first + len(column)
            here = rows[(rows >= first) & (rows < end)]
            for sentences in column.take(pa.array(here - first, pa.int64())):
                counters.update(kept_counts(sentences.as_py()))
            first = end
    return counters


@dataclass(frozen=True)
class JobCounts:
    """Counts of all work items, without the rows of repeated ids."""

    items: Sequence[DocumentItem]
    counters: Counters
    examples: Mapping[str, Sequence[Example]]
    """First examples of counted records, by `NAME@SOURCE`."""

    files: Mapping[str, Mapping[str, Counters]]
    """Counts by source and name of the file."""

    templates: Mapping[str, Counters]
    """Counters `template-unknown:NAME` and `template-dropped:NAME`, by source."""

    @classmethod
    def of(
        cls,
        items: Sequence[DocumentItem],
        reports: Iterable[WorkResult],
        duplicates: Duplicates,
        *,
        more: Mapping[int, Mapping[str, int]],
        repeated_counts: Mapping[str, Mapping[str, int]],
    ) -> JobCounts:
        """Add the counts of all reports.

        Args:
            items: Work items.
            reports: Reports in the order of the items.
            duplicates: Rows with repeated ids.
            more: Further counts by item number.
            repeated_counts: Result of `count_repeated_ids`, which is subtracted.
        """
        counters, examples = Counters(), dict[str, list[Example]]()
        places: dict[str, tuple[str, str]] = {}
        files: dict[str, dict[str, Counters]] = {}
        templates: dict[str, Counters] = {}
        for item, report in zip(items, reports, strict=True):
            source, file = item.split.source, item.split.file.name
            report.counters.update(more.get(item.number, {}))
            counters.update(report.counters)
            plain = {name: n for name, n in report.counters.items() if "@" not in name}
            files.setdefault(source, {}).setdefault(file, Counters()).update(plain)
            templates.setdefault(source, Counters()).update(report.details[1])
            places |= {entry.path: (source, file) for entry in report.files}
            for name, found in read_examples(report.details[0]).items():
                listed = examples.setdefault(f"{name}@{source}", [])
                listed += found[: MAX_EXAMPLES - len(listed)]
        if duplicates.same_text:
            counters.count("duplicates-same-text", duplicates.same_text)
        for shard, repeated in duplicates.repeated_ids.items():
            source, file = places[shard]
            dropped = repeated_counts[shard]
            counters.subtract(dropped)
            counters.subtract({f"{name}@{source}": number for name, number in dropped.items()})
            files[source][file].subtract(dropped)
            for total in (counters, files[source][file]):
                total.count(REPEATED_ID, repeated.rows)
            counters.count(f"{REPEATED_ID}@{source}", repeated.rows)
            example = (
                f"{repeated.document_id!r} in {file}; {repeated.canonical_document_id!r} is kept"
            )
            listed = examples.setdefault(f"{REPEATED_ID}@{source}", [])
            if len(listed) < MAX_EXAMPLES:
                listed.append(Example(example))
        return cls(items, counters, examples, files, templates)

    def of_source(self, name: str, source: str) -> int:
        """Return a count of a source."""
        return self.counters.get(f"{name}@{source}", 0)

    def files_of(self, source: str) -> Mapping[str, Counters]:
        """Return the counts of the files of a source, by name."""
        return self.files.get(source, {})

    def raw_files_of(self, source: str) -> set[str]:
        """Return the names of the raw files of a text source."""
        splits = (item.split for item in self.items if item.split.source == source)
        return {file.name for split in splits for file in raw_files(split, "text")}

    def named_templates(self) -> dict[str, int]:
        """Return the counters of the most frequent templates: `template-unknown:NAME@SOURCE` and
        `template-dropped:NAME@SOURCE`."""
        named: dict[str, int] = {}
        for source, templates in self.templates.items():
            ranked = sorted(templates.items(), key=lambda item: (-item[1], item[0]))
            for prefix in (UNKNOWN_TEMPLATE, DROPPED_TEMPLATE):
                shown = [item for item in ranked if item[0].startswith(prefix)][:_SHOWN_TEMPLATES]
                named |= {f"{name}@{source}": number for name, number in shown}
        return named

    def describe_empty_inputs(self) -> list[str]:
        """Describe the contents of each source's files and why they were dropped."""
        sources = dict.fromkeys(item.split.source for item in self.items)
        return [f"source {source!r}: {_listed(self.files_of(source))}" for source in sources]


def document_notes(config: DocumentsConfig, job: JobCounts) -> Iterator[str]:
    """Yield notes on the counts of a job, one or two sentences each."""
    yield from _damage(config, job)
    yield from _languages(config, job.items)
    yield from _quarantined(config, job)
    yield from _empty_files(config, job)
    for source in config.sources:
        if isinstance(source, TextSource):
            yield from _text_shape(source, job)


def _damage(config: DocumentsConfig, job: JobCounts) -> Iterator[str]:
    for source in config.sources:
        truncated = job.of_source("files-truncated", source.name)
        streams = job.of_source("streams-dropped-corrupt", source.name)
        if truncated or streams:
            yield (
                f"source {source.name!r}: {truncated} truncated files and {streams} damaged "
                "streams; their whole pages were kept (on_corrupt: keep-whole-pages)"
            )


def _languages(config: DocumentsConfig, items: Sequence[DocumentItem]) -> Iterator[str]:
    """Yield a note on each source whose dumps declare another language than the recipe."""
    declared: dict[str, set[str]] = {}
    for item in items:
        detail = json.loads(item.split.detail) if item.split.detail.startswith("{") else {}
        declared.setdefault(item.split.source, set()).add(str(detail.get("said") or ""))
    for source in config.sources:
        base = source.language.split("-")[0]
        others = sorted(declared.get(source.name, set()) - {"", base, source.language})
        if base and others:
            yield (
                f"source {source.name!r}: dumps declare language {', '.join(others)}, recipe says "
                f"{source.language}. Fix `language` or remove it"
            )


_SHAPE_COUNTERS = ("rows-cut", "files-without-blank-line")
_WITHOUT_NOTE = (*_SHAPE_COUNTERS, "pages-dropped-", "documents-dropped-too-few-")
"""Counters with other notes, and counters that every corpus has."""


_CONVERT = "`iconv -f ENCODING -t UTF-8 FILE > NEW_FILE`"
_ADVICE = {
    "-dropped-undecodable": f". Their encoding is unknown, or they are damaged: {_CONVERT}",
    "-decoded-as-": f". If this is not their encoding, convert them: {_CONVERT}",
}
"""Advice about records, by a part of the name of their counter."""


def _quarantined(config: DocumentsConfig, job: JobCounts) -> Iterator[str]:
    """Yield a note on each counter of records that were dropped or repaired, with an example."""
    for source in config.sources:
        for name, examples in sorted(job.examples.items()):
            counted, _, of = name.rpartition("@")
            if of == source.name and not counted.startswith(_WITHOUT_NOTE):
                advice = next((text for part, text in _ADVICE.items() if part in counted), "")
                yield (
                    f"source {source.name!r}: {counted} {job.counters[name]:,}, the first of them "
                    f"{examples[0].text}{advice}"
                )


def _empty_files(config: DocumentsConfig, job: JobCounts) -> Iterator[str]:
    for source in config.sources:
        files = job.files_of(source.name)
        empty = {name: counts for name, counts in files.items() if not counts["documents-kept"]}
        if empty:
            yield (
                f"source {source.name!r}: {len(empty):,} of {len(files):,} inputs give no "
                f"document: {_listed(empty)}"
            )


def _listed(files: Mapping[str, Counters]) -> str:
    shown = [f"{name} ({_contents(files[name])})" for name in sorted(files)[:_SHOWN_FILES]]
    more = len(files) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _contents(counts: Counters) -> str:
    went_in = [name for name in counts if name.endswith("-in") and name != "documents-in"]
    found = ", ".join(
        f"{counts[name]:,} {name.removesuffix('-in')}" for name in went_in if counts[name]
    )
    dropped = sorted(
        name for name in counts if "-dropped-" in name and not name.startswith(TEXT_UNITS)
    )
    why = ", ".join(f"{name.partition('-dropped-')[2]} {counts[name]:,}" for name in dropped)
    ignored = sorted(name for name in counts if name.startswith("files-ignored-"))
    why = ", ".join([*([why] if why else []), *(f"{name} {counts[name]:,}" for name in ignored)])
    return f"{found or 'empty'}{f'; dropped: {why}' if why else ''}"


def _text_shape(source: TextSource, job: JobCounts) -> Iterator[str]:
    """Yield notes on a `document` setting that does not fit the text."""
    cut, endless = (job.of_source(name, source.name) for name in _SHAPE_COUNTERS)
    listed = [job.examples.get(f"{name}@{source.name}") for name in _SHAPE_COUNTERS]
    where = [examples[0].text if examples else "" for examples in listed]
    if cut:
        yield (
            f"source {source.name!r}: documents were cut {cut:,} times at "
            f"{source.max_document_bytes:,} bytes (max_document_bytes), first in {where[0]}"
        )
    if endless:
        yield (
            f"source {source.name!r}: {endless:,} long files have no blank line, so each is one "
            f"document, first {where[1]}. Set document_delimiter: line if each line is a text, "
            "or document_delimiter: file if each file is one"
        )
    every = job.raw_files_of(source.name)
    files = [name for name in every if ".txt" in name.lower()]
    documents = job.of_source("documents-in", source.name)
    words = job.of_source("words", source.name) // max(1, documents)
    if (
        source.document_delimiter == "blank-line"
        and not source.joins_rows
        and len(files) == len(every)
        and documents >= max(_MANY_DOCUMENTS, 2 * len(files))
        and words < _FEW_WORDS
    ):
        yield (
            f"source {source.name!r}: {len(files):,} .txt files make {documents:,} documents of "
            f"{words} words on average, because a blank line ends one. If a blank line only "
            "separates paragraphs there, set document_delimiter: file"
        )
