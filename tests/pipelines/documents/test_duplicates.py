"""Equal texts and ids are found across shards, with any number of buckets."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.corpus_builder import small_recipe
from support.item_runs import describe_outputs, run_stages

from flows.sample import write_sample
from pipelines.documents import bucket_tables, duplicates
from pipelines.documents.duplicates import (
    BUCKETS,
    Duplicates,
    buckets_for,
    duplicate_key_blobs,
    excluded_rows,
    find_duplicates_in_bucket,
    write_duplicates,
)
from pipelines.io.file_systems import file_system
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.shard_job.work import WorkResult
from schemas.arrow import DOCUMENTS, DUPLICATES
from schemas.errors import RunnerError
from schemas.manifest import FileEntry

Shard = Sequence[tuple[str, str]]
"""Pairs of a document's id and its text."""


class _Document(NamedTuple):
    document_id: str
    digest: bytes
    title: str
    page_id: int | None
    revision_id: int | None


def _document(name: str, text: str) -> _Document:
    """A page's id is written `wiki:PAGE:REVISION`, its title is that of its text's first word."""
    numbers = [int(part) for part in name.split(":")[1:]] if name.startswith("wiki:") else []
    page, revision = numbers or (None, None)
    return _Document(name, text.encode().ljust(16, b"\0"), text.split()[0], page, revision)


def _keys(rows: Shard) -> pa.Table:
    schema = pa.schema([DOCUMENTS.field(name) for name in duplicates.KEY_COLUMNS])
    return pa.Table.from_pylist([_document(*row)._asdict() for row in rows], schema=schema)


def _shard_name(number: int) -> str:
    return f"part-{number:05d}-000.arrow"


def _entry(number: int, rows: Shard) -> FileEntry:
    name = _shard_name(number)
    return FileEntry(path=name, stored_name=name, size_bytes=0, sha256="0" * 64, rows=len(rows))


def _entries(shards: Sequence[Shard], *, first: int = 0) -> list[FileEntry]:
    return [_entry(number, rows) for number, rows in enumerate(shards, first)]


def _reports(
    shards: Sequence[Shard], output: Path | str, *, buckets: int = BUCKETS, first: int = 0
) -> list[WorkResult]:
    blobs: dict[int, list[bytes]] = {}
    for number, rows in enumerate(shards, first):
        for blob in duplicate_key_blobs(_keys(rows), shard=_shard_name(number), buckets=buckets):
            blobs.setdefault(blob.bucket, []).append(blob.data)
    return [
        find_duplicates_in_bucket(bucket, data, output=str(output))
        for bucket, data in blobs.items()
    ]


def _write(shards: Sequence[Shard], output: Path | str, *, buckets: int = BUCKETS) -> Duplicates:
    reports = _reports(shards, output, buckets=buckets)
    return write_duplicates(reports, output=str(output), shards=_entries(shards))


def _rows(table: Duplicates, output: Path | str) -> list[dict[str, Any]]:
    with open_shard(f"{output}/{table.file.stored_name}", expected=DUPLICATES) as reader:
        rows: list[dict[str, Any]] = reader.read_all().to_pylist()
        return rows


