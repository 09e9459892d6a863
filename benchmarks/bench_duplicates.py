"""Memory and CPU time of finding duplicates, by number of documents.

    python -m benchmarks.bench_duplicates [--rows N ...] [--equal SHARE ...]

Each line runs one job in a new process: shards of generated keys (no text), the grouping of
`build-documents` on the local runner with two workers, and the table of duplicates. `--equal` is
the share of documents whose text equals that of another document. Memory is the growth of the
launching process's peak over that of a small job.
"""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

import psutil
import pyarrow as pa

from benchmarks.timing import parser_for, peak_memory
from pipelines.documents.duplicates import (
    duplicate_key_blobs,
    find_duplicates_in_bucket,
    write_duplicates,
)
from pipelines.shard_job.job import run_shard_job
from pipelines.shard_job.work import BucketReduce, WorkResult
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import FileEntry

ROWS_PER_SHARD = 1_000
"""About as many as in a split of a dump."""

_SMALL_JOB_ROWS = 10_000


class _Piece(NamedTuple):
    number: int
    rows: int
    equal: float
    weight: int = 1 << 20
    name: str = "generated"


class MakeKeys:
    """Shard work that emits the keys of generated documents."""

    def __init__(self, output: str) -> None:
        self.output = output

    def setup(self) -> None:
        """Do nothing."""

    def process(self, piece: _Piece) -> WorkResult:
        """Return the duplicate keys of one shard."""
        first = piece.number * ROWS_PER_SHARD
        numbers = range(first, first + piece.rows)
        every = round(1 / piece.equal) if piece.equal else 0
        texts = [(n // every) * every if every and n % every < 2 else n for n in numbers]
        columns = {
            "document_id": [f"enwiki:{7 * n}:{1_100_000_000 + 13 * n}" for n in numbers],
            "digest": [hashlib.blake2b(b"%d" % n, digest_size=16).digest() for n in texts],
            "title": [f"Title {n}" for n in numbers],
            "page_id": [7 * n for n in numbers],
            "revision_id": [1_100_000_000 + 13 * n for n in numbers],
        }
        shard = f"part-{piece.number:05d}-000.arrow"
        entry = FileEntry(
            path=shard, stored_name=shard, size_bytes=0, sha256="0" * 64, rows=piece.rows
        )
        blobs = duplicate_key_blobs(pa.table(columns), shard=shard)
        return WorkResult(piece.number, [entry], blobs=blobs)


def _find(rows: int, equal: float, folder: str) -> int:
    """Run the job and write its table; return the table's number of rows."""
    planned = [
        _Piece(number, min(ROWS_PER_SHARD, rows - first), equal)
        for number, first in enumerate(range(0, rows, ROWS_PER_SHARD))
    ]
    done = run_shard_job(
        "build-documents",
        planned,
        work=MakeKeys(folder),  # type: ignore[arg-type]
        output=folder,
        execution=ExecutionConfig(workers=2),
        grouping=BucketReduce(functools.partial(find_duplicates_in_bucket, output=folder)),
    )
    table = write_duplicates(done.groups, output=folder, shards=done.files)
    return table.file.rows or 0


def _workers() -> list[psutil.Process]:
    """Return the worker processes, which stay after a job, and their fork server."""
    return psutil.Process().children(recursive=True)


def _cpu_seconds() -> float:
    times = [process.cpu_times() for process in (psutil.Process(), *_workers())]
    return sum(time.user + time.system for time in times)


def _largest_worker() -> int:
    """Return the peak memory of the largest worker in bytes."""
    return max(peak_memory(worker.pid) for worker in _workers())


def measure(rows: int, equal: float) -> None:
    """Run a small job and then one of `rows` documents, and print the figures of the second."""
    with tempfile.TemporaryDirectory() as folder:
        _find(_SMALL_JOB_ROWS, equal, folder)
        peak, cpu = peak_memory(), _cpu_seconds()
        table_rows = _find(rows, equal, folder)
        largest = _largest_worker()
    figures = {
        "rows": table_rows,
        "growth": peak_memory() - peak,
        "largest_worker": largest,
        "cpu": _cpu_seconds() - cpu,
    }
    print(json.dumps(figures))


def _measure_in_new_process(rows: int, equal: float) -> dict[str, float]:
    # Imported and not run as __main__, whose classes workers cannot load.
    code = f"from benchmarks.bench_duplicates import measure; measure({rows}, {equal})"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main(arguments: Sequence[str]) -> None:
    parser = parser_for(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 4_000_000])
    parser.add_argument("--equal", type=float, nargs="+", default=[0.02])
    options = parser.parse_args(arguments)
    print(f"{'documents':>10} {'excluded':>10} {'MB':>7} {'MB/million':>13} "
          f"{'largest worker':>15} {'CPU s':>7}")  # fmt: skip
    for equal in options.equal:
        for rows in options.rows:
            result = _measure_in_new_process(rows, equal)
            print(
                f"{rows:10,} {result['rows']:10,} {result['growth'] / 1e6:7,.0f} "
                f"{result['growth'] / rows:13,.0f} {result['largest_worker'] / 1e6:12,.0f} MB "
                f"{result['cpu']:7,.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
