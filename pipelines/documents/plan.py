"""What `build-documents` is going to read: the splits of every source, and their raw files.

Apart from the job, because a plan is looked at before Beam is imported.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from pipelines.sources import SOURCES, SourceFile, Split, books, text
from schemas.corpus_configs import DocumentsConfig, SourceConfig
from schemas.manifest import RawInput


class DocumentPiece(NamedTuple):
    """A split with its number in the plan."""

    number: int
    split: Split
    weight: int
    """About how many bytes of text or XML it has."""

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.split.file.uri} ({self.split.start:,} to {self.split.end:,})"


def plan(config: DocumentsConfig) -> list[DocumentPiece]:
    """The splits of every source, in an order that no list of paths can change."""
    kinds = {source.name: source.kind for source in config.sources}
    splits = [split for source in config.sources for split in SOURCES[source.kind].plan(source)]
    splits.sort(key=lambda s: (s.source, s.file.sha256, s.file.name, s.start, s.end, s.detail))
    return [
        DocumentPiece(number, split, _weight(split, kinds[split.source]))
        for number, split in enumerate(splits)
    ]


# A dump is cut by its bytes as stored, books and text by those of their text.
_XML_BYTES_A_STORED_BYTE = {".bz2": 5, ".gz": 3, ".zst": 4}


def _weight(split: Split, kind: str) -> int:
    suffix = PurePosixPath(split.file.name).suffix
    factor = _XML_BYTES_A_STORED_BYTE.get(suffix, 1) if kind == "wikipedia" else 1
    return max(1, split.end - split.start) * factor


_BYTES_A_DOCUMENT = {"wikipedia": 4 << 10, "books": 64 << 10}
_BYTES_A_TEXT = 1 << 10


def expected_documents(pieces: list[DocumentPiece], config: DocumentsConfig) -> int:
    """About how many documents the pieces hold, rather too many than too few."""
    kinds = {source.name: source.kind for source in config.sources}
    return sum(
        piece.weight // _BYTES_A_DOCUMENT.get(kinds[piece.split.source], _BYTES_A_TEXT)
        for piece in pieces
    )


def language_of(split: Split, source: SourceConfig) -> str:
    """The language of a split's documents: of the recipe, or else what the dump says of itself."""
    detail = json.loads(split.detail) if split.detail.startswith("{") else {}
    return source.language or str(detail["language"])


def piece_identity(piece: DocumentPiece, kind: str) -> dict[str, Any]:
    """What decides the documents of a split, besides the configuration: no path, no number."""
    split = piece.split
    place: list[Any] = [split.start, split.end, split.detail]
    detail = json.loads(split.detail) if kind == "books" else {}
    if "files" in detail:
        # Loose files are named with their digests. Where they lie, and how many bytes come before
        # them, is nothing to them.
        place = [[list(rest) for _, *rest in detail["files"]], detail["repeated"]]
    elif raw_files(split, kind) != [split.file]:
        place = []  # the group's digest is that of its files' names, sizes and digests
    return {"input": _identity(split.source, split.file, kind), "place": place}


def raw_files(split: Split, kind: str) -> list[SourceFile]:
    """Return the raw files of a split: each file of a group of texts or books."""
    grouped = {"text": text.files_of, "books": books.files_of}
    return (grouped[kind](split) if kind in grouped else []) or [split.file]


def raw_inputs(config: DocumentsConfig) -> tuple[RawInput, ...]:
    """The raw files with their digests: part of the stage's cache key."""
    return raw_inputs_of(plan(config), config)


def raw_inputs_of(pieces: list[DocumentPiece], config: DocumentsConfig) -> tuple[RawInput, ...]:
    """The raw files of planned pieces, in their order."""
    kinds = {source.name: source.kind for source in config.sources}
    files = {
        (piece.split.source, file): None
        for piece in pieces
        for file in raw_files(piece.split, kinds[piece.split.source])
    }
    return tuple(_raw_input(source, file, kinds[source]) for source, file in files)


def _identity(source: str, file: SourceFile, kind: str) -> str:
    # A page's id comes from the dump itself; elsewhere the file's name is part of document ids.
    name = "" if kind == "wikipedia" else file.name
    return f"{source}\t{name}\t{file.sha256}"


def _raw_input(source: str, file: SourceFile, kind: str) -> RawInput:
    return RawInput(
        name=file.name,
        uri=file.uri,
        size_bytes=file.size,
        sha256=file.sha256,
        checksum=file.checksum,
        trusted_checksum_file=file.believed,
        key_digest=_identity(source, file, kind),
    )
