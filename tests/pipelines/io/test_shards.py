"""Shards become visible only when they are complete, with rows and digests."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.io.files import FileWriter
from pipelines.io.shards import ShardWriter, open_shard
from schemas.arrow import WORD_COUNTS, tokens_schema
from schemas.errors import ArtifactCorruptError


def _batch(*words: str) -> pa.RecordBatch:
    rows = [{"word": word, "count": len(word)} for word in words]
    return pa.RecordBatch.from_pylist(rows, schema=WORD_COUNTS)


def test_entry_describes_the_file(tmp_path: Path) -> None:
    with ShardWriter("part-00000.arrow", schema=WORD_COUNTS, output=str(tmp_path)) as shard:
        shard.write(_batch("a", "bb"))
        shard.write(_batch("ccc"))
    entry = shard.entry(statistics={"letters": 6})
    data = (tmp_path / entry.stored_name).read_bytes()
    assert (entry.path, entry.rows, entry.size_bytes) == ("part-00000.arrow", 3, len(data))
    assert entry.sha256 == hashlib.sha256(data).hexdigest()
    assert entry.statistics == {"letters": 6}
    with open_shard(str(tmp_path / entry.stored_name), expected=WORD_COUNTS) as reader:
        assert reader.read_all().column("word").to_pylist() == ["a", "bb", "ccc"]


def test_same_rows_give_same_bytes_under_another_name(tmp_path: Path) -> None:
    entries = []
    for _ in range(2):
        with ShardWriter("p.arrow", schema=WORD_COUNTS, output=str(tmp_path)) as shard:
            shard.write(_batch("a", "b"))
        entries.append(shard.entry())
    assert entries[0].stored_name != entries[1].stored_name
    assert entries[0].sha256 == entries[1].sha256


def test_file_is_visible_only_when_it_is_complete(tmp_path: Path) -> None:
    with FileWriter("v.txt", output=str(tmp_path)) as writer:
        writer.file.write(b"abc")
        assert not (tmp_path / writer.stored_name).exists()
    assert (tmp_path / writer.stored_name).read_bytes() == b"abc"
    shard = ShardWriter("p.arrow", schema=WORD_COUNTS, output=str(tmp_path))
    with contextlib.suppress(RuntimeError), shard:
        shard.write(_batch("a"))
        raise RuntimeError("in the middle")
    assert [path.name for path in tmp_path.iterdir()] == [writer.stored_name]


def test_other_table_or_file_is_refused(tmp_path: Path) -> None:
    with ShardWriter("p.arrow", schema=WORD_COUNTS, output=str(tmp_path)) as shard:
        shard.write(_batch("a"))
    url = str(tmp_path / shard.entry().stored_name)
    with (
        pytest.raises(ArtifactCorruptError, match="expected table 'tokens' version 2"),
        open_shard(url, expected=tokens_schema(100)),
    ):
        pass
    (tmp_path / "x.arrow").write_bytes(b"not arrow at all, but long enough to look at")
    with (
        pytest.raises(ArtifactCorruptError, match="expected an Arrow IPC file"),
        open_shard(str(tmp_path / "x.arrow")),
    ):
        pass
