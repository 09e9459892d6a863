"""Samples of the texts of a run: documents beside their source, and instances with their masks.

Which ones is decided by digests alone. They are read once and kept in the store, like figures; a
recipe's `report_include_text: false` leaves them out.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from flows.lineage.head import word, words_of
from flows.lineage.raw_text import RawText, language_of, read_raw, source_of, web_page
from flows.lineage.rows import LABELS, Artifact, open_columns, read_row
from flows.lineage.tracing import raw_file_of, trace_row
from flows.report.samples import (
    Run,
    SampleDocument,
    SampleInstance,
    SampleInstances,
    Texts,
)
from flows.report.steps import Built
from flows.store.artifacts import ArtifactStore
from schemas.manifest import FileEntry, Manifest

_MOST_SOURCES, _OF_A_SOURCE = 4, 2
_LOOKED_AT = 20_000
"""Rows of a shard among which samples are chosen."""

_RAW, _SENTENCES, _CHARACTERS = 2_400, 14, 2_400
_CUT, _AROUND = 700, 900
_READ = 16 << 20
"""Unpacked bytes that are read through, at most, to come to a document."""

_MOST_LENGTHS, _TOKENS = 4, 90


# Documents


def read_documents(store: ArtifactStore, documents: Manifest) -> Texts:
    """A few documents of each source, beside what they were made of.

    Raises:
        ArtifactCorruptError, OSError, ValueError: a shard is missing or damaged.
    """
    artifact = Artifact(documents, store)
    found = []
    for entry in _first_shards(artifact):
        url = artifact.url(entry)
        for row in _smallest_digests(url, count=_OF_A_SOURCE):
            found.append(_document(documents, read_row(url, row)))
    return Texts(documents=tuple(found))


def _first_shards(artifact: Artifact) -> Iterator[FileEntry]:
    """The first shard with rows of each source: shards stand in the order of sources' names."""
    shards = [entry for entry in artifact.manifest.shards if entry.rows]
    at, count = 0, 0
    while at < len(shards) and count < _MOST_SOURCES:
        name = _source_name(artifact, shards[at])
        yield shards[at]
        low, high = at + 1, len(shards)
        while low < high:
            middle = (low + high) // 2
            low, high = (
                (middle + 1, high)
                if _source_name(artifact, shards[middle]) <= name
                else (low, middle)
            )
        at, count = low, count + 1


def _source_name(artifact: Artifact, entry: FileEntry) -> str:
    with open_columns(artifact.url(entry), columns=["source"]) as reader:
        name: str = reader.get_batch(0).column(0)[0].as_py()
        return name


def _smallest_digests(url: str, *, count: int) -> list[int]:
    digests: list[bytes] = []
    with open_columns(url, columns=["digest"]) as reader:
        for number in range(reader.num_record_batches):
            digests += reader.get_batch(number).column(0).to_pylist()
            if len(digests) >= _LOOKED_AT:
                break
    chosen = heapq.nsmallest(count, range(min(len(digests), _LOOKED_AT)), key=digests.__getitem__)
    return sorted(chosen)


def _document(documents: Manifest, row: Mapping[str, Any]) -> SampleDocument:
    raw = raw_file_of(documents, row)
    page = web_page(raw, row)
    text = read_raw(documents, raw, row, most_bytes=_READ)
    kind = str(source_of(documents, row["source"]).get("kind", ""))
    shown, note = _raw_shown(text, row["sentences"], kind=kind)
    place = f"bytes {row['byte_start']:,} to {row['byte_end']:,} of {raw.name if raw else '?'}"
    sentences, left = list[str](), _CHARACTERS
    for sentence in row["sentences"][:_SENTENCES]:
        if left <= 0:
            break
        sentences.append(sentence if len(sentence) <= left else f"{sentence[:left]} ...")
        left -= len(sentence)
    return SampleDocument(
        source=row["source"],
        kind=kind,
        document_id=row["document_id"],
        title=row["title"],
        language=language_of(documents, row["source"], raw),
        page_url=page.page,
        revision_url=page.revision,
        where=f"{text.member}, {place}" if text.member else place,
        raw=shown,
        raw_note=note,
        sentences=tuple(sentences),
        more=len(row["sentences"]) - len(sentences),
        is_final=text.is_final,
    )


