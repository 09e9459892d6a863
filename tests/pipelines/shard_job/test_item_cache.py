"""Cached items are restored, with the same result as processing them."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pytest
from support.corpus_builder import small_recipe, small_sample
from support.item_runs import describe_outputs, run_stages

from pipelines.counters import Counters
from pipelines.instances.plan import ShardRanking, choose_pool
from pipelines.io.files import write_text_file
from pipelines.runners.job_context import suppress_worker_tracebacks
from pipelines.shard_job.item_cache import (
    MAX_LOCATIONS,
    CacheableShardFn,
    CachingShardFn,
    ItemCache,
    item_key,
    measure_reuse,
)
from pipelines.shard_job.work import Blob, WorkResult
from schemas.corpus_configs import InstancesConfig
from schemas.manifest import FileEntry, Reuse, StageOutput


class _Piece(NamedTuple):
    number: int
    text: str
    weight: int = 1


class _Work(CacheableShardFn):
    """Writes a piece's text into two files."""

    def __init__(self, output: str) -> None:
        self.output, self.done = output, list[str]()

    def identity(self, piece: _Piece) -> Any:
        return {"text": piece.text}

    def rename_files(self, files: Sequence[FileEntry], piece: _Piece) -> list[FileEntry]:
        names = (f"{piece.number}-{half}.txt" for half in range(2))
        return [
            entry.model_copy(update={"path": name})
            for entry, name in zip(files, names, strict=True)
        ]

    def load_blobs(self, files: Sequence[FileEntry]) -> list[Blob]:
        fs, path = fsspec.core.url_to_fs(f"{self.output}/{files[0].stored_name}")
        return [Blob(len(files), fs.cat_file(path))]

    def process(self, piece: _Piece) -> WorkResult:
        self.done.append(piece.text)
        files = [
            write_text_file(f"{piece.number}-{half}.txt", piece.text, output=self.output)
            for half in range(2)
        ]
        counters = Counters({"characters": len(piece.text), "nothing": 0})
        return WorkResult(piece.number, files, counters, [Blob(2, piece.text.encode())], [1])


class _Store:
    """A folder laid out as a store."""

    def __init__(self, root: str) -> None:
        self.root, self.pieces = root, f"{root}/pieces/build-things/0"
        self.fs, self.path = fsspec.core.url_to_fs(root)

    def output(self, attempt: int | str) -> str:
        return f"{self.root}/artifacts/build-things/{attempt}/data"

    def run(
        self, attempt: int | str, *pieces: _Piece, min_seconds: float = 0.0
    ) -> tuple[list[WorkResult], list[str]]:
        """The reports, and the texts of the pieces that were worked on."""
        output = self.output(attempt)
        fs, path = fsspec.core.url_to_fs(output)
        fs.makedirs(path, exist_ok=True)
        inner = _Work(output)
        work = CachingShardFn(inner, ItemCache(self.pieces, output), min_seconds)
        work.setup()
        reports = [work.process(piece) for piece in pieces]
        for report, piece in zip(reports, pieces, strict=True):
            assert report.index == piece.number
            assert [entry.path for entry in report.files] == [
                f"{piece.number}-{half}.txt" for half in range(2)
            ]
            assert report.counters == Counters({"characters": len(piece.text), "nothing": 0})
            assert report.blobs == [Blob(2, piece.text.encode())]
            assert report.statistics == [1]
            for entry in report.files:
                assert fs.cat_file(f"{path}/{entry.stored_name}") == piece.text.encode()
        return reports, inner.done

    def records(self) -> list[str]:
        paths = self.fs.find(f"{self.path}/pieces")
        return [name for name in paths if name.endswith(".json")]


@pytest.fixture
def store(tmp_path: Path) -> _Store:
    return _Store(str(tmp_path))


