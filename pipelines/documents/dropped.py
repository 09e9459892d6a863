"""Reasons of dropped records with examples, which stages record for the report of a run.

The record is a small JSON file of the artifact. It is not part of the content digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from pipelines.counters import MAX_EXAMPLES, TEXT_UNITS, Example
from pipelines.io.files import write_text_file
from pipelines.io.shards import open_shard
from schemas.manifest import FileEntry

DROPPED_FILE = "__records__/dropped.json"

_MAX_TEXT = 120
_DROPPED = re.compile(r"([a-z]+)-dropped-([a-z0-9-]+)@(.+)", re.DOTALL)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DropReason(_Record):
    """Records that were dropped for one reason."""

    source: str
    """Source of the recipe, or stage."""

    record_type: str
    """`pages`, `books`, `rows` or `documents`."""

    reason: str
    count: int
    examples: tuple[Example, ...] = ()


class DroppedRecords(_Record):
    """Record of a stage that keeps and drops documents."""

    dropped: tuple[DropReason, ...] = ()

    def write(self, *, output: str) -> FileEntry:
        """Write the record to a stage's output folder."""
        return write_text_file(
            DROPPED_FILE, self.model_dump_json(), output=output, excluded_from_digest=True
        )


def drop_reasons(
    counters: Mapping[str, int], examples: Mapping[str, Sequence[Example]]
) -> Iterator[DropReason]:
    """Yield the reasons that counters `RECORDS-dropped-REASON@SOURCE` name."""
    for name, count in sorted(counters.items()):
        match = _DROPPED.fullmatch(name)
        if count and match and match[1] not in TEXT_UNITS:
            record_type, reason, source = match.groups()
            yield DropReason(
                source=source,
                record_type=record_type,
                reason=reason,
                count=count,
                examples=tuple(examples.get(name, ())),
            )


def excluded_documents(
    table: FileEntry, *, output: str, column: str, stage: str, reasons: Mapping[str, int]
) -> Iterator[DropReason]:
    """Yield the reasons of a table of excluded documents, with examples from its first rows.

    `column` names the id or text that a document matched, `reasons` the documents of each reason.
    """
    examples: dict[str, list[Example]] = {reason: [] for reason in reasons}
    columns = ["document_id", "reason", column]
    with open_shard(f"{output}/{table.stored_name}", columns=columns) as reader:
        rows = reader.get_batch(0).to_pylist() if reader.num_record_batches else []
    for row in rows:
        listed = examples.get(row["reason"], [])
        if len(listed) < MAX_EXAMPLES:
            listed.append(Example(shorten(row["document_id"]), "", shorten(row[column] or "")))
    for reason, count in reasons.items():
        if count:
            yield DropReason(
                source=stage,
                record_type="documents",
                reason=reason,
                count=count,
                examples=tuple(examples[reason]),
            )


def shorten(text: str) -> str:
    """Return a text for one line of the report."""
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} ..."
