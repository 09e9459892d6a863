"""The corpus jobs on each runner: rate, overhead per job, memory, CPU time, requests.

    python -m benchmarks.bench_runners                                    # local and portable
    python -m benchmarks.bench_runners local 'flink=[local]' 'spark=local[2]'
    python -m benchmarks.bench_runners local flink=localhost:8081 spark=spark://localhost:7077 \\
        --dumps 'dumps/*.bz2'

Flink and Spark need Java and Beam's job server (`$BERTLOOM_JOB_SERVERS`); `portable` is Beam's own
job service with a pool of our workers, both started here.
Each runner builds the corpus (documents, vocabulary, tokens, instances: four jobs) three times:
from a tiny text, at 1x and at 4x of the sample world, or from a quarter and all of the given dumps.
The tiny text shows the overhead of the jobs, measured on its second run, when the engine is warm.
All files must equal those of the first runner.

Memory (the largest sum of private memory and shares of the rest) and CPU time include this
process, the processes that it started, our workers, and Flink's and Spark's Java on this machine.
`--requests` counts requests in a separate run with the store on an S3 server.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.bench_corpus import as_input
from benchmarks.local_server import free_ports
from benchmarks.object_store import counted_s3, environment
from benchmarks.timing import parser_for
from flows.sample import write_sample
from pipelines.documents.job import build_documents
from pipelines.instances.job import build_instances
from pipelines.runners.job_server import connection_error
from pipelines.runners.portable import PortableRunner, worker_program
from pipelines.runners.registry import get_runner
from pipelines.tokens.job import build_tokens
from pipelines.vocabulary.job import build_vocabulary
from schemas.corpus_configs import (
    DocumentsConfig,
    InstancesConfig,
    TokensConfig,
    VocabularyConfig,
    WikipediaSource,
)
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageInput, StageOutput

_JOBS = 4
_LOOK_SECONDS = 1.0
_ENGINES = ("org.apache.flink.", "org.apache.spark.")
"""Patterns in the command lines of clusters that were started elsewhere."""


class Use(NamedTuple):
    """Resources that a run used."""

    seconds: float
    cpu_seconds: float
    memory_mb: float


class _Watch:
    """Thread that samples the processes of a run."""

    def __init__(self, marks: Sequence[str]) -> None:
        """Begin.

        Args:
            marks: what the command lines of processes have that were not started from here.
        """
        self._marks = marks
        self._own = psutil.Process()
        self._is_marked: dict[psutil.Process, bool] = {}
        self._before = {process: _cpu(process) for process in self._processes()}
        self._last = dict(self._before)
        self._most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._began = time.perf_counter()
        self._thread.start()

    def end(self) -> Use:
        """Return the resources used since the start."""
        seconds = time.perf_counter() - self._began
        self._ended.set()
        self._thread.join()
        used = sum(last - self._before.get(process, 0.0) for process, last in self._last.items())
        return Use(seconds, used, self._most / (1 << 20))

    def _processes(self) -> set[psutil.Process]:
        processes = {self._own, *self._own.children(recursive=True)}
        for process in psutil.process_iter():
            if process not in self._is_marked:
                self._is_marked[process] = _has(process, self._marks)
            if self._is_marked[process]:
                processes.add(process)
        return processes

    def _look_on(self) -> None:
        while True:
            is_last = self._ended.wait(_LOOK_SECONDS)
            memory = 0
            for process in self._processes():
                with contextlib.suppress(psutil.Error):  # it may have ended
                    memory += process.memory_full_info().pss
                    self._last[process] = max(_cpu(process), self._last.get(process, 0.0))
            self._most = max(self._most, memory)
            if is_last:
                return


def _has(process: psutil.Process, marks: Sequence[str]) -> bool:
    try:
        return any(mark in word for word in process.cmdline() for mark in marks)
    except psutil.Error:
        return False


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def make_corpus(
    dumps: Sequence[str], target: str, how: ExecutionConfig, *, vocab_size: int = 300
) -> str:
    """Build a corpus and return the digest of all files.

    Args:
        dumps: Wikipedia dumps.
        target: Path or URL of a new folder.
        how: Where to run.
        vocab_size: Size of the vocabulary.
    """
    source = WikipediaSource(name="wiki", paths=tuple(dumps), target_split_bytes=1 << 20)
    inputs: dict[str, StageInput] = {}
    digest = hashlib.sha256()

    def folder(name: str) -> str:
        made = f"{target}/{name}"
        if "://" not in made:
            Path(made).mkdir(parents=True)
        return made

    def done(name: str, output: StageOutput, data: str) -> None:
        inputs[name] = as_input(name, output, data)
        digest.update(json.dumps([[f.path, f.sha256] for f in output.files]).encode())

    data = folder("documents")
    documents = DocumentsConfig(sources=(source,))
    done("documents", build_documents(documents, inputs={}, output=data, execution=how), data)
    data = folder("vocabulary")
    vocabulary = VocabularyConfig(vocab_size=vocab_size)
    done(
        "vocabulary", build_vocabulary(vocabulary, inputs=inputs, output=data, execution=how), data
    )
    data = folder("tokens")
    done("tokens", build_tokens(TokensConfig(), inputs=inputs, output=data, execution=how), data)
    data = folder("instances")
    instances = InstancesConfig(max_seq_length=128)
    done("instances", build_instances(instances, inputs=inputs, output=data, execution=how), data)
    return digest.hexdigest()


@contextlib.contextmanager
def _portable() -> Iterator[ExecutionConfig]:
    """Beam's own job service, and a pool of our workers."""
    from pipelines.runners.worker_pool import serving  # lazy: loads Beam

    [port] = free_ports(1)
    with tempfile.TemporaryDirectory() as staging:
        command = [
            sys.executable, "-m", "apache_beam.runners.portability.local_job_service_main",
            f"--job_port={port}", f"--staging_dir={staging}",
        ]  # fmt: skip
        service = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while connection_error(f"localhost:{port}") and service.poll() is None:
                time.sleep(_LOOK_SECONDS)
            with serving(0) as pool:
                fields = {
                    "job_endpoint": f"localhost:{port}",
                    "environment": "external",
                    "worker_pool": f"localhost:{pool}",
                }
                yield ExecutionConfig.model_validate({"runner": "portable", "portable": fields})
        finally:
            service.kill()
            service.wait()


