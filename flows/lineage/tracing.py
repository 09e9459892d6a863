"""From a row of a shard back to the page or book it was made of, to the byte range in its file.

An instance names a row of a token shard for each segment; that row names its document; the document
is a row of the document shard of the same place, which names the raw file by its sha256.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flows.lineage.head import Shard
from flows.lineage.segments import segment_ids, sentences_of
from flows.lineage.shard_rows import open_columns, read_row, rows_with
from flows.store.artifacts import ArtifactStore
from schemas.arrow import TABLE_KEY
from schemas.errors import ArtifactCorruptError, ConfigError
from schemas.manifest import FileEntry, Manifest, RawInput

_TRACED = ("instances", "tokens", "documents")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A row of an artifact's shard."""

    artifact_id: str
    shard: str
    """Logical name."""

    row: int
    """From 0."""


@dataclass(frozen=True, kw_only=True)
class DocumentTrace:
    """A document and where it came from."""

    document_id: str
    source: str
    """Name of the source in the recipe."""

    title: str
    raw_file: RawInput | None
    """None where the manifest does not list the file, of which the sha256 is known all the same."""

    file_sha256: str
    byte_start: int
    byte_end: int
    """Where in the file, as stored, the document's stream or member lies: start <= byte < end."""

    page_id: int | None
    """Of MediaWiki, like the two after it; None for other sources."""

    revision_id: int | None
    timestamp: str | None
    document: Place
    tokens: Place | None
    """None where the trace began at the document itself."""

    sentences: tuple[int, int] | None = None
    """First and last sentence of the document that tokens of a segment are of, from 0; None where
    that cannot be told: the same tokens stand at several places, or sentences have no token."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What a row was made from."""

    table: str
    """`instances`, `tokens` or `documents`."""

    place: Place
    label: int | None
    """Of an instance: 0 B really follows, 1 B is random, -1 there is no B. Else None."""

    segments: dict[str, DocumentTrace]
    """By `a` and `b` of an instance; of other tables by `document`."""


def trace(shard: Shard, row: int) -> Trace:
    """The documents that a row was made from.

    Args:
        shard: of the table `instances`, `tokens` or `documents`, in an artifact.
        row: of the shard, from 0.

    Raises:
        ArtifactNotFoundError: there is no such row, or an artifact on the way is gone.
        ConfigError: the file is in no artifact, or is no shard of these tables.
        ArtifactCorruptError: the artifacts do not fit each other.
    """
    manifest, store = shard.manifest, shard.store
    if manifest is None or store is None:
        raise ConfigError(
            f"{shard.url}: is in no artifact of a store, and a file alone does not say what it "
            "was made from; name the shard as ARTIFACT:PART:ROW or by its path in the store"
        )
    entry = _entry(manifest, shard.path)
    table = _table_of(shard) if shard.path.endswith(".arrow") else ""
    place = Place(artifact_id=manifest.artifact_id, shard=shard.path, row=row)
    if table == "instances":
        return _trace_instance(manifest, store, entry, place)
    if table == "tokens":
        found = _trace_tokens(manifest, store, shard.path, row)[0]
    elif table == "documents":
        found = _trace_document(manifest, store, entry, row, tokens=None)[0]
    else:
        raise ConfigError(
            f"{shard.path}: expected a shard of {', '.join(_TRACED)}, found "
            f"{f'the table {table!r}' if table else 'another kind of file'}"
        )
    return Trace(table=table, place=place, label=None, segments={"document": found})


def token_shard_of(entry: FileEntry, place: int) -> int:
    """Number of the token shard that a `segment_b_shard` of an instance shard means.

    Args:
        entry: of the instance shard.
        place: in the pool that its random segments were drawn from; 0 is its own token shard.

    Raises:
        ArtifactCorruptError: the pool has no such place.
    """
    if "pool" not in entry.statistics:
        return place  # version 1 of the table has the number itself
    pool = str(entry.statistics["pool"]).split(",")
    if place >= len(pool):
        raise ArtifactCorruptError(
            f"{entry.path}: a segment B is of place {place} of the pool, which has {len(pool)} "
            "token shards; verify the artifact with `bertloom verify`"
        )
    return int(pool[place])


def _trace_instance(
    manifest: Manifest, store: ArtifactStore, entry: FileEntry, place: Place
) -> Trace:
    row = read_row(_url(manifest, store, entry), place.row)
    tokens = _input(manifest, store, "tokens")
    label, places = int(row["next_sentence_label"]), {}
    own = int(entry.statistics["token_shard"])
    places["a"] = (own, int(row["document_row"]))
    if label >= 0:
        other = token_shard_of(entry, int(row["segment_b_shard"]))
        places["b"] = (other, int(row["segment_b_row"]))
    shards = _shards(tokens)
    ids = segment_ids(row)
    segments = {}
    for name, (number, token_row) in places.items():
        if number >= len(shards):
            raise ArtifactCorruptError(
                f"{entry.path} row {place.row}: segment {name.upper()} is of token shard {number}, "
                f"but {tokens.artifact_id} has {len(shards)}"
            )
        segments[name] = _trace_tokens(tokens, store, shards[number], token_row, ids[name])[0]
    return Trace(table="instances", place=place, label=label, segments=segments)


