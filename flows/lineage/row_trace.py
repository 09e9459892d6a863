"""Rows of shards back to their page or book, and to its bytes in the raw file.

A segment of an instance is from a row of a token shard, which names its document. The document is a
row of the document shard with the same number, which names the raw file by its sha256.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from flows.formatting import align_columns
from flows.lineage.raw_source import RawText, find_member, find_raw_file, read_raw, web_urls
from flows.lineage.shards import Shard, at_row, read_row, rows_with, table_name
from flows.lineage.text_formats import one_line
from flows.store.artifact import StoredArtifact
from pipelines.documents.duplicates import DUPLICATES_FILE, SAME_ID
from pipelines.instances import LABELS
from pipelines.instances.plan import pool_numbers
from schemas.errors import ArtifactCorruptError, ConfigError
from schemas.manifest import FileEntry, RawInput

TokenIds = npt.NDArray[np.int64]

_DOCUMENT_COLUMNS = (
    *("document_id", "source", "title", "byte_start", "byte_end"),
    *("page_id", "revision_id", "timestamp"),
)
_MAX_SENTENCES = 12


@dataclass(frozen=True, kw_only=True)
class ShardRow:
    """Row of a shard; `shard` is a logical name and `row` a number from 0."""

    artifact_id: str
    shard: str
    row: int

    def __str__(self) -> str:
        return f"{self.artifact_id} {self.shard} row {self.row:,}"


@dataclass(frozen=True, kw_only=True)
class DocumentTrace:
    """Document and its source.

    Attributes:
        source: Name of the source in the recipe.
        raw_file: Raw file; None if the manifest does not list it.
        member: Name of a book in the archive `raw_file`, see `raw_source.find_member`; "" for other
            documents.
        byte_start, byte_end: Position of the document's stream or member in the file as stored.
        page_id: Number of the MediaWiki page; None for other sources.
        document, tokens: Its rows. `tokens` is None if the trace started at the document.
        sentences: First and last sentence of the segment in the document, from 0. None if they are
            ambiguous: the same tokens are at several positions, or some sentences have no tokens.
        text: Sentences of the segment, or the first 12 sentences of the document.
        page_url, revision_url: URLs of a wiki page, "" if unknown.
        raw: Raw text, if requested.
    """

    document_id: str
    source: str
    title: str
    raw_file: RawInput | None
    file_sha256: str
    member: str
    byte_start: int
    byte_end: int
    page_id: int | None
    revision_id: int | None
    timestamp: str | None
    document: ShardRow
    tokens: ShardRow | None = None
    sentences: tuple[int, int] | None = None
    text: tuple[str, ...] = ()
    page_url: str = ""
    revision_url: str = ""
    raw: RawText | None = None

    def _bytes(self) -> str:
        """Return the position in the file; "" for a member without one."""
        archive = self.raw_file if self.member else None
        if archive and (self.byte_start, self.byte_end) == (0, archive.size_bytes):
            return ""
        return f"{self.byte_start:,} to {self.byte_end:,} of the file as stored"

    def lines(self) -> list[str]:
        """Return the source of the document as aligned lines of text."""
        file, page = self.raw_file, f"{self.page_id}, revision {self.revision_id}, {self.timestamp}"
        rows = {
            "document": self.document_id,
            "title": self.title,
            "source": self.source,
            "page": page if self.page_id is not None else "",
            "url": self.page_url,
            "revision": self.revision_url,
            "file": file.uri if file else "not listed by the manifest",
            "member": self.member or (self.raw.member if self.raw else ""),
            "sha256": f"{self.file_sha256}{' (whole archive)' if self.member else ''}",
            "verified": file.checksum.replace(":", " ", 1) if file else "",
            "bytes": self._bytes(),
            "sentences": " to ".join(
                f"{number:,}" for number in dict.fromkeys(self.sentences or ())
            ),
            "in tokens": str(self.tokens or ""),
            "in documents": str(self.document),
        }
        lines = align_columns((name, one_line(value)) for name, value in rows.items() if value)
        if self.text:
            lines += ["text", *(f"  {one_line(sentence)}" for sentence in self.text)]
        if self.raw is not None:
            raw_lines = (self.raw.text or self.raw.problem).splitlines()
            lines += ["raw text", *(f"  {line}" for line in raw_lines)]
        return lines


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Row and its documents.

    Attributes:
        table: `instances`, `tokens` or `documents`.
        location: The row.
        label: Next-sentence label of an instance: 0 B follows A, 1 B is random, -1 no B.
        segments: Documents of the segments `a` and `b` of an instance, or the `document`.
    """

    table: str
    location: ShardRow
    label: int | None
    segments: dict[str, DocumentTrace]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        values = asdict(self)
        for name, segment in self.segments.items():
            if segment.raw_file:
                values["segments"][name]["raw_file"] = segment.raw_file.model_dump(mode="json")
        return values

    def lines(self) -> list[str]:
        """Return the row and the source of each segment, as `bertloom trace` prints them."""
        row = self.location
        label = f", {LABELS.get(self.label, self.label)}" if self.label is not None else ""
        lines = [f"{row.shard} row {row.row:,} of {self.table} {row.artifact_id}{label}"]
        for name, segment in self.segments.items():
            title = f"segment {name.upper()}" if name in ("a", "b") else name
            lines += ["", title, *(f"  {line}" for line in segment.lines())]
        return lines


