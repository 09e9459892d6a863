"""Jobs: results in the order of the plan, errors of workers, size of the graph, full disks."""

from __future__ import annotations

import contextlib
import errno
import json
import resource
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pytest
from pydantic import TypeAdapter
from support.dump_builder import dump, page
from support.paths import PYTHONPATH

from pipelines.counters import Counters
from pipelines.documents.build_shard import BuildDocumentShard
from pipelines.documents.job import build_documents
from pipelines.documents.plan import DocumentItem
from pipelines.io.files import FileWriter
from pipelines.io.shards import ShardWriter
from pipelines.io.splits import SourceFile, Split
from pipelines.runners.direct import LocalRunner
from pipelines.runners.registry import RUNNERS, get_runner
from pipelines.shard_job import pipeline as beam_pipeline
from pipelines.shard_job.item_cache import ItemCache
from pipelines.shard_job.items import ItemProcessor
from pipelines.shard_job.job import JobResult, run_shard_job
from pipelines.shard_job.job_files import JobFiles, open_job_files
from pipelines.shard_job.pipeline import shard_pipeline
from pipelines.shard_job.work import Blob, BucketReduce, WorkResult
from schemas.corpus_configs import (
    AnySource,
    DocumentsConfig,
    TextSource,
    WikipediaSource,
)
from schemas.errors import ConfigError, CorruptInputError, RunnerError
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import FileEntry, StageOutput


class _Item(NamedTuple):
    number: int
    weight: int = 1


def _result(number: int, *, names: int = 0) -> WorkResult:
    """Return counters like those of a dump's split: about forty, and names of templates."""
    entry = FileEntry(
        path=f"part-{number:05d}.arrow",
        stored_name=f"part-{number}-x.arrow",
        size_bytes=1,
        sha256="ab" * 32,
    )
    counters = {f"things-dropped-for-reason-{n}@source": number + n for n in range(40)}
    statistics = {f"template-unknown:name of template {n}": n for n in range(names)}
    return WorkResult(
        number, [entry], Counters(counters), statistics=statistics, reused=number % 3 == 0
    )


class _Work:
    """Returns a result for each item; raises an error on every item but the first."""

    def __init__(self, *, error: Exception | None = None, lost: int = -1) -> None:
        self._error, self._lost = error, lost

    def setup(self) -> None:
        """Nothing to open."""

    def process(self, item: _Item) -> WorkResult:
        if self._error is not None and item.number:
            raise self._error
        return _result(0 if item.number == self._lost else item.number, names=20)


@pytest.fixture(autouse=True)
def _workers_find_this_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)


def _run(
    work: _Work, output: object, *, items: int = 4, workers: int = 1, runner: str = "local"
) -> JobResult:
    planned = [_Item(number) for number in range(items)]
    execution = ExecutionConfig(workers=workers, runner=runner)
    return run_shard_job("job", planned, work=work, output=str(output), execution=execution)


# Results


def _texts(results: Iterable[WorkResult]) -> list[str]:
    return [result.to_json() for result in results]


def test_results_are_in_order_and_their_files_are_deleted(tmp_path: Path) -> None:
    files = JobFiles(f"{tmp_path}/job")
    results = [_result(number, names=number) for number in range(30)]
    for number, first in enumerate((20, 0, 10)):
        lines = _texts(results[first : first + 10])
        files.write_results("items", number, lines[::-1])
    read = files.read_results("items")
    assert read.numbers == list(range(30))
    for _ in range(2):
        assert _texts(read) == _texts(results)
    assert read.files == tuple(result.files[0] for result in results)
    assert read.reused == set(range(0, 30, 3))
    files.delete()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("runner", ["local", "elsewhere"])
def test_job_returns_the_results_of_its_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: str
) -> None:
    monkeypatch.setitem(RUNNERS, "elsewhere", _Elsewhere)
    monkeypatch.setattr(beam_pipeline, "RESULTS_PER_FILE", 15)
    job = _run(_Work(), tmp_path, items=40, runner=runner)
    assert _texts(job.reports) == _texts([_result(number, names=20) for number in range(40)])
    assert job.reuse.items_reused == 14
    assert list(tmp_path.iterdir()) == []


def test_launching_process_holds_results_as_texts(tmp_path: Path) -> None:
    """Ten kilobytes each, as a split of a large Wikipedia has."""
    files, number = JobFiles(f"{tmp_path}/job"), 400
    files.write_results("items", 0, (_result(n, names=200).to_json() for n in range(number)))
    size = (tmp_path / "job-items-0").stat().st_size
    tracemalloc.start()
    try:
        results = files.read_results("items")
        total = sum(len(result.statistics) for result in results)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == 200 * number
    assert held < 1.5 * size


# Errors


def test_item_without_its_one_result_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match="lost or repeated work"):
        _run(_Work(lost=3), tmp_path)


