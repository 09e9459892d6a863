"""The plan of a job is in a file: the graph does not grow with it, and no item is lost."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest

from pipelines.beam.pipeline import shard_pipeline
from pipelines.beam.shard_job import group_items, run_shard_job
from pipelines.beam.shard_work import SharedInput, WorkResult, write_plan
from pipelines.documents.build_shard import BuildDocumentShard
from pipelines.documents.plan import DocumentItem
from pipelines.instances.build_shard import BuildInstanceShard
from pipelines.instances.plan import colocation_key, plan
from pipelines.io.splits import SourceFile, Split
from pipelines.io.stage_inputs import InputFile
from pipelines.runners.direct import DirectRunner
from pipelines.runners.job_context import ErrorFiles
from pipelines.runners.registry import RUNNERS
from pipelines.runners.runner import Runner
from schemas.corpus_configs import BooksSource, DocumentsConfig, InstancesConfig
from schemas.errors import ConfigError
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import FileEntry, StageInput

MAX_ELEMENTS = Runner.max_elements


class _Piece(NamedTuple):
    number: int
    weight: int
    group: int = 0


class _Notes:
    """ResultList each piece, and what the output folder holds meanwhile."""

    def __init__(self, output: str, *, error: BaseException | None = None) -> None:
        self._output, self._error = output, error

    def setup(self) -> None:
        """Nothing to open."""

    def process(self, piece: _Piece) -> WorkResult:
        if self._error is not None:
            raise self._error
        seen = sorted(path.name.partition("-")[0] for path in Path(self._output).iterdir())
        return WorkResult(piece.number, details=[piece.weight, *seen])


def _graph_size(
    work: Any, planned: list[Any], folder: Path, *, shared: SharedInput | None = None
) -> int:
    """Return the size of a job's graph as an engine gets it, in bytes."""
    urls = {name: f"memory://bucket/{name}" for name in ("work", "groups", "progress")}
    elements = group_items(planned, max_elements=MAX_ELEMENTS)
    pipeline = beam.Pipeline("FnApiRunner")
    with (
        write_plan(elements, folder=str(folder)) as plan,
        shared.written(f"{folder}/.input") if shared else contextlib.nullcontext(),
    ):
        errors = ErrorFiles("s3://b/e")
        shard_pipeline("job", *plan, work=work, errors=errors, grouping=None, urls=urls)(pipeline)
        return len(pipeline.to_runner_api().SerializeToString())


def _books(count: int) -> list[DocumentItem]:
    """Pieces of a dozen loose files each."""
    file = SourceFile("s3://bucket/books/a", "a ... b (12 files)", 1 << 20, "0" * 64)
    detail = str([["s3://bucket/books/a-book-with-a-name.txt", "a", 9, "0" * 64]] * 12)
    return [
        DocumentItem(number, Split("books", file, number, number + 1, detail), 1 << 20)
        for number in range(count)
    ]


def test_graph_of_a_hundred_thousand_items_is_small(tmp_path: Path) -> None:
    source = BooksSource(name="books", paths=("s3://bucket/books",))
    work = BuildDocumentShard(DocumentsConfig(sources=(source,)), "s3://bucket/out")
    sizes = [_graph_size(work, _books(count), tmp_path) for count in (MAX_ELEMENTS, 100_000)]
    assert sizes[1] < 1 << 20
    assert sizes[1] < 1.2 * sizes[0]  # offsets have more digits
    assert list(tmp_path.iterdir()) == []


def _token_shards(count: int, folder: Path) -> StageInput:
    files = tuple(
        FileEntry(
            path=f"part-{number:05d}.arrow", stored_name=f"part-{number:05d}-0123456789ab.arrow",
            size_bytes=10 << 20, sha256=f"{number * 7919:064x}", rows=2000,
        )
        for number in range(count)
    )  # fmt: skip
    return StageInput(name="tokens", artifact_id="0" * 16, data=str(folder), files=files)


def test_names_of_token_shards_are_not_in_the_graph(tmp_path: Path) -> None:
    config = InstancesConfig(dupe_factor=5)
    sizes = []
    for count in (20, 4000):
        tokens = _token_shards(count, tmp_path)
        shared = SharedInput(tokens)
        vocab = InputFile("v", "vocab.txt", "vocabulary", 1, "0" * 64)
        work = BuildInstanceShard(config, shared, vocab, 1000, "s3://bucket/out")
        planned = plan(config, tokens)
        assert len(planned) == 6 * count
        sizes.append(_graph_size(work, planned, tmp_path, shared=shared))
    assert sizes[1] < 1 << 20


class _Elsewhere(DirectRunner):
    """Runner like an engine, which gets several elements, in this process."""

    is_local = False
    max_elements = 7


@pytest.mark.parametrize("error", [None, ConfigError("no")])
def test_each_item_is_processed_once_and_the_plan_is_hidden_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: ConfigError | None
) -> None:
    monkeypatch.setitem(RUNNERS, "elsewhere", _Elsewhere)
    planned = [_Piece(number, 1 + number % 5) for number in range(50)]
    output, execution = str(tmp_path), ExecutionConfig(runner="elsewhere")
    work = _Notes(output, error=error)
    with pytest.raises(ConfigError) if error else contextlib.nullcontext():
        job = run_shard_job("job", planned, work=work, output=output, execution=execution)
        assert [report.index for report in job.reports] == list(range(50))
        expected = [[piece.weight, ".plan"] for piece in planned]
        assert [report.details for report in job.reports] == expected
    assert list(tmp_path.iterdir()) == []


def test_plan_of_interrupted_launcher_is_kept_for_its_job(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        write_plan([[_Piece(0, 1)]], folder=str(tmp_path)),
    ):
        raise KeyboardInterrupt
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".plan-")


def test_elements_share_items_evenly_and_in_order_when_there_are_too_many() -> None:
    items = [_Piece(number, 1 + number * 7919 % 100) for number in range(20_000)]
    elements = group_items(items, max_elements=MAX_ELEMENTS)
    assert list(itertools.chain(*elements)) == items
    assert MAX_ELEMENTS * 0.9 <= len(elements) <= MAX_ELEMENTS
    weights = [sum(item.weight for item in element) for element in elements]
    assert max(weights) <= 3 * sum(weights) / len(weights)


def test_items_with_equal_keys_are_in_one_element() -> None:
    groups = 600
    items = [_Piece(number, 10, number % groups) for number in range(groups * 10)]
    elements = group_items(items, max_elements=1000, colocate_by=lambda item: item.group)
    assert sorted(itertools.chain(*elements)) == items
    assert len(elements) == groups
    assert all(len({item.group for item in element}) == 1 for element in elements)


def test_held_out_items_are_in_one_element_if_a_worker_can_keep_their_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = InstancesConfig(dupe_factor=3, negative_pool_bytes=1 << 10)
    items = plan(config, _token_shards(700, tmp_path))

    def element_sizes() -> Counter[int]:
        key = colocation_key(items)
        elements = group_items(items, max_elements=MAX_ELEMENTS, colocate_by=key)
        return Counter(map(len, elements))

    assert element_sizes() == {1: 2100, 700: 1}
    monkeypatch.setattr("pipelines.instances.plan.REMEMBERED_BYTES", 1 << 20)
    assert element_sizes() == {1: 2800}
