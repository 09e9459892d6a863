"""`build-documents`: raw dumps and books become shards of documents, and a table of duplicates.

One shard for each planned split. Digests and ids (never text) are grouped by Beam to find documents
that say the same or bear the same id.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipelines.beam.jobs import run_shard_job
from pipelines.beam.reuse import PieceWork
from pipelines.beam.work import Blob, Grouping, WorkReport
from pipelines.counters import Counters, check_balance
from pipelines.documents.duplicates import (
    KEY_COLUMNS,
    digest_blobs,
    report_repeated,
    write_duplicates,
)
from pipelines.documents.notes import JobCounts, document_notes
from pipelines.documents.plan import (
    DocumentPiece,
    language_of,
    piece_identity,
    plan,
    raw_inputs,
    raw_inputs_of,
)
from pipelines.documents.selection import text_digest, wanted_sentences
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.mediawiki.holes import UNKNOWN_TEMPLATE
from pipelines.sources import SOURCES, RawDocument, Split
from pipelines.sources.unpacked_tars import forget_unpacked
from schemas.arrow import DOCUMENTS
from schemas.configs import AnySource, DocumentsConfig, ExecutionConfig
from schemas.errors import InputError
from schemas.manifest import FileEntry, StageInput, StageOutput
from schemas.stage import Stage

_BATCH_CHARACTERS = 4 << 20


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
    language = language_of(split, source)
    for raw in SOURCES[source.kind].read(split, source, counters.count):
        sentences = wanted_sentences(raw.paragraphs, language, limits=config, count=counters.count)
        if sentences:
            yield _row(raw, sentences, split)


def _row(raw: RawDocument, sentences: list[str], split: Split) -> dict[str, Any]:
    return {
        "document_id": raw.document_id,
        "source": split.source,
        "title": raw.title,
        "sentences": sentences,
        "digest": text_digest(sentences),
        "file": split.file.sha256,
        "byte_start": raw.byte_start,
        "byte_end": raw.byte_end,
        "page_id": raw.page_id,
        "revision_id": raw.revision_id,
        "timestamp": raw.timestamp,
    }


@dataclass
class BuildDocumentShard(PieceWork):
    """The work on one split."""

    config: DocumentsConfig
    output: str

    def setup(self) -> None:
        """Nothing to open."""

    def _source(self, piece: DocumentPiece) -> AnySource:
        return next(item for item in self.config.sources if item.name == piece.split.source)

    def identity(self, piece: DocumentPiece) -> Any:
        return piece_identity(piece, self._source(piece).kind)

    def rows_counted(self, counters: Mapping[str, int]) -> int:
        return counters["documents-kept"]

    def renamed(self, files: Sequence[FileEntry], piece: DocumentPiece) -> list[FileEntry]:
        return [
            entry.model_copy(update={"path": _shard_path(piece.number, number)})
            for number, entry in enumerate(files)
        ]

    def restored_blobs(self, files: Sequence[FileEntry], stored: bytes) -> list[Blob]:
        del stored
        blobs: list[Blob] = []
        for entry in files:
            url = f"{self.output}/{entry.object}"
            with open_shard(url, expected=DOCUMENTS, columns=KEY_COLUMNS) as reader:
                blobs.extend(digest_blobs(reader.read_all(), shard=entry.path))
        return blobs

    def process(self, piece: DocumentPiece) -> WorkReport:
        split = piece.split
        source = self._source(piece)
        counters = Counters()
        report = WorkReport(piece.number)
        batches = document_batches(document_rows(split, source, self.config, counters))
        for number in itertools.count():
            # An input without any document still makes one (empty) shard.
            if not self._write_shard(batches, report, number):
                break
        names = {name: n for name, n in counters.items() if name.startswith(UNKNOWN_TEMPLATE)}
        for name in names:
            del counters[name]
        by_source = {f"{name}@{split.source}": amount for name, amount in counters.items()}
        counters.update(by_source)
        report.counters = counters
        report.details = [counters.examples, names]
        return report

    def _write_shard(
        self, batches: Iterator[pa.RecordBatch], report: WorkReport, number: int
    ) -> bool:
        """Write the next shard of a split; False when the batches are used up."""
        path = _shard_path(report.index, number)
        keys: list[pa.RecordBatch] = []
        text_bytes, more = 0, False
        with ShardWriter(path, schema=DOCUMENTS, output=self.output, compression="zstd") as shard:
            for batch in batches:
                shard.write(batch)
                keys.append(batch.select(KEY_COLUMNS))
                text_bytes += batch.column("sentences").flatten().nbytes
                if text_bytes >= self.config.shard_bytes:
                    more = True
                    break
        report.files.append(shard.entry())
        if keys:
            report.blobs.extend(digest_blobs(pa.Table.from_batches(keys), shard=path))
        return more


def _shard_path(piece: int, number: int) -> str:
    return f"part-{piece:05d}-{number:03d}.arrow"


def build_documents(
    config: DocumentsConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
    pieces: str = "",
) -> StageOutput:
    """Build the documents of a corpus from the raw files that the configuration names.

    Raises:
        InputError: raw input is missing, damaged (see `on_corrupt`), not what its checksum says,
            or holds no document at all.
        CountError: pages or books in are not those kept and dropped.
    """
    del inputs
    planned = plan(config)
    try:
        done = run_shard_job(
            "build-documents",
            planned,
            work=BuildDocumentShard(config, output),
            output=output,
            execution=execution,
            pieces=pieces,
            grouping=Grouping(report_repeated),
        )
    finally:
        forget_unpacked({piece.split.file for piece in planned})
    duplicates = write_duplicates(done.groups, output=output, shards=done.files)
    job = JobCounts.of(planned, done.reports, duplicates.rows)
    _check_counts(config, job.counters)
    if not job.counters["documents-kept"]:
        raise InputError(f"no document came out of the sources: {'; '.join(job.yields_of_files())}")
    counters = job.counters | job.unknown_templates()
    return StageOutput(
        files=(*done.files, duplicates.file),
        counters=dict(sorted(counters.items())),
        table="documents",
        notes=tuple(document_notes(config, job)),
        raw_inputs=raw_inputs_of(planned, config),
        reuse=done.reuse,
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


STAGE = Stage(
    name="build-documents",
    module=__name__,
    version=2,
    run=build_documents,
    config=DocumentsConfig,
    holds="documents",
    libraries=("pyarrow", "sentencex", "charset-normalizer"),
    raw_inputs=raw_inputs,
    keeps_pieces=True,
)
