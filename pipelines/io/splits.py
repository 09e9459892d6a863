"""What a source of documents is: it plans splits, and reads the documents of one split.

A source is a module with two functions, listed in `pipelines.sources.SOURCES` under its `kind`:

* `plan(config) -> list[Split]` runs once, on the launching machine;
* `read(split, config, count, reading) -> Iterator[RawDocument]` runs on a worker, for one split.

`read` counts every record of the raw input (`pages-in`, `books-in`, `rows-in`), every one it drops
(`pages-dropped-redirect`, ...) and every one it yields (`pages-kept`). See `pipelines.counters`.
By `reading` it goes on where another worker was stopped (`RecordTracker`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple, Protocol, TypeVar

from pipelines.counters import Count, Example
from schemas.errors import CorruptInputError

_Record = TypeVar("_Record")


class SourceFile(NamedTuple):
    """One raw file."""

    uri: str
    """Where it is: an absolute path or an fsspec URL."""

    name: str
    """Its name within the source: relative to the folder given, or its base name."""

    size: int
    """Bytes, as stored."""

    sha256: str
    """Hex digest of the bytes, as stored."""

    checksum: str = ""
    """The published checksum it was verified against, `sha1:...` or `md5:...`; "" if none."""

    believed: str = ""
    """The list whose word was taken for `sha256`, as the recipe allows; "" where it was read."""


class GroupedFile(NamedTuple):
    """One file of a group that is read as one split; as JSON in `Split.detail`."""

    uri: str
    name: str
    size: int
    sha256: str


def group_files(files: Sequence[SourceFile]) -> SourceFile:
    """Files as one: its digest is that of their names, sizes and digests."""
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


_MIN_SPLITS = 64
_MIN_SPLIT_BYTES = 1 << 20
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
    size = _MIN_SPLIT_BYTES
    while size < MAX_SPLIT_BYTES and total >= 2 * size * _MIN_SPLITS:
        size *= 2
    return size


class Split(NamedTuple):
    """A planned piece of input, small enough to send to any worker."""

    source: str
    """Name of the source in the recipe."""

    file: SourceFile

    start: int
    """Where it starts: a byte offset as stored, or a member or row number, as the source says."""

    end: int
    """Where it ends (exclusive)."""

    detail: str = ""
    """JSON of what else the source's `read` needs."""


class RawDocument(NamedTuple):
    """A cleaned text, not yet split into sentences."""

    document_id: str
    title: str
    paragraphs: list[str]
    """Cleaned text, one string a paragraph, no line breaks inside, in order."""

    byte_start: int
    """Where in the raw file, as stored, the stream or member lies that it was read from."""

    byte_end: int
    page_id: int | None = None
    revision_id: int | None = None
    timestamp: str | None = None
    file: str = ""
    """Digest of the raw file, where it is another than that of the split."""

    raw: str = ""
    """Text of the source, from which the report shows an excerpt."""

    site: str = ""
    """`https://HOST` of the wiki; "" where it is not known."""


class RecordTracker:
    """Which record of a split is being read, and up to which an earlier worker came.

    What is compressed as one stream can be read from its start alone, and is whole only if its
    checksum at the end is right. So a reader that goes on reads those records once more, but
    counts nothing of them, and neither cleans them nor gives them on.
    """

    def __init__(
        self, *, done: int = 0, names: Mapping[str, int] | None = None, has_ended: bool = False
    ) -> None:
        """At the start of a split, with the `state` that another left."""
        self.number = 0
        """Of the record that was read last, from 1."""

        self.names = Counter(names)
        """What the reader counts by name, and gives on at the end of the split alone."""

        self.has_ended = has_ended
        """Whether nothing more is to be read or counted, what comes behind all records included."""

        self._done = done
        self._counts = not done

    def state(self) -> dict[str, Any]:
        """Plain values, by which another goes on."""
        return {"done": self.number, "names": dict(self.names), "has_ended": self.has_ended}

    @property
    def is_new(self) -> bool:
        """Whether no worker came to this record before."""
        return self.number > self._done

    def counting(self, count: Count) -> Count:
        """Counts what no worker before has counted."""

        def counted(name: str, amount: int = 1, /, *, example: Example | str = "") -> None:
            if self._counts:
                count(name, amount, example=example)

        return counted

    def records(self, found: Iterable[_Record], *, file: SourceFile) -> Iterator[_Record]:
        """All records of a split, `number` being that of each.

        Raises:
            CorruptInputError: there are fewer than an earlier worker has read.
        """
        for record in found:
            self.number += 1
            yield record
            # From here on, also what stands before the next record is read for the first time.
            self._counts = self.number >= self._done
        if self.number < self._done:
            raise CorruptInputError(
                f"{file.uri}: an earlier worker read {self._done:,} records of it, this one finds "
                f"{self.number:,}. The file was changed meanwhile: run the recipe again",
                file=file.uri,
                offset=file.size,
            )


class Source(Protocol):
    """A module of `pipelines.sources`."""

    def plan(self, config: Any) -> list[Split]: ...

    def read(
        self, split: Split, config: Any, count: Count, reading: RecordTracker | None = None
    ) -> Iterator[RawDocument]: ...