def test_finished_item_is_restored_under_its_new_name(store: _Store) -> None:
    reports, done = store.run(1, _Piece(0, "a"), _Piece(1, "b"))
    assert done == ["a", "b"]
    assert not any(report.reused for report in reports)
    again, done = store.run(2, _Piece(0, "new"), _Piece(1, "a"), _Piece(2, "b"))
    assert done == ["new"]
    assert {entry.stored_name for report in again for entry in report.files}.isdisjoint(
        entry.stored_name for report in reports for entry in report.files
    )
    planned = [_Piece(number, "", weight) for number, weight in enumerate((5, 3, 2))]
    restored = [report.index for report in again if report.reused]
    assert measure_reuse(planned, restored) == Reuse(
        items=3, items_reused=2, weight=10, weight_reused=5
    )
    # A retried worker resumes its finished files, which does not count as reuse.
    repeated, done = store.run(2, _Piece(0, "new"))
    assert done == []
    assert not repeated[0].reused


def test_short_items_are_processed_again(store: _Store) -> None:
    store.run(1, _Piece(0, "short"), min_seconds=1e9)
    assert store.records() == []
    assert store.run(2, _Piece(0, "short"), min_seconds=0.0)[1] == ["short"]
    assert store.run(3, _Piece(0, "short"), min_seconds=1e9)[1] == []


def test_item_that_equals_one_of_the_same_job_is_not_reused(store: _Store) -> None:
    twice = (_Piece(0, "a"), _Piece(1, "a"))
    for attempt, is_reuse in ((1, False), (2, True)):
        reports, done = store.run(attempt, *twice)
        assert done == ["a"] * (not is_reuse)
        assert [report.reused for report in reports] == [is_reuse, is_reuse]


def test_item_outlives_the_artifact_that_it_was_built_for(store: _Store) -> None:
    for attempt in range(MAX_LOCATIONS + 2):
        _, done = store.run(attempt, _Piece(attempt, "a"))
        assert done == (["a"] if attempt == 0 else [])
    for attempt in range(MAX_LOCATIONS + 1):  # the last one is left
        store.fs.rm(f"{store.path}/artifacts/build-things/{attempt}", recursive=True)
    assert store.run("new", _Piece(0, "a"))[1] == []
    (record,) = store.records()
    assert len(json.loads(store.fs.cat_file(record))["locations"]) <= MAX_LOCATIONS


def _damage_last_file(store: _Store) -> None:
    *_, last = sorted(store.fs.find(f"{store.path}/artifacts/build-things/1"))
    store.fs.pipe_file(last, b"A")


def _name_a_file_less(record: bytes) -> bytes:
    data = json.loads(record)
    data["locations"] = [paths[:1] for paths in data["locations"]]
    return json.dumps(data).encode()


def _rewrite(change: Callable[[bytes], bytes]) -> Callable[[_Store], None]:
    """Return a function that changes the record of an item."""

    def rewrite(store: _Store) -> None:
        (record,) = store.records()
        store.fs.pipe_file(record, change(store.fs.cat_file(record)))

    return rewrite


_DAMAGES: dict[str, Callable[[_Store], None]] = {
    "files deleted": lambda store: store.fs.rm(store.output(1), recursive=True),
    "file": _damage_last_file,
    "record cut": _rewrite(lambda record: record[:-20]),
    "location outside": _rewrite(lambda text: text.replace(b'"artifacts/', b'"../artifacts/')),
    "location short": _rewrite(_name_a_file_less),
}


@pytest.mark.parametrize("damage", _DAMAGES.values(), ids=_DAMAGES)
def test_damaged_item_is_processed_again(store: _Store, damage: Callable[[_Store], None]) -> None:
    store.run(1, _Piece(0, "a"))
    damage(store)
    reports, done = store.run(2, _Piece(0, "a"))
    assert done == ["a"]
    path = fsspec.core.url_to_fs(store.output(2))[1]
    names = sorted(name.rpartition("/")[2] for name in store.fs.find(path))
    assert names == sorted(entry.stored_name for entry in reports[0].files)  # nothing half restored
    assert store.run(3, _Piece(0, "a"))[1] == []


def _copy_item(store: _Store, source: str, target: str) -> None:
    store.fs.makedirs(target.rpartition("/")[0], exist_ok=True)
    store.fs.pipe_file(target, store.fs.cat_file(source))


