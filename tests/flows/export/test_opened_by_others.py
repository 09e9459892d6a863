"""Artifacts opened as data sets by other people's tools, the way that comes to mind first."""

from __future__ import annotations

import hashlib
from pathlib import Path

import datasets
import fsspec
import numpy as np
import pandas
import pyarrow
import pyarrow.dataset
import pyarrow.ipc
import pytest
import torch
import transformers
from support.corpus_builder import small_recipe, small_sample

import bertloom
from flows.export.exporting import export
from flows.lineage.names import artifact_of_file
from flows.run.step_execution import stage_input
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.verification import verify
from model.data.instances import InstanceSet
from model.data.layouts import lay_out
from model.encoder.hf_weights import load_pretrained
from schemas.errors import ArtifactCorruptError, InstancesError, UsageError
from schemas.manifest import Manifest

STEPS = ("build-documents", "build-tokens", "build-instances.length-64")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    folder = tmp_path_factory.mktemp("opened")
    recipe = small_recipe(small_sample(folder / "sample"))
    recipe = recipe.model_copy(update={"store": str(folder / "store")})
    run_recipe(recipe, log=lambda _: None, engine="local")
    return ArtifactStore(recipe.store)


def artifact(corpus: ArtifactStore, step: str) -> tuple[Manifest, Path]:
    pointer = corpus.ref(f"test/{step}")
    assert pointer is not None
    manifest = corpus.read_manifest(pointer.manifest)
    return manifest, Path(corpus.url(manifest.data))


def training_rows(manifest: Manifest) -> int:
    """Of the artifact's own table, without what is held out and what is said of duplicates."""
    return sum(entry.rows or 0 for entry in manifest.files if entry.path.startswith("part-"))


@pytest.mark.parametrize("step", STEPS)
def test_a_folder_opened_with_pyarrow_has_the_training_rows(
    corpus: ArtifactStore, step: str
) -> None:
    manifest, folder = artifact(corpus, step)
    opened = pyarrow.dataset.dataset(folder, format="ipc")
    assert opened.count_rows() == training_rows(manifest) > 50
    assert len(manifest.files) > len(opened.files) or step == "build-tokens"


@pytest.mark.parametrize("step", STEPS)
def test_a_folder_opened_with_datasets_has_the_training_rows(
    corpus: ArtifactStore, step: str, tmp_path: Path
) -> None:
    manifest, folder = artifact(corpus, step)
    opened = datasets.load_dataset(str(folder), cache_dir=str(tmp_path))
    assert {name: part.num_rows for name, part in opened.items()} == {
        "train": training_rows(manifest)
    }


def test_no_held_out_instance_is_among_the_rows_opened(corpus: ArtifactStore) -> None:
    manifest, folder = artifact(corpus, STEPS[2])
    beside = [entry for entry in manifest.files if entry.statistics["part"] == "held-out"]
    assert sum(entry.rows or 0 for entry in beside) > 10
    opened = pyarrow.dataset.dataset(folder, format="ipc").to_table().to_pylist()
    told = {(str(row["input_ids"]), str(row["masked_lm_positions"])) for row in opened}
    for entry in beside:
        [url] = [folder / entry.object]
        rows = pyarrow.dataset.dataset(url, format="ipc").to_table().to_pylist()
        found = {(str(row["input_ids"]), str(row["masked_lm_positions"])) for row in rows}
        assert not found & told
        # A file one folder deeper is known as a part of its artifact all the same.
        known = artifact_of_file(str(url))
        assert known is not None
        assert known[1] == entry


def test_what_a_repeated_worker_left_is_gone_once_an_artifact_is_published(
    corpus: ArtifactStore, tmp_path: Path
) -> None:
    manifest, folder = artifact(corpus, STEPS[2])
    store = ArtifactStore(str(tmp_path / "store"))
    attempt = store.begin(manifest.stage)
    output = Path(attempt.output)
    for entry in manifest.files:
        (output / entry.object).parent.mkdir(exist_ok=True)
        (output / entry.object).write_bytes((folder / entry.object).read_bytes())
    first = manifest.files[0]
    (output / "part-00000-pass-00-0123456789ab.arrow").write_bytes(
        (folder / first.object).read_bytes()
    )
    update = {"artifact_id": attempt.artifact_id, "location": attempt.location}
    store.commit(manifest.model_copy(update=update))
    opened = pyarrow.dataset.dataset(output, format="ipc")
    assert opened.count_rows() == training_rows(manifest)
    assert {entry.object for entry in manifest.files} == store.backend.sizes(
        f"{attempt.location}/data"
    ).keys()


