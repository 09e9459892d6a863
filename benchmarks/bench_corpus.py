"""The corpus jobs: MB of XML per second and core, time by step, Beam's overhead, memory.

    python -m benchmarks.bench_corpus            # rate, time by step, one and two workers
    python -m benchmarks.bench_corpus --memory   # peak memory at 1x and 4x size

Reads a multistream dump of the sample world (`flows.sample`) of the requested size. The plain form
next to Beam calls the same functions in a loop in this process.
"""

from __future__ import annotations

import argparse
import bz2
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.timing import cpu_seconds, parser_for
from flows.sample import write_sample
from pipelines.counters import Counters
from pipelines.documents import job as documents_job
from pipelines.documents.build_shard import BuildDocumentShard, read_documents
from pipelines.documents.exclusions import shard_items
from pipelines.documents.plan import plan
from pipelines.instances import job as instances_job
from pipelines.instances import plan as instance_plan
from pipelines.instances.build_shard import BuildInstanceShard
from pipelines.io.stage_inputs import InputFile
from pipelines.sources import SOURCES
from pipelines.tokens import job as tokens_job
from pipelines.tokens.build_shard import BuildTokenShard
from pipelines.vocabulary import job as vocabulary_job
from schemas.corpus_configs import (
    DocumentsConfig,
    InstancesConfig,
    TokensConfig,
    VocabularyConfig,
    WikipediaSource,
)
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageInput, StageOutput

ENWIKI_XML_MB = 95_000
_ARTICLES_PER_MB = 656  # of the sample's XML


def as_input(name: str, output: StageOutput, data: str) -> StageInput:
    return StageInput(
        name=name, artifact_id=name, data=data, files=output.files,
        counters=output.counters, statistics=output.statistics,
    )  # fmt: skip


def _configs(dump: str, split_mb: float) -> tuple[DocumentsConfig, InstancesConfig]:
    source = WikipediaSource(
        name="samplewiki", paths=(dump,), target_split_bytes=int(split_mb * (1 << 20))
    )
    return DocumentsConfig(sources=(source,)), InstancesConfig(max_seq_length=128)


def run_stages(
    dump: str, folder: Path, *, vocab: str, workers: int, split_mb: float
) -> dict[str, float]:
    """Wall seconds of each stage, from bz2 to instances of one pass at 128.

    Trains the vocabulary if none is given.
    """
    how = ExecutionConfig(workers=workers)
    documents, instances = _configs(dump, split_mb)
    inputs: dict[str, StageInput] = {}
    seconds: dict[str, float] = {}

    def stage(name: str, build: Callable[[str], StageOutput]) -> None:
        data = folder / name
        data.mkdir(parents=True)
        started = time.perf_counter()
        output = build(str(data))
        seconds[name] = time.perf_counter() - started
        inputs[name] = as_input(name, output, str(data))

    stage("documents", lambda out: documents_job.build_documents(
        documents, inputs={}, output=out, execution=how))  # fmt: skip
    vocabulary = VocabularyConfig(vocab_file=vocab) if vocab else VocabularyConfig(vocab_size=500)
    stage("vocabulary", lambda out: vocabulary_job.build_vocabulary(
        vocabulary, inputs=inputs, output=out, execution=how))  # fmt: skip
    stage("tokens", lambda out: tokens_job.build_tokens(
        TokensConfig(), inputs=inputs, output=out, execution=how))  # fmt: skip
    stage("instances", lambda out: instances_job.build_instances(
        instances, inputs=inputs, output=out, execution=how))  # fmt: skip
    return seconds


