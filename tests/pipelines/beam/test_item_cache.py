"""Cached items are restored, with the same result as processing them."""

from __future__ import annotations

import bz2
import collections
import errno
import io
import json
import os
import re
import string
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pytest
from support.corpus_builder import as_input, small_recipe, small_sample
from support.item_runs import run_and_kill, run_stages, told

from benchmarks.dump_parts import change_part, write_parts
from flows.sample import write_sample
from pipelines.beam.item_cache import (
    MAX_LOCATIONS,
    CacheableShardFn,
    item_key,
    measure_reuse,
    with_item_cache,
)
from pipelines.beam.shard_work import Blob, ShardFn, WorkResult
from pipelines.build_instances import build_instances
from pipelines.counters import Counters
from pipelines.documents.plan import item_identity, plan
from pipelines.instances import plan as instance_plan
from pipelines.instances.plan import ShardRanking, choose_pool
from pipelines.io.files import write_text_file
from pipelines.runners.job_context import _TracebackFilter, suppress_worker_tracebacks
from pipelines.wordpiece.vocab_files import FIXED_TOKENS, vocab_text
from schemas.corpus_configs import BooksSource, DocumentsConfig, InstancesConfig, VocabularyConfig
from schemas.errors import ConfigError
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import FileEntry, Reuse, StageOutput
from schemas.recipe import Recipe


class _Piece(NamedTuple):
    number: int
    text: str
    weight: int = 1


class _Work(CacheableShardFn):
    """Writes a piece's text into two files."""

    def __init__(self, output: str) -> None:
        self.output, self.done = output, list[str]()

    def setup(self) -> None:
        """Nothing to open."""

    def identity(self, piece: _Piece) -> Any:
        return {"text": piece.text}

    def rename_files(self, files: Sequence[FileEntry], piece: _Piece) -> list[FileEntry]:
        names = (f"{piece.number}-{half}.txt" for half in range(2))
        return [
            entry.model_copy(update={"path": name})
            for entry, name in zip(files, names, strict=True)
        ]

    def dump_blobs(self, report: WorkResult) -> bytes:
        return report.blobs[0].data

    def load_blobs(self, files: Sequence[FileEntry], stored: bytes) -> list[Blob]:
        return [Blob(len(files), stored)]

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

    def run(self, attempt: int | str, *pieces: _Piece) -> tuple[list[WorkResult], list[str]]:
        """The reports, and the texts of the pieces that were worked on."""
        output = self.output(attempt)
        fs, path = fsspec.core.url_to_fs(output)
        fs.makedirs(path, exist_ok=True)
        inner = _Work(output)
        work: ShardFn = with_item_cache(inner, folder=self.pieces, output=output)
        work.setup()
        reports = [work.process(piece) for piece in pieces]
        for report, piece in zip(reports, pieces, strict=True):
            assert report.index == piece.number
            assert [entry.path for entry in report.files] == [
                f"{piece.number}-{half}.txt" for half in range(2)
            ]
            assert report.counters == Counters({"characters": len(piece.text), "nothing": 0})
            assert report.blobs == [Blob(2, piece.text.encode())]
            assert report.details == [1]
            for entry in report.files:
                assert fs.cat_file(f"{path}/{entry.stored_name}") == piece.text.encode()
        return reports, inner.done

    def records(self) -> list[str]:
        found = self.fs.find(f"{self.path}/pieces")
        return [name for name in found if name.endswith(".json")]


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[_Store]:
    root = str(tmp_path) if request.param == "local" else f"memory://pieces-{os.getpid()}"
    yield _Store(root)
    if request.param == "memory":
        fs, path = fsspec.core.url_to_fs(root)
        fs.rm(path, recursive=True)


def test_a_finished_piece_is_taken_over_under_its_new_name(store: _Store) -> None:
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


def test_what_a_job_says_twice_is_reuse_only_of_another_job(store: _Store) -> None:
    twice = (_Piece(0, "a"), _Piece(1, "a"))
    for attempt, is_reuse in ((1, False), (2, True)):
        reports, done = store.run(attempt, *twice)
        assert done == ["a"] * (not is_reuse)
        assert [report.reused for report in reports] == [is_reuse, is_reuse]


def test_a_piece_outlives_the_artifact_that_it_was_made_for(store: _Store) -> None:
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


def _rewrite(change: Callable[[bytes], bytes], suffix: str = ".json") -> Callable[[_Store], None]:
    """Return a function that changes the record of an item, or another file of it."""

    def rewrite(store: _Store) -> None:
        (record,) = store.records()
        path = record.replace(".json", suffix)
        store.fs.pipe_file(path, change(store.fs.cat_file(path)))

    return rewrite


