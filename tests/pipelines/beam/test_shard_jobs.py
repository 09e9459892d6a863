"""Shard jobs: reports, runners, and errors of work items."""

from __future__ import annotations

import io
import sys
from typing import NamedTuple

import pytest
from support.corpus_builder import small_recipe, small_sample

from pipelines.beam.shard_job import run_shard_job
from pipelines.beam.shard_work import WorkResult, sum_counters
from pipelines.build_documents import build_documents
from pipelines.runners.job_context import suppress_worker_tracebacks
from pipelines.runners.registry import get_runner
from schemas.errors import ConfigError, CorruptInputError, RunnerError
from schemas.execution_configs import ExecutionConfig


class _Piece(NamedTuple):
    number: int
    weight: int


class _Work:
    """ResultList each piece, or loses one, or fails as told."""

    def __init__(self, *, lost: int = -1, error: Exception | None = None) -> None:
        self._lost, self._error = lost, error

    def setup(self) -> None:
        """Nothing to open."""

    def process(self, piece: _Piece) -> WorkResult:
        if self._error is not None:
            raise self._error
        number = 0 if piece.number == self._lost else piece.number
        report = WorkResult(number)
        report.counters.count("pieces", piece.weight)
        return report


PIECES = [_Piece(number, weight) for number, weight in enumerate([5, 9, 1, 7, 3, 3])]


def _run(work: _Work, output: str, *, workers: int = 1) -> list[WorkResult]:
    how = ExecutionConfig(workers=workers)
    return run_shard_job("job", PIECES, work=work, output=output, execution=how).reports


def test_reports_come_back_in_the_order_of_the_plan(tmp_path) -> None:
    reports = _run(_Work(), str(tmp_path))
    assert [report.index for report in reports] == [0, 1, 2, 3, 4, 5]
    assert sum_counters(reports) == {"pieces": 28}
    assert list(tmp_path.iterdir()) == []  # the reports' own files are gone


def test_a_piece_that_is_not_reported_once_is_an_error(tmp_path) -> None:
    with pytest.raises(RunnerError, match="lost or repeated work"):
        _run(_Work(lost=3), str(tmp_path))


def test_a_workers_error_keeps_its_class_and_words(tmp_path, capsys) -> None:
    error = CorruptInputError("x.bz2 ends too early", file="x.bz2", offset=7, last_record="A")
    with pytest.raises(CorruptInputError, match=r"x\.bz2 ends too early") as raised:
        _run(_Work(error=error), str(tmp_path))
    assert (raised.value.offset, raised.value.last_record) == (7, "A")
    assert "Traceback" not in capsys.readouterr().err


def test_a_memory_store_is_refused_to_other_processes() -> None:
    with pytest.raises(ConfigError, match="memory:// store lives in one process"):
        _run(_Work(), "memory://jobs", workers=2)


def test_an_unknown_runner_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'moon': choose one of local"):
        get_runner(ExecutionConfig(runner="moon"))


def test_an_error_that_is_not_ours_names_the_job() -> None:
    def build(pipeline) -> None:
        import apache_beam as beam

        _ = pipeline | beam.Create([1]) | beam.Map(lambda one: one / 0)

    with pytest.raises(RunnerError, match=r"^my-job: .*ZeroDivisionError|^my-job: division"):
        get_runner(ExecutionConfig()).run("my-job", build)


def test_only_tracebacks_are_kept_from_standard_error(monkeypatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with suppress_worker_tracebacks():
        sys.stderr.write("Traceback (most recent call last):\n  somewhere")
        sys.stderr.write("a warning")
    assert stream.getvalue() == "a warning"


def test_a_dump_in_another_language_than_the_recipe_says_is_noted(tmp_path) -> None:
    config = small_recipe(small_sample(tmp_path / "sample")).build_documents
    italian = config.sources[0].model_copy(update={"language": "it"})
    for sources, notes in (((italian,), 1), (config.sources[:1], 0)):
        output = tmp_path / f"out{notes}"
        output.mkdir()
        made = build_documents(
            config.model_copy(update={"sources": sources}),
            inputs={},
            output=str(output),
            execution=ExecutionConfig(),
        )
        assert len(made.notes) == notes
        assert all("language en, recipe says it" in note for note in made.notes)
