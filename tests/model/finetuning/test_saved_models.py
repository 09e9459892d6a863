"""Fine-tuned models in Hugging Face's layout: out, in, there and back, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from support.batch_builder import VOCAB, random_model, small_config, write_files
from support.task_model_builder import (
    KINDS,
    LABELS,
    OUTPUTS,
    PEERS,
    peer_answers,
    peer_from,
    random_task_model,
    real_places,
    task_batch,
    terms_of,
    written,
)

from model.encoder.hf_weights import save_model
from model.finetuning.saved_models import TunedModel, load_task_model, save_task_model
from model.finetuning.task_model import TaskModel
from schemas.errors import CheckpointError
from schemas.finetune_configs import FeaturesConfig, TaskTypeName

EACH_KIND = pytest.mark.parametrize("kind", KINDS)
POOLED = ("classification", "regression", "choice")


def load(folder: Path) -> tuple[TaskModel, TunedModel]:
    tuned = load_task_model(str(folder))
    assert isinstance(tuned.model, TaskModel)
    return tuned.model, tuned


def change_config(folder: Path, **fields: Any) -> Path:
    path = folder / "config.json"
    content = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: v for name, v in content.items() if v is not ...}))
    return folder


def change_weights(folder: Path, **tensors: torch.Tensor | None) -> Path:
    path = folder / "model.safetensors"
    new = {
        **load_tensors(path.read_bytes()),
        **{n.replace("__", "."): t for n, t in tensors.items()},
    }
    kept = {name: tensor for name, tensor in new.items() if tensor is not None}
    path.write_bytes(save_tensors(kept, metadata={"format": "pt"}))
    return folder


@pytest.mark.parametrize("is_causal", [False, True], ids=["bidirectional", "causal"])
@EACH_KIND
def test_there_and_back_to_the_bit(kind: TaskTypeName, is_causal: bool, tmp_path: Path) -> None:
    config = small_config(
        hidden_act="gelu_tanh",
        intermediate_size=96,
        hidden_dropout_prob=0.2,
        attention_probs_dropout_prob=0.1,
    )
    model = random_task_model(kind, config=config, dropout=0.3, is_causal=is_causal)
    about = {
        "task": "own", "method": "fine-tune", "feature-based": FeaturesConfig().model_dump(),
        "lowercase": True, "threshold": -1.25,
    }  # fmt: skip
    labels = LABELS.get(kind, ())
    files = save_task_model(model, labels=labels, about=about, pad_token_id=2)
    found, tuned = load(write_files(files, tmp_path))
    assert (tuned.labels, tuned.about) == (labels, about)
    for name in ("kind", "outputs", "config", "vocab_size", "is_causal"):
        assert getattr(found, name) == getattr(model, name), name
    assert found.dropout.rate == 0.3
    theirs = dict(found.named_parameters())
    for name, value in model.named_parameters():
        if kind in POOLED or not name.startswith("bert.pooler."):
            assert torch.equal(value, theirs[name]), name
    again = save_task_model(found, labels=tuned.labels, about=tuned.about, pad_token_id=2)
    assert again == files
    batch = task_batch(kind)
    assert torch.equal(found.eval()(batch).logits, model.eval()(batch).logits)


@pytest.mark.parametrize("auto", [False, True], ids=["Bert", "Auto"])
@EACH_KIND
def test_transformers_misses_nothing_and_expects_nothing_else(
    kind: TaskTypeName, auto: bool, tmp_path: Path
) -> None:
    folder = written(random_task_model(kind, dropout=0.25), tmp_path, task="own")
    peer, info = peer_from(folder, kind, auto=auto)
    assert {name: list(found) for name, found in info.items() if found} == {}
    assert type(peer).__name__ == f"BertFor{PEERS[kind]}"
    assert peer.config.classifier_dropout == 0.25
    assert peer.config.bertloom == {"task": "own"}
    if kind in LABELS:
        assert tuple(peer.config.id2label.values()) == LABELS[kind]
        assert tuple(peer.config.label2id) == LABELS[kind]
    expected = {"classification": "single_label_classification", "regression": "regression"}
    assert peer.config.problem_type == expected.get(kind)
    assert hasattr(peer.bert.pooler, "dense") == (kind in POOLED)


@EACH_KIND
def test_what_transformers_saves_is_read(kind: TaskTypeName, tmp_path: Path) -> None:
    """Return a transformers model, and our model with its weights and batch."""
    import transformers

    shape = transformers.BertConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, hidden_dropout_prob=0.1, initializer_range=0.2,
        num_labels={"choice": 2}.get(kind, OUTPUTS[kind]),
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(4)
        peer = getattr(transformers, f"BertFor{PEERS[kind]}")(shape).eval()
    peer.save_pretrained(tmp_path)
    model, tuned = load(tmp_path)
    assert (model.kind, model.outputs, tuned.about) == (kind, OUTPUTS[kind], {})
    names = tuple(f"LABEL_{number}" for number in range(OUTPUTS[kind]))
    assert tuned.labels == (names if kind in LABELS else ())
    assert model.dropout.rate == 0.1
    for padded_length in (None, 33):
        batch = task_batch(kind, padded_length=padded_length, equal=kind == "span")
        with torch.no_grad():
            output = model.eval()(batch, scale=1 / terms_of(batch))
            logits, loss = peer_answers(peer, batch, kind)
        assert logits.std() > 0.05
        where = real_places(batch) if kind == "span" else slice(None)
        torch.testing.assert_close(output.logits[where], logits[where], rtol=0, atol=1e-5)
        torch.testing.assert_close(output.loss, loss, rtol=0, atol=1e-5)


def test_a_pooler_where_transformers_saved_one_with_a_span_model(tmp_path: Path) -> None:
    """Save like versions before 4.5."""
    folder = written(random_task_model("span"), tmp_path)
    hidden = json.loads((folder / "config.json").read_text())["hidden_size"]
    pooler = {
        "bert__pooler__dense__weight": torch.ones(hidden, hidden),
        "bert__pooler__dense__bias": torch.ones(hidden),
    }
    model, _ = load(change_weights(folder, **pooler))
    assert model.bert.pooler.weight.min() == 1


def test_from_any_fsspec_url() -> None:
    model = random_task_model("classification")
    fs = fsspec.filesystem("memory")
    for name, content in save_task_model(model, labels=LABELS["classification"], about={}).items():
        fs.pipe_file(f"/tuned/{name}", content)
    found = load_task_model("memory://tuned/").model
    assert torch.equal(found.classifier.weight, model.classifier.weight)


@pytest.mark.parametrize(
    ("kind", "labels", "about"),
    [
        ("classification", ("a", "b"), {}),
        ("classification", ("a", "b", "a"), {}),
        ("span", ("start", "end"), {}),
        ("span", (), {"value": float("nan")}),
        ("span", (), {"value": {1, 2}}),
    ],
)
def test_labels_that_do_not_fit_and_values_that_are_not_json_are_refused(
    kind: TaskTypeName, labels: tuple[str, ...], about: dict[str, Any]
) -> None:
    with pytest.raises(CheckpointError):
        save_task_model(random_task_model(kind), labels=labels, about=about)


def test_pretrained_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="BertForPreTraining"):
        load(write_files(save_model(random_model()), tmp_path))


@pytest.mark.parametrize(
    "fields",
    [
        {"problem_type": "multi_label_classification"},
        {"id2label": {"0": "a", "1": "b"}},
        {"id2label": {"0": "a", "1": "b", "3": "c"}},
        {"bertloom": "mine"},
        {"architectures": None},
        {"hidden_size": 64},
    ],
)
def test_config_that_does_not_fit_is_refused(fields: dict[str, Any], tmp_path: Path) -> None:
    folder = written(random_task_model("classification"), tmp_path)
    with pytest.raises(CheckpointError):
        load(change_config(folder, **fields))


def test_transformers_own_names_where_there_are_no_labels(tmp_path: Path) -> None:
    folder = written(random_task_model("classification"), tmp_path)
    _, tuned = load(change_config(folder, id2label=..., label2id=..., problem_type=...))
    assert tuned.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


@pytest.mark.parametrize(
    ("tensors", "name"),
    [
        ({"classifier__weight": None}, r"classifier\.weight"),
        ({"classifier__bias": None}, r"classifier\.bias"),
        ({"bert__pooler__dense__weight": None}, "pooler"),
        ({"bert__pooler__dense__weight": None, "bert__pooler__dense__bias": None}, "pooler"),
        ({"bert__encoder__layer__0__output__dense__bias": None}, "layer.0.output.dense.bias"),
        ({"crf__weight": torch.zeros(2)}, "crf.weight"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    tensors: dict[str, torch.Tensor | None], name: str, tmp_path: Path
) -> None:
    folder = written(random_task_model("classification"), tmp_path)
    with pytest.raises(CheckpointError, match=name):
        load(change_weights(folder, **tensors))
