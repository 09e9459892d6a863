"""Checkpoints of other people: what is wrong with one is one sentence, before anything is built."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli_runner import Cli
from support.finetuning_builder import text_rows, write_checkpoint, write_tuned

from flows.store.artifacts import ArtifactStore
from model.finetuning.prediction import Predictor
from model.finetuning.saved_models import load_task_model
from model.finetuning.task_model import task_model_from_checkpoint
from model.hf_config import check_layout, checkpoint_raw_inputs
from model.hf_weights import load_pretrained
from schemas.errors import BertloomError, CheckpointError, MissingInputError

DEEP = b"[" * 100_000 + b"]" * 100_000
ODD: list[Any] = ["x", -1, 0, True, None, [], {}, [[]], 1e400, 1 << 40, 2.5, "1" * 500, {"a": {}}]
FIELDS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "max_position_embeddings", "type_vocab_size", "hidden_act"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range"),
    *("layer_norm_eps", "model_type", "position_embedding_type", "architectures"),
    *("is_decoder", "pruned_heads", "classifier_dropout", "id2label", "problem_type", "bertloom"),
)


def pretrained(folder: str) -> Any:
    return load_pretrained(folder, objective="mlm", seed=0)


def started(folder: str) -> Any:
    return task_model_from_checkpoint(folder, kind="classification", outputs=2, dropout=0.1, seed=0)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_checkpoint(tmp_path_factory.mktemp("plain") / "bert"))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_tuned(tmp_path_factory.mktemp("tuned") / "bert", task="sst-2"))


def copied(source: Path, target: Path) -> Path:
    target.mkdir()
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def refused(read: Callable[[str], Any], folder: Path) -> str:
    """Return the error message for a folder; "" if it can be read."""
    try:
        read(str(folder))
    except CheckpointError as error:
        said = str(error)
        assert "\n" not in said
        assert len(said) < 900
        return said
    return ""


def opened(folder: str) -> Any:
    """Load a fine-tuned model with its description."""
    return Predictor.open(folder).model


@pytest.mark.parametrize("field", FIELDS)
def test_wrong_values_are_refused(plain: Path, tuned: Path, tmp_path: Path, field: str) -> None:
    """Whatever a field holds: it is read, or refused by its name; nothing else ever happens."""
    said = []
    for name, source, read in (("plain", plain, pretrained), ("tuned", tuned, opened)):
        folder = copied(source, tmp_path / name)
        known = json.loads((folder / "config.json").read_text())
        for value in ODD:
            (folder / "config.json").write_text(json.dumps({**known, field: value}))
            said.append(refused(read, folder))
    assert any(said)


@pytest.mark.parametrize("key", ["task", "features", "lowercase", "threshold", "method"])
def test_wrong_values_of_our_own_are_refused(tuned: Path, tmp_path: Path, key: str) -> None:
    folder = copied(tuned, tmp_path / "bert")
    known = json.loads((folder / "config.json").read_text())
    for value in ODD:
        about = {**known["bertloom"], key: value}
        (folder / "config.json").write_text(json.dumps({**known, "bertloom": about}))
        if key == "task":
            with pytest.raises(BertloomError, match="task"):
                Predictor.open(str(folder))
        else:
            refused(opened, folder)


@pytest.mark.parametrize("content", [DEEP, b"{", b"\xff\xfe", b"[]", b"1" * 5_000, b"", b"null"])
def test_damaged_json_is_refused(plain: Path, tmp_path: Path, content: bytes) -> None:
    folder = copied(plain, tmp_path / "bert")
    (folder / "config.json").write_bytes(content)
    for read in (pretrained, started, load_task_model, check_layout, checkpoint_raw_inputs):
        assert "config.json" in refused(read, folder)


def header(**tensors: Any) -> bytes:
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text


def entry(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16], **changes}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        struct.pack("<Q", 1 << 63) + b"{}",
        struct.pack("<Q", 1 << 40) + b"{}",
        struct.pack("<Q", len(DEEP)) + DEEP,
        header(a=entry()),  # no data at all
        header(a=entry(shape=[1 << 40, 1 << 40])) + bytes(16),
        header(a=entry(data_offsets=[0, 1 << 60])) + bytes(16),
        header(a=entry(data_offsets=[16, 0])) + bytes(16),
        header(a=entry(dtype="F32X")) + bytes(16),
        header(a=entry(dtype="F8_E4M3", data_offsets=[0, 4])) + bytes(4),
        header(a=entry(shape=[-2, -2])) + bytes(16),
        header(a=entry(shape="big")) + bytes(16),
        header(a=3),
        header(a=entry(), b=entry()) + bytes(16),  # two tensors in one place
    ],
)
def test_damaged_header_is_refused(plain: Path, tmp_path: Path, content: bytes) -> None:
    folder = copied(plain, tmp_path / "bert")
    (folder / "model.safetensors").write_bytes(content)
    assert "model.safetensors" in refused(pretrained, folder)


@pytest.mark.parametrize(
    ("names", "facts"),
    [
        (["bert_config.json", "pytorch_model.bin"], ["pytorch_model.bin", "save_pretrained(NEW)"]),
        (["bert_config.json", "bert_model.ckpt.index"], ["ckpt.index", "save_pretrained(NEW)"]),
        (["config.json", "model-00001-of-00002.safetensors"], ["00002", "save_pretrained(NEW)"]),
        (["config.json"], ["found config.json"]),
        ([], ["found nothing"]),
    ],
)
def test_other_layout_names_conversion(tmp_path: Path, names: list[str], facts: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_text("{}")
    with pytest.raises(MissingInputError, match="Hugging Face's layout") as error:
        check_layout(str(tmp_path))
    for fact in facts:
        assert fact in str(error.value)
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "nope"):
        with pytest.raises(MissingInputError):
            check_layout(str(path))


def write_recipe(folder: Path, **examples: Any) -> Path:
    """Write a recipe with data and a checkpoint of the first layout."""
    (folder / "old").mkdir()
    for name in ("bert_config.json", "pytorch_model.bin", "vocab.txt"):
        (folder / "old" / name).write_text("{}")
    for split in ("train", "dev"):
        rows = [f"{row['text_a']}\t{row['label']}" for row in text_rows(8, split=split)]
        (folder / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    files = {split: f"{split}.tsv" for split in ("train", "dev")}
    entry = {"examples": "task", "init_checkpoint": "old", "restarts": 3, "max_seq_length": 16}
    recipe = {
        "name": "early",
        "store": "store",
        "build_examples": {"task": {"task": "sst-2", "data_files": files, **examples}},
        "finetune": {"one": entry},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return folder / "recipe.yaml"


def test_checkpoint_of_other_layout_is_reported_before_a_run(cli: Cli, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    for command in (("run", str(recipe), "--engine", "local"), ("plan", str(recipe))):
        said = cli(*command)
        assert said.code == 1
        assert "save_pretrained(NEW)" in said.err
        assert "problems:" not in said.err  # nine cells, one fault
    store = ArtifactStore(str(tmp_path / "store"))
    assert store.pointers() == []  # no examples were built
    said = cli("run", str(recipe), "--engine", "local", "--until", "build-examples")
    assert said.code == 0, said.err


def test_all_missing_inputs_are_reported(cli: Cli, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, data_files={"train": "gone.tsv", "dev": "dev.tsv"})
    said = cli("plan", str(recipe))
    assert said.code == 1
    assert "2 problems:" in said.err
    assert said.err.index("gone.tsv") < said.err.index("save_pretrained(NEW)")