def test_misplaced_record_of_another_item_is_not_used(store: _Store) -> None:
    pieces = (_Piece(0, "a"), _Piece(1, "b"))
    store.run(1, *pieces)
    _copy_item(store, *store.records())
    assert len(store.run(2, *pieces)[1]) == 1
    assert store.run(3, *pieces)[1] == []


def test_misplaced_record_of_another_configuration_is_not_used(store: _Store) -> None:
    store.run(1, _Piece(0, "a"))
    (record,) = store.records()
    _copy_item(store, record, record.replace("/build-things/0/", "/build-things/1/"))
    store.pieces = store.pieces.replace("/build-things/0", "/build-things/1")
    assert store.run(2, _Piece(0, "a"))[1] == ["a"]


@pytest.mark.network
def test_items_on_s3_are_copied_by_the_server(bucket: str) -> None:
    store = _Store(f"{bucket}/store")
    store.run(1, _Piece(0, "a"), _Piece(1, "b"))
    assert store.run(2, _Piece(0, "b"), _Piece(1, "a"))[1] == []
    _damage_last_file(store)
    store.fs.rm(f"{store.path}/artifacts/build-things/2", recursive=True)
    assert store.run(3, _Piece(0, "b"), _Piece(1, "a"))[1] == ["b"]


def test_files_are_copied_where_no_link_can_be_made(
    store: _Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.run(1, _Piece(0, "a"))
    linked = store.run(2, _Piece(0, "a"))[0][0].files[0]
    assert Path(store.output(2), linked.stored_name).stat().st_nlink == 2

    def refuse(source: str, target: str) -> None:
        raise OSError(errno.EXDEV, "other device", source, target)

    monkeypatch.setattr(os, "link", refuse)
    copied, done = store.run(3, _Piece(0, "a"))
    assert done == []
    assert Path(store.output(3), copied[0].files[0].stored_name).stat().st_nlink == 1
    assert len(list(Path(store.output(3)).iterdir())) == 2


def _shard(content: str, *, rows: int = 500, size: int = 1000) -> FileEntry:
    return FileEntry(
        path=content, stored_name=content, size_bytes=size, sha256=item_key(content), rows=rows
    )


def _pools(files: Sequence[FileEntry], **settings: Any) -> dict[str, list[str]]:
    config = InstancesConfig(**settings)
    ranking = ShardRanking.of(files, seed=config.seed)
    return {
        entry.path: [
            files[number].path
            for number in choose_pool(files, shard, ranking=ranking, config=config)
        ]
        for shard, entry in enumerate(files)
    }


def test_pools_depend_on_the_content_of_shards_only() -> None:
    files = [_shard(str(number)) for number in range(20)]
    pools = _pools(files, negative_pool_bytes=3500)
    assert all(len(set(pool)) == 4 and pool[0] == own for own, pool in pools.items())
    assert len({tuple(sorted(pool)) for pool in pools.values()}) > 10
    assert _pools(files[::-1], negative_pool_bytes=3500) == pools
    assert _pools(files, negative_pool_bytes=3500, seed=1) != pools


def _share(outputs: Mapping[str, StageOutput]) -> float:
    reuses = [output.reuse for output in outputs.values() if output.reuse is not None]
    return sum(reuse.weight_reused for reuse in reuses) / sum(reuse.weight for reuse in reuses)


@pytest.mark.slow
def test_learned_vocabulary_reuses_word_counts(tmp_path: Path) -> None:
    recipe, store = small_recipe(small_sample(tmp_path / "sample")), str(tmp_path / "store")
    first, again = (
        run_stages(recipe, store, attempt, until="build-vocabulary") for attempt in ("1", "2")
    )
    assert describe_outputs(again) == describe_outputs(first)
    assert (_share(first), _share(again)) == (0.0, 1.0)


def test_blocks_without_tracebacks_may_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    first, second = suppress_worker_tracebacks(), suppress_worker_tracebacks()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    sys.stderr.write("Traceback (most recent call last):\n  somewhere")
    sys.stderr.write("a warning")
    second.__exit__(None, None, None)
    assert sys.stderr is stream
    assert stream.getvalue() == "a warning"
