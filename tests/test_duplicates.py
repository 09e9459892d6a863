"""Equal texts and equal ids are found whichever shards they stand in."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.beam.work import WorkReport
from pipelines.documents import duplicates
from pipelines.documents.duplicates import (
    Rows,
    choose_duplicates,
    digest_blobs,
    duplicate_rows,
    repeated_keys,
)
from pipelines.documents.duplicates import write_duplicates as write
from pipelines.io.shards import ShardWriter, open_shard
from schemas.arrow import DOCUMENTS
from schemas.manifest import FileEntry


def _digest(text: str) -> bytes:
    return text.encode().ljust(16, b"\0")


def _keys(rows: list[tuple[str, str]]) -> pa.Table:
    """A page's id is written `wiki:PAGE:REVISION`, its title is that of its text's first word."""
    columns: dict[str, list[Any]] = {name: [] for name in duplicates.KEY_COLUMNS}
    for name, text in rows:
        numbers = [int(part) for part in name.split(":")[1:]] if name.startswith("wiki:") else []
        page, revision = numbers or (None, None)
        values = (name, _digest(text), text.split()[0], page, revision)
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    return pa.table(columns)


def _found(*shards: list[tuple[str, str]]) -> list[WorkReport]:
    """What the buckets report for shards of (document_id, text)."""
    blobs: dict[int, list[bytes]] = {}
    for number, rows in enumerate(shards):
        for blob in digest_blobs(_keys(rows), shard=f"part-{number}"):
            blobs.setdefault(blob.bucket, []).append(blob.data)
    return [
        WorkReport(
            bucket,
            details=[[list(member) for member in group] for group in repeated_keys(data)],
        )
        for bucket, data in blobs.items()
    ]


def _ids_of(*shards: list[tuple[str, str]]) -> Callable[[Rows], list[list[str]]]:
    def document_ids(wanted: Rows) -> list[list[str]]:
        return [
            [shards[int(shard.removeprefix("part-"))][row][0] for row in rows]
            for shard, rows in wanted.items()
        ]

    return document_ids


def _left_out(*shards: list[tuple[str, str]]) -> list[tuple[str, str, str]]:
    return [
        (row["document_id"], row["reason"], row["kept_document_id"])
        for row in choose_duplicates(_found(*shards), document_ids=_ids_of(*shards))
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


def test_the_same_document_twice_is_a_repeated_id() -> None:
    assert _left_out([("a", "x")], [("a", "x")]) == [("a", "same-id", "a")]


def test_of_one_id_the_first_row_of_the_plan_stays() -> None:
    first, second = [("a", "z"), ("b", "q")], [("c", "r"), ("a", "a"), ("a", "m")]
    reports = _found(first, second)
    rows = choose_duplicates(reports, document_ids=_ids_of(first, second))
    assert [(row["shard"], row["row"]) for row in rows] == [("part-1", 1), ("part-1", 2)]


def test_of_one_page_in_two_dumps_the_newest_revision_stays() -> None:
    older, newer = [("wiki:7:100", "Ada old"), ("wiki:8:9", "Babbage")], [("wiki:7:101", "Ada new")]
    for shards in ((older, newer), (newer, older)):
        assert _left_out(*shards) == [("wiki:7:100", "same-id", "wiki:7:101")]


def test_pages_of_two_wikis_with_one_number_are_two_documents() -> None:
    assert _left_out([("wiki:7:100", "Ada"), ("wiki:7:101", "Babbage")]) == []


def test_an_id_may_hold_any_character() -> None:
    # Ids used to be joined by line ends.
    assert _left_out([("a\nb", "x")], [("c\0d", "x")]) == [("c\0d", "same-text", "a\nb")]


def test_table_is_written_and_read_by_shard(tmp_path) -> None:
    reports = _found([("b", "x"), ("d", "q")], [("a", "x"), ("c", "x")])
    found = write(reports, output=str(tmp_path), shards=())
    assert [row["reason"] for row in found.rows] == ["same-text"] * 2
    url = str(tmp_path / found.file.object)
    assert duplicate_rows(url, shard="part-0", reason="same-text") == {0}
    assert duplicate_rows(url, shard="part-1", reason="same-text") == {1}
    assert duplicate_rows(url, shard="part-1", reason="same-id") == frozenset()
    assert duplicate_rows(url, shard="part-2", reason="same-text") == frozenset()
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
    assert [row["reason"] for row in found.rows] == ["same-id"] * (2 * repeated)
    assert len(read) == len({url for url, _ in read}) <= len(shards)
    assert {columns for _, columns in read} == {("document_id",)}
