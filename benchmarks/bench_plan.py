"""Planning ten times English Wikipedia and books: CPU time, memory and size of the Beam graph.

    python -m benchmarks.bench_plan [--files 80] [--splits 1000] [--passes 10] [--json]

Simulates a dump of 80,000 splits and 1,024 million pages: files that answer reads of a header, an
index or the start of a stream as real ones do, and contain nothing else. The planner of
`build-documents` reads them like any dump whose digest is cached by an earlier run. The plans of
later stages use manifests with as many shards. Each stage is planned in its own process. Prints CPU
seconds, peak memory, bytes of the plan file, and bytes of the graph that the runner receives. No
peer has such a planner. A simulated index has one line per stream; a real one has a hundred.
"""

from __future__ import annotations

import bz2
import functools
import hashlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import fsspec
from fsspec import AbstractFileSystem

from benchmarks.timing import parser_for
from pipelines.documents.build_shard import BuildDocumentShard
from pipelines.documents.exclusions import shard_items
from pipelines.documents.plan import plan as plan_documents
from pipelines.instances.build_shard import BuildInstanceShard
from pipelines.instances.plan import plan as plan_instances
from pipelines.io.stage_inputs import InputFile
from pipelines.io.user_cache import CACHE_VARIABLE, digest_cache
from pipelines.shard_job.items import ItemProcessor
from pipelines.shard_job.job_files import JobFiles
from pipelines.shard_job.pipeline import shard_pipeline
from pipelines.shard_job.work import ShardFn
from pipelines.tokens.build_shard import BuildTokenShard
from schemas.corpus_configs import DocumentsConfig, InstancesConfig, WikipediaSource
from schemas.fingerprint import content_digest
from schemas.manifest import FileEntry, StageInput

PROTOCOL, SPLIT_BYTES, STREAM_BYTES = "simulated", 32 << 20, 256 << 10
PAGES_A_STREAM, TOKENS_A_PAGE = 100, 600
STAGES = ("build-documents", "build-tokens", "build-instances")
_HEADER = bz2.compress(
    b'<mediawiki version="0.11" xml:lang="en"><siteinfo><namespaces>'
    b'<namespace key="0" case="first-letter" /></namespaces></siteinfo>\n  <page>'
)
_STREAM = bz2.compress(b"  <page>" * 1000)


