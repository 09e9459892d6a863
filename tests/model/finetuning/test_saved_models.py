"""Fine-tuned models in Hugging Face's layout: out, in, there and back, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from support.batch_builder import VOCAB, small_config, write_files
from support.task_model_builder import (
    KINDS,
    LABELS,
    OUTPUTS,
    PEERS,
    peer_answers,
    peer_from,
    random_tagger,
    random_task_model,
    task_batch,
    terms_of,
    written,
)

from model.finetuning.saved_models import load_task_model, save_task_model
from model.finetuning.task_model import HEADS, TaskModel
from schemas.errors import CheckpointError, TrainingError
from schemas.finetune_configs import FeaturesConfig, TaskTypeName

EACH_KIND = pytest.mark.parametrize("kind", KINDS)
POOLED = ("classification", "regression", "choice")


OWN_CONFIG = small_config(
    hidden_act="gelu_tanh",
    intermediate_size=96,
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.1,
)
MODELS: dict[str, dict[str, Any]] = {
    **{kind: {"kind": kind} for kind in KINDS},
    "causal": {"kind": "choice", "is_causal": True, "config": OWN_CONFIG},
    "bilstm": {"kind": "span", "lstm_hidden_size": 12},
    "bilstm-pooled": {
        "kind": "classification",
        "lstm_hidden_size": small_config().hidden_size // 2,
    },
    "features": {"layers": "concat-last-4"},
    "features-weighted": {"layers": "weighted-sum-all"},
}


def make_model(name: str) -> Any:
    """Return a random model of a type."""
    fields = MODELS[name]
    make: Any = random_tagger if "layers" in fields else random_task_model
    return make(**fields, dropout=0.3)


@pytest.mark.parametrize("name", MODELS)
def test_there_and_back_to_the_bit(name: str, tmp_path: Path) -> None:
    model = make_model(name)
    about = {"task": "own", "features": FeaturesConfig().model_dump(), "threshold": -1.25}
    labels = LABELS.get(model.kind, ())
    files = save_task_model(model, labels=labels, about=about, pad_token_id=2)
    tuned = load_task_model(f"{write_files(files, tmp_path)}/")
    assert tuned.labels == labels
    assert about.items() <= tuned.about.items()
    loaded = tuned.model
    for field in ("kind", "outputs", "config", "vocab_size", "is_causal"):
        assert getattr(loaded, field) == getattr(model, field), field
    assert (loaded.dropout if isinstance(loaded, TaskModel) else loaded.dropouts[0]).rate == 0.3
    theirs = {name: (value, value.requires_grad) for name, value in loaded.named_parameters()}
    for parameter, value in model.named_parameters():
        assert theirs[parameter][1] == value.requires_grad
        if value.requires_grad or not parameter.startswith("bert.pooler."):
            assert torch.equal(value, theirs[parameter][0]), parameter
    again = save_task_model(loaded, labels=tuned.labels, about=tuned.about, pad_token_id=2)
    assert again == files
    batch = task_batch(model.kind)
    assert torch.equal(loaded.eval()(batch).logits, model.eval()(batch).logits)


@pytest.mark.parametrize("name", ["features", "bilstm-pooled"])
def test_transformers_reads_the_encoder_of_models_it_has_no_class_for(
    name: str, tmp_path: Path
) -> None:
    import transformers

    model = make_model(name).eval()
    folder = written(model, tmp_path)
    peer, info = transformers.BertModel.from_pretrained(
        folder, add_pooling_layer=False, output_loading_info=True
    )
    assert not info["missing_keys"]
    tokens = task_batch(model.kind).tokens
    first = slice(0, int(tokens.lengths[0]))
    expected = peer.eval()(
        tokens.input_ids[None, first], token_type_ids=tokens.segment_ids[None, first]
    )
    own = model.bert(tokens).sequence[first]
    torch.testing.assert_close(own, expected.last_hidden_state[0], rtol=0, atol=1e-5)
    if name == "bilstm-pooled":  # its head is not taken for one on the encoder of the same size
        _, info = transformers.BertForSequenceClassification.from_pretrained(
            folder, output_loading_info=True
        )
        assert "classifier.weight" in info["missing_keys"]


@pytest.mark.parametrize("auto", [False, True], ids=["Bert", "Auto"])
@EACH_KIND
def test_transformers_misses_nothing_and_expects_nothing_else(
    kind: TaskTypeName, auto: bool, tmp_path: Path
) -> None:
    folder = written(random_task_model(kind, dropout=0.25), tmp_path, task="own")
    peer, info = peer_from(folder, kind, auto=auto)
    assert {name: list(loaded) for name, loaded in info.items() if loaded} == {}
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
    import transformers

    shape = transformers.BertConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, hidden_dropout_prob=0.1, initializer_range=0.2,
        num_labels={"choice": 2}.get(kind, OUTPUTS[kind]), problem_type=HEADS[kind].problem or None,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(4)
        peer = getattr(transformers, f"BertFor{PEERS[kind]}")(shape).eval()
    peer.save_pretrained(tmp_path)
    tuned = load_task_model(str(tmp_path))
    model = tuned.model
    assert isinstance(model, TaskModel)
    assert (model.kind, model.outputs, tuned.about) == (kind, OUTPUTS[kind], {})
    names = tuple(f"LABEL_{number}" for number in range(OUTPUTS[kind]))
    assert tuned.labels == (names if kind in LABELS else ())
    assert model.dropout.rate == 0.1
    batch = task_batch(kind, equal=kind == "span")
    with torch.no_grad():
        output = model.eval()(batch, scale=1 / terms_of(batch))
        logits, loss = peer_answers(peer, batch, kind)
    assert logits.std() > 0.05
    torch.testing.assert_close(output.logits, logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(output.loss, loss, rtol=0, atol=1e-5)


def test_pooler_of_span_models_and_default_labels_of_transformers_are_read(
    tmp_path: Path,
) -> None:
    span = random_task_model("span")
    hidden = span.config.hidden_size
    pooler = {
        "bert.pooler.dense.weight": torch.ones(hidden, hidden),
        "bert.pooler.dense.bias": torch.ones(hidden),
    }
    model = load_task_model(str(changed(written(span, tmp_path / "span"), pooler))).model
    assert model.bert.pooler.weight.min() == 1
    folder = written(random_task_model("classification"), tmp_path / "classification")
    without: dict[str, Any] = {"id2label": ..., "label2id": ...}
    assert load_task_model(str(changed(folder, without))).labels == (
        "LABEL_0",
        "LABEL_1",
        "LABEL_2",
    )


def changed(folder: Path, changes: dict[str, Any]) -> Path:
    """Change tensors (names with a dot) or fields of config.json; `...` removes one."""
    weights, config = folder / "model.safetensors", folder / "config.json"
    tensors = load_tensors(weights.read_bytes())
    content = json.loads(config.read_text())
    for name, value in changes.items():
        target = tensors if "." in name else content
        if value is ...:
            del target[name]
        elif isinstance(value, dict) and name.startswith("bertloom_"):
            target[name] |= value
        else:
            target[name] = value
    weights.write_bytes(save_tensors(tensors, metadata={"format": "pt"}))
    config.write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("model", "changes", "name"),
    [
        ("classification", {"problem_type": "multi_label_classification"}, "problem_type"),
        ("classification", {"id2label": {"0": "a", "1": "b"}}, "id2label"),
        ("classification", {"id2label": {"0": "a", "1": "b", "3": "c"}}, "id2label"),
        ("classification", {"bertloom": "mine"}, "bertloom"),
        ("classification", {"architectures": ["BertForPreTraining"]}, "BertForPreTraining"),
        ("classification", {"hidden_size": 64}, None),
        ("classification", {"classifier.weight": ...}, r"classifier\.weight"),
        ("classification", {"classifier.bias": ...}, r"classifier\.bias"),
        ("classification", {"bert.pooler.dense.weight": ...}, "pooler"),
        (
            "classification",
            {"bert.pooler.dense.weight": ..., "bert.pooler.dense.bias": ...},
            "pooler",
        ),
        (
            "classification",
            {"bert.encoder.layer.0.output.dense.bias": ...},
            "layer.0.output.dense.bias",
        ),
        ("classification", {"crf.weight": torch.zeros(2)}, "crf.weight"),
        ("bilstm", {"bertloom_bilstm": {"lstm_hidden_size": 11}}, None),
        ("bilstm", {"bertloom_bilstm": {"lstm_hidden_size": None}}, "lstm_hidden_size"),
        ("bilstm", {"bertloom_bilstm": {"kind": "spam"}}, "kind"),
        ("bilstm", {"bertloom_bilstm": {"kind": "choice"}}, "choice"),
        ("features", {"bertloom_feature_tagger": ...}, "bertloom_feature_tagger"),
        ("features", {"bertloom_feature_tagger": {"layers": "first"}}, "layers"),
        ("features", {"bertloom_feature_tagger": {"lstm_hidden_size": 11}}, None),
        ("features", {"bertloom_feature_tagger": {"layers": "weighted-sum-all"}}, "lstm.0"),
    ],
)
def test_damaged_folders_are_refused(
    model: str, changes: dict[str, Any], name: str | None, tmp_path: Path
) -> None:
    folder = changed(written(make_model(model), tmp_path), changes)
    with pytest.raises((CheckpointError, TrainingError), match=name):
        load_task_model(str(folder))
