"""Equal texts and equal ids are found whichever shards they stand in."""

from __future__ import annotations

import itertools

import pyarrow as pa

from pipelines.duplicates import choose_duplicates, digest_blobs, duplicate_rows, repeated_keys
from pipelines.duplicates import write_duplicates as write
from pipelines.shard_work import WorkReport
from pipelines.shards import open_shard


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
    def document_id(shard: str, row: int) -> str:
        return shards[int(shard.removeprefix("part-"))][row][0]

    return [
        (row["document_id"], row["reason"], row["kept_document_id"])
        for row in choose_duplicates(_found(*shards), document_id=document_id)
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
