"""However many pieces a job has, reports are short on their way and in the launching process."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import fsspec
import pytest

from pipelines.beam import pipeline as beam_pipeline
from pipelines.beam import shard_work as reports
from pipelines.beam.shard_job import run_shard_job
from pipelines.beam.shard_work import ResultBatcher, ResultList, WorkResult
from pipelines.counters import Counters
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import FileEntry


class _Piece(NamedTuple):
    number: int
    weight: int = 1


def _report(number: int, *, names: int = 0) -> WorkResult:
    """Return counters like those of a dump's split: about forty, and names of templates."""
    entry = FileEntry(
        path=f"part-{number:05d}.arrow",
        stored_name=f"part-{number}-x.arrow",
        size_bytes=1,
        sha256="ab" * 32,
    )
    counted = {f"things-dropped-for-reason-{n}@source": number + n for n in range(40)}
    details = [{f"template-unknown:name of template {n}": n for n in range(names)}]
    return WorkResult(number, [entry], Counters(counted), details=details, reused=number % 3 == 0)


class _Work:
    def setup(self) -> None:
        """Nothing to open."""

    def process(self, piece: _Piece) -> WorkResult:
        return _report(piece.number, names=20)


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path)
        return
    yield (root := f"memory://reports-{os.getpid()}")
    fs, path = fsspec.core.url_to_fs(root)
    fs.rm(path, recursive=True)


def _texts(found: ResultList) -> list[str]:
    return [report.to_json() for report in found]


@pytest.mark.parametrize("most", [0, 1_000, 1 << 20])
@pytest.mark.parametrize("file_bytes", [5_000, 1 << 20])
def test_what_is_sent_arrives_in_the_order_of_the_plan_and_leaves_nothing(
    folder: str, monkeypatch: pytest.MonkeyPatch, most: int, file_bytes: int
) -> None:
    monkeypatch.setattr(reports, "_FILE_BYTES", file_bytes)
    sent, written = list[str](), [_report(number, names=number) for number in range(30)]
    for first in (20, 0, 10):
        box = ResultBatcher(f"{folder}/.reports-1", max_inline_bytes=most)
        for report in written[first : first + 10]:
            sent += box.add(report)
        sent += box.flush()
    fs, path = fsspec.core.url_to_fs(folder)
    fs.makedirs(path, exist_ok=True)
    repeated = ResultBatcher(f"{folder}/.reports-1", max_inline_bytes=0)  # from an abandoned worker
    assert [*repeated.add(written[0]), *repeated.flush()]
    fs.pipe_file(f"{path}/part-00000.arrow", b"stays")
    if most == 1 << 20:
        assert all(line.startswith("{") for line in sent)
        fs.rm_file(fs.glob(f"{path}/.reports-1-*")[0])
    else:
        assert all("/.reports-1-" in line for line in sent)
    fs.pipe_file(f"{path}/.reports-1", "\n".join(sorted(sent)).encode())
    found = ResultList(f"{folder}/.reports-1")
    assert found.numbers == list(range(30))
    assert _texts(found) == [report.to_json() for report in written]
    assert _texts(found) == [report.to_json() for report in written], "as often as it is asked for"
    assert found[3:5] == written[3:5]
    assert found.files == tuple(report.files[0] for report in written)
    assert found.reused == set(range(0, 30, 3))
    assert [name.rpartition("/")[2] for name in fs.find(path)] == ["part-00000.arrow"]


@pytest.mark.parametrize("together", [0, 8 << 20])
def test_a_job_gives_the_same_reports_whichever_way_they_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(beam_pipeline, "MAX_INLINE_BYTES", together)
    planned = [_Piece(number) for number in range(40)]
    done = run_shard_job(
        "job", planned, work=_Work(), output=str(tmp_path), execution=ExecutionConfig()
    )
    assert _texts(done.reports) == [_report(number, names=20).to_json() for number in range(40)]
    assert done.reuse.items_reused == 14
    assert list(tmp_path.iterdir()) == []


def test_the_launching_process_holds_one_report_at_a_time(tmp_path: Path) -> None:
    """Ten kilobytes each, as a split of a large Wikipedia has: they took 43 kilobytes each."""
    number = 400
    box, sent = ResultBatcher(f"{tmp_path}/.reports-1", max_inline_bytes=0), list[str]()
    for index in range(number):
        sent += box.add(_report(index, names=200))
    sent += box.flush()
    (tmp_path / ".reports-1").write_text("\n".join(sent))
    tracemalloc.start()
    try:
        found = ResultList(f"{tmp_path}/.reports-1")
        total = sum(len(report.details[0]) for report in found)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == 200 * number
    assert held < 4_000 * number
