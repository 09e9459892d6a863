"""What a source of documents is: it plans splits, and reads the documents of one split.

A source is a module with two functions, listed in `pipelines.sources.SOURCES` under its `kind`:

* `plan(config) -> list[Split]` runs once, on the launching machine;
* `read(split, config, count) -> Iterator[RawDocument]` runs on a worker, for one split.

`read` counts every record of the raw input (`pages-in`, `books-in`, `rows-in`), every one it drops
(`pages-dropped-redirect`, ...) and every one it yields (`pages-kept`). See `pipelines.counters`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from pipelines.counters import Count


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


class Source(Protocol):
    """A module of `pipelines.sources`."""

    def plan(self, config: Any) -> list[Split]: ...

    def read(self, split: Split, config: Any, count: Count) -> Iterator[RawDocument]: ...
