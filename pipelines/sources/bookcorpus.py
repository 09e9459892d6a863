"""The original BookCorpus: one lower-cased, tokenized sentence per line, no marks between books.

Files are plain, .gz, .bz2 or .zst, or members of a .zip or .tar archive (`books_large_p1.txt`).
`lines_per_document` lines are a document, and a line that matches `document_start_pattern` starts
one. Documents depend on the file only: a plain file is read once for planning, and split between
documents.

A line is a paragraph, so that sentences are not joined. The text is not changed: `did n't` and
``` `` ''``` are tokens of BookCorpus, and the paper's vocabulary was learned from them.

Counters: `rows-in` (lines), `rows-kept`, `rows-dropped-` blank or undecodable; `documents-cut` and
`raw-bytes`; in archives `files-ignored-not-text` and `files-ignored-` unsafe-name, ...
"""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pipelines.counters import Count
from pipelines.io.encodings import decode_text, normalise
from pipelines.io.lines import (
    COMPRESSED_SUFFIXES,
    Line,
    is_compressed,
    read_lines,
    stream_lines,
)
from pipelines.io.raw_files import describe_files, expand_paths
from pipelines.io.splits import RawDocument, RecordTracker, SourceFile, Split, split_bytes
from pipelines.sources.archives import ARCHIVE_SUFFIXES, is_archive, read_members
from schemas.corpus_configs import BookCorpusSource
from schemas.errors import ConfigError

_SUFFIXES = (".txt", *(f".txt{end}" for end in COMPRESSED_SUFFIXES), *ARCHIVE_SUFFIXES)
_MAX_RAW_LINES = 100
_MAX_MEMBER_BYTES = 1 << 40  # members are read line by line


def plan(config: BookCorpusSource) -> list[Split]:
    """Return splits of plain files, and one split per compressed file or member.

    Raises:
        ConfigError: `document_start_pattern` is not a regular expression.
        MissingInputError: A path has no .txt file and no archive.
        CorruptInputError: An archive is truncated or damaged.
    """
    start_of_document(config)
    splits: list[Split] = []
    files = describe_files(expand_paths(config.paths, suffixes=_SUFFIXES))
    target = split_bytes(config.target_split_bytes, files)
    archives = {file: _members_of(file) for file in files if is_archive(file.name)}
    times = collections.Counter(name for members in archives.values() for _, name in members)
    for file in files:
        if file in archives:
            splits.extend(_split_for_each(file, archives[file], times, config))
        elif file.size and is_compressed(file):
            splits.append(Split(config.name, file, 0, file.size, _detail(compressed=True)))
        else:
            splits.extend(_plan_plain(file, config, target_split_bytes=target))
    return splits


def read(
    split: Split, config: BookCorpusSource, count: Count, reading: RecordTracker | None = None
) -> Iterator[RawDocument]:
    """Yield the documents of one split in order.

    Raises:
        CorruptInputError: A compressed file or archive is truncated or damaged.
    """
    reading = reading or RecordTracker()
    count = reading.counting(count)
    for found in reading.records(_found(split, config, count), file=split.file):
        if not reading.is_new:
            continue
        paragraphs = list(_paragraphs(found.lines, count, name=found.name))
        if paragraphs:
            count("documents-cut")
            first, last = found.lines[0].start, found.lines[-1].end
            identifier = f"{config.name}:{found.name}:{first}"
            lines = (line.data.decode("utf-8", "replace") for line in found.lines[:_MAX_RAW_LINES])
            place = found.stored or (first, last)
            yield RawDocument(identifier, "", paragraphs, *place, raw="\n".join(lines))


def start_of_document(config: BookCorpusSource) -> re.Pattern[str] | None:
    """Return the compiled `document_start_pattern`, or None.

    Raises:
        ConfigError: It is not a regular expression.
    """
    if config.document_start_pattern is None:
        return None
    try:
        return re.compile(config.document_start_pattern)
    except re.error as error:
        raise ConfigError(
            f"document_start_pattern of the source {config.name!r} is no regular expression: "
            f"{error}, in {config.document_start_pattern!r}"
        ) from error


def _detail(**values: bool | str) -> str:
    return json.dumps(values, sort_keys=True)