@contextlib.contextmanager
def execution_of(asked: str, workers: int) -> Iterator[ExecutionConfig]:
    """Parse a command-line argument: RUNNER or RUNNER=MASTER."""
    runner, _, master = asked.partition("=")
    if asked == "portable":
        with _portable() as how:
            yield how
    elif master:
        yield ExecutionConfig.model_validate({"runner": runner, runner: {"master": master}})
    else:
        yield ExecutionConfig(runner=runner, workers=workers)


def _marks(how: ExecutionConfig) -> list[str]:
    """Return name patterns of processes that are not our children."""
    return [worker_program(), *([] if _starts_workers_here(how) else _ENGINES)]


def _starts_workers_here(how: ExecutionConfig) -> bool:
    runner = get_runner(how)
    is_engine = isinstance(runner, PortableRunner) and runner.name != "portable"
    return not is_engine or runner.is_embedded


def _requests(dumps: Sequence[str], how: ExecutionConfig) -> str:
    if not _starts_workers_here(how):
        return "-"
    with counted_s3() as (server, proxy):
        os.environ.update(environment(proxy.url))
        make_corpus(dumps, f"{server.make_bucket('bench')}/corpus", how)
        return str(len(proxy.requests))


def _dumps(folder: Path, pattern: str | None, articles: int) -> dict[str, list[str]]:
    """Dumps by size."""
    least = write_sample(str(folder / "least"), articles=20, tales=1).pages
    if pattern:
        where = Path(pattern)
        dumps = sorted(str(path) for path in where.parent.glob(where.name))
        if len(dumps) < 4:
            sys.exit(f"{pattern}: {len(dumps)} files, expected four or more")
        return {"least": [least], "1x": dumps[: len(dumps) // 4], "4x": dumps}
    sizes = {"1x": articles, "4x": 4 * articles}
    made = {
        name: [write_sample(str(folder / name), articles=count, tales=1, pages_per_stream=50).pages]
        for name, count in sizes.items()
    }
    return {"least": [least], **made}


def main() -> int:
    parser = parser_for(__doc__)
    parser.add_argument("runners", nargs="*", default=["local", "portable"])
    parser.add_argument(
        "--dumps", help="glob pattern of Wikipedia dumps; default: the sample world"
    )
    parser.add_argument("--articles", type=int, default=7500, help="articles of the sample at 1x")
    parser.add_argument("--workers", type=int, default=2, help="of the runner local")
    parser.add_argument("--requests", action="store_true", help="count them, at 1x")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    head = ["runner", "size", "MB in", "s", "MB/s", "CPU s", "memory MB", "s a job", "requests"]
    print("  ".join(f"{word:>10}" for word in head), flush=True)
    digests: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        sizes = _dumps(Path(name), options.dumps, options.articles)
        for number, asked in enumerate(options.runners):
            with execution_of(asked, options.workers) as how:
                for size, dumps in [("cold", sizes["least"]), *sizes.items()]:
                    watch = _Watch(_marks(how))
                    is_empty = size in ("cold", "least")
                    words = 300 if is_empty or not options.dumps else 8000
                    target = f"{name}/made-{number}-{size}"
                    digest = make_corpus(dumps, target, how, vocab_size=words)
                    used = watch.end()
                    if digests.setdefault(size, digest) != digest:
                        sys.exit(f"{asked}, {size}: other files than those of {options.runners[0]}")
                    mb = sum(Path(dump).stat().st_size for dump in dumps) / 1e6
                    row = [
                        asked, size, f"{mb:.2f}", f"{used.seconds:.1f}",
                        "" if is_empty else f"{mb / used.seconds:.3f}",
                        f"{used.cpu_seconds:.1f}", f"{used.memory_mb:.0f}",
                        f"{used.seconds / _JOBS:.1f}" if is_empty else "",
                        _requests(dumps, how) if options.requests and size == "1x" else "",
                    ]  # fmt: skip
                    print("  ".join(f"{word:>10}" for word in row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