class SimulatedDumps(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """`simulated://FILES/SPLITS/`: dumps of SPLITS splits each, with index."""

    protocol = PROTOCOL
    cachable = False

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        del options
        files, splits = self._sizes(path)
        folder = f"{files}/{splits}"
        listed = [
            {"name": f"{folder}/{name}", "size": size, "type": "file", "ETag": name}
            for number in range(files)
            for name, size in (
                (_dump(number), splits * SPLIT_BYTES),
                (_dump(number).replace("stream", "stream-index").replace("xml", "txt"), 1),
            )
        ]
        return listed if detail else [entry["name"] for entry in listed]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        del options
        path = self._strip_protocol(path)
        if path.count("/") == 1:
            return {"name": path, "size": 0, "type": "directory"}
        entry: dict[str, Any] = next(e for e in _listed(self, path) if e["name"] == path)
        return entry

    def _open(self, path: str, mode: str = "rb", **options: Any) -> io.RawIOBase:
        del mode, options
        _, splits = self._sizes(path)
        if "-index" in path:
            offsets = range(STREAM_BYTES, splits * SPLIT_BYTES, STREAM_BYTES)
            return _Bytes(bz2.compress(b"".join(b"%d:1:A\n" % offset for offset in offsets), 1))
        return _Dump(splits * SPLIT_BYTES)

    def _sizes(self, path: str) -> tuple[int, int]:
        files, splits, *_ = self._strip_protocol(path).split("/")
        return int(files), int(splits)


def _dump(number: int) -> str:
    return f"enwiki-20260101-pages-articles-multistream{number + 1}.xml-p{number}p{number}.bz2"


@functools.lru_cache(maxsize=1)
def _listed(files: SimulatedDumps, path: str) -> list[dict[str, Any]]:
    return files.ls(path)


class _Bytes(io.BytesIO):
    """A small file."""


class _Dump(io.RawIOBase):
    """Streams that begin as real ones do; the rest is zeros."""

    def __init__(self, size: int) -> None:
        self._size, self._at = size, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        assert whence == io.SEEK_SET
        self._at = offset
        return offset

    def read(self, size: int = -1) -> bytes:
        size = min(self._size - self._at, size if size >= 0 else self._size)
        start = self._at % STREAM_BYTES
        head = (_STREAM if self._at >= STREAM_BYTES else _HEADER)[start:]
        length = max(0, min(size, STREAM_BYTES - start))
        self._at += length
        return head[:length].ljust(length, b"\0")


class Planned(NamedTuple):
    """Cost of planning a stage."""

    stage: str
    pieces: int
    documents: int
    plan_seconds: float
    """CPU seconds until the items are planned."""

    deal_seconds: float
    """CPU seconds to write the plan file and build the graph."""

    manifest_seconds: float
    """CPU seconds to digest the artifact's files."""

    graph_bytes: int
    plan_bytes: int
    files: int
    """Number of files in the stage's artifact."""

    peak_mb: int
    """Peak memory of the launching process, including this benchmark's lists of simulated files."""


def _entries(count: int, *, passes: int = 1) -> tuple[FileEntry, ...]:
    size = (SPLIT_BYTES // STREAM_BYTES) * PAGES_A_STREAM * TOKENS_A_PAGE * 2
    rows = (SPLIT_BYTES // STREAM_BYTES) * PAGES_A_STREAM
    return tuple(
        FileEntry(
            path=f"part-{number:05d}-{turn:03d}.arrow",
            stored_name=f"part-{number:05d}-{turn:03d}-0123456789ab.arrow",
            size_bytes=size,
            sha256=hashlib.sha256(b"%d %d" % (number, turn)).hexdigest(),
            rows=rows,
        )
        for number in range(count)
        for turn in range(passes)
    )


def _stage(
    stage: str, *, files: int, splits: int, passes: int
) -> tuple[Callable[[], Sequence[Any]], Any]:
    """Planner of a stage and its shard work."""
    output = "gs://bucket/store/artifacts/stage/0123456789abcdef/data"
    vocab = InputFile("gs://bucket/vocab.txt", "vocab.txt", "vocabulary 0", 1, "0" * 64)
    if stage == "build-documents":
        source = WikipediaSource(
            name="enwiki",
            paths=(f"{PROTOCOL}://{files}/{splits}",),
            target_split_bytes=SPLIT_BYTES,
        )
        config = DocumentsConfig(sources=(source,))
        _remember_digests(files=files, splits=splits)
        return lambda: plan_documents(config), BuildDocumentShard(config, output)
    shards = StageInput(
        name="shards", artifact_id="0" * 16, data=output, files=_entries(files * splits)
    )
    if stage == "build-tokens":
        work = BuildTokenShard(vocab, {"lowercase": True}, 30_522, 1 << 20, output)
        return lambda: shard_items(shards, remove_duplicates=True), work
    instances = InstancesConfig(dupe_factor=passes)
    return (
        lambda: plan_instances(instances, shards),
        BuildInstanceShard(instances, vocab, 30_522, output),
    )


def _remember_digests(*, files: int, splits: int) -> None:
    """Put the digests of all dumps into the cache, as an earlier run does."""
    for number in range(files):
        name = _dump(number)
        uri, version = f"{PROTOCOL}://{files}/{splits}/{name}", f"{splits * SPLIT_BYTES}/{name}"
        digest_cache().put(uri, version, {"sha256": hashlib.sha256(name.encode()).hexdigest()})


def measure(stage: str, *, files: int, splits: int, passes: int) -> Planned:
    """Plan one stage in this process."""
    fsspec.register_implementation(PROTOCOL, SimulatedDumps, clobber=True)
    with tempfile.TemporaryDirectory() as cache:
        os.environ[CACHE_VARIABLE] = cache
        planning, work = _stage(stage, files=files, splits=splits, passes=passes)
        began = time.process_time()
        planned = planning()
        known = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        job_files = JobFiles(f"{folder}/job")
        job_files.write_plan([item] for item in planned)
        plan_bytes = sum(path.stat().st_size for path in Path(folder).iterdir())
        graph = _graph(job_files, work, type(planned[0]))
    dealt = time.process_time()
    made = _entries(files * splits, passes=passes if stage == "build-instances" else 1)
    before = time.process_time()
    content_digest(made)
    return Planned(
        stage=stage,
        pieces=len(planned),
        documents=files * splits * (SPLIT_BYTES // STREAM_BYTES) * PAGES_A_STREAM,
        plan_seconds=round(known - began, 1),
        deal_seconds=round(dealt - known, 1),
        manifest_seconds=round(time.process_time() - before, 1),
        graph_bytes=len(graph),
        plan_bytes=plan_bytes,
        files=len(made),
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    )


def _graph(files: JobFiles, work: ShardFn, item_type: type[Any]) -> bytes:
    build = shard_pipeline("job", ItemProcessor(work, files), item_type=item_type, grouping=None)
    pipeline = beam.Pipeline("FnApiRunner")
    build(pipeline)
    data: bytes = pipeline.to_runner_api().SerializeToString()
    return data


def main() -> int:
    parser = parser_for(__doc__)
    parser.add_argument("--files", type=int, default=80)
    parser.add_argument("--splits", type=int, default=1000, help="of each file")
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--stage", choices=STAGES, help="one, in this process")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sizes = {"files": options.files, "splits": options.splits, "passes": options.passes}
    if options.stage:
        print(json.dumps(measure(options.stage, **sizes)._asdict()))
        return 0
    plans = []
    size_args = [f"--{name}={value}" for name, value in sizes.items()]
    with tempfile.TemporaryDirectory() as cache:
        for stage in STAGES:
            command = [sys.executable, "-m", "benchmarks.bench_plan", "--stage", stage, *size_args]
            done = subprocess.run(
                command, env={**os.environ, "BERTLOOM_CACHE": cache}, check=True,
                stdout=subprocess.PIPE,
            )  # fmt: skip
            plans.append(Planned(**json.loads(done.stdout.splitlines()[-1])))
    if options.json:
        print(json.dumps([planned._asdict() for planned in plans]))
        return 0
    print(f"{plans[0].documents:,} documents")
    for one in plans:
        print(
            f"{one.stage:<16} {one.pieces:>9,} pieces  plan {one.plan_seconds:>6.1f} s, deal "
            f"{one.deal_seconds:>5.1f} s, digests {one.manifest_seconds:>4.1f} s  graph "
            f"{one.graph_bytes / 1e6:.2f} MB  plan file "
            f"{one.plan_bytes / 1e6:.0f} MB  {one.files:,} files  peak {one.peak_mb:,} MB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
