"""Estimated time and cost of English Wikipedia and books, and of ten times that.

    python -m benchmarks.bench_scale --data FOLDER [--workers 1,16,256] [--times 1,10]

Measures each stage in this process, one work item at a time, over the real dumps and books in
FOLDER: CPU time and bytes written. Then simulates the work items of the whole corpus, each with the
speed of a random measured item of its kind, handed in plan order to the first free worker, as
engines do. Adds the overhead of each job, and to the first job the time of planning
(`benchmarks.bench_plan`).

The result is a calculation, not a run: it assumes stores as fast as a local disk and workers that
do not fail. Dollars are worker hours, from the start of a job to its end, at the given list
prices.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bench_corpus import as_input
from benchmarks.timing import add_data_option, parser_for
from pipelines.documents.build_shard import BuildDocumentShard
from pipelines.documents.exclusions import shard_items
from pipelines.documents.plan import plan as plan_documents
from pipelines.instances.build_shard import BuildInstanceShard
from pipelines.instances.plan import plan as plan_instances
from pipelines.io.stage_inputs import input_file
from pipelines.shard_job.work import ShardFn
from pipelines.tokens.build_shard import BuildTokenShard
from pipelines.vocabulary import job as vocabulary_job
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.corpus_configs import (
    BooksSource,
    DocumentsConfig,
    InstancesConfig,
    VocabularyConfig,
    WikipediaSource,
)
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import FileEntry, StageInput, StageOutput

STAGES = ("build-documents", "build-tokens", "build-instances")
SPLIT_BYTES = 32 << 20
DUMP_BYTES, BOOK_BYTES = 24e9, 4.5e9
"""English Wikipedia's multistream bz2; the text of 11,000 books (800 M words, paper 3.1)."""


class Rate(NamedTuple):
    """CPU time and output size of each measured item of a stage."""

    seconds_a_byte: list[float]
    """Processor seconds a byte read, a value a piece."""

    seconds: float
    bytes_in: int
    bytes_out: int

    @property
    def growth(self) -> float:
        """Bytes written for each read."""
        return self.bytes_out / self.bytes_in

    @property
    def megabytes_a_second(self) -> float:
        """Read by one core."""
        return self.bytes_in / self.seconds / 1e6


def _measured(work: ShardFn, pieces: Iterable[Any], size: Callable[[Any], int]) -> Any:
    """The rate of some work over all pieces, and the files that it wrote."""
    work.setup()
    each, files, total, read = [], list[FileEntry](), 0.0, 0
    for piece in pieces:
        began = time.process_time()
        report = work.process(piece)
        took, held = time.process_time() - began, size(piece)
        each.append(took / held)
        files += report.files
        total, read = total + took, read + held
    return Rate(each, total, read, sum(entry.size_bytes for entry in files)), tuple(files)


def measure(source: WikipediaSource | BooksSource, *, folder: Path, passes: int) -> dict[str, Rate]:
    """The rates of the three stages over a source, one pass or more at 128."""
    config = DocumentsConfig(sources=(source,))
    places = {stage: str(folder / stage) for stage in (*STAGES, "vocabulary")}
    for path in places.values():
        Path(path).mkdir(parents=True)
    rates: dict[str, Rate] = {}

    def entered(stage: str, files: tuple[FileEntry, ...]) -> StageInput:
        return as_input(stage.removeprefix("build-"), StageOutput(files=files), places[stage])

    rates["build-documents"], files = _measured(
        BuildDocumentShard(config, places["build-documents"]),
        plan_documents(config),
        lambda piece: piece.split.end - piece.split.start,
    )
    documents = entered("build-documents", files)
    learnt = vocabulary_job.build_vocabulary(
        VocabularyConfig(vocab_size=8000), inputs={"documents": documents},
        output=places["vocabulary"], execution=ExecutionConfig(),
    )  # fmt: skip
    vocabulary = as_input("vocabulary", learnt, places["vocabulary"])
    vocab, size = input_file(vocabulary, VOCAB_FILE), int(learnt.statistics["vocab_size"])
    rates["build-tokens"], files = _measured(
        BuildTokenShard(vocab, {"lowercase": True}, size, 1 << 20, places["build-tokens"]),
        shard_items(documents, remove_duplicates=False),
        lambda piece: documents.files[piece.number].size,
    )
    tokens = entered("build-tokens", files)
    how = InstancesConfig(max_seq_length=128, dupe_factor=passes, held_out_fraction=0.0)
    rates["build-instances"], _ = _measured(
        BuildInstanceShard(how, vocab, size, places["build-instances"]),
        plan_instances(how, tokens),
        lambda piece: tokens.files[piece.shard].size,
    )
    return rates


