"""Which documents came, went and changed between two corpora, with a few of each.

A page is known by its source and page id, whatever its revision; other documents by their ids. Only
ids and digests are read of all rows, 24 bytes of memory each; texts of the examples alone.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flows.lineage.raw_source import web_page
from flows.lineage.row_trace import raw_file_of
from flows.lineage.shards import open_columns, read_row
from flows.lineage.text_formats import one_line
from flows.store.artifact import Artifact

_WORDS = 60
"""Of two sentences that are compared."""

Keys = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class DocumentChange:
    """A document of which two corpora have different texts; or that only one of them has."""

    title: str
    document_id: str
    """In the newer corpus that has it."""

    revisions: tuple[int | None, int | None]
    """Before and after; None where there is none."""

    url: str
    text: str
    """Words that went as `[-word-]`, that came as `{+word+}`; else how the text begins."""

    def line(self) -> str:
        """It in one line."""
        old, new = self.revisions
        moved = f", revision {old} -> {new}" if old and new and old != new else ""
        link = f" {self.url}" if self.url else ""
        return one_line(f"{self.title or self.document_id} ({self.document_id}{moved}){link}")


@dataclass(frozen=True, kw_only=True)
class DocumentChanges:
    """How the documents of two corpora differ."""

    counts: Mapping[str, int]
    """Of `came`, `went`, `changed` and `same`."""

    examples: Mapping[str, tuple[DocumentChange, ...]]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """As text."""
        told = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        lines = ["", f"documents: {told}"]
        for name, found in self.examples.items():
            for change in found:
                lines += [f"  {name}: {change.line()}", f"    {one_line(change.text)}"]
        return lines


class _Table(NamedTuple):
    keys: Keys
    """Ascending."""

    digests: Keys
    places: Places
    """Number of the row among those of all shards."""

    artifact: Artifact

    def row(self, at: int) -> dict[str, Any]:
        """The whole row."""
        left = int(self.places[at])
        for entry in self.artifact.manifest.shards:
            if left < (entry.rows or 0):
                return read_row(self.artifact.url(entry.path), left)
            left -= entry.rows or 0
        raise AssertionError(left)


def document_changes(before: Artifact, after: Artifact, *, examples: int) -> DocumentChanges:
    """Compare two artifacts of documents.

    Args:
        before: the earlier.
        after: the later.
        examples: how many of each kind; those whose keys' digests are the smallest.
    """
    old, new = _read(before), _read(after)
    _, in_old, in_new = np.intersect1d(old.keys, new.keys, assume_unique=True, return_indices=True)
    is_changed = old.digests[in_old] != new.digests[in_new]
    came = np.setdiff1d(np.arange(len(new.keys)), in_new, assume_unique=True)
    went = np.setdiff1d(np.arange(len(old.keys)), in_old, assume_unique=True)
    counts = {
        "came": len(came),
        "went": len(went),
        "changed": int(is_changed.sum()),
        "same": int((~is_changed).sum()),
    }
    pairs = list(zip(in_old[is_changed], in_new[is_changed], strict=True))[:examples]
    found = {
        "came": tuple(_one(new.row(int(at)), after, is_new=True) for at in came[:examples]),
        "went": tuple(_one(old.row(int(at)), before, is_new=False) for at in went[:examples]),
        "changed": tuple(_both(old.row(int(a)), new.row(int(b)), after) for a, b in pairs),
    }
    return DocumentChanges(counts=counts, examples={k: item for k, item in found.items() if item})


def _read(artifact: Artifact) -> _Table:
    columns = ["document_id", "source", "digest", "page_id"]
    keys, digests = list[Keys](), list[Keys]()
    for entry in artifact.manifest.shards:
        with open_columns(artifact.url(entry.path), columns=columns) as reader:
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                named = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
                pairs = [_pair(*row) for row in named]
                keys.append(np.array([key for key, _ in pairs], np.uint64))
                digests.append(np.array([digest for _, digest in pairs], np.uint64))
    every = np.concatenate([np.empty(0, np.uint64), *keys])
    unique, first = np.unique(every, return_index=True)
    texts = np.concatenate([np.empty(0, np.uint64), *digests])
    return _Table(unique, texts[first], first.astype(np.int64), artifact)


def _pair(document_id: str, source: str, digest: bytes, page_id: int | None) -> tuple[int, int]:
    name = document_id if page_id is None else f"{source}:{page_id}"
    key = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(key, "big"), int.from_bytes(digest[:8], "big")


def _one(row: Mapping[str, Any], artifact: Artifact, *, is_new: bool) -> DocumentChange:
    page = web_page(raw_file_of(artifact.manifest, row), row)
    revision = row["revision_id"]
    return DocumentChange(
        title=row["title"],
        document_id=row["document_id"],
        revisions=(None, revision) if is_new else (revision, None),
        url=page.revision,
        text=" ".join(row["sentences"][0].split()[:_WORDS]),
    )


def _both(old: Mapping[str, Any], new: Mapping[str, Any], after: Artifact) -> DocumentChange:
    change = _one(new, after, is_new=True)
    return DocumentChange(
        title=change.title,
        document_id=change.document_id,
        revisions=(old["revision_id"], new["revision_id"]),
        url=change.url,
        text=word_difference(old["sentences"], new["sentences"]),
    )


def word_difference(before: list[str], after: list[str]) -> str:
    """The first sentence that is not in both, as words that went and came.

    >>> word_difference(["It is old.", "The end."], ["It is new.", "The end."])
    'It is [-old.-] {+new.+}'
    """
    was, now = set(before), set(after)
    old = next((text for text in before if text not in now), "").split()[:_WORDS]
    new = next((text for text in after if text not in was), "").split()[:_WORDS]
    return " ".join(_merged(old, new)) or "the same sentences in another order"


def _merged(old: list[str], new: list[str]) -> Iterator[str]:
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from old[a:b]
            continue
        if b > a:
            yield f"[-{' '.join(old[a:b])}-]"
        if d > c:
            yield f"{{+{' '.join(new[c:d])}+}}"
