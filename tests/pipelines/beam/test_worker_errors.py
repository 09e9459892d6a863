"""Errors of workers reach the launching process unchanged; a full disk leaves no files."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from support.dump_builder import dump, page
from support.paths import PYTHONPATH

from pipelines.beam.item_cache import CacheFiles
from pipelines.beam.shard_job import run_shard_job
from pipelines.beam.shard_work import WorkResult
from pipelines.build_documents import build_documents
from pipelines.io import shards
from pipelines.io.files import FileWriter
from pipelines.io.shards import ShardWriter
from schemas.corpus_configs import DocumentsConfig, WikipediaSource
from schemas.errors import (
    BertloomError,
    ConfigError,
    CorruptInputError,
    RunnerError,
    VocabularyError,
)
from schemas.execution_configs import ExecutionConfig


class _Piece(NamedTuple):
    number: int
    weight: int = 1


class _Fails:
    """Raises what it was given on every piece but the first."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def setup(self) -> None:
        """Nothing to open."""

    def process(self, piece: _Piece) -> WorkResult:
        if piece.number:
            raise self._error
        return WorkResult(piece.number)


@pytest.fixture(autouse=True)
def _workers_find_this_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)


def failure_of(error: Exception, folder: Path, *, workers: int, runner: str = "local") -> Exception:
    pieces = [_Piece(number) for number in range(4)]
    how = ExecutionConfig(workers=workers, runner=runner)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the callers look at it
        run_shard_job("job", pieces, work=_Fails(error), output=str(folder), execution=how)
    assert list(folder.iterdir()) == [], "what told the error is taken away"
    return raised.value


def test_error_of_worker_process_keeps_type_and_attributes(tmp_path: Path) -> None:
    error = CorruptInputError("x.bz2 ends too early", file="x.bz2", offset=7, last_record="A")
    raised = failure_of(error, tmp_path, workers=2)
    assert type(raised) is CorruptInputError
    assert str(raised) == "x.bz2 ends too early"
    assert (raised.file, raised.offset, raised.last_record) == ("x.bz2", 7, "A")


def test_error_of_worker_process_keeps_its_notes(tmp_path: Path) -> None:
    error = VocabularyError("no words")
    error.add_note("look here")
    raised = failure_of(error, tmp_path, workers=2)
    assert (type(raised), str(raised)) == (VocabularyError, "no words")
    assert raised.__notes__ == ["look here"]


@pytest.mark.parametrize(("runner", "workers"), [("local", 2), ("threads", 2)])
def test_full_disk_is_an_os_error(tmp_path: Path, runner: str, workers: int) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/store/part")
    raised = failure_of(error, tmp_path, workers=workers, runner=runner)
    assert isinstance(raised, OSError)
    assert (raised.errno, raised.filename) == (errno.ENOSPC, "/store/part")


@pytest.mark.parametrize("workers", [1, 2])
def test_other_error_names_its_work_item(tmp_path: Path, workers: int) -> None:
    raised = failure_of(ValueError("no number"), tmp_path, workers=workers)
    assert type(raised) is RunnerError
    assert "item 1: ValueError: no number" in str(raised)


def test_truncated_dump_is_the_same_error_with_any_number_of_workers(tmp_path: Path) -> None:
    path = tmp_path / "cut.xml"
    path.write_bytes(dump([page(n, "Some words of text. " * 30) for n in range(1, 101)])[:40_000])
    source = WikipediaSource(name="w", paths=(str(path),), target_split_bytes=4096)
    errors = []
    for workers in (1, 2):
        output = tmp_path / f"out{workers}"
        output.mkdir()
        with pytest.raises(CorruptInputError) as raised:
            build_documents(
                DocumentsConfig(sources=(source,)),
                inputs={},
                output=str(output),
                execution=ExecutionConfig(workers=workers),
            )
        errors.append((str(raised.value), raised.value.offset, raised.value.last_record))
        assert raised.value.file == str(path)
        assert not [p for p in output.iterdir() if "partial" in p.name or "error" in p.name]
    assert errors[0] == errors[1]
    assert errors[0][1] == 40_000


class _FullDisk:
    """File whose disk is full from the given call on; close() writes again."""

    def __init__(self, sink: Any, fails_at: str) -> None:
        self._sink, self._fails_at = sink, fails_at

    def _try(self, call: str) -> None:
        if call == self._fails_at or (call == "close" and self._fails_at in ("write", "flush")):
            raise OSError(errno.ENOSPC, "No space left on device")

    def write(self, data: Any) -> int:
        self._try("write")
        return int(self._sink.write(data))

    def flush(self) -> None:
        self._try("flush")
        self._sink.flush()

    def close(self) -> None:
        self._sink.close()
        self._try("close")

    def fileno(self) -> int:
        self._try("fsync")
        return int(self._sink.fileno())


def _write_file(output: str) -> None:
    with FileWriter("a.txt", output=output) as writer:
        writer.file.write(b"x" * 100)


def _write_shard(output: str) -> None:
    schema = pa.schema([("x", pa.int64())])
    with ShardWriter("a.arrow", schema=schema, output=output) as shard:
        shard.write(pa.record_batch([[1, 2, 3]], schema=schema))


@pytest.mark.parametrize("fails_at", ["write", "flush", "fsync", "close"])
@pytest.mark.parametrize("form", ["file", "shard"])
def test_a_full_disk_names_the_file_and_leaves_nothing_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str, form: str
) -> None:
    enter = FileWriter.__enter__

    def on_a_full_disk(self: FileWriter) -> FileWriter:
        enter(self)
        self._sink = self.file._sink = _FullDisk(self._sink, fails_at)
        return self

    monkeypatch.setattr(shards.FileWriter, "__enter__", on_a_full_disk)
    with pytest.raises(OSError, match="No space left") as raised:
        (_write_file if form == "file" else _write_shard)(str(tmp_path))
    assert raised.value.errno == errno.ENOSPC
    assert str(raised.value.filename).startswith(str(tmp_path / "a-"))
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_finds_no_room_leaves_nothing_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_bytes(self: Path, data: bytes) -> int:
        with self.open("wb") as sink:
            sink.write(data[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    files = CacheFiles(
        folder=str(tmp_path / "pieces" / "stage" / "digest"), output=str(tmp_path / "out")
    )
    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    with pytest.raises(OSError, match="No space left") as raised:
        files.write("abc.json", b"{}")
    assert str(raised.value.filename).endswith("abc.json")
    assert not [name for _, _, names in os.walk(tmp_path) for name in names]


def test_foreign_error_with_a_name_of_ours_is_not_ours(tmp_path: Path) -> None:
    other = type("ConfigError", (Exception,), {})
    raised = failure_of(other("x"), tmp_path, workers=1)
    assert isinstance(raised, BertloomError)
    assert not isinstance(raised, ConfigError)
