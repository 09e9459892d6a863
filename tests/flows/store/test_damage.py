"""`verify` finds corrupt files of artifacts, and no stage uses one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.cli_runner import Cli
from support.corpus_builder import small_recipe, small_sample
from support.store_builder import (
    STAGE,
    damage,
    input_from,
    published,
)

from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import pointer_to
from flows.store.verification import verify
from model.finetune import finetune
from model.pretrain import pretrain
from model.training.artifact_files import write_file
from pipelines.documents.duplicates import DUPLICATES_FILE, rows_by_shard
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.errors import ArtifactCorruptError
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import TrialConfig
from schemas.json_files import dump_json
from schemas.manifest import Manifest, StageInput
from schemas.model_configs import BudgetConfig, PretrainConfig
from schemas.recipe import Recipe


def flip(path: Path, position: int, bit: int) -> bytes:
    """Flip one bit of a file and return the bytes that it had."""
    before = path.read_bytes()
    data = bytearray(before)
    data[position] ^= 1 << bit
    path.write_bytes(data)
    return before


class _Corpus(NamedTuple):
    recipe: Recipe
    root: Path


@pytest.fixture(scope="module")
def built_corpus(tmp_path_factory: pytest.TempPathFactory) -> _Corpus:
    """A store in which the four corpus stages ran."""
    folder = tmp_path_factory.mktemp("built")
    root = folder / "store"
    recipe = small_recipe(small_sample(folder / "sample")).model_copy(update={"store": str(root)})
    run_recipe(recipe, log=lambda _: None, engine="local")
    return _Corpus(recipe, root)


@pytest.fixture
def corpus(built_corpus: _Corpus, tmp_path: Path) -> _Corpus:
    root = tmp_path / "store"
    shutil.copytree(built_corpus.root, root)
    return _Corpus(built_corpus.recipe.model_copy(update={"store": str(root)}), root)


def _artifact_files(store: ArtifactStore) -> Iterator[Path]:
    """Yield one data file of each kind: stage and name without numbers."""
    files: dict[str, Path] = {}
    for pointer in store.pointers():
        manifest = store.read_manifest(pointer.manifest)
        for entry in manifest.files:
            kind = f"{manifest.stage} {re.sub('[0-9]', '', entry.path)}"
            files.setdefault(kind, Path(store.root, manifest.data_path, entry.stored_name))
    assert len(files) > 10
    yield from files.values()


@pytest.mark.slow
def test_verify_finds_flipped_bits_and_deleted_files_of_artifacts(
    corpus: _Corpus, cli: Cli
) -> None:
    store = str(corpus.root)
    result = cli("verify", "--store", store)
    assert (result.code, "CORRUPT" in result.out) == (0, False), result
    for path in _artifact_files(ArtifactStore(store)):
        before = flip(path, path.stat().st_size // 2, 3)
        assert cli("verify", "--store", store, "--no-quarantine").code == 1, path
        path.unlink()
        assert cli("verify", "--store", store, "--no-quarantine").code == 1, path
        path.write_bytes(before)
    assert cli("verify", "--store", store).code == 0


# Runs after damage


def _run(corpus: _Corpus) -> dict[str, Manifest]:
    results = run_recipe(corpus.recipe, log=lambda _: None, engine="local")
    return {result.label: result.manifest for result in results}


def _contents(manifests: Mapping[str, Manifest]) -> dict[str, Any]:
    return {
        label: (item.content_digest, item.counters, item.statistics)
        for label, item in manifests.items()
    }


def test_corrupt_work_item_records_are_not_reused(corpus: _Corpus) -> None:
    """Every record is cut off, or has another field."""
    first = _run(corpus)
    records = sorted((corpus.root / "pieces").rglob("*.json"))
    assert len(records) > 10
    for number, path in enumerate(records):
        stored = path.read_bytes()
        path.write_bytes(stored[:-20] if number % 2 else stored.replace(b"counters", b"x", 1))
    shutil.rmtree(corpus.root / "keys")
    second = _run(corpus)
    assert _contents(second) == _contents(first)
    reuses = [manifest.produced_by.reuse for manifest in second.values()]
    assert [reuse.items_reused for reuse in reuses if reuse] == [0] * len(second)


def test_only_item_of_corrupt_file_is_computed_again(
    corpus: _Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    first = _run(corpus)
    tokens = first["build-tokens"]
    flip(corpus.root / tokens.data_path / tokens.files[0].stored_name, 300, 3)
    assert Cli(capsys)("verify", "--store", str(corpus.root)).code == 1
    second = _run(corpus)
    assert _contents(second) == _contents(first)
    reuse = second["build-tokens"].produced_by.reuse
    assert reuse is not None
    assert reuse.items_reused == reuse.items - 1


@pytest.mark.parametrize(
    ("stage", "upstream", "path", "position"),
    [
        ("build-vocabulary", "build-documents", "part-00001-000.arrow", -1),
        ("build-tokens", "build-documents", DUPLICATES_FILE, -3),
        ("build-tokens", "build-vocabulary", VOCAB_FILE, 2000),
        ("build-instances", "build-tokens", "part-00001.arrow", 900),
    ],
)
def test_stage_refuses_corrupt_input(
    corpus: _Corpus, stage: str, upstream: str, path: str, position: int
) -> None:
    manifest = _run(corpus)[upstream]
    entry = manifest.file(path)
    assert entry is not None
    flip(corpus.root / manifest.data_path / entry.stored_name, position, 2)
    rows_by_shard.cache_clear()  # rows that this process has read
    for folder in ("keys", "pieces"):
        shutil.rmtree(corpus.root / folder / stage)
    with pytest.raises(ArtifactCorruptError) as error:
        _run(corpus)
    for text in (path, manifest.artifact_id, entry.sha256):
        assert text in str(error.value)
    assert not (corpus.root / "keys" / stage).exists()


def test_training_refuses_corrupt_checkpoint(store: ArtifactStore, tmp_path: Path) -> None:
    attempt = store.begin("pretrain")
    names = ("config.json", "model.safetensors", "optimizer.safetensors")
    files = [write_file(name, [name.encode() * 20], output=attempt.output) for name in names]
    checkpoint = StageInput(
        name="checkpoint", artifact_id="c" * 16, data=attempt.output, files=tuple(files)
    )
    flip(Path(checkpoint.data, "model.safetensors"), 100, 5)
    examples = StageInput(
        name="examples",
        artifact_id="e" * 16,
        data=checkpoint.data,
        files=(),
        statistics={"task": "cola"},
    )
    inputs = dict.fromkeys(("examples", "instances", "vocabulary"), examples)
    options: dict[str, Any] = {
        "inputs": {**inputs, "checkpoint": checkpoint},
        "output": str(tmp_path / "out"),
        "execution": ExecutionConfig(),
        "work": str(tmp_path / "work"),
    }
    trial = TrialConfig(
        examples="x", init_from_phase="phase", batch_size=2, learning_rate=1e-3, num_epochs=1
    )
    with pytest.raises(ArtifactCorruptError, match=r"model\.safetensors"):
        finetune(trial, **options)
    phase = PretrainConfig(instances="x", init_from_phase="phase", budget=BudgetConfig(max_steps=1))
    with pytest.raises(ArtifactCorruptError, match=r"model\.safetensors"):
        pretrain(phase, **options)


# One artifact


def find_errors(store: ArtifactStore, manifest: Manifest) -> tuple[str, ...]:
    [result] = verify(store, [pointer_to(manifest)])
    assert result.is_ok == (not result.errors)
    return result.errors


def test_deep_verification_reads_every_byte(any_store: ArtifactStore) -> None:
    manifest = published(any_store)
    pointers = any_store.pointers()
    [result] = verify(any_store, pointers)
    assert (result.is_ok, result.files, result.size) == (True, 1, 3)
    damage(any_store, manifest, b"onf")  # one bit, the same size
    assert verify(any_store, pointers, deep=False)[0].is_ok
    [error] = find_errors(any_store, manifest)
    assert "vocab.txt" in error
    assert manifest.files[0].sha256 in error


@pytest.mark.parametrize(
    "fields",
    [
        {"cache_key_inputs": {"stage": STAGE, "seed": 9}},
        {"content_digest": f"sha256:{'0' * 64}"},
        {"artifact_id": "0" * 16},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_edited_manifest_is_found(any_store: ArtifactStore, fields: dict[str, Any]) -> None:
    manifest = published(any_store)
    pointers = any_store.pointers()
    edited = manifest.model_copy(update=fields).model_dump(mode="json")
    any_store.backend.replace(manifest.manifest_path, dump_json(edited))
    name = next(iter(fields)).replace("_key_inputs", "_key")
    assert any(f"manifest: {name}" in error for error in verify(any_store, pointers)[0].errors)


def test_missing_input_is_found(any_store: ArtifactStore) -> None:
    source = published(any_store)
    product = published(any_store, "two", **input_from(source))
    assert find_errors(any_store, product) == ()
    any_store.backend.delete(source.manifest_path)
    [error] = find_errors(any_store, product)
    assert error.startswith("input documents: ")
