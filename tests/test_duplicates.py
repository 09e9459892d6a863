"""Equal texts and equal ids are found whichever shards they stand in."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines import duplicates
from pipelines.duplicates import (
    Rows,
    choose_duplicates,
    digest_blobs,
    duplicate_rows,
    repeated_keys,
)
from pipelines.duplicates import write_duplicates as write
from pipelines.shard_work import WorkReport
from pipelines.shards import ShardWriter, open_shard
from schemas.arrow import DOCUMENTS
from schemas.manifest import FileEntry


def _digest(text: str) -> bytes:
    return text.encode().ljust(16, b"\0")


def _found(*shards: list[tuple[str, str]]) -> list[WorkReport]:
    """What the buckets report for shards of (document_id, text)."""
    blobs: dict[int, list[bytes]] = {}
    for number, rows in enumerate(shards):
        ids, texts = [row[0] for row in rows], [_digest(row[1]) for row in rows]
        for blob in digest_blobs(ids, texts, shard=f"part-{number}"):
            blobs.setdefault(blob.bucket, []).append(blob.data)
    return [
        WorkReport(
            bucket,
            details=[
                [list(member) for member in group]
                for group in repeated_keys(data, by_id=bucket % 2 == 1)
            ],
        )
        for bucket, data in blobs.items()
    ]


def _left_out(*shards: list[tuple[str, str]]) -> list[tuple[str, str, str]]:
    def document_ids(wanted: Rows) -> list[list[str]]:
        return [
            [shards[int(shard.removeprefix("part-"))][row][0] for row in rows]
            for shard, rows in wanted.items()
        ]

    return [
        (row["document_id"], row["reason"], row["kept_document_id"])
        for row in choose_duplicates(_found(*shards), document_ids=document_ids)
    ]


def test_different_documents_are_no_duplicates() -> None:
    assert _left_out([("a", "x"), ("b", "y")], [("c", "z")]) == []


def test_the_smallest_id_of_equal_texts_stays_in_any_order() -> None:
    shards = [[("c", "x")], [("a", "x"), ("z", "y")], [("b", "x")]]
    for order in itertools.permutations(shards):
        assert sorted(_left_out(*order)) == [("b", "same-text", "a"), ("c", "same-text", "a")]


def test_one_id_for_two_texts_keeps_one() -> None:
    assert _left_out([("a", "y")], [("a", "x")]) == [("a", "same-id", "a")]


def test_a_row_left_out_for_its_id_does_not_stand_for_its_text() -> None:
    # "a" has texts x and y; y is also c's. If a's y went for its id and c's y went for its text,
    # y would be lost.
    left_out = _left_out([("a", "x"), ("a", "y")], [("c", "y")])
    assert left_out == [("a", "same-id", "a")]


def test_the_same_document_twice_is_one_duplicate() -> None:
    assert _left_out([("a", "x")], [("a", "x")]) == [("a", "same-text", "a")]


def test_table_is_written_and_read_by_shard(tmp_path) -> None:
    reports = _found([("b", "x"), ("d", "q")], [("a", "x"), ("c", "x")])
    found = write(reports, output=str(tmp_path), shards=())
    (entry,) = found.files
    assert found.counters == {"duplicates-same-text": 2}
    url = str(tmp_path / entry.object)
    assert duplicate_rows(url, shard="part-0") == {0}
    assert duplicate_rows(url, shard="part-1") == {1}
    assert duplicate_rows(url, shard="part-2") == frozenset()
    with open_shard(url) as reader:
        assert isinstance(reader.read_all(), pa.Table)


def _shards(output: Path, *shards: list[tuple[str, str]]) -> list[FileEntry]:
    entries = []
    for number, rows in enumerate(shards):
        with ShardWriter(f"part-{number}", schema=DOCUMENTS, output=str(output)) as shard:
            documents = [
                {
                    **dict.fromkeys(("source", "title", "file", "timestamp"), ""),
                    **dict.fromkeys(("byte_start", "byte_end", "page_id", "revision_id"), 0),
                    "document_id": name,
                    "sentences": [text],
                    "digest": _digest(text),
                }
                for name, text in rows
            ]
            shard.write(pa.RecordBatch.from_pylist(documents, schema=DOCUMENTS))
        entries.append(shard.entry())
    return entries


@pytest.mark.parametrize("repeated", [20, 40])
def test_a_shard_is_read_once_however_many_ids_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeated: int
) -> None:
    """Its one column: it used to be read whole for each repeated id."""
    shards = [
        [(f"page-{number}", f"{shard} {number}") for number in range(repeated)]
        for shard in range(3)
    ]
    entries = _shards(tmp_path, *shards)
    read: list[tuple[str, Any]] = []

    def counting(url: str, **options: Any) -> Any:
        read.append((url, options.get("columns")))
        return open_shard(url, **options)

    monkeypatch.setattr(duplicates, "open_shard", counting)
    found = write(_found(*shards), output=str(tmp_path), shards=entries)
    assert found.counters == {"duplicates-same-id": 2 * repeated}
    assert len(read) == len({url for url, _ in read}) <= len(shards)
    assert {columns for _, columns in read} == {("document_id",)}