def test_verify_finds_damage_in_the_folders_beside(corpus: ArtifactStore) -> None:
    for step, name in ((STEPS[0], "__duplicates__/"), (STEPS[2], "__held-out__/")):
        manifest, folder = artifact(corpus, step)
        [entry, *_] = [entry for entry in manifest.files if entry.path.startswith(name)]
        path = folder / entry.object
        kept = path.read_bytes()
        path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        try:
            told = {
                text
                for verdict in verify(corpus, list(corpus.pointers()))
                for text in verdict.errors
            }
            assert any(text.startswith(f"{entry.path}: expected sha256") for text in told)
        finally:
            path.write_bytes(kept)


# Exports


@pytest.fixture(scope="module")
def exported(corpus: ArtifactStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders by `STAGE-FORMAT`."""
    root = tmp_path_factory.mktemp("exported")
    for step in STEPS:
        for form in ("hf", "arrow-stream"):
            manifest, _ = artifact(corpus, step)
            export(manifest, str(root / f"{manifest.stage}-{form}"), store=corpus, form=form)
    return root


@pytest.mark.parametrize("form", ["hf", "arrow-stream"])
def test_datasets_opens_an_export_typed_with_its_splits(
    corpus: ArtifactStore, exported: Path, form: str, tmp_path: Path
) -> None:
    manifest, folder = artifact(corpus, STEPS[2])
    opened = datasets.load_dataset(
        str(exported / f"build-instances-{form}"), cache_dir=str(tmp_path)
    )
    assert {name: part.num_rows for name, part in opened.items()} == {
        "train": training_rows(manifest),
        "held_out": manifest.statistics["held_out_instances"],
    }
    stored = [pyarrow.dataset.dataset(folder / entry.object, format="ipc").to_table()
              for entry in manifest.shards]  # fmt: skip
    assert opened["train"].to_list() == [row for table in stored for row in table.to_pylist()]
    assert opened["train"].features == datasets.Features.from_arrow_schema(stored[0].schema)
    assert opened["train"].features["input_ids"] == datasets.List(datasets.Value("uint16"))


def test_documents_are_lists_of_sentences_with_duplicates_beside(
    exported: Path, tmp_path: Path
) -> None:
    folder = str(exported / "build-documents-hf")
    opened = datasets.load_dataset(folder, cache_dir=str(tmp_path))
    assert opened["train"].features["sentences"] == datasets.List(datasets.Value("string"))
    names = datasets.load_dataset(folder, "duplicates", cache_dir=str(tmp_path))["train"]
    assert set(names["document_id"]) <= set(opened["train"]["document_id"])


def test_a_file_of_the_stream_format_opens_by_itself(exported: Path) -> None:
    files = sorted((exported / "build-tokens-arrow-stream" / "data").iterdir())
    rows = [datasets.Dataset.from_file(str(file)) for file in files]
    assert sum(part.num_rows for part in rows) > 50
    assert rows[0].features["token_ids"] == datasets.List(datasets.Value("uint16"))


def test_a_shard_of_the_store_opens_with_one_line(corpus: ArtifactStore) -> None:
    """Of Arrow's file format, which `from_file` does not know: docs/export.md says both."""
    manifest, folder = artifact(corpus, "build-tokens")
    shard = str(folder / next(entry.object for entry in manifest.files if entry.rows))
    with pytest.raises(pyarrow.ArrowInvalid, match="metadata bytes"):
        datasets.Dataset.from_file(shard)
    rows = datasets.Dataset(pyarrow.ipc.open_file(pyarrow.memory_map(shard)).read_all())
    assert rows.features["token_ids"] == datasets.List(datasets.Value("uint16"))
    assert rows.num_rows == next(entry.rows for entry in manifest.files if entry.rows)


def test_pandas_opens_an_export(exported: Path) -> None:
    frame = pandas.read_parquet(exported / "build-documents-hf" / "data")
    assert frame.sentences.map(len).min() >= 1
    assert frame.document_id.is_unique


def test_the_vocabulary_is_beside_instances(exported: Path) -> None:
    folder = exported / "build-instances-hf"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = pandas.read_parquet(folder / "data")
    assert tokenizer.convert_ids_to_tokens(int(rows.input_ids[0][0])) == "[CLS]"


def test_the_same_artifact_gives_the_same_bytes(
    corpus: ArtifactStore, exported: Path, tmp_path: Path
) -> None:
    manifest, _ = artifact(corpus, STEPS[2])
    export(manifest, str(tmp_path / "again"), store=corpus)

    def digests(folder: Path) -> dict[str, str]:
        return {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*")
            if path.is_file()
        }

    assert digests(tmp_path / "again") == digests(exported / "build-instances-hf")


def test_nothing_is_written_over_and_nothing_half(corpus: ArtifactStore, tmp_path: Path) -> None:
    manifest, _ = artifact(corpus, STEPS[2])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="something already"):
        export(manifest, str(tmp_path / "mine"), store=corpus)
    wrong = manifest.shards[-1].model_copy(update={"rows": 1})
    files = tuple(wrong if entry.path == wrong.path else entry for entry in manifest.files)
    with pytest.raises(ArtifactCorruptError, match="expected 1 rows, found"):
        export(manifest.model_copy(update={"files": files}), str(tmp_path / "new"), store=corpus)
    with pytest.raises(UsageError, match="choose one of hf"):
        export(manifest, str(tmp_path / "new"), store=corpus, form="csv")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_export_goes_to_an_object_store(corpus: ArtifactStore) -> None:
    manifest, _ = artifact(corpus, STEPS[1])
    export(manifest, "memory://exports/tokens", store=corpus)
    fs = fsspec.filesystem("memory")
    found = fs.find("/exports/tokens")
    assert "/exports/tokens/README.md" in found
    wrong = manifest.shards[-1].model_copy(update={"sha256": "0" * 64})
    files = tuple(wrong if entry.path == wrong.path else entry for entry in manifest.files)
    with pytest.raises(ArtifactCorruptError, match="is damaged"):
        export(manifest.model_copy(update={"files": files}), "memory://exports/other", store=corpus)
    assert fs.find("/exports") == found
    fs.rm("/exports", recursive=True)


