"""Artifacts opened by other libraries: folders of the store as they are, and exports."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import fsspec
import fsspec.config
import numpy as np
import pandas
import pyarrow
import pyarrow.dataset
import pyarrow.ipc
import pytest
import torch
import transformers
from support.cli_runner import Cli
from support.corpus_builder import small_recipe, small_sample
from support.fake_hub import TOKEN, FakeHub, fake_hub
from support.paths import ROOT
from support.store_builder import as_given, describe

from flows.export.export import export
from flows.export.push import push
from flows.lineage.shards import find_shard
from flows.model_loading import checkpoint_folder
from flows.run.artifact_inputs import input_ref
from flows.run.step_execution import stage_input
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from model.data.collator import MicroBatchCollator
from model.data.dataset import InstanceDataset
from model.hf_weights import load_pretrained
from schemas.errors import (
    ArtifactCorruptError,
    ConfigError,
    InputError,
    NetworkError,
    UsageError,
)
from schemas.manifest import FileEntry, Manifest

DOCUMENTS, TOKENS, INSTANCES = STEPS = (
    "build-documents", "build-tokens", "build-instances.length-64",
)  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    folder = tmp_path_factory.mktemp("corpus")
    recipe = small_recipe(small_sample(folder / "sample"))
    recipe = recipe.model_copy(update={"store": str(folder / "store")})
    run_recipe(recipe, log=lambda _: None, engine="local")
    return ArtifactStore(recipe.store)


def artifact(corpus: ArtifactStore, step: str) -> tuple[Manifest, Path]:
    """Manifest and data folder of a step."""
    pointer = corpus.ref(f"test/{step}")
    assert pointer is not None
    manifest = corpus.read_manifest(pointer.manifest)
    return manifest, Path(corpus.url(manifest.data_path))


def training_rows(manifest: Manifest) -> int:
    return sum(entry.rows or 0 for entry in manifest.files if entry.path.startswith("part-"))


def read_shard(path: Path) -> pyarrow.Table:
    return pyarrow.dataset.dataset(path, format="ipc").to_table()


def with_last_shard(manifest: Manifest, **changes: Any) -> Manifest:
    """Return the manifest with other facts about its last shard."""
    wrong = manifest.shards[-1].model_copy(update=changes)
    files = tuple(wrong if entry.path == wrong.path else entry for entry in manifest.files)
    return manifest.model_copy(update={"files": files})


# Folders of the store


@pytest.mark.parametrize("step", STEPS)
def test_stored_folder_opens_with_its_training_rows(
    corpus: ArtifactStore, step: str, tmp_path: Path
) -> None:
    manifest, folder = artifact(corpus, step)
    assert pyarrow.dataset.dataset(folder, format="ipc").count_rows() == training_rows(manifest)
    opened = datasets.load_dataset(str(folder), cache_dir=str(tmp_path))
    assert opened.num_rows == {"train": training_rows(manifest)}
    assert training_rows(manifest) > 50
    # `Dataset.from_file` reads Arrow streams only; docs/running.md opens Arrow files like this.
    shard = manifest.shards[0]
    memory = pyarrow.memory_map(str(folder / shard.stored_name))
    assert datasets.Dataset(pyarrow.ipc.open_file(memory).read_all()).num_rows == shard.rows


def test_stored_folder_opens_without_held_out_instances(corpus: ArtifactStore) -> None:
    manifest, folder = artifact(corpus, INSTANCES)
    held_out = [entry for entry in manifest.files if entry.path.startswith("__held-out__/")]
    assert sum(entry.rows or 0 for entry in held_out) > 10
    keys = ("input_ids", "masked_lm_positions")
    training = {str([row[key] for key in keys]) for row in read_shard(folder).to_pylist()}
    for entry in held_out:
        rows = read_shard(folder / entry.stored_name).to_pylist()
        assert not training & {str([row[key] for key in keys]) for row in rows}
        located = find_shard(str(folder / entry.stored_name), open_store=lambda: corpus)
        assert located.path == entry.path
        assert located.artifact is not None
        assert located.artifact.manifest == manifest


# Exports of rows


@pytest.fixture(scope="module")
def exported(corpus: ArtifactStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with exports named `STAGE-FORMAT`."""
    root = tmp_path_factory.mktemp("exported")
    for step in STEPS:
        manifest, _ = artifact(corpus, step)
        export(manifest, str(root / f"{manifest.stage}-hf"), store=corpus)
        stream = str(root / f"{manifest.stage}-arrow-stream")
        export(manifest, stream, store=corpus, format="arrow-stream")
    return root