_DAMAGES: dict[str, Callable[[_Store], None]] = {
    "files deleted": lambda store: store.fs.rm(store.output(1), recursive=True),
    "file": _damage_last_file,
    "record cut": _rewrite(lambda record: record[:-20]),
    "location outside": _rewrite(lambda text: text.replace(b'"artifacts/', b'"../artifacts/')),
    "location short": _rewrite(_name_a_file_less),
    "blobs": _rewrite(lambda _: b"A", ".blobs"),
    "blobs deleted": lambda store: store.fs.rm_file(store.records()[0].replace(".json", ".blobs")),
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


@pytest.mark.network
def test_pieces_on_s3_are_copied_by_the_server(bucket: str) -> None:
    store = _Store(f"{bucket}/store")
    store.run(1, _Piece(0, "a"), _Piece(1, "b"))
    assert store.run(2, _Piece(0, "b"), _Piece(1, "a"))[1] == []
    _damage_last_file(store)
    store.fs.rm(f"{store.path}/artifacts/build-things/2", recursive=True)
    assert store.run(3, _Piece(0, "b"), _Piece(1, "a"))[1] == ["b"]


def test_where_no_link_can_be_made_files_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _Store(str(tmp_path))
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


def test_pieces_of_another_store_are_refused(tmp_path: Path) -> None:
    for pieces in (f"{tmp_path}/a/pieces/s/0", f"{tmp_path}/b/bits/s/0", "memory://pieces/s/0"):
        with pytest.raises(ConfigError, match="within one store"):
            with_item_cache(_Work(""), folder=pieces, output=f"{tmp_path}/b/artifacts/s/1/data")


def test_a_split_is_known_by_what_it_reads_not_where_or_in_which_order(tmp_path: Path) -> None:
    def keys(folder: str, *books: tuple[str, str]) -> list[str]:
        for name, text in books:
            path = tmp_path / folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text * 3000)
        source = BooksSource(
            name="tales", paths=(str(tmp_path / folder),), target_split_bytes=1 << 10
        )
        pieces = plan(DocumentsConfig(sources=(source,)))
        return [item_key(item_identity(piece, "books")) for piece in pieces]

    first = keys("first", ("a.txt", "The sea. "), ("b.txt", "The hill. "))
    moved = keys("moved", ("0.txt", "One more. "), ("a.txt", "The sea. "), ("b.txt", "The hill. "))
    assert len(set(moved)) == 3
    assert set(first) < set(moved)
    renamed = keys("renamed", ("a.txt", "The sea. "), ("c.txt", "The hill. "))
    assert len(set(first) & set(renamed)) == 1  # a book's name is in its document's id


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


def test_pools_are_chosen_by_what_shards_hold() -> None:
    files = [_shard(str(number)) for number in range(20)]
    pools = _pools(files, negative_pool_bytes=3500)
    assert all(len(set(pool)) == 4 and pool[0] == own for own, pool in pools.items())
    assert len({tuple(sorted(pool)) for pool in pools.values()}) > 10
    assert _pools(files[::-1], negative_pool_bytes=3500) == pools
    assert _pools(files, negative_pool_bytes=3500, seed=1) != pools
    # All of them fit; none fits; and none fits a shard too small to draw from alone.
    assert all(len(pool) == 20 for pool in _pools(files, negative_pool_bytes=20_000).values())
    assert all(
        len(set(pool)) == 1
        for pool in _pools(files, negative_pool_bytes=1 << 20, pairing="none").values()
    )
    large = [_shard(str(number), size=2000) for number in range(5)]
    assert all(len(pool) == 1 for pool in _pools(large, negative_pool_bytes=1 << 10).values())
    book = _shard("book", rows=3, size=2000)
    assert len(_pools([*large, book], negative_pool_bytes=1 << 10)["book"]) == 2
    assert _pools([book], negative_pool_bytes=1 << 10) == {"book": ["book"]}


class _World(NamedTuple):
    recipe: Recipe
    parts: list[Path]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> _World:
    """Ten parts of a dump and a few tales, with a given vocabulary."""
    folder = tmp_path_factory.mktemp("world")
    sample = write_sample(
        str(folder / "sample"), articles=600, tales=2, pages_per_stream=10, compresslevel=1
    )
    parts = write_parts(sample, folder / "parts", parts=10)
    recipe = small_recipe(sample)
    wiki, tales = recipe.build_documents.sources
    wiki = wiki.model_copy(
        update={"paths": (str(folder / "parts"),), "target_split_bytes": 1 << 30}
    )
    words = re.findall("[a-z]+", bz2.decompress(parts[0].read_bytes()).decode().lower())
    frequent = [word for word, _ in collections.Counter(words).most_common(2000) if word[1:]]
    letters = [mark + letter for mark in ("", "##") for letter in string.ascii_lowercase]
    pieces = [*FIXED_TOKENS, *string.punctuation, *string.digits, *letters, *frequent]
    (folder / "vocab.txt").write_text(vocab_text(pieces), encoding="utf-8")
    instances = InstancesConfig(negative_pool_bytes=1 << 10, held_out_fraction=0.05)
    return _World(
        recipe.model_copy(
            update={
                "build_documents": DocumentsConfig(sources=(wiki, tales)),
                "build_vocabulary": VocabularyConfig(vocab_file=str(folder / "vocab.txt")),
                "build_instances": {"only": instances},
            }
        ),
        parts,
    )


