"""Added, removed and changed documents of two corpora, with examples.

A page has the same key in all of its revisions: its source and page id. The key of other documents
is their id. The comparison reads ids and digests of all rows (24 bytes of memory each), and texts
only of examples.
"""

from __future__ import annotations

import difflib
import hashlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flows.lineage.raw_source import find_raw_file, web_page
from flows.lineage.shards import Shard, at_row, read_row
from flows.lineage.text_formats import one_line
from flows.store.artifact import Artifact

_MAX_WORDS = 60

_Digests = npt.NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class DocumentChange:
    """Document with different texts in two corpora, or in only one of them.

    Attributes:
        document_id: Id in the newer corpus that has the document.
        revisions: Revisions of a page in both corpora; None for a corpus without the page.
        url: URL of the newer revision; "" if unknown.
        text: First changed sentence with removed words as `[-word-]` and added words as `{+word+}`,
            or the first sentence of a document that only one corpus has.
    """

    title: str
    document_id: str
    revisions: tuple[int | None, int | None]
    url: str
    text: str

    def __str__(self) -> str:
        """Return the document in one line."""
        old, new = self.revisions
        revisions = f", revision {old} -> {new}" if old and new and old != new else ""
        url = f" {self.url}" if self.url else ""
        return one_line(f"{self.title or self.document_id} ({self.document_id}{revisions}){url}")


@dataclass(frozen=True, kw_only=True)
class DocumentChanges:
    """Differences of the documents of two corpora."""

    counts: Mapping[str, int]
    """Number of documents that `came`, `went`, `changed` and are the `same`."""

    examples: Mapping[str, tuple[DocumentChange, ...]]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the counts and examples as lines of text."""
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        lines = ["", f"documents: {counts}"]
        for name, changes in self.examples.items():
            for change in changes:
                lines += [f"  {name}: {change}", f"    {one_line(change.text)}"]
        return lines


class _Corpus(NamedTuple):
    artifact: Artifact
    keys: _Digests
    """Digests of the keys, ascending."""

    texts: _Digests
    rows: npt.NDArray[np.intp]
    """Row numbers across all shards."""

    def read(self, index: int) -> dict[str, Any]:
        shard, row = at_row(Shard("", self.artifact), int(self.rows[index]))
        return read_row(shard.url, row)


def document_changes(before: Artifact, after: Artifact, *, examples: int) -> DocumentChanges:
    """Compare two artifacts of documents.

    Args:
        before: Older artifact.
        after: Newer artifact.
        examples: Number of examples of each change: the documents with the smallest digests.
    """
    old, new = _read_corpus(before), _read_corpus(after)
    _, in_old, in_new = np.intersect1d(old.keys, new.keys, assume_unique=True, return_indices=True)
    is_changed = old.texts[in_old] != new.texts[in_new]
    came = np.setdiff1d(np.arange(len(new.keys)), in_new, assume_unique=True)
    went = np.setdiff1d(np.arange(len(old.keys)), in_old, assume_unique=True)
    num_changed = int(is_changed.sum())
    pairs = list(zip(in_old[is_changed], in_new[is_changed], strict=True))[:examples]
    changes = {
        "came": tuple(_describe(None, new.read(index), after) for index in came[:examples]),
        "went": tuple(_describe(old.read(index), None, before) for index in went[:examples]),
        "changed": tuple(_describe(old.read(a), new.read(b), after) for a, b in pairs),
    }
    return DocumentChanges(
        counts={
            "came": len(came),
            "went": len(went),
            "changed": num_changed,
            "same": len(is_changed) - num_changed,
        },
        examples={name: listed for name, listed in changes.items() if listed},
    )


def _read_corpus(artifact: Artifact) -> _Corpus:
    columns = ["document_id", "source", "page_id", "digest"]
    keys, texts = array("Q"), array("Q")
    for batch in artifact.table().to_batches(columns=columns):
        for document_id, source, page_id, digest in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            key = document_id if page_id is None else f"{source}:{page_id}"
            key_digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
            keys.append(int.from_bytes(key_digest, "big"))
            texts.append(int.from_bytes(digest[:8], "big"))
    unique, rows = np.unique(np.frombuffer(keys, np.uint64), return_index=True)
    return _Corpus(artifact, unique, np.frombuffer(texts, np.uint64)[rows], rows)


def _describe(
    old: dict[str, Any] | None, new: dict[str, Any] | None, artifact: Artifact
) -> DocumentChange:
    """Return the change of a document; `artifact` contains the newer of both."""
    document = new or old or {}
    if old and new:
        text = word_difference(old["sentences"], new["sentences"])
    else:
        text = " ".join(document["sentences"][0].split()[:_MAX_WORDS])
    return DocumentChange(
        title=document["title"],
        document_id=document["document_id"],
        revisions=(
            old["revision_id"] if old else None,
            new["revision_id"] if new else None,
        ),
        url=web_page(find_raw_file(artifact.manifest, document), document).revision,
        text=text,
    )


def word_difference(before: list[str], after: list[str]) -> str:
    """Return the first sentence that is not in both texts, as removed and added words.

    >>> word_difference(["It is old.", "The end."], ["It is new.", "The end."])
    'It is [-old.-] {+new.+}'
    """
    old_sentences, new_sentences = set(before), set(after)
    old = next((text for text in before if text not in new_sentences), "").split()[:_MAX_WORDS]
    new = next((text for text in after if text not in old_sentences), "").split()[:_MAX_WORDS]
    return " ".join(_mark_words(old, new)) or "the same sentences in another order"


def _mark_words(old: list[str], new: list[str]) -> Iterator[str]:
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from old[a:b]
            continue
        if b > a:
            yield f"[-{' '.join(old[a:b])}-]"
        if d > c:
            yield f"{{+{' '.join(new[c:d])}+}}"
