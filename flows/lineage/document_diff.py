"""Added, removed and changed documents of two corpora, with examples.

A page has the same key in all of its revisions: its source and page id. The key of other documents
is their id. The comparison reads ids and digests of all rows, and texts only of examples.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flows.lineage.shards import read_row
from flows.lineage.text_formats import one_line
from flows.store.artifact import StoredArtifact

_MAX_WORDS = 60


class DocumentChanges(NamedTuple):
    """Differences of the documents of two corpora."""

    counts: Mapping[str, int]
    """Number of documents that `came`, `went`, `changed` and are the `same`."""

    examples: Mapping[str, Sequence[Mapping[str, str]]]
    """Title, ids and text of some documents. The text is the first sentence that differs, with
    removed words as `[-word-]` and added words as `{+word+}`."""

    def lines(self) -> Iterator[str]:
        """Yield the counts and examples as lines of text."""
        yield ""
        yield f"documents: {', '.join(f'{count:,} {name}' for name, count in self.counts.items())}"
        for name, documents in self.examples.items():
            for item in documents:
                yield one_line(f"  {name}: {item['title'] or 'no title'} ({item['ids']})")
                yield one_line(f"    {item['text']}")


def document_changes(
    before: StoredArtifact, after: StoredArtifact, *, examples: int
) -> DocumentChanges:
    """Compare two artifacts of documents, with some examples of each change, sorted by key."""
    both = _read_keys(before).join(
        _read_keys(after), "key", join_type="full outer",
        left_suffix="_before", right_suffix="_after", use_threads=False,
    )  # fmt: skip
    selected = {
        "came": pc.is_null(both["row_before"]),
        "went": pc.is_null(both["row_after"]),
        "changed": pc.not_equal(both["digest_before"], both["digest_after"]),
    }
    tables = {name: both.filter(mask).sort_by("key") for name, mask in selected.items()}
    counts = {name: table.num_rows for name, table in tables.items()}
    return DocumentChanges(
        counts={**counts, "same": both.num_rows - sum(counts.values())},
        examples={
            name: [
                _describe(_read(before, row["row_before"]), _read(after, row["row_after"]))
                for row in table.slice(0, examples).to_pylist()
            ]
            for name, table in tables.items()
            if counts[name] and examples
        },
    )


def _read_keys(artifact: StoredArtifact) -> pa.Table:
    """Return key, digest and row number of each document; the first of those with equal keys."""
    documents = artifact.table().to_table(columns=["document_id", "source", "page_id", "digest"])
    page_ids = pc.cast(documents["page_id"], pa.string())
    pages = pc.binary_join_element_wise(documents["source"], page_ids, ":")
    keys = pc.coalesce(pages, documents["document_id"])
    rows = np.arange(documents.num_rows)
    table = pa.table({"key": keys, "digest": documents["digest"], "row": rows})
    first = table.group_by("key", use_threads=False)
    columns = first.aggregate([("digest", "first"), ("row", "min")])
    return columns.rename_columns(["key", "digest", "row"])


def _read(artifact: StoredArtifact, row: int | None) -> dict[str, Any] | None:
    return None if row is None else read_row(artifact.table(), row)


def _describe(old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, str]:
    """Return title, ids and changed text of a document that both corpora or one of them has."""
    documents = [document for document in (old, new) if document is not None]
    sentences = [document["sentences"] if document else [] for document in (old, new)]
    return {
        "title": documents[-1]["title"],
        "ids": " -> ".join(dict.fromkeys(document["document_id"] for document in documents)),
        "text": " ".join(_mark_words(*sentences)) or "the same sentences in another order",
    }


def _mark_words(before: list[str], after: list[str]) -> Iterator[str]:
    """Yield the first sentence of each text that the other one does not have, as marked words.

    >>> " ".join(_mark_words(["It is old.", "The end."], ["It is new.", "The end."]))
    'It is [-old.-] {+new.+}'
    """
    old_sentences, new_sentences = set(before), set(after)
    old = next((text for text in before if text not in new_sentences), "").split()[:_MAX_WORDS]
    new = next((text for text in after if text not in old_sentences), "").split()[:_MAX_WORDS]
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if kind == "equal":
            yield from old[old_start:old_end]
            continue
        if removed := " ".join(old[old_start:old_end]):
            yield f"[-{removed}-]"
        if added := " ".join(new[new_start:new_end]):
            yield f"{{+{added}+}}"
