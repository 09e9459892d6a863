"""From a row of a shard back to the page or book it was made of, to the byte range in its file.

An instance names a row of a token shard for each segment; that row names its document; the document
is a row of the document shard of the same number, which names the raw file by its sha256.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from flows.formatting import align_columns
from flows.lineage.kept import kept_in_memory
from flows.lineage.raw_source import RawText, read_raw, web_page
from flows.lineage.shards import (
    LABELS,
    Shard,
    at_row,
    open_columns,
    read_row,
    rows_with,
    table_of,
)
from flows.lineage.text_formats import one_line
from flows.store.artifact import Artifact
from pipelines.instances.plan import pool_numbers
from schemas.errors import ArtifactCorruptError, ConfigError
from schemas.manifest import FileEntry, Manifest, RawInput

_TXT = re.compile(r"\.txt(\.gz)?\Z", re.IGNORECASE)
TokenIds = npt.NDArray[np.int64]

_COPIED = (
    *("document_id", "source", "title", "byte_start", "byte_end"),
    *("page_id", "revision_id", "timestamp"),
)
"""Columns of the documents table."""

MOST_SENTENCES = 12
"""That are told of a document where no segment of it is asked for."""

_MOST_RAW = 20_000
"""Characters of a raw text that are printed."""


@dataclass(frozen=True, kw_only=True)
class ShardRow:
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
    """MediaWiki's, like the two after it; None for other sources."""

    revision_id: int | None
    timestamp: str | None
    document: ShardRow
    tokens: ShardRow | None
    """None where the trace began at the document itself."""

    sentences: tuple[int, int] | None = None
    """First and last sentence of the document that tokens of a segment are of, from 0; None where
    that is not known: the same tokens stand at several positions, or sentences have no token."""

    text: tuple[str, ...] = ()
    """Those sentences; of a document that is asked for itself the first `MOST_SENTENCES`."""

    page_url: str = ""
    """Of a wiki's page; "" where it is not known, `revision_url` likewise."""

    revision_url: str = ""
    """The text as it was: a page goes on being edited."""

    raw: RawText | None = None
    """The raw text, where it was asked for."""

    def lines(self) -> list[str]:
        """Where the document came from, as aligned lines of text."""
        raw = self.raw_file
        rows = [("document", self.document_id), ("title", self.title), ("source", self.source)]
        if self.page_id is not None:
            page = f"{self.page_id}, revision {self.revision_id}, {self.timestamp}"
            rows.append(("page", page))
        rows += [
            (name, url)
            for name, url in (("url", self.page_url), ("revision", self.revision_url))
            if url
        ]
        rows.append(("file", raw.uri if raw else "not listed by the manifest"))
        rows.append(("sha256", self.file_sha256))
        if raw is not None and raw.checksum:
            rows.append(("verified", raw.checksum.replace(":", " ", 1)))
        elif raw is not None and raw.believed:
            rows.append(("believed", raw.believed))
        if self.raw is not None and self.raw.member:
            rows.append(("member", self.raw.member))
        rows.append(("bytes", f"{self.byte_start:,} to {self.byte_end:,} of the file as stored"))
        if self.sentences is not None:
            first, last = self.sentences
            rows.append(("sentences", f"{first:,} to {last:,}" if last > first else f"{first:,}"))
        for stage, place in (("tokens", self.tokens), ("documents", self.document)):
            if place is not None:
                rows.append((f"in {stage}", f"{place.artifact_id} {place.shard} row {place.row:,}"))
        lines = align_columns([(name, one_line(value)) for name, value in rows])
        if self.text:
            lines += ["text", *(f"  {one_line(sentence)}" for sentence in self.text)]
        if self.raw is not None:
            lines += ["raw text", *(f"  {line}" for line in _raw_lines(self.raw))]
        return lines