def _trace_tokens(
    tokens: Manifest,
    store: ArtifactStore,
    shard: str,
    row: int,
    segment: npt.NDArray[np.int64] | None = None,
) -> tuple[DocumentTrace, dict[str, Any]]:
    entry = _entry(tokens, shard)
    url = _url(tokens, store, entry)
    found = read_row(url, row)
    documents = _input(tokens, store, "documents")
    place = Place(artifact_id=tokens.artifact_id, shard=shard, row=row)
    document_entry = _document_shard(documents, number=_shards(tokens).index(shard))
    name = found["document_id"]
    rows = [at for at in rows_with(url, "document_id", name) if at < row]
    at = _document_row(documents, store, document_entry, name, earlier=len(rows), tokens=tokens)
    told, document = _trace_document(documents, store, document_entry, at, tokens=place)
    if segment is not None:
        sentences = sentences_of(segment, found, of=len(document["sentences"]))
        told = DocumentTrace(**{**told.__dict__, "sentences": sentences})
    return told, document


def _document_row(
    documents: Manifest,
    store: ArtifactStore,
    entry: FileEntry,
    document_id: str,
    *,
    earlier: int,
    tokens: Manifest,
) -> int:
    """The row of a document; of several of one id, the one after `earlier` that were kept."""
    url = _url(documents, store, entry)
    rows = rows_with(url, "document_id", document_id)
    if len(rows) > 1:
        for table in documents.files:
            if not table.path.startswith("part-"):
                dropped = _dropped_rows(_url(documents, store, table), entry.path)
                rows = [row for row in rows if row not in dropped]
    if earlier >= len(rows):
        raise ArtifactCorruptError(
            f"{url}: has no document {document_id!r}, which {tokens.artifact_id} was made from; "
            "verify both artifacts with `bertloom verify`"
        )
    return rows[earlier]


def _dropped_rows(url: str, shard: str) -> set[int]:
    """The rows that no stage reads, for their ids are repeated."""
    with open_columns(url, columns=["shard", "reason", "row"]) as reader:
        table = reader.read_all()
    same = (
        pc.equal(table.column(name), pa.scalar(value, pa.string()))
        for name, value in (("shard", shard), ("reason", "same-id"))
    )
    mine = table.filter(pc.and_(*same))
    return set(mine.column("row").to_pylist())


def _trace_document(
    documents: Manifest, store: ArtifactStore, entry: FileEntry, row: int, *, tokens: Place | None
) -> tuple[DocumentTrace, dict[str, Any]]:
    found = read_row(_url(documents, store, entry), row)
    raw = [item for item in documents.raw_inputs if item.sha256 == found["file"]]
    told = DocumentTrace(
        document_id=found["document_id"],
        source=found["source"],
        title=found["title"],
        raw_file=raw[0] if raw else None,
        file_sha256=found["file"],
        byte_start=found["byte_start"],
        byte_end=found["byte_end"],
        page_id=found["page_id"],
        revision_id=found["revision_id"],
        timestamp=found["timestamp"],
        document=Place(artifact_id=documents.artifact_id, shard=entry.path, row=row),
        tokens=tokens,
    )
    return told, found


def _table_of(shard: Shard) -> str:
    with open_columns(shard.url) as reader:
        name: bytes = (reader.schema.metadata or {}).get(TABLE_KEY, b"")
    return name.decode()


def _shards(manifest: Manifest) -> list[str]:
    return [entry.path for entry in manifest.files if entry.path.startswith("part-")]


def _document_shard(documents: Manifest, *, number: int) -> FileEntry:
    """That which the token shard of this number was made of: there is one for each, in order."""
    shards = [entry for entry in documents.files if entry.path.startswith("part-")]
    if number >= len(shards):
        raise ArtifactCorruptError(
            f"artifact {documents.artifact_id} ({documents.stage}): expected a document shard for "
            f"token shard {number}, found {len(shards)} shards"
        )
    return shards[number]


def _entry(manifest: Manifest, path: str) -> FileEntry:
    entry = manifest.file(path)
    if entry is None:
        raise ArtifactCorruptError(
            f"artifact {manifest.artifact_id} ({manifest.stage}) has no file {path!r}, which "
            "another was made from"
        )
    return entry


def _url(manifest: Manifest, store: ArtifactStore, entry: FileEntry) -> str:
    return store.url(f"{manifest.data}/{entry.object}")


def _input(manifest: Manifest, store: ArtifactStore, name: str) -> Manifest:
    ref = manifest.input(name)
    if ref is None:
        raise ArtifactCorruptError(f"artifact {manifest.artifact_id}: was made from no {name}")
    return store.read_manifest(ref.manifest)