def pieces_of(rates: dict[str, Rate], *, size: float, passes: int) -> dict[str, list[float]]:
    """Processor seconds of each piece of the whole of a source, by stage."""
    seconds: dict[str, list[float]] = {}
    count = max(1, round(size / SPLIT_BYTES))
    drawn = random.Random(count)
    bytes_in = size
    for stage, rate in rates.items():
        times = passes if stage == "build-instances" else 1
        # Passes over a shard are dealt as one.
        seconds[stage] = [
            times * bytes_in / count * drawn.choice(rate.seconds_a_byte) for _ in range(count)
        ]
        bytes_in *= rate.growth
    return seconds


def wall_seconds(pieces: Sequence[float], *, workers: int) -> float:
    """When the last piece is done, each given in order to the worker that is free first."""
    free = [0.0] * workers
    for seconds in pieces:
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


def _table(rates: dict[str, dict[str, Rate]], options: argparse.Namespace) -> Iterable[str]:
    worker_hour = options.vcpu_hour + options.memory_gb * options.gb_hour
    sizes = {"wikipedia": DUMP_BYTES, "books": BOOK_BYTES}
    for times in options.times:
        made = [
            pieces_of(rates[name], size=times * size, passes=options.passes)
            for name, size in sizes.items()
        ]
        by_stage = {stage: [s for part in made for s in part[stage]] for stage in STAGES}
        counted = sum(len(part["build-documents"]) for part in made)
        yield f"{times}x: {counted:,} splits, {options.passes} passes"
        for workers in options.workers:
            wall = {
                stage: wall_seconds(pieces, workers=workers) + options.overhead
                for stage, pieces in by_stage.items()
            }
            wall["build-documents"] += options.plan_seconds * times
            total = sum(wall.values())
            hours = total * workers / 3600
            stages = "  ".join(f"{stage} {seconds / 60:,.1f}" for stage, seconds in wall.items())
            yield (
                f"  {workers:>4} workers: {total / 60:>9,.1f} min ({stages})  "
                f"{hours:>7,.1f} vCPU h  ${hours * worker_hour:,.2f}"
            )


def main() -> int:
    def numbers(text: str) -> list[int]:
        return [int(number) for number in text.split(",")]

    parser = parser_for(__doc__)
    add_data_option(parser)
    parser.add_argument("--workers", type=numbers, default=[1, 16, 256])
    parser.add_argument("--times", type=numbers, default=[1, 10])
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--overhead", type=float, default=30.0, help="seconds a job")
    parser.add_argument("--plan-seconds", type=float, default=8.0, help="of the corpus once")
    parser.add_argument("--vcpu-hour", type=float, default=0.056, help="list price, dollars")
    parser.add_argument("--gb-hour", type=float, default=0.003557, help="list price, dollars")
    parser.add_argument("--memory-gb", type=float, default=3.75, help="of a worker")
    options = parser.parse_args()
    sources = {
        "wikipedia": WikipediaSource(
            name="wikipedia", paths=(str(options.data / "wikibooks" / "*.bz2"),)
        ),
        "books": BooksSource(
            name="books", paths=(str(options.data / "books" / "english-novels-100.tar.gz"),)
        ),
    }
    rates: dict[str, dict[str, Rate]] = {}
    for name, source in sources.items():
        with tempfile.TemporaryDirectory() as folder:
            rates[name] = measure(source, folder=Path(folder), passes=1)
        for stage, rate in rates[name].items():
            print(
                f"{name:<9} {stage:<15} {rate.megabytes_a_second:>7.2f} MB/s read by a core, "
                f"{rate.growth:.2f} bytes written for each, {len(rate.seconds_a_byte)} pieces"
            )
    print(json.dumps({"overhead": options.overhead, "plan_seconds": options.plan_seconds}))
    for line in _table(rates, options):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