def _raw_lines(raw: RawText) -> list[str]:
    if raw.problem:
        return [raw.problem]
    more = len(raw.text) - _MOST_RAW
    cut = [f"... and {more:,} characters more (--json has them all)"] if more > 0 else []
    return [*raw.text[:_MOST_RAW].splitlines(), *cut]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What a row was made from."""

    table: str
    """`instances`, `tokens` or `documents`."""

    place: ShardRow
    label: int | None
    """0: B really follows; 1: B is random; -1: there is no B; None where the row is no instance."""

    segments: dict[str, DocumentTrace]
    """By `a` and `b` of an instance; of other tables by `document`."""

    def to_json(self) -> dict[str, Any]:
        """As plain values, by the names of the fields."""
        found = asdict(self)
        for name, segment in self.segments.items():
            raw = segment.raw_file
            as_stored = segment.raw._asdict() if segment.raw else None
            found["segments"][name] |= {
                "raw_file": raw.model_dump(mode="json") if raw else None,
                "raw": as_stored,
            }
        return found

    def lines(self) -> list[str]:
        """The row, and for each segment its document, file and bytes, as `bertloom trace` does."""
        place = self.place
        what = f", {LABELS.get(self.label, self.label)}" if self.label is not None else ""
        lines = [f"{place.shard} row {place.row:,} of {self.table} {place.artifact_id}{what}"]
        for name, segment in self.segments.items():
            title = f"segment {name.upper()}" if name in ("a", "b") else name
            lines += ["", title, *(f"  {line}" for line in segment.lines())]
        return lines


@kept_in_memory()
def trace_row(shard: Shard, row: int, *, raw: bool = False) -> Trace:
    """The documents that a row was made from, with the text.

    Args:
        shard: of `find_shard`; in an artifact, and of the table `instances`, `tokens` or
            `documents`.
        row: from 0; of an artifact's shards where it was asked for as a whole.
        raw: whether the raw text is read too; where it cannot be, `RawText.problem` says why.

    Raises:
        ArtifactNotFoundError: there is no such row, or an artifact on the way is gone.
        ConfigError: the file is in no artifact, or is no shard of these tables.
        ArtifactCorruptError: the artifacts do not fit each other.
    """
    shard, row = at_row(shard, row)
    artifact, entry = shard.artifact, shard.entry
    if artifact is None or entry is None:
        raise ConfigError(
            f"{shard.url}: is in no artifact of a store, and a file alone does not say what it "
            "was made from; name the shard as ARTIFACT:PART:ROW or by its path in the store"
        )
    table = ""
    if shard.path.endswith(".arrow"):
        with open_columns(shard.url) as reader:
            table = table_of(reader)
    place = ShardRow(artifact_id=artifact.manifest.artifact_id, shard=shard.path, row=row)
    label = None
    if table == "instances":
        label, segments = _instance(artifact, entry, row, raw=raw)
    elif table == "tokens":
        segments = {"document": _tokens(artifact, entry, row, raw=raw)}
    elif table == "documents":
        found = read_row(shard.url, row)
        segments = {"document": _document(artifact, entry, row, found=found, raw=raw)}
    else:
        raise ConfigError(
            f"{shard.path}: expected a shard of instances, tokens, documents, found "
            f"{f'the table {table!r}' if table else 'another kind of file'}"
        )
    return Trace(table=table, place=place, label=label, segments=segments)


def _instance(
    instances: Artifact, entry: FileEntry, row: int, *, raw: bool
) -> tuple[int, dict[str, DocumentTrace]]:
    """The label of an instance, and the document of each of its segments."""
    found = read_row(instances.url(entry.path), row)
    tokens, ids = _source(instances, "tokens"), segment_ids(found)
    label = int(found["next_sentence_label"])
    at = {"a": (int(entry.statistics["token_shard"]), int(found["document_row"]))}
    if label >= 0:
        number = token_shard_of(entry, int(found["segment_b_shard"]))
        at["b"] = (number, int(found["segment_b_row"]))
    shards = tokens.manifest.shards
    segments = {}
    for name, (number, token_row) in at.items():
        if number >= len(shards):
            raise ArtifactCorruptError(
                f"{entry.path} row {row}: segment {name.upper()} is of token shard {number}, "
                f"but {tokens.manifest.artifact_id} has {len(shards)}"
            )
        segments[name] = _tokens(tokens, shards[number], token_row, segment=ids[name], raw=raw)
    return label, segments


def _tokens(
    tokens: Artifact,
    entry: FileEntry,
    row: int,
    *,
    segment: TokenIds | None = None,
    raw: bool = False,
) -> DocumentTrace:
    """The document of a row of tokens; with a segment of it, the sentences of that."""
    url = tokens.url(entry.path)
    found = read_row(url, row)
    name, documents = found["document_id"], _source(tokens, "documents")
    number, shards = tokens.manifest.shards.index(entry), documents.manifest.shards
    if number >= len(shards):
        made = documents.manifest
        raise ArtifactCorruptError(
            f"artifact {made.artifact_id} ({made.stage}): expected a document shard for token "
            f"shard {number}, found {len(shards)} shards"
        )
    kept = _kept_rows(documents, shards[number], name)
    # Of several documents of one id, tokens stand in the order of the documents.
    earlier = sum(at < row for at in rows_with(url, "document_id", name))
    if earlier >= len(kept):
        raise ArtifactCorruptError(
            f"{documents.url(shards[number].path)}: has no document {name!r}, which "
            f"{tokens.manifest.artifact_id} was made from; verify both artifacts with "
            "`bertloom verify`"
        )
    document = read_row(documents.url(shards[number].path), kept[earlier])
    trace = _document(documents, shards[number], kept[earlier], found=document, raw=raw)
    place = ShardRow(artifact_id=tokens.manifest.artifact_id, shard=entry.path, row=row)
    if segment is None:
        return replace(trace, tokens=place)
    texts = document["sentences"]
    sentences = sentences_of(segment, found, of=len(texts))
    text = tuple(texts[sentences[0] : sentences[1] + 1]) if sentences is not None else ()
    return replace(trace, tokens=place, sentences=sentences, text=text)


def _document(
    documents: Artifact, entry: FileEntry, row: int, *, found: Mapping[str, Any], raw: bool
) -> DocumentTrace:
    """Where a document came from, by its row of the documents table."""
    file = raw_file_of(documents.manifest, found)
    page = web_page(file, found)
    return DocumentTrace(
        **{name: found[name] for name in _COPIED},
        raw_file=file,
        file_sha256=found["file"],
        document=ShardRow(artifact_id=documents.manifest.artifact_id, shard=entry.path, row=row),
        tokens=None,
        text=tuple(found["sentences"][:MOST_SENTENCES]),
        page_url=page.page,
        revision_url=page.revision,
        raw=read_raw(documents.manifest, file, found) if raw else None,
    )


def raw_file_of(documents: Manifest, found: Mapping[str, Any]) -> RawInput | None:
    """Return the raw file of a row of the documents table; None if the manifest lists none.

    Of equal files, it is the one whose name is in the document's id.
    """

    def common(item: RawInput) -> int:
        stem = f"{found['source']}:{_TXT.sub('', item.name)}"
        return len(stem) if found["document_id"].startswith(stem) else 0

    files = [item for item in documents.raw_inputs if item.sha256 == found["file"]]
    return max(files, key=common, default=None)


def _kept_rows(documents: Artifact, shard: FileEntry, document_id: str) -> list[int]:
    """The rows of the documents of one id, without those that no stage reads."""
    rows = rows_with(documents.url(shard.path), "document_id", document_id)
    if len(rows) < 2:
        return rows
    dropped: set[int] = set()
    for entry in documents.manifest.files:
        if not entry.path.startswith("part-"):
            align_columns = ["shard", "reason", "row"]
            with open_columns(documents.url(entry.path), columns=align_columns) as reader:
                table = reader.read_all()
            is_of_shard = pc.equal(table.column("shard"), shard.path)
            repeated = pc.and_(is_of_shard, pc.equal(table.column("reason"), "same-id"))
            dropped.update(table.filter(repeated).column("row").to_pylist())
    return [row for row in rows if row not in dropped]


def _source(artifact: Artifact, name: str) -> Artifact:
    if (found := artifact.input(name)) is None:
        made = artifact.manifest
        raise ArtifactCorruptError(f"artifact {made.artifact_id}: was made from no {name}")
    return found


def token_shard_of(entry: FileEntry, position: int) -> int:
    """Number of the token shard that a `segment_b_shard` of an instance shard means.

    Args:
        entry: of the instance shard.
        position: in the pool that its random segments were drawn from; 0 is its own token shard.

    Raises:
        ArtifactCorruptError: the pool has no such position.
    """
    if "pool" not in entry.statistics:
        return position  # version 1 of the table has the number itself
    pool = pool_numbers(entry)
    if position >= len(pool):
        raise ArtifactCorruptError(
            f"{entry.path}: a segment B is of position {position} of the pool, which has "
            f"{len(pool)} token shards; verify the artifact with `bertloom verify`"
        )
    return pool[position]


def segment_ids(row: dict[str, Any]) -> dict[str, TokenIds]:
    """The token ids of the segments `a` and `b` of an instance before masking.

    Args:
        row: of the instances table; a B that is not there has no ids.
    """
    ids = np.array(row["input_ids"], np.int64)
    ids[np.array(row["masked_lm_positions"], np.int64)] = row["masked_lm_ids"]
    border = row["segment_b_start"]
    return {"a": ids[1 : border - 1], "b": ids[border:-1]}


def sentences_of(
    segment: TokenIds, tokens: Mapping[str, Any], *, of: int
) -> tuple[int, int] | None:
    """First and last sentence that a segment's tokens are of; None where it is not known.

    Args:
        segment: its token ids before masking.
        tokens: of the tokens table, the row that the segment was taken from.
        of: how many sentences the document has.
    """
    lengths = tokens["sentence_lengths"]
    ids = np.array(tokens["token_ids"], np.int64)
    if not len(segment) or len(lengths) != of or len(segment) > len(ids):
        return None
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(segment))
    starts = np.flatnonzero(windows[:, 0] == segment[0])
    at = starts[(windows[starts] == segment).all(axis=1)]
    if len(at) != 1:
        return None
    ends = [at[0], at[0] + len(segment) - 1]
    first, last = np.searchsorted(np.cumsum(lengths), ends, side="right").tolist()
    return first, last