def trace_row(
    shard: Shard, row: int, *, raw: bool = False, max_raw_bytes: float = math.inf
) -> Trace:
    """Return the documents that a row was built from.

    Args:
        shard: Shard of instances, tokens or documents in an artifact.
        row: Row number from 0. If the user named only the artifact, rows are counted across its
            shards.
        raw: Read the raw text too. `RawText.problem` is the reason if it cannot be read.
        max_raw_bytes: Maximum number of bytes of a raw file to read for this.

    Raises:
        ArtifactNotFoundError: There is no such row, or an upstream artifact is missing.
        ConfigError: The file is in no artifact, or has another table.
        ArtifactCorruptError: The artifacts do not match each other.
    """
    shard, row = at_row(shard, row)
    artifact = shard.artifact
    if artifact is None:
        raise ConfigError(
            f"{shard.url}: expected a file of an artifact, which has lineage. Name it as "
            "ARTIFACT:PART:ROW or by its path in the store"
        )
    table = table_name(shard.table()) if shard.path.endswith(".arrow") else ""
    entry, max_bytes = artifact.entry(shard.path), max_raw_bytes if raw else None
    location = ShardRow(artifact_id=artifact.manifest.artifact_id, shard=shard.path, row=row)
    if table == "instances":
        label, segments = _trace_instance(artifact, entry, row, max_bytes=max_bytes)
        return Trace(table=table, location=location, label=label, segments=segments)
    if table not in ("tokens", "documents"):
        raise ConfigError(
            f"{shard.path}: expected a shard of instances, tokens or documents, got "
            f"{f'the table {table!r}' if table else 'another type of file'}"
        )
    trace = _trace_tokens if table == "tokens" else _trace_document
    segments = {"document": trace(artifact, entry, row, max_bytes=max_bytes)}
    return Trace(table=table, location=location, label=None, segments=segments)


def _trace_instance(
    instances: StoredArtifact, entry: FileEntry, row: int, *, max_bytes: float | None
) -> tuple[int, dict[str, DocumentTrace]]:
    instance = read_row(instances.table([entry.path]), row)
    tokens, ids = _input(instances, "tokens"), segment_ids(instance)
    label = int(instance["next_sentence_label"])
    rows = {"a": (int(entry.statistics["token_shard"]), int(instance["document_row"]))}
    if label >= 0:
        number = pool_numbers(entry)[instance["segment_b_shard"]]
        rows["b"] = number, int(instance["segment_b_row"])
    segments = {
        name: _trace_tokens(
            tokens,
            tokens.manifest.shards[number],
            token_row,
            segment=ids[name],
            max_bytes=max_bytes,
        )
        for name, (number, token_row) in rows.items()
    }
    return label, segments


