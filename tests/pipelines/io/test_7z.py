"""Dumps in .7z archives, written here."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import py7zr
import pytest
from support.dump_builder import compress_7z, dump, page

from pipelines.counters import Counters
from pipelines.io.compression import Chunk, Damage, decompressed
from pipelines.sources import wikipedia
from schemas.corpus_configs import WikipediaSource
from schemas.errors import CorruptInputError, InputError

DUMP = dump([page(number) for number in range(50)])


def read(path: Path) -> list[tuple[str, Sequence[str]]]:
    config = WikipediaSource(name="w", paths=(str(path),))
    return [
        (document_id, text.paragraphs)
        for split in wikipedia.plan(config)
        for document_id, text in wikipedia.read(split, config, Counters().count)
    ]


def chunks(data: bytes) -> list[Chunk | Damage]:
    return list(decompressed(io.BytesIO(data), "7z", start=0, end=len(data)))


@pytest.mark.parametrize("name", ["w.xml.7z", "W.XML.7Z"])
@pytest.mark.parametrize(
    "filters",
    [
        None,
        [{"id": py7zr.FILTER_PPMD, "order": 6, "mem": 24}],
        [{"id": py7zr.FILTER_BZIP2}],
        [{"id": py7zr.FILTER_ZSTD}],
        [{"id": py7zr.FILTER_COPY}],
    ],
    ids=["lzma2", "ppmd", "bzip2", "zstd", "copy"],
)
def test_dump_has_the_pages_of_the_plain_one(
    tmp_path: Path, name: str, filters: list[dict[str, int]] | None
) -> None:
    (tmp_path / name).write_bytes(compress_7z(DUMP, filters=filters))
    (tmp_path / "plain.xml").write_bytes(DUMP)
    assert read(tmp_path / name) == read(tmp_path / "plain.xml")


def test_archive_is_decompressed_in_parts() -> None:
    data = b"a page of text\n" * 500_000
    decompressed_parts = chunks(compress_7z(data))
    parts = [chunk.data for chunk in decompressed_parts if isinstance(chunk, Chunk)]
    assert b"".join(parts) == data
    assert max(map(len, parts)) < len(data) / 5


def test_damaged_archive_is_never_taken_for_a_whole_one(tmp_path: Path) -> None:
    stored = compress_7z(DUMP)
    draw = random.Random(5)
    for number in range(40):
        changed = bytearray(stored)
        if number % 3 == 0:
            del changed[draw.randrange(8, len(changed)) :]
        else:
            changed[draw.randrange(8, len(changed))] ^= 1 << draw.randrange(8)
        parts = chunks(bytes(changed))
        is_whole = b"".join(chunk.data for chunk in parts if isinstance(chunk, Chunk)) == DUMP
        assert isinstance(parts[-1], Damage) or is_whole
    (tmp_path / "w.xml.7z").write_bytes(stored[:-40])
    with pytest.raises(CorruptInputError) as error:
        read(tmp_path / "w.xml.7z")
    assert error.value.file == str(tmp_path / "w.xml.7z")


@pytest.mark.parametrize(
    "stored",
    [compress_7z(b"x", "a.xml", "b.xml"), compress_7z(b"x", password="secret")],
    ids=["two files", "password"],
)
def test_archive_that_is_no_dump_is_refused(tmp_path: Path, stored: bytes) -> None:
    (tmp_path / "w.xml.7z").write_bytes(stored)
    with pytest.raises(InputError, match=r"w\.xml\.7z.*Unpack"):
        read(tmp_path / "w.xml.7z")


def test_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w.xml.7z").write_bytes(compress_7z(DUMP))
    monkeypatch.setitem(sys.modules, "py7zr", None)
    with pytest.raises(InputError, match=r"bertloom\[7z\]"):
        read(tmp_path / "w.xml.7z")