def _grouped(lines: Iterator[Line], config: BookCorpusSource) -> Iterator[tuple[bool, Line]]:
    """Yield the lines that are not blank, and whether each begins a document."""
    starts = start_of_document(config)
    number = 0
    for line in lines:
        if not line.data.strip():
            continue
        first = number == 0 or number == config.lines_per_document
        if not first and starts is not None:
            first = starts.search(line.data.decode("utf-8", "replace")) is not None
        number = 1 if first else number + 1
        yield first, line


def _plan_plain(
    file: SourceFile, config: BookCorpusSource, *, target_split_bytes: int
) -> Iterator[Split]:
    start = 0
    for first, line in _grouped(read_lines(file), config):
        if first and line.start - start >= target_split_bytes:
            yield Split(config.name, file, start, line.start, _detail())
            start = line.start
    if start < file.size or not file.size:
        yield Split(config.name, file, start, file.size, _detail())


def _members_of(file: SourceFile) -> list[tuple[int, str]]:
    """Return position and name of each member."""
    return [
        (member.position, member.name)
        for member, _ in read_members(file, max_bytes=_MAX_MEMBER_BYTES)
    ]


def _split_for_each(
    file: SourceFile,
    members: Sequence[tuple[int, str]],
    times: Mapping[str, int],
    config: BookCorpusSource,
) -> Iterator[Split]:
    if not members:
        yield Split(config.name, file, 0, 0, _detail(archive=True))
    # The last one ends after every position.
    ends = [position for position, _ in members[1:]] + [members[-1][0] + 1] if members else []
    for (start, name), end in zip(members, ends, strict=True):
        # Ids contain the name of the member, and its position if several have the name.
        named = {"name": f"{file.name}@{start}/{name}"} if times[name] > 1 else {}
        alone = {"all": True} if len(members) == 1 else {}
        yield Split(config.name, file, start, end, _detail(archive=True, **named, **alone))


class _Found(NamedTuple):
    """The lines of a document of the file or member `name`, and its stored position if known."""

    lines: list[Line]
    name: str
    stored: tuple[int, int] | None


def _found(split: Split, config: BookCorpusSource, count: Count) -> Iterator[_Found]:
    detail = json.loads(split.detail)
    if detail.get("archive"):
        yield from _found_in_archive(split, config, count)
        return
    compressed = bool(detail.get("compressed"))
    lines = read_lines(split.file, start=split.start, end=None if compressed else split.end)
    stored = (0, split.file.size) if compressed else None
    for document in _joined(_grouped(_counted(lines, count), config)):
        yield _Found(document, split.file.name, stored)


def _found_in_archive(split: Split, config: BookCorpusSource, count: Count) -> Iterator[_Found]:
    detail = json.loads(split.detail)
    part = {} if "all" in detail else {"start": split.start, "end": split.end}
    for member, stream in read_members(split.file, max_bytes=_MAX_MEMBER_BYTES, **part):
        if member.is_folder:
            continue
        if member.problem or stream is None or not member.name.lower().endswith(".txt"):
            example = f"{member.name!r} of {split.file.name}" if member.problem else ""
            count(f"files-ignored-{member.problem or 'not-text'}", example=example)
            continue
        lines = stream_lines(stream, where=f"{split.file.uri}: {member.name}")
        name, stored = detail.get("name", member.name), (member.data_start, member.data_end)
        for document in _joined(_grouped(_counted(lines, count), config)):
            yield _Found(document, name, stored)


def _joined(lines: Iterator[tuple[bool, Line]]) -> Iterator[list[Line]]:
    document: list[Line] = []
    for is_first, line in lines:
        if is_first and document:
            yield document
            document = []
        document.append(line)
    if document:
        yield document


def _counted(lines: Iterator[Line], count: Count) -> Iterator[Line]:
    for line in lines:
        count("rows-in")
        count("raw-bytes", line.end - line.start)
        if not line.data.strip():
            count("rows-dropped-blank")
        yield line


def _paragraphs(lines: list[Line], count: Count, *, name: str) -> Iterator[str]:
    for line in lines:
        text = _decoded(line.data)
        if text is None:
            count("rows-dropped-undecodable", example=f"{name}, byte {line.start:,} of its text")
            continue
        paragraph = " ".join(normalise(text).split())
        count("rows-kept" if paragraph else "rows-dropped-blank")
        if paragraph:
            yield paragraph


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        decoded = decode_text(data)
        return None if decoded is None else decoded.text
