"""The documents of one split of the raw input."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipelines.beam.item_cache import CacheableShardFn, ItemCheckpointer
from pipelines.beam.shard_work import Blob, WorkResult
from pipelines.counters import (
    DROPPED_TEMPLATE,
    STREAM_PART,
    UNKNOWN_TEMPLATE,
    Counters,
    Example,
)
from pipelines.documents.duplicates import (
    BUCKETS,
    KEY_COLUMNS,
    digest_blobs,
)
from pipelines.documents.plan import (
    DocumentPiece,
    language_of,
    piece_identity,
)
from pipelines.documents.samples import SampleSelector, shorten
from pipelines.documents.selection import text_digest, wanted_sentences
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.splits import RecordTracker
from pipelines.mediawiki.pages import page_url
from pipelines.sources import SOURCES, RawDocument, Split
from schemas.arrow import DOCUMENTS
from schemas.corpus_configs import AnySource, DocumentsConfig
from schemas.manifest import FileEntry

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
    split: Split,
    source: AnySource,
    config: DocumentsConfig,
    counters: Counters,
    reading: RecordTracker | None = None,
    samples: SampleSelector | None = None,
) -> Iterator[dict[str, Any]]:
    """Read, clean, split and measure the documents of one split; count what is dropped.

    Where `reading` is given, its `number` is that of the record of the last row, or else it
    `has_ended`. `samples` is offered every document.
    """
    reading = reading or RecordTracker()
    if reading.has_ended:
        return
    language = language_of(split, source)
    for raw in SOURCES[source.kind].read(split, source, counters.count, reading):
        sentences = wanted_sentences(
            raw.paragraphs, language, limits=config, count=counters.count, example=_example(raw)
        )
        if not sentences:
            continue
        row = _row(raw, sentences, split)
        if samples is not None:
            samples.offer(raw, sentences, digest=row["digest"], language=language, split=split)
        yield row
    reading.has_ended = True


def _example(raw: RawDocument) -> Example:
    return Example(
        shorten(raw.title or raw.document_id),
        page_url(raw.site, raw.page_id),
        shorten(raw.paragraphs[0]),
    )


def _row(raw: RawDocument, sentences: list[str], split: Split) -> dict[str, Any]:
    return {
        "document_id": raw.document_id,
        "source": split.source,
        "title": raw.title,
        "sentences": sentences,
        "digest": text_digest(sentences),
        "file": raw.file or split.file.sha256,
        "byte_start": raw.byte_start,
        "byte_end": raw.byte_end,
        "page_id": raw.page_id,
        "revision_id": raw.revision_id,
        "timestamp": raw.timestamp,
    }


@dataclass
class BuildDocumentShard(CacheableShardFn):
    """The work on one split."""

    config: DocumentsConfig
    output: str
    buckets: int = BUCKETS
    """Of keys, for finding duplicates."""

    def setup(self) -> None:
        """Nothing to open."""

    def _source(self, piece: DocumentPiece) -> AnySource:
        return next(item for item in self.config.sources if item.name == piece.split.source)

    def identity(self, piece: DocumentPiece) -> Any:
        return piece_identity(piece, self._source(piece).kind)

    def expected_rows(self, counters: Mapping[str, int]) -> int:
        return counters["documents-kept"]

    def rename_files(self, files: Sequence[FileEntry], piece: DocumentPiece) -> list[FileEntry]:
        return [
            entry.model_copy(update={"path": _shard_path(piece.number, number)})
            for number, entry in enumerate(files)
        ]

    def load_blobs(self, files: Sequence[FileEntry], stored: bytes) -> list[Blob]:
        del stored
        blobs: list[Blob] = []
        for entry in files:
            url = f"{self.output}/{entry.stored_name}"
            with open_shard(url, expected=DOCUMENTS, columns=KEY_COLUMNS) as reader:
                keys = reader.read_all()
            blobs.extend(digest_blobs(keys, shard=entry.path, buckets=self.buckets))
        return blobs

    def process(self, piece: DocumentPiece) -> WorkResult:
        return self.resume(piece, WorkResult(piece.number), None)

    def min_checkpoint_weight(self) -> int:
        return self.config.max_shard_bytes

    def resume(
        self, piece: DocumentPiece, begun: WorkResult, hand_over: ItemCheckpointer | None
    ) -> WorkResult:
        split, report = piece.split, begun
        reading, counters, samples = _progress(begun)
        source = self._source(piece)
        rows = document_rows(split, source, self.config, counters, reading, samples)
        batches = document_batches(rows)
        for number in itertools.count(len(report.files)):
            # An input without any document still makes one (empty) shard.
            if not self._write_shard(batches, report, number):
                break
            if hand_over is not None:
                report.counters = counters
                report.details = [reading.state(), counters.examples, samples.dump()]
                hand_over.save(report)
        prefixes = (UNKNOWN_TEMPLATE, DROPPED_TEMPLATE)
        names = {name: n for name, n in counters.items() if name.startswith(prefixes)}
        parts = [name for name in counters if name.startswith(STREAM_PART)]
        for name in (*names, *parts):
            del counters[name]
        by_source = {f"{name}@{split.source}": amount for name, amount in counters.items()}
        counters.update(by_source)
        report.counters = counters
        streams = [json.loads(name.removeprefix(STREAM_PART)) for name in parts]
        report.details = [counters.examples, names, streams, samples.dump()]
        return report

    def _write_shard(
        self, batches: Iterator[pa.RecordBatch], report: WorkResult, number: int
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
                if text_bytes >= self.config.max_shard_bytes:
                    more = True
                    break
        report.files.append(shard.entry())
        if keys:
            table = pa.Table.from_batches(keys)
            report.blobs.extend(digest_blobs(table, shard=path, buckets=self.buckets))
        return more


def _progress(begun: WorkResult) -> tuple[RecordTracker, Counters, SampleSelector]:
    """Return where to continue a split, with what an earlier worker counted and selected."""
    counters = Counters(begun.counters)
    if not begun.files:
        return RecordTracker(), counters, SampleSelector()
    state, examples, samples = begun.details
    counters.examples = read_examples(examples)
    return RecordTracker(**state), counters, SampleSelector(samples)


def read_examples(details: Mapping[str, Any]) -> dict[str, list[Example]]:
    """Return the examples of counters from their JSON values."""
    return {name: [Example(*example) for example in examples] for name, examples in details.items()}


def _shard_path(piece: int, number: int) -> str:
    return f"part-{piece:05d}-{number:03d}.arrow"