def run_bare(dump: str, folder: Path, *, vocab: str, split_mb: float) -> dict[str, float]:
    """Run the same work objects in a plain loop, without Beam."""
    documents, instances = _configs(dump, split_mb)
    seconds: dict[str, float] = {}
    for name in ("documents", "tokens", "instances"):
        (folder / name).mkdir(parents=True)

    started = time.perf_counter()
    work = BuildDocumentShard(documents, str(folder / "documents"))
    reports = [work.process(piece) for piece in plan(documents)]
    seconds["documents"] = time.perf_counter() - started
    files = tuple(entry for report in reports for entry in report.files)
    made = as_input("documents", StageOutput(files=files), str(folder / "documents"))

    started = time.perf_counter()
    tokenize = BuildTokenShard(
        vocab=_vocabulary(vocab), rules={"lowercase": True}, vocab_size=_lines(vocab),
        word_cache_size=1 << 20, output=str(folder / "tokens"),
    )  # fmt: skip
    tokenize.setup()
    pieces = shard_items(made, remove_duplicates=True)
    reports = [tokenize.process(piece) for piece in pieces]
    seconds["tokens"] = time.perf_counter() - started
    files = tuple(entry for report in reports for entry in report.files)
    tokens = as_input("tokens", StageOutput(files=files), str(folder / "tokens"))

    started = time.perf_counter()
    pair = BuildInstanceShard(
        config=instances,
        vocab=_vocabulary(vocab),
        vocab_size=_lines(vocab),
        output=str(folder / "instances"),
    )
    pair.setup()
    for piece in instance_plan.plan(instances, tokens):
        pair.process(piece)
    seconds["instances"] = time.perf_counter() - started
    return seconds


def _vocabulary(path: str) -> InputFile:
    data = Path(path).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return InputFile(path, "vocab.txt", "the vocabulary given", len(data), digest)


def _lines(path: str) -> int:
    return len(Path(path).read_text(encoding="utf-8").splitlines())


def step_seconds(dump: str, split_mb: float) -> dict[str, float]:
    """CPU seconds of the steps inside build-documents, by running ever longer chains of them."""
    config, _ = _configs(dump, split_mb)
    source = config.sources[0]

    def decompress() -> None:
        with bz2.open(dump) as stream:
            while stream.read(1 << 20):
                pass

    def read() -> None:
        for piece in plan(config):
            for _ in SOURCES["wikipedia"].read(piece.split, source, Counters().count):
                pass

    def rows() -> None:
        for piece in plan(config):
            for _ in read_documents(piece.split, source, config, Counters()):
                pass

    def write() -> None:
        with tempfile.TemporaryDirectory() as folder:
            work = BuildDocumentShard(config, folder)
            for piece in plan(config):
                work.process(piece)

    chain = {
        "bz2": decompress,
        "XML and wikitext": read,
        "sentences, digests": rows,
        "Arrow, zstd, sha256": write,
    }
    totals = {name: cpu_seconds(step) for name, step in chain.items()}
    before = [0.0, *list(totals.values())[:-1]]
    return {
        name: total - earlier for (name, total), earlier in zip(totals.items(), before, strict=True)
    }


def peak_memory(command: list[str]) -> float:
    """Peak MB of resident memory of a process and all its children (PSS: shared pages once)."""
    process = psutil.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0.0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.1):
            try:
                tree = [process, *process.children(recursive=True)]
                peak = max(peak, sum(_pss(member) for member in tree))
            except psutil.Error:
                continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    done.set()
    watcher.join()
    if code:
        raise SystemExit(f"{command} ended with {code}")
    return peak / 1e6


def _pss(process: psutil.Process) -> int:
    return int(process.memory_full_info().pss)


def _train_vocabulary(dump: str, folder: Path) -> str:
    """Train a vocabulary on a small sample, once."""
    source = WikipediaSource(name="samplewiki", paths=(dump,))
    (folder / "d").mkdir()
    (folder / "v").mkdir()
    how = ExecutionConfig()
    documents = documents_job.build_documents(
        DocumentsConfig(sources=(source,)), inputs={}, output=str(folder / "d"), execution=how
    )
    made = vocabulary_job.build_vocabulary(
        VocabularyConfig(vocab_size=500),
        inputs={"documents": as_input("documents", documents, str(folder / "d"))},
        output=str(folder / "v"),
        execution=how,
    )
    (entry,) = (entry for entry in made.files if entry.path == "vocab.txt")
    return str(folder / "v" / entry.stored_name)


