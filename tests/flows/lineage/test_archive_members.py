"""The trace of a book in an archive names the member."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.archive_builder import tar_bytes, zip_bytes

from flows.lineage.row_trace import trace_row
from flows.lineage.shards import Shard, find_shard
from flows.recipes.loader import recipe_from
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore

BOOK = "Chapter 1\n\n" + "The old man {0} walked along the river and thought of {0}. " * 40
BOOKS = {
    "austen/Emma.txt": BOOK.format("Emma").encode(),
    "Il nome della rosa.TXT": BOOK.format("Adso").encode(),
    "坊っちゃん.txt": BOOK.format("Natsume").encode(),
}
COMPRESSIONS = {"stored": zipfile.ZIP_STORED, "deflated": zipfile.ZIP_DEFLATED}


def archive_bytes(name: str) -> bytes:
    if name.endswith(".zip"):
        return zip_bytes(list(BOOKS.items()), compression=COMPRESSIONS[name.removesuffix(".zip")])
    data = tar_bytes(list(BOOKS.items()), form=tarfile.PAX_FORMAT)
    return gzip.compress(data) if name.endswith(".gz") else data


def build(folder: Path) -> tuple[Shard, int]:
    """Return the only shard of a corpus of the archive in a folder, and its number of rows."""
    source = {"kind": "books", "name": "novels", "paths": [str(folder / "novels.*")]}
    recipe = recipe_from(
        {"name": "test", "build_documents": {"sources": [source]}},
        where="test",
        folder=folder,
        store=str(folder / "store"),
    )
    [result] = run_recipe(recipe, log=lambda _: None, engine="local", until="build-documents")
    store = ArtifactStore(recipe.store)
    shard = find_shard(result.manifest.artifact_id, open_store=lambda: store)
    rows = sum(entry.rows or 0 for entry in result.manifest.shards)
    return shard, rows


@pytest.mark.parametrize("name", ["plain.tar", "stored.zip", "deflated.zip", "packed.tar.gz"])
def test_trace_names_member_of_archive(tmp_path: Path, name: str) -> None:
    (tmp_path / f"novels.{name.partition('.')[2]}").write_bytes(archive_bytes(name))
    shard, rows = build(tmp_path)
    for raw in (False, True):
        traces = [trace_row(shard, row, raw=raw).segments["document"] for row in range(rows)]
        is_packed = name.endswith(".gz") and not raw
        members = {Path(n).with_suffix("").as_posix() if is_packed else n for n in BOOKS}
        assert {trace.member for trace in traces} == members
        for trace in traces:
            lines = trace.lines()
            assert any(line.split(None, 1)[:1] == ["member"] for line in lines)
            [digest] = [line for line in lines if line.startswith("sha256")]
            assert "archive" in digest
            has_bytes = any(line.startswith("bytes") for line in lines)
            assert has_bytes != name.endswith(".gz")


def test_trace_of_missing_archive_names_member_without_suffix(tmp_path: Path) -> None:
    archive = tmp_path / "novels.zip"
    archive.write_bytes(archive_bytes("stored.zip"))
    build(tmp_path)
    (tmp_path / "novels.zip").write_bytes(b"no archive")
    store = ArtifactStore(str(tmp_path / "store"))
    shard = find_shard("test/build-documents", open_store=lambda: store)
    assert trace_row(shard, 0).segments["document"].member in {
        Path(name).with_suffix("").as_posix() for name in BOOKS
    }
