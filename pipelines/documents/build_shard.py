"""Build shards of documents from a split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipelines.counters import (
    DROPPED_TEMPLATE,
    UNKNOWN_TEMPLATE,
    Count,
    Counters,
)
from pipelines.documents.duplicates import (
    BUCKETS,
    KEY_COLUMNS,
    duplicate_key_blobs,
)
from pipelines.documents.plan import (
    DocumentItem,
    item_identity,
    language_of,
)
from pipelines.documents.records import Document, record_batch, split_text
from pipelines.documents.statistics import SplitStats
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.shard_job.item_cache import CacheableShardFn
from pipelines.shard_job.work import Blob, WorkResult
from pipelines.sources import SOURCES, RawText, Split
from schemas.arrow import DOCUMENTS
from schemas.corpus_configs import AnySource, DocumentsConfig
from schemas.manifest import FileEntry

_BATCH_CHARACTERS = 4 << 20


def read_texts(split: Split, source: AnySource, count: Count) -> Iterator[tuple[str, RawText]]:
    """Read and clean the texts of a split, and yield them with their ids."""
    language = language_of(split, source)
    for document_id, text in SOURCES[source.kind].read(split, source, count):
        file = text.file or split.file.sha256
        yield document_id, text._replace(language=language, source=split.source, file=file)


def read_documents(
    split: Split,
    source: AnySource,
    config: DocumentsConfig,
    counters: Counters,
) -> Iterator[tuple[str, Document]]:
    """Yield the documents of a split with their ids, and count what is dropped."""
    for document_id, text in read_texts(split, source, counters.count):
        document = split_text(text, limits=config, count=counters.count)
        if document is not None:
            yield document_id, document


def document_batches(
    documents: Iterable[tuple[str, Document]],
) -> Iterator[pa.RecordBatch]:
    """Yield documents as record batches of about `_BATCH_CHARACTERS` characters of text."""
    rows, characters = list[tuple[str, Document]](), 0
    for row in documents:
        rows.append(row)
        characters += sum(map(len, row[1].sentences))
        if characters >= _BATCH_CHARACTERS:
            yield record_batch(rows, DOCUMENTS)
            rows, characters = [], 0
    if rows:
        yield record_batch(rows, DOCUMENTS)


@dataclass
class BuildDocumentShard(CacheableShardFn):
    """Builds the shards of one split."""

    config: DocumentsConfig
    output: str
    buckets: int = BUCKETS
    """Number of buckets of duplicate keys."""

    def _source(self, item: DocumentItem) -> AnySource:
        return next(source for source in self.config.sources if source.name == item.split.source)

    def identity(self, item: DocumentItem) -> Any:
        return item_identity(item, self._source(item).kind)

    def rename_files(self, files: Sequence[FileEntry], item: DocumentItem) -> list[FileEntry]:
        return [
            entry.model_copy(update={"path": _shard_path(item.number, number)})
            for number, entry in enumerate(files)
        ]

    def load_blobs(self, files: Sequence[FileEntry]) -> list[Blob]:
        blobs: list[Blob] = []
        for entry in files:
            url = f"{self.output}/{entry.stored_name}"
            with open_shard(url, expected=DOCUMENTS, columns=KEY_COLUMNS) as reader:
                keys = reader.read_all()
            blobs.extend(duplicate_key_blobs(keys, shard=entry.path, buckets=self.buckets))
        return blobs

    def process(self, item: DocumentItem) -> WorkResult:
        split, counters = item.split, Counters()
        report = WorkResult(item.number, counters=counters)
        documents = read_documents(split, self._source(item), self.config, counters)
        batches = document_batches(documents)
        # An input without documents gives one empty shard.
        while self._write_shard(batches, report):
            pass
        templates = _take(counters, UNKNOWN_TEMPLATE) | _take(counters, DROPPED_TEMPLATE)
        stats = SplitStats(locations=counters.locations, templates=templates)
        report.statistics = stats.model_dump(mode="json")
        return report

    def _write_shard(self, batches: Iterator[pa.RecordBatch], report: WorkResult) -> bool:
        """Write the next shard of a split; return False if no batch is left."""
        path = _shard_path(report.index, len(report.files))
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
            report.blobs.extend(duplicate_key_blobs(table, shard=path, buckets=self.buckets))
        return more


def _take(counters: Counters, prefix: str) -> dict[str, int]:
    """Remove the counters whose names have a prefix, and return them."""
    return {name: counters.pop(name) for name in [*counters] if name.startswith(prefix)}


def _shard_path(item_number: int, number: int) -> str:
    return f"part-{item_number:05d}-{number:03d}.arrow"
