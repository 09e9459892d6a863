"""Jobs return each item's result in the order of the plan, or the error of a worker."""

from __future__ import annotations

import errno
import resource
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pytest
from support.corpus_builder import small_recipe, small_sample
from support.dump_builder import dump, page
from support.paths import PYTHONPATH

from pipelines.beam import pipeline as beam_pipeline
from pipelines.beam import shard_work
from pipelines.beam.item_cache import ItemCache
from pipelines.beam.shard_job import JobResult, run_shard_job
from pipelines.beam.shard_work import ResultBatcher, ResultList, WorkResult
from pipelines.build_documents import build_documents
from pipelines.counters import Counters
from pipelines.io.files import FileWriter
from pipelines.io.shards import ShardWriter
from pipelines.runners.registry import get_runner
from schemas.corpus_configs import AnySource, DocumentsConfig, WikipediaSource
from schemas.errors import (
    ConfigError,
    CorruptInputError,
    RunnerError,
)
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
    details = [{f"template-unknown:name of template {n}": n for n in range(names)}]
    return WorkResult(number, [entry], Counters(counters), details=details, reused=number % 3 == 0)


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


def _texts(results: ResultList) -> list[str]:
    return [result.to_json() for result in results]


@pytest.mark.parametrize("max_inline_bytes", [0, 1_000, 1 << 20])
def test_results_are_in_order_and_their_files_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_inline_bytes: int
) -> None:
    monkeypatch.setattr(shard_work, "_FILE_BYTES", 5_000)
    url, sent = f"{tmp_path}/.results-1", list[str]()
    written = [_result(number, names=number) for number in range(30)]
    for first in (20, 0, 10):
        batcher = ResultBatcher(url, max_inline_bytes=max_inline_bytes)
        for result in written[first : first + 10]:
            sent += batcher.add(result)
        sent += batcher.flush()
    is_inline = max_inline_bytes == 1 << 20
    assert all(line.startswith("{" if is_inline else url) for line in sent)
    if not is_inline:
        abandoned = ResultBatcher(url, max_inline_bytes=0)  # of a repeated worker
        assert [*abandoned.add(written[0]), *abandoned.flush()]
    (tmp_path / "part-00000.arrow").write_bytes(b"stays")
    Path(url).write_text("\n".join(sorted(sent)))
    results = ResultList(url)
    assert results.numbers == list(range(30))
    for _ in range(2):
        assert _texts(results) == [result.to_json() for result in written]
    assert results.files == tuple(result.files[0] for result in written)
    assert results.reused == set(range(0, 30, 3))
    assert [path.name for path in tmp_path.iterdir()] == ["part-00000.arrow"]


@pytest.mark.parametrize("max_inline_bytes", [0, 8 << 20])
def test_job_returns_the_same_results_by_file_and_through_beam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_inline_bytes: int
) -> None:
    monkeypatch.setattr(beam_pipeline, "MAX_INLINE_BYTES", max_inline_bytes)
    job = _run(_Work(), tmp_path, items=40)
    assert _texts(job.reports) == [_result(number, names=20).to_json() for number in range(40)]
    assert job.reuse.items_reused == 14
    assert list(tmp_path.iterdir()) == []


def test_launching_process_holds_one_result_at_a_time(tmp_path: Path) -> None:
    """Ten kilobytes each, as a split of a large Wikipedia has."""
    number = 400
    batcher, sent = ResultBatcher(f"{tmp_path}/.results-1", max_inline_bytes=0), list[str]()
    for index in range(number):
        sent += batcher.add(_result(index, names=200))
    sent += batcher.flush()
    (tmp_path / ".results-1").write_text("\n".join(sent))
    tracemalloc.start()
    try:
        results = ResultList(f"{tmp_path}/.results-1")
        total = sum(len(result.details[0]) for result in results)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == 200 * number
    assert held < 4_000 * number


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


@pytest.mark.parametrize(("runner", "workers"), [("local", 1), ("local", 2), ("threads", 2)])
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


_FOREIGN = type("ConfigError", (Exception,), {})


@pytest.mark.parametrize(
    ("error", "expected", "text"),
    [
        (OSError(errno.ENOSPC, "No space left", "/store/part"), OSError, "/store/part"),
        (ValueError("no number"), RunnerError, "item 1: ValueError: no number"),
        (_FOREIGN("x"), RunnerError, "ConfigError"),  # a name of ours, of another package
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
    english, *_ = small_recipe(small_sample(tmp_path / "sample")).build_documents.sources
    assert _build(english, tmp_path / "en").notes == ()
    (note,) = _build(english.model_copy(update={"language": "it"}), tmp_path / "it").notes
    assert "language en, recipe says it" in note


def _write_file(folder: str) -> None:
    with FileWriter("a.bin", output=folder) as writer:
        writer.file.write(bytes(1 << 16))


def _write_shard(folder: str) -> None:
    schema = pa.schema([("x", pa.int64())])
    with ShardWriter("a.arrow", schema=schema, output=folder) as shard:
        shard.write(pa.record_batch([range(1 << 13)], schema=schema))


def _write_record(folder: str) -> None:
    ItemCache(f"{folder}/pieces/stage/digest", f"{folder}/out").write_file("a.json", bytes(1 << 16))


@pytest.mark.parametrize("write", [_write_file, _write_shard, _write_record])
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
