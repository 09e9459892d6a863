"""`build-documents`: raw dumps and books become shards of documents, and a table of duplicates.

One shard for each planned split. Digests and ids (never text) are grouped by Beam to find documents
that say the same or bear the same id.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines.counters import Counters, check_balance
from pipelines.duplicates import (
    DUPLICATES_FILE,
    FindDuplicates,
    digest_blobs,
    write_duplicates,
)
from pipelines.sentences import normalised_text, split_sentences
from pipelines.shard_jobs import WorkReport, add_up, run_shard_job
from pipelines.shards import ShardWriter
from pipelines.sources import SOURCES, RawDocument, SourceFile, Split
from schemas.arrow import DOCUMENTS
from schemas.configs import AnySource, DocumentsConfig, ExecutionConfig
from schemas.errors import InputError
from schemas.manifest import FileEntry, RawInput, StageInput, StageOutput

STAGE_VERSION = 1
LIBRARIES = ("pyarrow", "sentencex", "charset-normalizer")

_BATCH_CHARACTERS = 4 << 20
_WORD = re.compile(r"\w+")


class DocumentPiece(NamedTuple):
    """A split with its place in the plan."""

    number: int
    split: Split
    weight: int
    """About how many bytes of text or XML it comes to."""


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


def raw_inputs(config: DocumentsConfig) -> tuple[RawInput, ...]:
    """The raw files with their digests: part of the stage's cache key."""
    return _raw_inputs(config, plan(config))


def _raw_inputs(config: DocumentsConfig, pieces: list[DocumentPiece]) -> tuple[RawInput, ...]:
    kinds = {source.name: source.kind for source in config.sources}
    files = {(piece.split.source, piece.split.file): None for piece in pieces}
    return tuple(_raw_input(source, file, kinds[source]) for source, file in files)


def _raw_input(source: str, file: SourceFile, kind: str) -> RawInput:
    # A page's id comes from the dump itself; elsewhere the file's name is part of document ids.
    name = "" if kind == "wikipedia" else file.name
    return RawInput(
        name=file.name,
        uri=file.uri,
        size=file.size,
        sha256=file.sha256,
        checksum=file.checksum,
        identity=f"{source}\t{name}\t{file.sha256}",
    )


def document_batches(
    documents: Iterator[dict[str, Any]], *, batch_characters: int = _BATCH_CHARACTERS
) -> Iterator[pa.RecordBatch]:
    """Rows of the documents table as record batches of about `batch_characters` of text."""
    while True:
        rows, characters = [], 0
        for row in documents:
            rows.append(row)
            characters += sum(map(len, row["sentences"]))
            if characters >= batch_characters:
                break
        if not rows:
            return
        columns = [
            pa.array([row[field.name] for row in rows], type=field.type) for field in DOCUMENTS
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=DOCUMENTS)


def document_rows(
    split: Split, source: AnySource, config: DocumentsConfig, counters: Counters
) -> Iterator[dict[str, Any]]:
    """Read, clean, split and measure the documents of one split; count what is dropped."""
    for raw in SOURCES[source.kind].read(split, source, counters.count):
        sentences = split_sentences(
            raw.paragraphs, source.language, max_characters=config.max_sentence_characters
        )
        counters.count("documents-in")
        if len(sentences) < config.min_sentences:
            counters.count("documents-dropped-too-few-sentences")
        elif not _has_words(sentences, config.min_words):
            counters.count("documents-dropped-too-few-words")
        else:
            counters.count("documents-kept")
            counters.count("sentences", len(sentences))
            counters.count("words", sum(len(sentence.split()) for sentence in sentences))
            counters.count("characters", sum(map(len, sentences)))
            yield _row(raw, sentences, split)


def _has_words(sentences: list[str], least: int) -> bool:
    words = itertools.chain.from_iterable(map(_WORD.finditer, sentences))
    return sum(1 for _ in itertools.islice(words, least)) >= least


def _row(raw: RawDocument, sentences: list[str], split: Split) -> dict[str, Any]:
    digest = hashlib.blake2b(normalised_text(sentences).encode(), digest_size=16).digest()
    return {
        "document_id": raw.document_id,
        "source": split.source,
        "title": raw.title,
        "sentences": sentences,
        "digest": digest,
        "file": split.file.sha256,
        "byte_start": raw.byte_start,
        "byte_end": raw.byte_end,
        "page_id": raw.page_id,
        "revision_id": raw.revision_id,
        "timestamp": raw.timestamp,
    }