def _trace_tokens(
    tokens: StoredArtifact,
    entry: FileEntry,
    row: int,
    *,
    max_bytes: float | None,
    segment: TokenIds | None = None,
) -> DocumentTrace:
    """Trace the document of a row of tokens, or one segment of it."""
    table, documents = tokens.table([entry.path]), _input(tokens, "documents")
    tokens_row = read_row(table, row)
    document_id = tokens_row["document_id"]
    shard = documents.manifest.shards[tokens.manifest.shards.index(entry)]
    # Documents with equal ids are in the same order in both shards.
    position = rows_with(table, "document_id", document_id).index(row)
    document_row = _rows_in_use(documents, shard, document_id)[position]
    trace = _trace_document(documents, shard, document_row, max_bytes=max_bytes)
    location = ShardRow(artifact_id=tokens.manifest.artifact_id, shard=entry.path, row=row)
    if segment is None:
        return replace(trace, tokens=location)
    text = read_row(documents.table([shard.path]), document_row)["sentences"]
    sentences = find_sentences(segment, tokens_row, num_sentences=len(text))
    text = text[sentences[0] : sentences[1] + 1] if sentences is not None else ()
    return replace(trace, tokens=location, sentences=sentences, text=tuple(text))


def _trace_document(
    documents: StoredArtifact, entry: FileEntry, row: int, *, max_bytes: float | None
) -> DocumentTrace:
    document = read_row(documents.table([entry.path]), row)
    file = find_raw_file(documents.manifest, document)
    page_url, revision_url = web_urls(file, document)
    limit = math.inf if max_bytes is None else max_bytes
    member = find_member(documents.manifest, file, document, max_bytes=limit)
    raw_text = None
    if max_bytes is not None:
        raw_text = read_raw(documents.manifest, file, document, max_bytes=limit)
    if member and raw_text is not None:
        member = raw_text.member or member
    return DocumentTrace(
        **{name: document[name] for name in _DOCUMENT_COLUMNS},
        raw_file=file,
        file_sha256=document["file"],
        member=member,
        document=ShardRow(artifact_id=documents.manifest.artifact_id, shard=entry.path, row=row),
        text=tuple(document["sentences"][:_MAX_SENTENCES]),
        page_url=page_url,
        revision_url=revision_url,
        raw=raw_text,
    )


def _rows_in_use(documents: StoredArtifact, shard: FileEntry, document_id: str) -> list[int]:
    """Return the rows of the documents with an id, without dropped duplicates."""
    rows = rows_with(documents.table([shard.path]), "document_id", document_id)
    if len(rows) < 2:
        return rows
    in_shard = (pc.field("shard") == shard.path) & (pc.field("reason") == SAME_ID)
    duplicates = documents.table([DUPLICATES_FILE]).to_table(columns=["row"], filter=in_shard)
    dropped = duplicates.column("row").to_pylist()
    return [row for row in rows if row not in dropped]


def _input(artifact: StoredArtifact, name: str) -> StoredArtifact:
    if (upstream := artifact.input(name)) is None:
        raise ArtifactCorruptError(f"{artifact}: expected the input {name}, got none")
    return upstream


def segment_ids(row: Mapping[str, Any]) -> dict[str, TokenIds]:
    """Return the token ids of the segments `a` and `b` of an instances row before masking."""
    ids = np.array(row["input_ids"], np.int64)
    ids[np.array(row["masked_lm_positions"], np.int64)] = row["masked_lm_ids"]
    border = row["segment_b_start"]
    return {"a": ids[1 : border - 1], "b": ids[border:-1]}


def find_sentences(
    segment: TokenIds, tokens: Mapping[str, Any], *, num_sentences: int
) -> tuple[int, int] | None:
    """Return the first and last sentence of a segment, None if they are ambiguous.

    Args:
        segment: Token ids before masking.
        tokens: Row of the tokens table that contains the segment.
        num_sentences: Number of sentences in the document.
    """
    lengths = tokens["sentence_lengths"]
    ids = np.array(tokens["token_ids"], np.int64)
    if not len(segment) or len(lengths) != num_sentences or len(segment) > len(ids):
        return None
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(segment))
    starts = np.flatnonzero(windows[:, 0] == segment[0])
    starts = starts[(windows[starts] == segment).all(axis=1)]
    if len(starts) != 1:
        return None
    edges = [starts[0], starts[0] + len(segment) - 1]
    first, last = np.searchsorted(np.cumsum(lengths), edges, side="right").tolist()
    return first, last
