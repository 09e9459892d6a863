"""Added, removed and changed documents of two corpora, with examples.

A page has the same key in all of its revisions: its source and page id. The key of other documents
is their id. The comparison reads ids and digests of all rows, and texts only of examples.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flows.lineage.raw_source import find_raw_file, web_urls
from flows.lineage.shards import read_row
from flows.lineage.text_formats import one_line
from flows.store.artifact import Artifact

_MAX_WORDS = 60


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

    def lines(self) -> list[str]:
        """Return the counts and examples as lines of text."""
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        lines = ["", f"documents: {counts}"]
        for name, changes in self.examples.items():
            for change in changes:
                lines += [f"  {name}: {change}", f"    {one_line(change.text)}"]
        return lines


def document_changes(before: Artifact, after: Artifact, *, examples: int) -> DocumentChanges:
    """Compare two artifacts of documents.

    Args:
        before: Older artifact.
        after: Newer artifact.
        examples: Number of examples of each change, in the order of their keys.
    """
    both = _read_keys(before).join(
        _read_keys(after),
        "key",
        join_type="full outer",
        left_suffix="_before",
        right_suffix="_after",
        use_threads=False,
    )
    is_old, is_new = (pc.is_valid(both[f"row_{side}"]) for side in ("before", "after"))
    is_equal = pc.equal(both["digest_before"], both["digest_after"])
    selected = {
        "came": pc.invert(is_old),
        "went": pc.invert(is_new),
        "changed": pc.fill_null(pc.invert(is_equal), False),
    }
    tables = {name: both.filter(mask).sort_by("key") for name, mask in selected.items()}
    counts = {name: table.num_rows for name, table in tables.items()}
    changes = {
        name: tuple(
            _describe(
                _read(before, row["row_before"]),
                _read(after, row["row_after"]),
                newest=before if name == "went" else after,
            )
            for row in table.slice(0, examples).to_pylist()
        )
        for name, table in tables.items()
    }
    return DocumentChanges(
        counts={**counts, "same": both.num_rows - sum(counts.values())},
        examples={name: listed for name, listed in changes.items() if listed},
    )


def _read_keys(artifact: Artifact) -> pa.Table:
    """Return key, digest and row number of each document; the first of those with equal keys."""
    documents = artifact.table().to_table(columns=["document_id", "source", "page_id", "digest"])
    page = pc.binary_join_element_wise(
        documents["source"], pc.cast(documents["page_id"], pa.string()), ":"
    )
    table = pa.table(
        {
            "key": pc.coalesce(page, documents["document_id"]),
            "digest": documents["digest"],
            "row": pa.array(np.arange(documents.num_rows)),
        }
    )
    first = table.group_by("key", use_threads=False).aggregate(
        [("digest", "first"), ("row", "min")]
    )
    return first.rename_columns(["key", "digest", "row"])


def _read(artifact: Artifact, row: int | None) -> dict[str, Any] | None:
    return None if row is None else read_row(artifact.table(), row)


def _describe(
    old: dict[str, Any] | None, new: dict[str, Any] | None, *, newest: Artifact
) -> DocumentChange:
    """Return the change of a document; `newest` is the newer corpus that has it."""
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
        url=web_urls(find_raw_file(newest.manifest, document), document)[1],
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