@dataclass
class BuildDocumentShard:
    """The work on one split."""

    config: DocumentsConfig
    output: str

    def setup(self) -> None:
        """Nothing to open."""

    def process(self, piece: DocumentPiece) -> WorkReport:
        split = piece.split
        source = next(item for item in self.config.sources if item.name == split.source)
        counters = Counters()
        report = WorkReport(piece.number)
        batches = document_batches(document_rows(split, source, self.config, counters))
        for number in itertools.count():
            # An input without any document still makes one (empty) shard.
            if not self._write_shard(batches, report, number):
                break
        by_source = {f"{name}@{split.source}": amount for name, amount in counters.items()}
        counters.update(by_source)
        report.counters = counters
        return report

    def _write_shard(
        self, batches: Iterator[pa.RecordBatch], report: WorkReport, number: int
    ) -> bool:
        """Write the next shard of a split; False when the batches are used up."""
        path = f"part-{report.index:05d}-{number:03d}.arrow"
        ids: list[str] = []
        digests: list[bytes] = []
        text_bytes, more = 0, False
        with ShardWriter(path, schema=DOCUMENTS, output=self.output, compression="zstd") as shard:
            for batch in batches:
                shard.write(batch)
                ids.extend(batch.column("document_id").to_pylist())
                digests.extend(batch.column("digest").to_pylist())
                text_bytes += batch.column("sentences").flatten().nbytes
                if text_bytes >= self.config.shard_bytes:
                    more = True
                    break
        report.files.append(shard.entry())
        report.blobs.extend(digest_blobs(ids, digests, shard=path))
        return more


def build_documents(
    config: DocumentsConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
) -> StageOutput:
    """Build the documents of a corpus.

    Args:
        config: what to read, and what to drop.
        inputs: none; raw files are named by the configuration.
        output: URL of the folder to write to.
        execution: where to run.

    Raises:
        InputError: raw input is missing, damaged (see `on_corrupt`), or not what its checksum says.
        CountError: pages or books in are not those kept and dropped.
    """
    del inputs
    pieces = plan(config)
    if not pieces:
        raise InputError("the sources hold no input at all: every file is empty")
    reports, groups = run_shard_job(
        "build-documents",
        pieces,
        work=BuildDocumentShard(config, output),
        output=output,
        execution=execution,
        grouping=lambda blobs: blobs | FindDuplicates(),
    )
    counters = add_up(reports)
    _check_counts(config, counters)
    shards = [entry for report in reports for entry in report.files]
    duplicates = write_duplicates(groups, output=output, shards=shards)
    counters.update(duplicates.counters)
    return StageOutput(
        files=(*shards, *duplicates.files),
        counters=dict(sorted(counters.items())),
        table="documents",
        notes=(*_damage_notes(config, counters), *_language_notes(config, pieces)),
        raw_inputs=_raw_inputs(config, pieces),
    )


def _check_counts(config: DocumentsConfig, counters: Counters) -> None:
    for source in config.sources:
        of_source = {
            name.removesuffix(f"@{source.name}"): amount
            for name, amount in counters.items()
            if name.endswith(f"@{source.name}")
        }
        for things in ("pages", "books", "rows", "documents"):
            check_balance(of_source, things, where=f"build-documents, source {source.name!r}")


def _damage_notes(config: DocumentsConfig, counters: Counters) -> Iterator[str]:
    for source in config.sources:
        truncated = counters.get(f"files-truncated@{source.name}", 0)
        streams = counters.get(f"streams-dropped-corrupt@{source.name}", 0)
        if truncated or streams:
            yield (
                f"source {source.name!r}: {truncated} truncated files and {streams} damaged "
                "streams; their whole pages were kept (on_corrupt: keep-whole-pages)"
            )


def _language_notes(config: DocumentsConfig, pieces: list[DocumentPiece]) -> Iterator[str]:
    """A dump cleaned by the words of its own language, but split into sentences by another's."""
    said: dict[str, set[str]] = {}
    for piece in pieces:
        detail = json.loads(piece.split.detail) if piece.split.detail.startswith("{") else {}
        said.setdefault(piece.split.source, set()).add(str(detail.get("language") or ""))
    for source in config.sources:
        base = source.language.split("-")[0]
        others = sorted(said.get(source.name, set()) - {"", base, source.language})
        if others:
            yield (
                f"source {source.name!r}: its dumps say they are in {', '.join(others)}, the "
                f"recipe says {source.language}, whose rules split the sentences; set language if "
                "that is wrong"
            )


def document_shards(documents: StageInput) -> list[FileEntry]:
    """The document shards of an artifact in order, without its table of duplicates."""
    return [entry for entry in documents.files if entry.path != DUPLICATES_FILE]
