"""Memory and CPU time of finding duplicates, by documents: what the launching process holds.

    python -m benchmarks.bench_duplicates [--rows N ...] [--equal SHARE ...] [--before CHECKOUT]

Each line is a job of its own processes: shards of made-up keys (no text), the grouping of
`build-documents` on the local runner with two worker processes, and the table of duplicates.
`--equal` is the share of documents that say what another says. Memory is how much the launching
process's peak grew over that of a small job before it. With `--before`, a checkout of an older
version, the same is measured with its code.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ROWS_A_SHARD = 1_000
"""About what a split of a dump gives."""

_SMALL = 10_000


class _Piece(NamedTuple):
    number: int
    rows: int
    equal: float
    weight: int = 1 << 20
    name: str = "made-up"


class _MakeKeys:
    """Sends the keys of made-up documents; of those that say the same, the first stays."""

    def __init__(self, output: str) -> None:
        self.output = output

    def setup(self) -> None:
        """Nothing to open."""

    def process(self, piece: _Piece) -> Any:
        import hashlib

        import pyarrow as pa

        from pipelines.beam.work import WorkReport
        from pipelines.documents.duplicates import duplicate_key_blobs
        from schemas.manifest import FileEntry

        numbers = range(piece.number * ROWS_A_SHARD, piece.number * ROWS_A_SHARD + piece.rows)
        every = round(1 / piece.equal) if piece.equal else 0
        said = [(n // every) * every if every and n % every < 2 else n for n in numbers]
        columns = {
            "document_id": [f"enwiki:{7 * n}:{1_100_000_000 + 13 * n}" for n in numbers],
            "digest": [hashlib.blake2b(b"%d" % n, digest_size=16).digest() for n in said],
            "title": [f"Title {n}" for n in numbers],
            "page_id": [7 * n for n in numbers],
            "revision_id": [1_100_000_000 + 13 * n for n in numbers],
        }
        shard = f"part-{piece.number:05d}-000.arrow"
        blobs = duplicate_key_blobs(pa.table(columns), shard=shard)
        entry = FileEntry(
            path=shard, stored_name=shard, size_bytes=0, sha256="0" * 64, rows=piece.rows
        )
        return WorkReport(piece.number, [entry], blobs=blobs)


def _find(rows: int, equal: float, folder: str) -> int:
    """The job, and its table; returns how many rows it has."""
    from pipelines.beam.jobs import run_shard_job
    from pipelines.beam.work import Grouping
    from pipelines.documents.duplicates import find_duplicates_in_bucket
    from schemas.execution_configs import ExecutionConfig

    planned = [
        _Piece(number, min(ROWS_A_SHARD, rows - first), equal)
        for number, first in enumerate(range(0, rows, ROWS_A_SHARD))
    ]
    report: Any = find_duplicates_in_bucket
    try:
        from pipelines.documents.duplicates import write_duplicates
    except ImportError:  # before the table had a module of its own, reports held what is found
        from pipelines.documents.duplicates import write_duplicates  # type: ignore[no-redef, attr-defined]
    else:
        report = functools.partial(find_duplicates_in_bucket, output=folder)
    done = run_shard_job(
        "build-documents",
        planned,
        work=_MakeKeys(folder),  # type: ignore[arg-type]
        output=folder,
        execution=ExecutionConfig(workers=2),
        grouping=Grouping(report),
    )
    found = write_duplicates(done.groups, output=folder, shards=done.files)
    return found.file.rows or 0


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _measure(rows: int, equal: float) -> Mapping[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        _find(_SMALL, equal, folder)
        before, cpu = _peak(), _cpu_seconds()
        found = _find(rows, equal, folder)
        grown = _peak() - before
        # In both versions the largest of the worker processes, of which this machine keeps count.
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    cpu = _cpu_seconds() - cpu
    return {"found": found, "grown": grown, "largest_worker": largest, "cpu": cpu}


def _measured(rows: int, equal: float, checkout: Path) -> dict[str, float]:
    # By its own name, so that worker processes find what they are sent, beside either version.
    code = "import sys, bench_duplicates; bench_duplicates.main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "--measure", str(rows), str(equal)]
    environment = os.environ | {"PYTHONPATH": f"{checkout}{os.pathsep}{ROOT / 'benchmarks'}"}
    done = subprocess.run(
        command, cwd=checkout, env=environment, check=True, stdout=subprocess.PIPE
    )
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 4_000_000])
    parser.add_argument("--equal", type=float, nargs="+", default=[0.02])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        rows, equal = options.measure
        print(json.dumps(_measure(int(rows), float(equal))))
        return
    checkouts = {"before": options.before} if options.before else {}
    print(f"{'':8} {'documents':>10} {'left out':>10} {'MB':>7} {'MB a million':>13} "
          f"{'largest worker':>15} {'CPU s':>7}")  # fmt: skip
    for equal in options.equal:
        for rows in options.rows:
            for name, checkout in {**checkouts, "now": ROOT}.items():
                got = _measured(rows, equal, checkout.resolve())
                print(
                    f"{name:8} {rows:10,} {got['found']:10,} {got['grown'] / 1e6:7,.0f} "
                    f"{got['grown'] / rows:13,.0f} {got['largest_worker'] / 1e6:12,.0f} MB "
                    f"{got['cpu']:7,.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1:])
