"""Writes small documents artifacts without the sources that they would come from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from support.corpus_builder import as_input

from pipelines.io.shards import ShardWriter
from schemas.arrow import DOCUMENTS
from schemas.manifest import StageInput, StageOutput

_BATCH_ROWS = 50


class Written(NamedTuple):
    """A document. Its title is its name."""

    name: str
    text: str
    """Sentences, one per line."""

    timestamp: str | None = None


def write_documents(documents: Sequence[Written], folder: Path, *, shards: int = 1) -> StageInput:
    """Write an artifact of these documents, dealt to shards."""
    entries = []
    for number in range(shards):
        rows = [
            {
                **dict.fromkeys(DOCUMENTS.names, ""),
                "document_id": document.name,
                "title": document.name,
                "sentences": document.text.split("\n"),
                "digest": hashlib.blake2b(document.text.encode(), digest_size=16).digest(),
                "byte_start": 0,
                "byte_end": 0,
                "page_id": None,
                "revision_id": None,
                "timestamp": document.timestamp,
            }
            for document in documents[number::shards]
        ]
        path = f"part-{number:05d}-000.arrow"
        with ShardWriter(path, schema=DOCUMENTS, output=str(folder), compression="zstd") as shard:
            for start in range(0, len(rows), _BATCH_ROWS):
                batch = pa.RecordBatch.from_pylist(
                    rows[start : start + _BATCH_ROWS], schema=DOCUMENTS
                )
                shard.write(batch)
        entries.append(shard.entry())
    return as_input("documents", StageOutput(files=tuple(entries)), str(folder))
