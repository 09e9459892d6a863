"""The original BookCorpus: one lower-cased, tokenized sentence per line, no marks between books.

Files are plain, .gz, .bz2 or .zst, or members of a .zip or .tar archive (`books_large_p1.txt`).
`lines_per_document` lines are a document, and a line that matches `document_start_pattern` starts
one. Documents depend on the file only. Plain files in UTF-8, and zip and plain tar archives, are
split between documents or members; other files are one split.

A line is a paragraph, so that sentences are not joined. The text is not changed: `did n't` and
``` `` ''``` are tokens of BookCorpus, and the paper's vocabulary was learned from them.

Counters: `rows-in` (lines), `rows-kept`, `rows-dropped-` blank or undecodable; `documents-cut` and
`raw-bytes` (in UTF-8); `files-decoded-as-ENCODING` if it is not UTF-8; in archives
`files-ignored-not-text` and `files-ignored-` encrypted, ...
"""

from __future__ import annotations

import collections
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pipelines.counters import Count
from pipelines.io.encodings import UTF8, decode_utf8, normalise
from pipelines.io.lines import COMPRESSED_SUFFIXES, Line, read_lines, stream_lines
from pipelines.io.raw_files import Observers, expand_paths
from pipelines.io.splits import (
    MIN_SPLIT_BYTES,
    RawDocument,
    RecordTracker,
    SourceFile,
    Split,
    split_bytes,
)
from pipelines.sources.archives import (
    ARCHIVE_SUFFIXES,
    PlannedMember,
    is_archive,
    is_compressed_tar,
    list_members,
    read_members,
    warn_of_one_worker,
)
from pipelines.sources.text_facts import (
    DocumentStarts,
    Encoding,
    describe_texts,
    encoding_fact,
    plan_ranges,
)
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
    step = config.target_split_bytes or MIN_SPLIT_BYTES
    pattern = start_of_document(config)
    starts_fact = f"documents of {config.lines_per_document} or {pattern} at multiples of {step}"

    def observers(name: str) -> Observers:
        if is_archive(name):
            return {}
        return {
            encoding_fact(): lambda: Encoding(name),
            starts_fact: lambda: _GroupsOfLines(step, config),
        }

    described = describe_texts(expand_paths(config.paths, suffixes=_SUFFIXES), observers)
    target = split_bytes(config.target_split_bytes, [file for file, _ in described])
    archives = {file: list_members(file) for file, _ in described if is_archive(file.name)}
    times = collections.Counter(member.name for each in archives.values() for member in each)
    splits: list[Split] = []
    for file, facts in described:
        if file in archives:
            splits.extend(_plan_archive(file, archives[file], times, config))
        else:
            starts = json.loads(facts[starts_fact])
            splits.extend(plan_ranges(config.name, file, starts, step=step, target=target))
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


class _Numbering:
    """Decides which lines begin a document."""

    def __init__(self, config: BookCorpusSource) -> None:
        self._length, self._pattern = config.lines_per_document, start_of_document(config)
        self._number = 0  # of the line in its document

    def begins_document(self, line: bytes) -> bool:
        """Return whether the next line begins a document. Blank lines do not count."""
        if not line.strip():
            return False
        begins = self._number in (0, self._length)
        if not begins and self._pattern is not None:
            begins = self._pattern.search(line.decode("utf-8", "replace")) is not None
        self._number = 1 if begins else self._number + 1
        return begins


class _GroupsOfLines(DocumentStarts):
    def __init__(self, step: int, config: BookCorpusSource) -> None:
        super().__init__(step)
        self._numbering = _Numbering(config)

    def begins_document(self, line: bytes) -> bool:
        return self._numbering.begins_document(line)


def _plan_archive(
    file: SourceFile,
    members: Sequence[PlannedMember],
    times: Mapping[str, int],
    config: BookCorpusSource,
) -> Iterator[Split]:
    """Yield a split for each member, or one for a compressed tar."""
    # Ids contain the name of the member, and its position if several have the name.
    repeated = sorted({member.name for member in members if times[member.name] > 1})
    detail = json.dumps({"repeated": repeated})
    starts = [member.position for member in members]
    if is_compressed_tar(file.name) or len(starts) < 2:
        if len(starts) > 1:
            warn_of_one_worker(file.uri)
        yield Split(config.name, file, 0, file.size, detail)
        return
    for start, end in itertools.pairwise([*starts, starts[-1] + 1]):
        yield Split(config.name, file, start, end, detail)


class _Found(NamedTuple):
    """The lines of a document of the file or member `name`, and its stored position if known."""

    lines: list[Line]
    name: str
    stored: tuple[int, int] | None


def _found(split: Split, config: BookCorpusSource, count: Count) -> Iterator[_Found]:
    file = split.file
    if is_archive(file.name):
        yield from _found_in_archive(split, config, count)
        return
    is_plain = file.encoding == UTF8
    lines = read_lines(
        file,
        start=split.start,
        end=split.end if is_plain else None,
        on_encoding=_encoding_counter(count, file.name),
    )
    stored = None if is_plain else (0, file.size)
    for document in _documents(_counted(lines, count), config):
        yield _Found(document, file.name, stored)


def _found_in_archive(split: Split, config: BookCorpusSource, count: Count) -> Iterator[_Found]:
    file, repeated = split.file, json.loads(split.detail)["repeated"]
    is_whole = (split.start, split.end) == (0, file.size)
    end = None if is_whole else split.end
    for member, stream in read_members(
        file, max_bytes=_MAX_MEMBER_BYTES, start=split.start, end=end
    ):
        if member.is_folder:
            continue
        where = f"{member.name!r} of {file.name}"
        if member.problem or stream is None or not member.name.lower().endswith(".txt"):
            example = where if member.problem else ""
            count(f"files-ignored-{member.problem or 'not-text'}", example=example)
            continue
        is_repeated = member.name in repeated
        name = f"{file.name}@{member.position}/{member.name}" if is_repeated else member.name
        lines = stream_lines(
            stream,
            where=f"{file.uri}: {member.name}",
            on_encoding=_encoding_counter(count, where),
        )
        for document in _documents(_counted(lines, count), config):
            yield _Found(document, name, (member.data_start, member.data_end))


def _encoding_counter(count: Count, where: str) -> Callable[[str], None]:
    return lambda encoding: count(f"files-decoded-as-{encoding}", example=where)


def _documents(lines: Iterable[Line], config: BookCorpusSource) -> Iterator[list[Line]]:
    """Yield the lines of each document, without blank ones."""
    numbering, document = _Numbering(config), list[Line]()
    for line in lines:
        if numbering.begins_document(line.data) and document:
            yield document
            document = []
        if line.data.strip():
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
        text = decode_utf8(line.data)
        if text is None:
            count("rows-dropped-undecodable", example=f"{name}, byte {line.start:,} of its text")
            continue
        paragraph = " ".join(normalise(text).split())
        count("rows-kept" if paragraph else "rows-dropped-blank")
        if paragraph:
            yield paragraph