def _left_out(*shards: Shard) -> list[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        rows = _rows(_write(shards, folder), folder)
        assert [path.name.partition("-")[0] for path in Path(folder).rglob("*.*")] == ["duplicates"]
    return [(row["document_id"], row["reason"], row["canonical_document_id"]) for row in rows]


@pytest.mark.parametrize(
    ("shards", "left_out"),
    [
        ([], []),
        ([[], []], []),
        ([[("a", "x"), ("b", "y")], [("c", "z")]], []),
        ([[("a", "y")], [("a", "x")]], [("a", "same-id", "a")]),
        ([[("a", "x")], [("a", "x")]], [("a", "same-id", "a")]),
        # If a's y went for its id and c's y went for its text, y would be lost.
        ([[("a", "x"), ("a", "y")], [("c", "y")]], [("a", "same-id", "a")]),
        ([[("a\nb", "x")], [("c\0d", "x")]], [("c\0d", "same-text", "a\nb")]),
        ([[("c", "x")], [("a", "x"), ("z", "y")]], [("c", "same-text", "a")]),
        # Of a page in two dumps, the newest revision stays.
        ([[("wiki:7:100", "Ada old")], [("wiki:7:101", "Ada new")]],
         [("wiki:7:100", "same-id", "wiki:7:101")]),
        # One number, but two titles: pages of two wikis.
        ([[("wiki:7:100", "Ada"), ("wiki:7:101", "Babbage")]], []),
    ],
)  # fmt: skip
def test_duplicates_of_shards_in_any_order(
    shards: list[Shard], left_out: list[tuple[str, str, str]]
) -> None:
    for order in itertools.permutations(shards):
        assert _left_out(*order) == left_out


def test_first_row_of_one_id_stays_when_shard_numbers_have_six_digits(tmp_path: Path) -> None:
    shards: list[Shard] = [[("a", "x"), ("c", "z")], [("a", "y")], [("b", "z")]]
    reports = _reports(shards, tmp_path, first=99_999)
    entries = _entries(shards, first=99_999)
    table = write_duplicates(reports, output=str(tmp_path), shards=entries)
    left_out = [(row["shard"], row["row"], row["reason"]) for row in _rows(table, tmp_path)]
    assert left_out == [(_shard_name(99_999), 1, "same-text"), (_shard_name(100_000), 0, "same-id")]


def _expected(shards: Sequence[Shard]) -> list[dict[str, Any]]:
    """Compare all pairs of rows."""
    rows = {
        (shard, row): _document(*document)
        for shard, documents in enumerate(shards)
        for row, document in enumerate(documents)
    }

    def page(document: _Document) -> tuple[str, str] | None:
        if document.page_id is None:
            return None
        return document.document_id.removesuffix(f":{document.revision_id}"), document.title

    left: dict[tuple[int, int], tuple[str, str]] = {}
    for position, document in rows.items():  # of a page the newest revision, of these the first
        others = [(-(o.revision_id or 0), p) for p, o in rows.items() if page(o) == page(document)]
        if page(document) and min(others)[1] != position:
            left[position] = "same-id", rows[min(others)[1]].document_id
    for position, document in rows.items():
        same_id = [p for p, o in rows.items() if o[0] == document[0] and p not in left]
        if position not in left and min(same_id) != position:
            left[position] = "same-id", document.document_id
    by_id = set(left)
    for position, document in rows.items():
        equal = [(o.document_id, p) for p, o in rows.items() if o.digest == document.digest]
        stays = min((item for item in equal if item[1] not in by_id), default=None)
        if position not in by_id and stays and stays[1] != position:
            left[position] = "same-text", stays[0]
    return [
        {
            "document_id": rows[position].document_id,
            "shard": _shard_name(position[0]),
            "row": position[1],
            "reason": left[position][0],
            "canonical_document_id": left[position][1],
        }
        for position in sorted(left)
    ]


_NAMES = st.one_of(
    st.sampled_from(["a", "b", "ab", "", "\0", "a\n", "a'\"\\", "é", "é", "\U0001f4d6", "../x"]),
    st.text(st.characters(codec="utf-8"), max_size=4).filter(lambda name: name[:5] != "wiki:"),
    st.builds("wiki:{}:{}".format, st.integers(1, 3), st.integers(0, 4)),
)
_TEXTS = st.sampled_from(
    [f"{title} {text}" for title in ("Ada", "Bab") for text in ("x", "y", "z")]
)
_SHARDS = st.lists(st.lists(st.tuples(_NAMES, _TEXTS), max_size=8), max_size=5)


@settings(deadline=None, max_examples=60)
@given(shards=_SHARDS, buckets=st.sampled_from([1, 2, 7, 64, 1000]), small=st.booleans())
def test_what_is_found_is_what_comparing_each_with_each_finds(
    shards: list[Shard], buckets: int, small: bool
) -> None:
    expected = _expected(shards)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if small:  # whatever is cut in the middle: record batches, and reports that take none along
            patch.setattr(duplicates, "_SMALL_BUCKET", 0)
            patch.setattr(bucket_tables, "_BATCH_ROWS", 2)
            patch.setattr(duplicates, "BATCH_ROWS", 3)
        table = _write(shards, folder, buckets=buckets)
        assert _rows(table, folder) == expected
        assert table.same_text == sum(row["reason"] == "same-text" for row in expected)
        repeated = {shard: rows.rows for shard, rows in table.repeated_ids.items()}
        for number, shard in enumerate(map(_shard_name, range(len(shards)))):
            for reason in ("same-id", "same-text"):
                url = f"{folder}/{table.file.stored_name}"
                wanted = {
                    row["row"]
                    for row in expected
                    if (row["shard"], row["reason"]) == (shard, reason)
                }
                rows_of_shard = excluded_rows(url, shard=shard, expected=DUPLICATES)
                assert set(rows_of_shard.get(reason, ())) == wanted, number
                assert reason == "same-text" or repeated.get(shard, 0) == len(wanted)
        assert [path.name for path in Path(folder).rglob("*.arrow")] == [
            Path(table.file.stored_name).name
        ]


def test_the_bytes_are_those_of_one_batch_of_rows_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many buckets there are, whichever of them is reported first, in any store."""
    shards = [[(f"{s}-{n % 40}", f"w{n % 50} t") for n in range(s * 7, 90)] for s in range(5)]
    with ShardWriter("expected.arrow", schema=DUPLICATES, output=str(tmp_path)) as shard:
        shard.write(pa.RecordBatch.from_pylist(_expected(shards), schema=DUPLICATES))
    for buckets in (1, 64, 1000):
        table = _write(shards, tmp_path, buckets=buckets)
        assert table.file.sha256 == shard.entry().sha256
    monkeypatch.setattr(duplicates, "_SMALL_BUCKET", 0)
    memory = f"memory://{tmp_path.name}/documents"
    reports = _reports(shards, memory)
    assert sum(len(report.files) for report in reports) > 20
    table = write_duplicates(reports[::-1], output=memory, shards=_entries(shards)[::-1])
    assert table.file.sha256 == shard.entry().sha256
    fs, folder = file_system(memory)  # the files of the buckets are gone
    assert fs.find(folder) == [f"{folder}/{table.file.stored_name}"]


def test_more_documents_get_more_buckets() -> None:
    assert buckets_for(0) == buckets_for(32 << 30) == BUCKETS == 64
    assert buckets_for(1 << 40) == 1 << 11


def test_rows_of_a_shard_that_nobody_reported_are_refused(tmp_path: Path) -> None:
    reports = _reports([[("a", "x")], [("b", "x")]], tmp_path)
    with pytest.raises(RunnerError, match="part-00001-000"):
        write_duplicates(reports, output=str(tmp_path), shards=_entries([[("a", "x")]]))


def test_restored_pieces_may_be_dealt_to_other_buckets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cached work items do not depend on the number of buckets."""
    recipe = small_recipe(write_sample(str(tmp_path / "sample"), articles=40, tales=1))
    first = run_stages(recipe, str(tmp_path / "store"), "first", until="build-documents")
    monkeypatch.setattr(duplicates, "BUCKETS", 3)
    second = run_stages(recipe, str(tmp_path / "store"), "second", until="build-documents")
    assert second["build-documents"].reuse.items_reused == second["build-documents"].reuse.items
    assert second["build-documents"].counters["duplicates-same-text"] > 0
    assert describe_outputs(second) == describe_outputs(first)
