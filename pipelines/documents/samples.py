"""Sample documents and examples of dropped records, which stages record for the report of a run.

The record is a small JSON file of the artifact. It is not part of the content digest.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from pipelines.counters import MAX_EXAMPLES, TEXT_UNITS, Example
from pipelines.documents.records import Document
from pipelines.io.files import write_text_file
from pipelines.io.shards import open_shard
from pipelines.io.splits import RawDocument, Split
from pipelines.mediawiki.pages import page_url, revision_url
from schemas.manifest import FileEntry

SAMPLES_FILE = "__records__/samples.json"

_SAMPLES_PER_SOURCE = 2
_MAX_RAW, _MAX_SENTENCES, _MAX_CHARACTERS = 2_400, 14, 2_400
_MAX_BEFORE, _MAX_AFTER = 700, 900
_MAX_TEXT = 120
_DROPPED = re.compile(r"([a-z]+)-dropped-([a-z0-9-]+)@(.+)", re.DOTALL)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DocumentSample(_Record):
    """A document next to its source text."""

    digest: str
    """Digest of the document's text. Each source shows the documents with the smallest ones."""

    source: str
    document_id: str
    title: str
    language: str = ""
    """ISO 639 code."""

    page_url: str
    revision_url: str
    location: str
    """Bytes of the raw file."""

    raw: str
    """Start of the source text; of a book also where its prose starts."""

    raw_note: str
    """Amount of source text that is not shown."""

    sentences: tuple[str, ...]
    num_hidden_sentences: int


class DropReason(_Record):
    """Records that were dropped for one reason."""

    source: str
    """Source of the recipe, or stage."""

    record_type: str
    """`pages`, `books`, `rows` or `documents`."""

    reason: str
    count: int
    examples: tuple[Example, ...] = ()


class CorpusSamples(_Record):
    """Record of a stage that keeps and drops documents."""

    documents: tuple[DocumentSample, ...] = ()
    dropped: tuple[DropReason, ...] = ()

    def write(self, *, output: str) -> FileEntry:
        """Write the record to a stage's output folder."""
        return write_text_file(
            SAMPLES_FILE, self.model_dump_json(), output=output, excluded_from_digest=True
        )


class SampleSelector:
    """Selects the documents of a split whose text digests are the smallest."""

    def __init__(self) -> None:
        self._samples: list[DocumentSample] = []

    def offer(self, raw: RawDocument, language: str, document: Document, *, split: Split) -> None:
        """Select a document if its digest is among the smallest so far."""
        digest = document.digest.hex()
        if len(self._samples) < _SAMPLES_PER_SOURCE or digest < self._samples[-1].digest:
            sample = _sample(raw, document.sentences, digest=digest, split=split)
            sample = sample.model_copy(update={"language": language})
            self._samples = smallest_digests([*self._samples, sample])

    def dump(self) -> list[dict[str, Any]]:
        """Return the samples as JSON values."""
        return [sample.model_dump(mode="json") for sample in self._samples]


def smallest_digests(samples: Iterable[DocumentSample]) -> list[DocumentSample]:
    """Return the samples of one source that are shown."""
    return heapq.nsmallest(
        _SAMPLES_PER_SOURCE, samples, key=lambda sample: (sample.digest, sample.document_id)
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


def _sample(
    document: RawDocument, sentences: Sequence[str], *, digest: str, split: Split
) -> DocumentSample:
    raw, note = _raw_excerpt(document, sentences)
    shown = list(_first_sentences(sentences))
    page = page_url(document.site, document.page_id)
    return DocumentSample(
        digest=digest,
        source=split.source,
        document_id=document.document_id,
        title=document.title,
        page_url=page,
        revision_url=revision_url(document.site, document.revision_id) if page else "",
        location=f"bytes {document.byte_start:,} to {document.byte_end:,} of {split.file.name}",
        raw=raw,
        raw_note=note,
        sentences=tuple(shown),
        num_hidden_sentences=len(sentences) - len(shown),
    )


def _first_sentences(sentences: Sequence[str]) -> Iterator[str]:
    left = _MAX_CHARACTERS
    for sentence in sentences[:_MAX_SENTENCES]:
        if left <= 0:
            return
        yield sentence if len(sentence) <= left else f"{sentence[:left]} ..."
        left -= len(sentence)


def _raw_excerpt(document: RawDocument, sentences: Sequence[str]) -> tuple[str, str]:
    """Return the part of a source text that is shown, and a note on the rest."""
    text = "\n".join(document.raw.splitlines())
    start = _position(text, sentences[0]) if document.page_id is None else 0
    if start <= _MAX_BEFORE:
        hidden = len(text) - _MAX_RAW
        return text[:_MAX_RAW], f"{hidden:,} characters more" if hidden > 0 else ""
    excerpt = f"{text[:_MAX_BEFORE]}\n\n[...]\n\n{text[start : start + _MAX_AFTER]}"
    end = _position(text, sentences[-1], last=True)
    note = f"{start:,} characters before the first sentence were cut: notices, title, contents"
    return excerpt, f"{note}; {len(text) - end:,} after the last one" if end > 0 else note


def _position(text: str, sentence: str, *, last: bool = False) -> int:
    """Return the start of a sentence in a raw text, or the end of the `last` one; -1 if missing."""
    words = sentence.split()
    words = words[-6:] if last else words[:6]
    pattern = r"\W+".join(re.escape(part) for word in words for part in re.findall(r"\w+", word))
    matches = list(re.finditer(pattern, text)) if pattern else []
    if not matches:
        return -1
    return matches[-1].end() if last else matches[0].start()