@pytest.mark.parametrize("format", ["hf", "arrow-stream"])
def test_datasets_opens_export_typed_and_with_its_splits(
    corpus: ArtifactStore, exported: Path, format: str, tmp_path: Path
) -> None:
    manifest, folder = artifact(corpus, INSTANCES)
    opened = datasets.load_dataset(
        str(exported / f"build-instances-{format}"), cache_dir=str(tmp_path)
    )
    assert opened.num_rows == {
        "train": training_rows(manifest),
        "held_out": manifest.statistics["held_out_instances"],
    }
    shards = [read_shard(folder / entry.stored_name) for entry in manifest.shards]
    assert opened["train"].to_list() == [row for shard in shards for row in shard.to_pylist()]
    assert opened["train"].features == datasets.Features.from_arrow_schema(shards[0].schema)
    assert opened["train"].features["input_ids"] == datasets.List(datasets.Value("uint16"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported / f"build-instances-{format}")
    assert tokenizer.convert_ids_to_tokens(opened["train"][0]["input_ids"][0]) == "[CLS]"


def test_exported_files_open_in_pandas_and_datasets(exported: Path, tmp_path: Path) -> None:
    folder = str(exported / "build-documents-hf")
    documents = datasets.load_dataset(folder, split="train", cache_dir=str(tmp_path))
    assert documents.features["sentences"] == datasets.List(datasets.Value("string"))
    duplicates = datasets.load_dataset(folder, "duplicates", cache_dir=str(tmp_path))["train"]
    assert set(duplicates["document_id"]) <= set(documents["document_id"])
    assert pandas.read_parquet(f"{folder}/data").document_id.is_unique
    file, *_ = sorted((exported / "build-tokens-arrow-stream" / "data").iterdir())
    assert datasets.Dataset.from_file(str(file)).num_rows > 1


def test_exports_of_one_artifact_are_equal(
    corpus: ArtifactStore, exported: Path, tmp_path: Path
) -> None:
    export(artifact(corpus, INSTANCES)[0], str(tmp_path / "again"), store=corpus)

    def contents(folder: Path) -> dict[Path, bytes]:
        files = (path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder): path.read_bytes() for path in files}

    assert contents(tmp_path / "again") == contents(exported / "build-instances-hf")


def test_failed_export_leaves_nothing(corpus: ArtifactStore, tmp_path: Path) -> None:
    manifest, _ = artifact(corpus, INSTANCES)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError):
        export(manifest, str(tmp_path / "mine"), store=corpus)
    with pytest.raises(ArtifactCorruptError):
        export(with_last_shard(manifest, rows=1), str(tmp_path / "new"), store=corpus)
    with pytest.raises(UsageError):
        export(manifest, str(tmp_path / "new"), store=corpus, format="csv")  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "thesis.txt"]
    export(manifest, "memory://exports/rows", store=corpus)
    fs = fsspec.filesystem("memory")
    files = fs.find("/exports")
    assert "/exports/rows/README.md" in files
    wrong = with_last_shard(manifest, sha256="0" * 64)
    with pytest.raises(ArtifactCorruptError):
        export(wrong, "memory://exports/other", store=corpus)
    assert fs.find("/exports") == files
    fs.rm("/exports", recursive=True)


# Exports of models


