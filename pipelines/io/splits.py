"""Interface of a source of documents: plan splits, and read the documents of one split.

A source is a module with two functions, listed in `pipelines.sources.SOURCES` under its `kind`:

* `plan(config) -> list[Split]` runs once, on the submitting machine;
* `read(split, config, count) -> Iterator[tuple[str, RawText]]` runs on a worker for one split and
  yields texts with their ids. `read_texts` in `pipelines.documents.build_shard` sets the fields
  that are equal for a split: `language`, `source`, and `file` if it is empty.

`read` counts the records of the raw input (`pages-in`, `books-in`, `rows-in`), the dropped ones
(`pages-dropped-redirect`, ...) and the ones it yields (`pages-kept`). See `pipelines.counters`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple, Protocol

from pipelines.counters import Count


class SourceFile(NamedTuple):
    """A raw file."""

    uri: str
    """Absolute path or fsspec URL."""

    name: str
    """Name in the source: path relative to the given folder, or base name."""

    size: int
    """Stored size in bytes."""

    sha256: str
    """Hex digest of the stored bytes."""

    checksum: str = ""
    """Verified published checksum, `sha1:...` or `md5:...`, or ""."""

    believed: str = ""
    """Checksum list from which `sha256` was taken (`trust_checksums`), or ""."""

    encoding: str = ""
    """Name of Python's codec of a plain text, found when it was planned. "": unknown, found by the
    worker that reads the whole file. Only plain files in `utf-8` are read in parts."""

    header: str = ""
    """Header of a dump, as JSON (`pipelines.sources.wikipedia`)."""


def group_files(files: Sequence[SourceFile]) -> SourceFile:
    """Return a group as one file. Its digest is that of the names, sizes and digests."""
    first, last = files[0], files[-1]
    if len(files) == 1:
        return first
    digest = hashlib.sha256()
    for file in files:
        line = f"{file.name}\t{file.size}\t{file.sha256}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    is_remote = "://" in first.uri
    return SourceFile(
        uri=first.uri.rpartition("/")[0] if is_remote else str(PurePosixPath(first.uri).parent),
        name=f"{first.name} ... {last.name} ({len(files)} files)",
        size=sum(file.size for file in files),
        sha256=digest.hexdigest(),
    )


_ONE_IN = 512
"""Average number of files after which a name ends a group. An added or removed file therefore does
not move the files behind it to other groups."""


def group_by_size(files: Iterable[SourceFile], *, target_bytes: int) -> Iterator[list[SourceFile]]:
    """Yield groups of files in order. A group ends at `target_bytes`, or after some names."""
    group, size = list[SourceFile](), 0
    for file in files:
        group.append(file)
        size += file.size
        if size >= target_bytes or _ends_group(file.name):
            yield group
            group, size = [], 0
    if group:
        yield group


def _ends_group(name: str) -> bool:
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") % _ONE_IN == 0


_MIN_SPLITS = 64
MIN_SPLIT_BYTES = 1 << 20
MAX_SPLIT_BYTES = 32 << 20


def split_bytes(configured: int | None, files: Iterable[SourceFile]) -> int:
    """Return the target size of the splits of a source in bytes, as stored.

    It depends on the recipe and the input only, so that every runner builds the same shards. It is
    a power of two, so that a corpus that grows a little keeps its splits.

    Args:
        configured: `target_split_bytes` of the recipe.
        files: All files of the source.
    """
    if configured is not None:
        return configured
    total = sum(file.size for file in files)
    size = MIN_SPLIT_BYTES
    while size < MAX_SPLIT_BYTES and total >= 2 * size * _MIN_SPLITS:
        size *= 2
    return size


class Split(NamedTuple):
    """Description of a part of the input, which is sent to a worker."""

    source: str
    """Name of the source in the recipe."""

    file: SourceFile

    start: int
    """Start: offset in the stored file, member or row number, depending on the source."""

    end: int
    """End (exclusive)."""

    detail: str = ""
    """Further arguments for the `read` function of the source, as JSON."""


def split_of_group(
    source: str, files: Sequence[SourceFile], *, start: int = 0, **detail: Any
) -> Split:
    """Return a split that reads a group of files."""
    together = group_files(files)
    text = json.dumps({"files": files, **detail})
    return Split(source, together, start, start + together.size, text)


def files_of_group(split: Split) -> list[SourceFile]:
    """Return the files of a group, or [] for a split of one file or archive."""
    return [SourceFile(*file) for file in json.loads(split.detail or "{}").get("files", ())]


class RawText(NamedTuple):
    """A cleaned text that is not split into sentences yet.

    >>> RawText(["Call me Ishmael. Some years ago."], language="en").title
    ''
    """

    paragraphs: Sequence[str]
    """Paragraphs in order, without line breaks."""

    language: str = "en"
    """ISO 639 code."""

    source: str = ""
    """Name of the source."""

    title: str = ""
    file: str = ""
    """sha256 of the raw file."""

    byte_start: int = 0
    """Byte offset of the stream or member in the raw file, as stored."""

    byte_end: int = 0
    """End of the stream or member (exclusive)."""

    page_id: int | None = None
    """MediaWiki's number of the page."""

    revision_id: int | None = None
    """MediaWiki's number of the revision."""

    timestamp: str | None = None
    """Time of the revision."""


class Source(Protocol):
    """A module of `pipelines.sources`."""

    def plan(self, config: Any) -> list[Split]: ...

    def read(self, split: Split, config: Any, count: Count) -> Iterator[tuple[str, RawText]]: ...
