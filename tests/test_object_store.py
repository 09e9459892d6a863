"""The corpus on an object store by HTTP: other processes, requests, a network that fails."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import fsspec
import pytest
from object_store import S3Server, environment

from pipelines import progress, shard_jobs
from pipelines.file_systems import file_system
from pipelines.progress import Reading, listening
from pipelines.shard_jobs import run_shard_job
from pipelines.shard_work import WorkReport
from pipelines.shards import write_text_file
from schemas.configs import ExecutionConfig

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as started:
        yield started


@pytest.fixture
def bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket."""
    for name, value in environment(server.url).items():
        monkeypatch.setenv(name, value)
    yield server.make_bucket(f"corpora-{uuid.uuid4().hex[:12]}")
    fsspec.get_filesystem_class("s3").clear_instance_cache()


class _Piece(NamedTuple):
    number: int
    weight: int


class _SlowWork:
    """Takes its time over each piece, and leaves a file that counts as a shard."""

    def __init__(self, output: str, seconds: float) -> None:
        self._output, self._seconds = output, seconds

    def setup(self) -> None:
        """Nothing to open."""

    def process(self, piece: _Piece) -> WorkReport:
        time.sleep(self._seconds)
        entry = write_text_file(f"part-{piece.number}.arrow", "a shard", output=self._output)
        return WorkReport(piece.number, [entry])


PIECES = [_Piece(number, shard_jobs.WORTH_PROCESSES) for number in range(4)]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_that_is_watched_finds_its_reports(
    workers: int, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_REMOTE_LOOK_SECONDS", 0.05)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # workers import this module
    output = f"{bucket}/store/artifacts/build-things/1/data"
    told: list[Reading] = []
    with listening(told.append):
        reports, _ = run_shard_job(
            "job",
            PIECES,
            work=_SlowWork(output, 0.4),
            output=output,
            execution=ExecutionConfig(workers=workers),
        )
    assert [report.index for report in reports] == [0, 1, 2, 3]
    # The bar moves while the job goes on.
    assert {reading.done for reading in told} >= {1, 2, 4}
    assert told[-1].bytes == 4 * len("a shard")


def test_what_another_process_wrote_is_seen_at_once(bucket: str) -> None:
    fs, path = file_system(f"{bucket}/folder")
    other = fsspec.filesystem("s3", skip_instance_cache=True)
    other.pipe_file(f"{path}/one", b"1")
    assert len(fs.ls(path)) == 1
    other.pipe_file(f"{path}/two", b"2")
    assert len(fs.ls(path)) == 2
    assert fs.exists(f"{path}/two")
    other.rm_file(f"{path}/one")
    assert not fs.exists(f"{path}/one")
    assert not fs.isfile(f"{path}/one")


def test_file_systems_are_opened_in_one_place() -> None:
    root = Path(__file__).parents[1]
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for package in ("schemas", "pipelines", "model", "flows")
        for path in sorted((root / package).rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if re.search(r"url_to_fs|fsspec\.(open|filesystem)\(", line)
        and path.name != "file_systems.py"
    ]
    assert found == []