def test_memory_store_is_refused_to_other_processes() -> None:
    with pytest.raises(ConfigError, match="memory://"):
        _run(_Work(), "memory://jobs", workers=2)


def test_error_of_a_pipeline_names_its_job() -> None:
    def build(pipeline: beam.Pipeline) -> None:
        _ = pipeline | beam.Create([1]) | beam.Map(lambda one: one / 0)

    with pytest.raises(RunnerError, match=r"^my-job: .*ZeroDivisionError|^my-job: division"):
        get_runner(ExecutionConfig()).run("my-job", build)


def _error_of(error: Exception, folder: Path, **execution: Any) -> Exception:
    """Return what a job raises whose work raises an error."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the callers look at it
        _run(_Work(error=error), folder, **execution)
    assert list(folder.iterdir()) == []
    return raised.value


@pytest.mark.parametrize(("runner", "workers"), [("local", 1), ("local", 2)])
def test_error_of_worker_keeps_type_attributes_and_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], runner: str, workers: int
) -> None:
    error = CorruptInputError("x.bz2 ends too early", file="x.bz2", offset=7, last_record="A")
    error.add_note("look here")
    raised = _error_of(error, tmp_path, runner=runner, workers=workers)
    assert isinstance(raised, CorruptInputError)
    assert str(raised) == "x.bz2 ends too early"
    assert (raised.file, raised.offset, raised.last_record) == ("x.bz2", 7, "A")
    assert raised.__notes__ == ["look here"]
    assert "Traceback" not in capsys.readouterr().err


_FOREIGN = type("ConfigError", (Exception,), {"__module__": __name__, "__qualname__": "_FOREIGN"})


@pytest.mark.parametrize(
    ("error", "expected", "text"),
    [
        (OSError(errno.ENOSPC, "No space left", "/store/part"), OSError, "/store/part"),
        (ValueError("no number"), RunnerError, "item 1: ValueError: no number"),
        (_FOREIGN("x"), RunnerError, "ConfigError"),  # has the name of an error of bertloom
    ],
)
def test_error_of_another_package(
    tmp_path: Path, error: Exception, expected: type[Exception], text: str
) -> None:
    raised = _error_of(error, tmp_path, workers=2)
    assert type(raised) is expected
    assert text in str(raised)


def _build(source: AnySource, folder: Path, **execution: Any) -> StageOutput:
    folder.mkdir()
    return build_documents(
        DocumentsConfig(sources=(source,)),
        inputs={},
        output=str(folder),
        execution=ExecutionConfig(**execution),
    )


def test_truncated_dump_is_the_same_error_with_any_number_of_workers(tmp_path: Path) -> None:
    path = tmp_path / "cut.xml"
    path.write_bytes(dump([page(n, "Some words of text. " * 30) for n in range(1, 101)])[:40_000])
    source = WikipediaSource(name="w", paths=(str(path),), target_split_bytes=4096)
    errors = []
    for workers in (1, 2):
        output = tmp_path / f"out{workers}"
        with pytest.raises(CorruptInputError) as raised:
            _build(source, output, workers=workers)
        errors.append((str(raised.value), raised.value.offset, raised.value.last_record))
        assert raised.value.file == str(path)
        assert not [p for p in output.iterdir() if "partial" in p.name or "error" in p.name]
    assert errors[0] == errors[1]
    assert errors[0][1] == 40_000


def test_dump_in_another_language_than_the_recipe_says_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "wiki.xml"
    path.write_bytes(dump([page(n, "Some words of text. " * 30) for n in range(1, 4)]))
    english = WikipediaSource(name="w", paths=(str(path),))
    assert _build(english, tmp_path / "en").notes == ()
    (note,) = _build(english.model_copy(update={"language": "it"}), tmp_path / "it").notes
    assert "language en, recipe says it" in note


# Plans


def _split(number: int) -> Split:
    """Return a split of a dozen loose files."""
    file = SourceFile("s3://bucket/books/a", "a ... b (12 files)", 1 << 20, "0" * 64)
    detail = str([["s3://bucket/books/a-book-with-a-name.txt", "a", 9, "0" * 64]] * 12)
    return Split("books", file, number, number + 1, detail)


def test_plan_of_any_size_is_a_json_file_and_not_in_the_graph(tmp_path: Path) -> None:
    items = [DocumentItem(number, _split(number), 1 << 20) for number in range(1_000)]
    source = TextSource(name="own", paths=("*.txt",))
    work = BuildDocumentShard(DocumentsConfig(sources=(source,)), "s3://bucket/out")
    with open_job_files(str(tmp_path), is_local=False) as files:
        files.write_plan([item] for item in items)
        pipeline = beam.Pipeline("FnApiRunner")
        build = shard_pipeline(
            "job", ItemProcessor(work, files), item_type=DocumentItem, grouping=None
        )
        build(pipeline)
        assert len(pipeline.to_runner_api().SerializeToString()) < 200_000
        parse = TypeAdapter(list[DocumentItem]).validate_json
        assert [parse(element) for element in files.read_plan()] == [[item] for item in items]
        for path in tmp_path.iterdir():  # a bucket's writers must not run code on workers
            for line in path.read_text(encoding="utf-8").splitlines():
                json.loads(line)
    assert list(tmp_path.iterdir()) == []


class _Elsewhere(LocalRunner):
    """Runner like an engine, which gets several elements, in this process."""

    is_local = False


class _Numbers(_Work):
    """Sends the number of each item to the bucket of its remainder."""

    def process(self, item: _Item) -> WorkResult:
        return WorkResult(item.number, blobs=[Blob(item.number % 3, bytes([item.number]))])


def _sum(blobs: Sequence[bytes]) -> bytes:
    return sum(int.from_bytes(blob, "big") for blob in blobs).to_bytes(4, "big")


def _reduce(bucket: int, blobs: Iterable[bytes]) -> WorkResult:
    return WorkResult(bucket, statistics=[int.from_bytes(blob, "big") for blob in sorted(blobs)])


@pytest.mark.parametrize("combine", [None, _sum])
def test_blobs_are_grouped_alike_with_and_without_beam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, combine: Callable[..., bytes] | None
) -> None:
    monkeypatch.setitem(RUNNERS, "elsewhere", _Elsewhere)
    groups = [
        _texts(
            run_shard_job(
                "job",
                [_Item(number) for number in range(100)],
                work=_Numbers(),
                output=str(tmp_path),
                execution=ExecutionConfig(runner=runner),
                grouping=BucketReduce(_reduce, combine),
            ).groups
        )
        for runner in ("local", "elsewhere")
    ]
    assert groups[0] == groups[1]
    numbers = list(range(1, 100, 3))
    statistics = [sum(numbers)] if combine else numbers
    assert json.loads(groups[0][1])["statistics"] == statistics


class _Listing(_Work):
    """Returns the names in the output folder while the job runs."""

    def __init__(self, output: str, **options: Any) -> None:
        super().__init__(**options)
        self._output = output

    def process(self, item: _Item) -> WorkResult:
        super().process(item)
        names = sorted({path.name.partition("-")[0] for path in Path(self._output).iterdir()})
        return WorkResult(item.number, statistics=names)


@pytest.mark.parametrize("error", [None, ConfigError("no")])
def test_each_item_is_processed_once_and_the_plan_is_hidden_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: ConfigError | None
) -> None:
    monkeypatch.setitem(RUNNERS, "elsewhere", _Elsewhere)
    work = _Listing(str(tmp_path), error=error)
    with pytest.raises(ConfigError) if error else contextlib.nullcontext():
        job = _run(work, tmp_path, items=50, runner="elsewhere")
        assert [report.index for report in job.reports] == list(range(50))
        assert [report.statistics for report in job.reports] == [[".job"]] * 50
    assert list(tmp_path.iterdir()) == []


def test_files_of_interrupted_job_are_deleted(tmp_path: Path) -> None:
    opened = open_job_files(str(tmp_path), is_local=False)
    files = opened.__enter__()
    files.write_plan([[_Item(0)]])
    assert list(tmp_path.iterdir())
    assert not opened.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)  # not suppressed
    assert list(tmp_path.iterdir()) == []


# Full disks


def _write_file(folder: str, size: int) -> None:
    with FileWriter("a.bin", output=folder) as writer:
        writer.file.write(bytes(size))


def _write_shard(folder: str, rows: int, metadata: int) -> None:
    schema = pa.schema([("x", pa.int64())], metadata={"x": "x" * metadata})
    with ShardWriter("a.arrow", schema=schema, output=folder) as shard:
        shard.write(pa.record_batch([range(rows)], schema=schema))


def _write_record(folder: str) -> None:
    cache = ItemCache(f"{folder}/pieces/stage/digest", f"{folder}/out")
    record = cache.new_record(WorkResult(0, statistics="x" * (1 << 16)))
    cache.write("a" * 64, record, [])


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: _write_file(folder, 6_000),  # less than a buffer: fails when it is closed
        lambda folder: _write_file(folder, 60_000),
        lambda folder: _write_shard(folder, 10_000, 0),
        lambda folder: _write_shard(folder, 0, 60_000),  # in the header
        lambda folder: _write_shard(folder, 0, 6_000),  # in the footer
        _write_record,
    ],
)
def test_full_disk_names_the_file_and_leaves_nothing_partial(
    tmp_path: Path, write: Callable[[str], None]
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            write(str(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(raised.value.filename).startswith(str(tmp_path))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