# Training


def test_the_trainer_of_transformers_learns_from_an_export_as_we_do(
    corpus: ArtifactStore, exported: Path, tmp_path: Path
) -> None:
    manifest, _ = artifact(corpus, STEPS[2])
    rows = datasets.load_dataset(
        str(exported / "build-instances-hf"), split="train", cache_dir=str(tmp_path)
    ).select(range(8))
    config = transformers.BertConfig(
        vocab_size=manifest.statistics["vocab_size"], hidden_size=32, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=64, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BertForPreTraining(config)
    model.save_pretrained(tmp_path / "model")
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), remove_unused_columns=False, max_steps=1, use_cpu=True,
        per_device_train_batch_size=8, logging_steps=1, report_to=[], save_strategy="no",
    )  # fmt: skip
    collator = bertloom.PretrainingCollator()
    trainer = transformers.Trainer(model, arguments, train_dataset=rows, data_collator=collator)
    trainer.train()
    (logged,) = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert logged == pytest.approx(our_loss(corpus, tmp_path / "model"), abs=1e-4)


def our_loss(corpus: ArtifactStore, folder: Path) -> float:
    """Of our model with those weights, on the first eight rows of the store, packed."""
    manifest, _ = artifact(corpus, STEPS[2])
    model = load_pretrained(str(folder), objective="mlm+nsp", seed=0).model
    given = stage_input("instances", manifest, store=corpus)
    rows = InstanceSet.open(given, vocab_size=model.vocab_size, max_seq_length=64)
    (batch,) = lay_out(
        rows.gather(np.arange(8)), np.array([0, 8]), layout="packed", row_length=64, pad_id=0,
        has_pairs=True,
    )  # fmt: skip
    pairs = int((batch.next_sentence_labels >= 0).sum())
    return float(model(batch, len(batch.masked_ids), pairs).loss.detach())


def test_the_collator_says_what_it_is_not_given(exported: Path) -> None:
    row = pandas.read_parquet(exported / "build-instances-hf" / "data").iloc[0].to_dict()
    collator = bertloom.PretrainingCollator(pad_to=64, next_sentence=False)
    batch = collator([row])
    assert {name: tuple(values.shape) for name, values in batch.items()} == dict.fromkeys(
        ("input_ids", "token_type_ids", "attention_mask", "labels"), (1, 64)
    )
    restored = torch.where(batch["labels"] >= 0, batch["labels"], batch["input_ids"])
    assert (restored != 103).all()  # no [MASK] is left
    with pytest.raises(InstancesError, match="remove_unused_columns=False"):
        collator([{"input_ids": row["input_ids"]}])
    with pytest.raises(InstancesError, match="no row of the batch has a segment B"):
        bertloom.PretrainingCollator()([{**row, "next_sentence_label": -1}])
    with pytest.raises(InstancesError, match="pad_to is 4"):
        bertloom.PretrainingCollator(pad_to=4, next_sentence=False)([row])