def _share(outputs: Mapping[str, StageOutput]) -> float:
    found = [output.reuse for output in outputs.values() if output.reuse is not None]
    return sum(reuse.weight_reused for reuse in found) / sum(reuse.weight for reuse in found)


@pytest.mark.slow
def test_one_part_of_ten_changed_is_mostly_reused_and_equal_to_a_rebuild(
    world: _World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_plan, "POOL_DOCUMENTS", 32)  # as few as these parts have
    store = str(tmp_path / "store")
    before = run_stages(world.recipe, store, "before")
    assert _share(before) == 0.0
    change_part(world.parts[4])
    after = run_stages(world.recipe, store, "after")
    anew = run_stages(world.recipe, str(tmp_path / "other"), "anew", reuse=False)
    assert told(after) == told(anew)
    changed = [stage for stage in before if told(before)[stage] != told(after)[stage]]
    assert changed == ["build-documents", "build-tokens", "build-instances"]
    assert _share(after) >= 0.85
    for stage in changed:
        reuse = after[stage].reuse
        assert reuse is not None
        assert 0.75 * reuse.weight < reuse.weight_reused < reuse.weight
    # What another process, or two, take over is the same.
    again = run_stages(world.recipe, store, "again", workers=2, until="build-documents")
    assert told(again)["build-documents"] == told(anew)["build-documents"]
    assert _share(again) == 1.0


@pytest.mark.slow
def test_a_learnt_vocabulary_counts_only_what_is_new(world: _World) -> None:
    """Run in a store in memory."""
    tales = world.recipe.build_documents.sources[1]
    recipe = world.recipe.model_copy(
        update={
            "build_documents": DocumentsConfig(sources=(tales,), max_shard_bytes=1 << 14),
            "build_vocabulary": VocabularyConfig(vocab_size=600),
        }
    )
    root = f"memory://learnt-{os.getpid()}"
    first, again = (
        run_stages(recipe, root, attempt, until="build-vocabulary") for attempt in ("1", "2")
    )
    assert told(again) == told(first)
    assert any(entry.path.endswith("-001.arrow") for entry in first["build-documents"].files)
    assert _share(first) == 0.0  # though of two empty shards the second is counted like the first
    assert _share(again) == 1.0
    fs, path = fsspec.core.url_to_fs(root)
    fs.rm(path, recursive=True)


@pytest.mark.slow
def test_what_a_killed_job_had_finished_is_taken_over(world: _World, tmp_path: Path) -> None:
    store = tmp_path / "store"
    finished = len(run_and_kill(world.recipe, store))
    after = run_stages(world.recipe, str(store), "after", until="build-documents")
    reuse = after["build-documents"].reuse
    assert reuse is not None
    assert 3 <= finished == reuse.items_reused < reuse.items
    anew = run_stages(world.recipe, str(tmp_path / "2"), "a", until="build-documents", reuse=False)
    assert told(after) == told(anew)


@pytest.mark.slow
def test_two_jobs_side_by_side_in_one_process_write_what_each_writes_alone(tmp_path: Path) -> None:
    recipe = small_recipe(small_sample(tmp_path / "sample"))
    one = run_stages(recipe, str(tmp_path), "one", reuse=False)
    inputs = {
        name: as_input(name, one[f"build-{name}"], f"{tmp_path}/artifacts/build-{name}/one/data")
        for name in ("tokens", "vocabulary")
    }
    (short,) = recipe.build_instances.values()
    long = short.model_copy(update={"max_seq_length": 128})

    def build(config: InstancesConfig, name: str) -> StageOutput:
        (tmp_path / name).mkdir()
        how = ExecutionConfig()
        return build_instances(config, inputs=inputs, output=str(tmp_path / name), execution=how)

    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(build, (short, long), ("short", "long")))
    assert not isinstance(sys.stderr, _TracebackFilter)
    assert told({"": both[0]})[""] == told(one)["build-instances"]
    assert told({"": both[1]}) == told({"": build(long, "alone")})


def test_streams_without_tracebacks_may_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
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