def _raw_shown(raw: RawText, sentences: Sequence[str], *, kind: str) -> tuple[str, str]:
    """A part of a raw text, and how much is not shown; of a book, how its text begins."""
    if raw.problem:
        return "", raw.problem
    text = "\n".join(raw.text.splitlines())
    begin, end = _place(text, sentences[0]), _place(text, sentences[-1], last=True)
    if kind != "books" or begin < 0:
        more = len(text) - _RAW
        return text[:_RAW], f"{more:,} characters more" if more > 0 else ""
    before = text[: min(_CUT, begin)]
    gap = "\n\n[...]\n\n" if begin - len(before) > 0 else ""
    shown = before + gap + text[begin : begin + _AROUND]
    note = f"{begin:,} characters before the first sentence were cut: notices, title, contents"
    if end > 0:
        note += f"; {max(0, len(text) - end):,} characters behind the last one"
    return shown, note


def _place(text: str, sentence: str, *, last: bool = False) -> int:
    """Where a sentence begins in a raw text, or `last` ends, whatever the line breaks; else -1."""
    words = sentence.split()
    words = words[-6:] if last else words[:6]
    pattern = r"\W+".join(re.escape(part) for item in words for part in re.findall(r"\w+", item))
    if not pattern:
        return -1
    found = list(re.finditer(pattern, text))
    if not found:
        return -1
    return found[-1].end() if last else found[0].start()


# Instances


def read_instances(store: ArtifactStore, made: Sequence[Built]) -> Texts:
    """A pair that follows and a random one of each length, decoded.

    Raises:
        ArtifactCorruptError, OSError, ValueError: a shard is missing or damaged.
    """
    return Texts(
        instances=tuple(
            SampleInstances(name=built.name, instances=tuple(_instances(store, built.manifest)))
            for built in made[:_MOST_LENGTHS]
        )
    )


def _instances(store: ArtifactStore, manifest: Manifest) -> Iterator[SampleInstance]:
    artifact = Artifact(manifest, store)
    entry = next((entry for entry in manifest.shards if entry.rows), None)
    if entry is None:
        return
    words = words_of(artifact)
    for row in _one_of_each_label(artifact.url(entry), manifest.content):
        yield _instance(artifact, entry, row, words)


def _one_of_each_label(url: str, content: str) -> list[int]:
    """Of the first batch, the row of each label whose digest is the smallest."""
    with open_columns(url, columns=["next_sentence_label"]) as reader:
        labels = reader.get_batch(0).column(0).to_pylist()[:_LOOKED_AT]

    def digest(row: int) -> bytes:
        return hashlib.blake2b(f"{content} {row}".encode(), digest_size=8).digest()

    order = sorted(range(len(labels)), key=digest)
    return [next(row for row in order if labels[row] == label) for label in sorted(set(labels))]


def _instance(
    artifact: Artifact, entry: FileEntry, number: int, words: Sequence[str]
) -> SampleInstance:
    shard = artifact.shard(entry)
    row, traced = read_row(shard.url, number), trace_row(shard, number)
    original = dict(zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True))
    ids, border = row["input_ids"], row["segment_b_start"]
    tokens = [
        _token(words, token, original.get(place), kind="a" if place < border else "b")
        for place, token in enumerate(ids)
    ]
    segments = list(traced.segments.values())
    label = row["next_sentence_label"]
    return SampleInstance(
        label=LABELS.get(label, str(label)),
        row=number,
        facts=f"{len(ids)} tokens, {len(original)} to be predicted, pass {row['duplicate']}",
        a=_joined(tokens[:border][:_TOKENS]),
        b=_joined(tokens[border:][:_TOKENS]),
        more=(max(0, border - _TOKENS), max(0, len(ids) - border - _TOKENS)),
        titles=tuple(segment.title or segment.document_id for segment in segments),
    )


def _token(words: Sequence[str], token: int, original: int | None, *, kind: str) -> Run:
    shown = word(words, token)
    if original is None:
        return Run(kind="special" if shown in ("[CLS]", "[SEP]") else kind, text=shown)
    how = "mask" if shown == "[MASK]" else "kept" if token == original else "random"
    return Run(kind=how, text=shown, was=word(words, original))


def _joined(tokens: Sequence[Run]) -> tuple[Run, ...]:
    """Tokens that nothing was done to in one run; `##` goes where a word stays whole."""
    runs: list[Run] = []
    for (kind, was), same in groupby(tokens, key=lambda token: (token.kind, token.was)):
        if was:
            runs += same
            continue
        text = " ".join(token.text for token in same)
        runs.append(Run(kind=kind, text=text.replace(" ##", "")))
    return tuple(runs)