def bert_config(vocab_size: int) -> transformers.BertConfig:
    return transformers.BertConfig(
        vocab_size=vocab_size, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip


def put_files(store: ArtifactStore, folder: Path, **facts: Any) -> Manifest:
    """Publish the files of a folder as an artifact."""
    attempt = store.begin(facts["stage"])
    entries: list[FileEntry] = list(as_given("model", str(folder)).files)
    for entry in entries:
        Path(attempt.output, entry.stored_name).write_bytes((folder / entry.path).read_bytes())
    spec = {"facts": repr(facts)}
    return store.commit(describe(attempt, entries, spec=spec, **facts)).manifest


@pytest.fixture
def checkpoint(exported: Path, tmp_path: Path) -> Path:
    """A small pretrained model with its tokenizer, as `transformers` saves them."""
    folder = tmp_path / "checkpoint"
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported / "build-tokens-hf")
    transformers.BertForPreTraining(bert_config(len(tokenizer))).save_pretrained(folder)
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((exported / "build-tokens-hf" / name).read_bytes())
    return folder


def test_transformers_opens_exported_models(checkpoint: Path, tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    pretrained = put_files(
        store, checkpoint, stage="pretrain", counters={"steps": 1, "tokens": 1},
        statistics={"objective": "mlm+nsp", "max_seq_length": 64, "held_out": {}},
    )  # fmt: skip
    about = {"task": "sst-2", "kind": "classification", "metrics": {}, "method": "fine-tune"}
    trial = put_files(store, checkpoint, stage="finetune", statistics=about)
    features = put_files(
        store, checkpoint, stage="finetune", statistics={**about, "method": "feature-based"}
    )
    inputs = tuple(input_ref(name, m) for name, m in {"r0": trial, "r1": features}.items())
    chosen = {"metric": "accuracy", "best_point": "r", "cells": [], "ensemble": 1}
    best, second, both = (
        put_files(
            store, checkpoint, stage="evaluate", inputs=inputs,
            statistics={**about, **chosen, "members": members},
        )
        for members in (["r0"], ["r1"], ["r0", "r1"])
    )  # fmt: skip
    for manifest in (pretrained, trial, best):
        folder = tmp_path / manifest.artifact_id
        export(manifest, str(folder), store=store)
        model = transformers.AutoModel.from_pretrained(folder)
        assert model.config.hidden_size == 32
        assert transformers.AutoTokenizer.from_pretrained(folder).cls_token == "[CLS]"
        assert (folder / "modules.json").exists() is (manifest is pretrained)
    for manifest in (features, second, both):
        with pytest.raises(ConfigError):
            export(manifest, str(tmp_path / "none"), store=store)
    with pytest.raises(UsageError):
        export(trial, str(tmp_path / "none"), store=store, format="parquet")
    assert not (tmp_path / "none").exists()


# Pushes to the Hugging Face Hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with fake_hub() as hub:
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub
        assert hub.unknown == []


def test_pushed_rows_are_one_commit_with_the_files_of_the_export(
    corpus: ArtifactStore, exported: Path, hub: FakeHub, cli: Cli
) -> None:
    arguments = "export", f"test/{TOKENS}", "--store", corpus.root, "--push", "harbour/tokens"
    result = cli(*arguments)
    assert result.code == 0, result.err
    repository = hub.repositories["datasets/harbour/tokens"]
    commit = repository.branches["main"]
    assert result.out.startswith(f"hf://datasets/harbour/tokens@{commit}: ")
    assert repository.is_private
    assert len(repository.commits) == 2  # the Hub makes the first
    folder = exported / "build-tokens-hf"
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert repository.files == {".gitattributes": b"", **files}
    assert TOKEN not in result.out + result.err
    assert not any(TOKEN.encode() in data for data in files.values())
    # Files of other people stay, shards of another number of shards do not.
    repository.commit({**repository.files, "NOTES.md": b"ours", "data/train-00009.parquet": b"old"})
    assert cli(*arguments).code == 0
    assert repository.files == {".gitattributes": b"", "NOTES.md": b"ours", **files}


def test_pushed_model_is_a_checkpoint_of_the_hub(
    checkpoint: Path, tmp_path: Path, hub: FakeHub
) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    manifest = put_files(
        store, checkpoint, stage="pretrain", counters={"steps": 1, "tokens": 1},
        statistics={"objective": "mlm+nsp", "max_seq_length": 64, "held_out": {}},
    )  # fmt: skip
    address = push(manifest, "harbour/bert", store=store).partition(": ")[0]
    assert checkpoint_folder(address, store=None) == address
    pushed = load_pretrained(address, objective="mlm+nsp", seed=0)
    assert pushed.initialized == ()


@pytest.mark.parametrize(
    ("repository", "token", "error"),
    [
        ("tokens", TOKEN, UsageError),
        ("harbour/to kens", TOKEN, UsageError),
        ("harbour/a/b", TOKEN, UsageError),
        ("harbour/tokens@main", TOKEN, UsageError),
        ("hf://harbour/tokens", TOKEN, UsageError),
        ("harbour/tokens", "", ConfigError),
        ("harbour/tokens", "hf_another", InputError),
    ],
)
def test_push_that_cannot_be_made_commits_nothing(
    corpus: ArtifactStore,
    hub: FakeHub,
    monkeypatch: pytest.MonkeyPatch,
    repository: str,
    token: str,
    error: type[Exception],
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(error):
        push(artifact(corpus, TOKENS)[0], repository, store=corpus)
    assert hub.repositories == {}


def test_push_needs_the_hub(
    corpus: ArtifactStore, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fsspec.config.conf, "hf", {"endpoint": "http://127.0.0.1:0"})
    with pytest.raises(NetworkError):
        push(artifact(corpus, TOKENS)[0], "harbour/tokens", store=corpus)


@pytest.mark.parametrize("options", [(), ("out", "--push", "harbour/tokens")])
def test_export_has_one_target(corpus: ArtifactStore, cli: Cli, options: tuple[str, ...]) -> None:
    assert cli("export", f"test/{TOKENS}", *options, "--store", corpus.root).code == 2


# Training


def test_trainer_of_example_computes_our_loss_from_export(
    corpus: ArtifactStore, exported: Path, tmp_path: Path
) -> None:
    example = SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "trainer.py")))
    manifest, _ = artifact(corpus, INSTANCES)
    rows = datasets.load_dataset(
        str(exported / "build-instances-hf"), split="train", cache_dir=str(tmp_path)
    ).select(range(8))
    torch.manual_seed(0)
    model = transformers.BertForPreTraining(bert_config(manifest.statistics["vocab_size"]))
    model.save_pretrained(tmp_path / "model")
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), remove_unused_columns=False, max_steps=1, use_cpu=True,
        per_device_train_batch_size=8, logging_steps=1, report_to=[], save_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(
        model, arguments, train_dataset=rows, data_collator=example.collate
    )
    trainer.train()
    [loss] = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert loss == pytest.approx(our_loss(corpus, tmp_path / "model"), abs=1e-4)


def our_loss(corpus: ArtifactStore, folder: Path) -> float:
    """Loss of our model with the same weights on the first eight stored rows, packed."""
    manifest, _ = artifact(corpus, INSTANCES)
    model = load_pretrained(str(folder), objective="mlm+nsp", seed=0).model
    source = stage_input("instances", manifest, store=corpus)
    rows = InstanceDataset.open(source, vocab_size=model.vocab_size, max_seq_length=64)
    collator = MicroBatchCollator("mlm+nsp", max_tokens=8 * 64)
    [batch] = collator(rows.gather(np.arange(8)))
    pairs = int((batch.next_sentence_labels >= 0).sum())
    return float(model(batch, len(batch.masked_ids), pairs).loss.detach())
