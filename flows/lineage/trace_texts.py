"""Traces as lines of plain text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flows.formats import columns
from flows.lineage.texts import one_line
from flows.lineage.tracing import DocumentTrace, Trace

_LABELS = {0: "B follows A", 1: "B is random", -1: "no B"}


def trace_json(found: Trace) -> dict[str, Any]:
    """Plain values, by the names of the fields of `flows.lineage.tracing.Trace`."""
    told = asdict(found)
    for segment, name in ((found.segments[name], name) for name in found.segments):
        raw = segment.raw_file
        told["segments"][name]["raw_file"] = raw.model_dump(mode="json") if raw else None
    return told


def trace_lines(found: Trace) -> list[str]:
    """For people: the row, and for each segment its document, file and bytes."""
    place = found.place
    what = f", {_LABELS.get(found.label, found.label)}" if found.label is not None else ""
    lines = [f"{place.shard} row {place.row:,} of {found.table} {place.artifact_id}{what}"]
    for name, segment in found.segments.items():
        title = f"segment {name.upper()}" if name in ("a", "b") else name
        lines += ["", title, *(f"  {line}" for line in _document_lines(segment))]
    return lines


def _document_lines(found: DocumentTrace) -> list[str]:
    raw = found.raw_file
    rows = [("document", found.document_id), ("title", found.title), ("source", found.source)]
    if found.page_id is not None:
        rows.append(("page", f"{found.page_id}, revision {found.revision_id}, {found.timestamp}"))
    rows.append(("file", raw.uri if raw else "not listed by the manifest"))
    rows.append(("sha256", found.file_sha256))
    if raw is not None and raw.checksum:
        kind, _, digest = raw.checksum.partition(":")
        rows.append(("verified", f"{kind} {digest}"))
    rows.append(("bytes", f"{found.byte_start:,} to {found.byte_end:,} of the file as stored"))
    if found.sentences is not None:
        first, last = found.sentences
        rows.append(("sentences", f"{first:,} to {last:,}" if last > first else f"{first:,}"))
    for stage, place in (("tokens", found.tokens), ("documents", found.document)):
        if place is not None:
            rows.append((f"in {stage}", f"{place.artifact_id} {place.shard} row {place.row:,}"))
    return columns([(name, one_line(value)) for name, value in rows])
