"""Network faults while raw files are read: requests are repeated, and no file is called damaged."""

from __future__ import annotations

import errno
import gzip
import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import ClientPayloadError
from support.counting_fs import CountedFiles

from pipelines.counters import Counters
from pipelines.io import raw_files
from pipelines.sources import books, text
from schemas.corpus_configs import BooksSource, TextSource
from schemas.errors import CorruptInputError, InputError, NetworkError

BOOK = b"It was a bright cold morning when the three of them set out along the river bank.\n" * 20


def write_archive(path: Path) -> None:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.txt", BOOK)
        return
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        entry = tarfile.TarInfo("a.txt")
        entry.size = len(BOOK)
        archive.addfile(entry, io.BytesIO(BOOK))


def write_file(path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": [BOOK.decode()]}), path)
    elif path.name == "a.txt.gz":
        path.write_bytes(gzip.compress(BOOK))
    else:
        write_archive(path)


@pytest.fixture(params=["a.parquet", "a.tar", "a.tar.gz", "a.zip", "a.txt.gz"])
def source(request: pytest.FixtureRequest, tmp_path: Path, fresh_cache: None) -> tuple[Any, Any]:
    """A source module and its configuration, for one remote file of each format."""
    write_file(tmp_path / request.param)
    paths = (f"counted://{tmp_path / request.param}",)
    if request.param in ("a.parquet", "a.txt.gz"):
        return text, TextSource(name="s", paths=paths)
    return books, BooksSource(name="s", paths=paths)


def read(source: tuple[Any, Any], faults: list[Exception]) -> list[Any]:
    module, config = source
    splits = module.plan(config)
    CountedFiles.faults[:] = faults
    return [raw for split in splits for raw in module.read(split, config, Counters().count)]


@pytest.mark.parametrize(
    "fault", [ConnectionResetError("reset"), TimeoutError("slow"), ClientPayloadError("cut")]
)
def test_read_is_repeated_after_network_faults(
    source: tuple[Any, Any],
    fault: Exception,
    counted: type[CountedFiles],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(raw_files, "READ_RETRY_DELAYS", (0, 0))
    expected = read(source, [])
    assert len(expected) == 1
    assert read(source, [fault, fault]) == expected
    assert not counted.faults


@pytest.mark.parametrize("fault", [OSError(errno.EIO, "reset"), ClientPayloadError("cut")])
def test_lasting_network_fault_is_not_reported_as_damage(
    source: tuple[Any, Any],
    fault: Exception,
    counted: type[CountedFiles],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(raw_files, "READ_RETRY_DELAYS", (0, 0))
    with pytest.raises(NetworkError) as raised:
        read(source, [fault] * 1000)
    assert raised.value.file == source[1].paths[0]


def test_missing_rights_are_reported_at_once(
    source: tuple[Any, Any], counted: type[CountedFiles]
) -> None:
    with pytest.raises(InputError) as raised:
        read(source, [OSError("Forbidden"), OSError("Forbidden")])
    assert not isinstance(raised.value, (CorruptInputError, NetworkError))
    assert len(counted.faults) == 1


def test_cut_remote_parquet_is_reported_as_damage(
    tmp_path: Path, fresh_cache: None, counted: type[CountedFiles]
) -> None:
    write_file(tmp_path / "a.parquet")
    path = tmp_path / "a.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptInputError):
        text.plan(TextSource(name="s", paths=(f"counted://{path}",)))
