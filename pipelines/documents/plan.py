"""Plan of `build-documents`: the splits of every source, and their raw files.

This module loads quickly, because `bertloom plan` uses it.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from pipelines.io.splits import files_of_group
from pipelines.sources import SOURCES, SourceFile, Split
from schemas.corpus_configs import DocumentsConfig, SourceConfig
from schemas.manifest import RawInput


class DocumentItem(NamedTuple):
    """A split with its number in the plan."""

    number: int
    split: Split
    weight: int
    """Approximate bytes of text or XML."""

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"{self.split.file.uri} ({self.split.start:,} to {self.split.end:,})"


def plan(config: DocumentsConfig) -> list[DocumentItem]:
    """Return the splits of every source, in an order that does not depend on the order of paths."""
    kinds = {source.name: source.kind for source in config.sources}
    splits = [split for source in config.sources for split in SOURCES[source.kind].plan(source)]
    splits.sort(key=lambda s: (s.source, s.file.sha256, s.file.name, s.start, s.end, s.detail))
    return [
        DocumentItem(number, split, _weight(split, kinds[split.source]))
        for number, split in enumerate(splits)
    ]


# A dump is split by stored bytes, books and text by bytes of text.
_XML_BYTES_PER_STORED_BYTE = {".bz2": 5, ".gz": 3, ".zst": 4, ".7z": 6}


def _weight(split: Split, kind: str) -> int:
    suffix = PurePosixPath(split.file.name).suffix.lower()
    factor = _XML_BYTES_PER_STORED_BYTE.get(suffix, 1) if kind == "wikipedia" else 1
    return max(1, split.end - split.start) * factor


def language_of(split: Split, source: SourceConfig) -> str:
    """Return the language of a split: that of the recipe, or of the dump."""
    return source.language or str(json.loads(split.file.header)["language"])


def item_identity(item: DocumentItem, kind: str) -> dict[str, Any]:
    """Return what decides the documents of a split, except the configuration."""
    split = item.split
    position: list[Any] = [split.start, split.end, split.detail]
    detail = json.loads(split.detail) if kind == "books" else {}
    if "files" in detail:
        # Loose files are identified by name and digest, not by path or offset.
        position = [[list(rest) for _, *rest in detail["files"]], detail["repeated"]]
    elif raw_files(split, kind) != [split.file]:
        position = []  # the digest of the group covers names, sizes and digests of its files
    return {"input": _identity(split.source, split.file, kind), "place": position}


_GROUPED = frozenset({"text", "books"})  # kinds of sources that read groups of small files


def raw_files(split: Split, kind: str) -> list[SourceFile]:
    """Return the raw files of a split: each file of a group of texts or books."""
    return (files_of_group(split) if kind in _GROUPED else []) or [split.file]


def raw_inputs(config: DocumentsConfig) -> tuple[RawInput, ...]:
    """Return the raw files with their digests, which are part of the stage's cache key."""
    return raw_inputs_of(plan(config), config)


def raw_inputs_of(items: list[DocumentItem], config: DocumentsConfig) -> tuple[RawInput, ...]:
    """Return the raw files of planned work items, in their order."""
    kinds = {source.name: source.kind for source in config.sources}
    files = {
        (item.split.source, file): None
        for item in items
        for file in raw_files(item.split, kinds[item.split.source])
    }
    return tuple(_raw_input(source, file, kinds[source]) for source, file in files)


def _identity(source: str, file: SourceFile, kind: str) -> str:
    # The name of a file is part of document ids, except for dumps, which number their pages.
    name = "" if kind == "wikipedia" else file.name
    return f"{source}\t{name}\t{file.sha256}"


def _raw_input(source: str, file: SourceFile, kind: str) -> RawInput:
    return RawInput(
        name=file.name,
        uri=file.uri,
        size_bytes=file.size,
        sha256=file.sha256,
        checksum=file.checksum,
        key_digest=_identity(source, file, kind),
    )