def _write_dump(folder: Path, megabytes: float) -> str:
    """Write a dump with about this size of XML, and return its path."""
    articles = round(megabytes * _ARTICLES_PER_MB)
    return write_sample(str(folder), articles=articles, tales=0).pages


def _report_rates(megabytes: float, split_mb: float, repeat: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = write_sample(str(folder / "small"), tales=0)
        vocab = _train_vocabulary(small.pages, folder)
        dump = _write_dump(folder / "large", megabytes)
        with bz2.open(dump) as stream:
            xml = sum(len(chunk) for chunk in iter(lambda: stream.read(1 << 20), b"")) / 1e6
        print(f"{xml:.0f} MB of XML, {Path(dump).stat().st_size / 1e6:.0f} MB as bz2")
        totals: dict[str, list[float]] = {"bare": [], "1 worker": [], "2 workers": []}
        for round_number in range(repeat):
            at = folder / f"run{round_number}"
            bare = run_bare(dump, at / "bare", vocab=vocab, split_mb=split_mb)
            one = run_stages(dump, at / "one", vocab=vocab, workers=1, split_mb=split_mb)
            two = run_stages(dump, at / "two", vocab=vocab, workers=2, split_mb=split_mb)
            for label, seconds in zip(totals, (bare, one, two), strict=True):
                totals[label].append(sum(seconds.values()))
                print(f"  {label:10}", {stage: round(took, 2) for stage, took in seconds.items()})
        medians = {label: statistics.median(values) for label, values in totals.items()}
        for label, took in medians.items():
            print(f"{label:10} {took:7.2f} s  {xml / took:6.2f} MB/s of XML")
        share = 1 - medians["bare"] / medians["1 worker"]
        print(f"Beam's share of one worker's time: {share:.1%} (goal: at most 15 %)")
        print(f"two workers against one: {medians['1 worker'] / medians['2 workers']:.2f}x")
        rate = xml / medians["1 worker"]
        print(f"English Wikipedia ({ENWIKI_XML_MB / 1000:.0f} GB of XML) at this rate: "
              f"{ENWIKI_XML_MB / rate / 3600:.1f} core hours")  # fmt: skip
        steps = step_seconds(dump, split_mb)
        whole = medians["bare"]
        print("share of each step of the bare loop:")
        for step, took in steps.items():
            print(f"  {step:22} {took:6.2f} s  {took / whole:5.1%}")
        for stage in ("tokens", "instances"):
            print(f"  {stage:22} {bare[stage]:6.2f} s  {bare[stage] / whole:5.1%}")


def _report_memory(megabytes: float, split_mb: float) -> None:
    peaks = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for factor in (1, 4):
            dump = _write_dump(folder / f"x{factor}", megabytes * factor)
            job = json.dumps(
                {"dump": dump, "folder": str(folder / f"run{factor}"), "vocab": "",
                 "split_mb": split_mb}
            )  # fmt: skip
            command = [sys.executable, "-m", "benchmarks.bench_corpus", "--run-job", job]
            peaks[factor] = peak_memory(command)
            print(f"{factor}x ({megabytes * factor:.0f} MB of XML): peak {peaks[factor]:.0f} MB")
    print(f"4x against 1x: {peaks[4] / peaks[1]:.3f} (goal: at most 1.15, under 2,000 MB)")


def main() -> None:
    parser = parser_for(__doc__, repeat=3)
    parser.add_argument("--megabytes", type=float, default=100, help="MB of XML (default 100)")
    parser.add_argument("--split-mb", type=float, default=2, help="MB of bz2 a split (default 2)")
    parser.add_argument("--memory", action="store_true", help="peak memory at 1x and 4x instead")
    parser.add_argument("--run-job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_job:
        job = json.loads(options.run_job)
        run_stages(job["dump"], Path(job["folder"]), vocab=job["vocab"], workers=2,
                   split_mb=job["split_mb"])  # fmt: skip
    elif options.memory:
        _report_memory(options.megabytes, options.split_mb)
    else:
        _report_rates(options.megabytes, options.split_mb, options.repeat)


if __name__ == "__main__":
    main()
