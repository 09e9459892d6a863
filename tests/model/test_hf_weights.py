"""Checkpoints in Hugging Face's layout: out, in, there and back, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from support.batch_builder import (
    VOCAB,
    random_model,
    small_config,
    write_files,
)

from model.bert import BertForPretraining
from model.hf_config import READ_ACTIVATIONS, HFConfig, hf_config
from model.hf_weights import LoadedModel, load_pretrained, save_model
from schemas.errors import CheckpointError, MissingInputError
from schemas.model_configs import Objective

Tensors = dict[str, torch.Tensor]


def load(folder: Path | str, *, objective: Objective = "mlm+nsp", seed: int = 5) -> LoadedModel:
    return load_pretrained(str(folder), objective=objective, seed=seed)


def written(folder: Path, model: BertForPretraining | None = None) -> Path:
    return write_files(save_model(model or random_model()), folder)


def change(folder: Path, edit: Callable[[Tensors], Tensors]) -> Path:
    """Rewrite the weights of a checkpoint."""
    path = folder / "model.safetensors"
    tensors = edit(load_tensors(path.read_bytes()))
    path.write_bytes(save_tensors(tensors, metadata={"format": "pt"}))
    return folder


def change_config(folder: Path, **fields: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return folder


def assert_equal(one: BertForPretraining, other: BertForPretraining, prefix: str = "") -> None:
    theirs = dict(other.named_parameters())
    for name, value in one.named_parameters():
        assert not name.startswith(prefix) or torch.equal(value, theirs[name]), name


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm", "left-to-right"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_there_and_back_to_the_byte(activation: str, objective: Objective, tmp_path: Path) -> None:
    config = small_config(hidden_act=activation, intermediate_size=96, hidden_dropout_prob=0.2)
    model = random_model(config, objective=objective)
    files = save_model(model)
    loaded = load(write_files(files, tmp_path), objective=objective)
    assert loaded.model.config == config
    assert (loaded.initialized, loaded.notes) == ((), ())
    assert_equal(loaded.model, model)
    assert save_model(loaded.model) == files


@pytest.mark.parametrize(
    ("objective", "name"),
    [
        ("mlm+nsp", "BertForPreTraining"),
        ("mlm", "BertForMaskedLM"),
        ("left-to-right", "BertLMHeadModel"),
    ],
)
def test_transformers_loads_it_as_it_is(objective: Objective, name: str, tmp_path: Path) -> None:
    import transformers

    folder = written(tmp_path, random_model(objective=objective))
    with torch.random.fork_rng():
        _, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["mismatched_keys"]
    assert json.loads((folder / "config.json").read_text())["architectures"] == [name]


def peer(**fields: Any) -> Any:
    """A random model of transformers."""
    from transformers import BertConfig, BertForPreTraining

    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    with torch.random.fork_rng():
        torch.manual_seed(11)
        config = BertConfig(vocab_size=VOCAB, intermediate_size=64, **shape, **fields)
        return BertForPreTraining(config)


def test_transformers_to_ours_and_back(tmp_path: Path) -> None:
    from transformers import BertForPreTraining

    theirs = peer(hidden_act="gelu_new")
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = load(tmp_path / "theirs")
    assert (loaded.initialized, loaded.notes) == ((), ())
    assert loaded.model.config.hidden_act == "gelu_tanh"
    with torch.random.fork_rng():
        back = BertForPreTraining.from_pretrained(written(tmp_path / "ours", loaded.model))
    expected = dict(theirs.state_dict())
    for name, value in back.state_dict().items():
        assert torch.equal(value, expected.pop(name)), name
    assert not expected


def test_old_names_are_read(tmp_path: Path) -> None:
    model = random_model()

    def to_old(tensors: Tensors) -> Tensors:
        old = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ): tensor
            for name, tensor in tensors.items()
        }
        bias = old.pop("cls.predictions.bias")
        return {
            **old,
            "bert.embeddings.position_ids": torch.arange(512)[None],
            "cls.predictions.decoder.weight": old[WORDS].clone(),
            "cls.predictions.decoder.bias": bias,
        }

    loaded = load(change(written(tmp_path, model), to_old))
    assert loaded.initialized == ()
    assert_equal(loaded.model, model)


@pytest.mark.parametrize("prefix", ["bert.", ""])
def test_encoder_alone_gets_new_heads(prefix: str, tmp_path: Path) -> None:
    model = random_model()

    def encoder(tensors: Tensors) -> Tensors:
        return {
            prefix + name.removeprefix("bert."): tensor
            for name, tensor in tensors.items()
            if not name.startswith("cls.")
        }

    loaded = load(change(written(tmp_path, model), encoder), seed=8)
    new = BertForPretraining(model.config, vocab_size=VOCAB, seed=8)
    assert_equal(loaded.model, model, "bert.")
    assert_equal(loaded.model, new, "mlm_head.")
    assert_equal(loaded.model, new, "nsp_head.")
    assert {name.partition(".")[0] for name in loaded.initialized} == {"mlm_head", "nsp_head"}
    assert len(loaded.initialized) == 7
    masked, following = loaded.notes
    assert "seed 8" in masked
    assert "NSP" in following


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_types_become_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    model = random_model()
    folder = change(
        written(tmp_path, model),
        lambda tensors: {name: tensor.to(dtype) for name, tensor in tensors.items()},
    )
    loaded = dict(load(folder).model.named_parameters())
    for name, value in model.named_parameters():
        assert loaded[name].dtype == torch.float32
        assert torch.equal(loaded[name], value.to(dtype).to(torch.float32))


def test_any_url_is_read() -> None:
    fs = fsspec.filesystem("memory")
    model = random_model()
    for name, content in save_model(model).items():
        fs.pipe_file(f"/hf-weights/checkpoint/{name}", content)
    assert_equal(load("memory://hf-weights/checkpoint/").model, model)


def test_change_of_attention_is_noted(tmp_path: Path) -> None:
    folder = written(tmp_path)
    assert load(folder, objective="mlm").notes == ()
    (note,) = load(folder, objective="left-to-right").notes
    assert "bidirectional" in note
    (note,) = load(written(tmp_path, random_model(objective="left-to-right"))).notes
    assert "causal" in note


def without(*names: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: tensor for name, tensor in tensors.items() if name not in names}


def with_tensor(name: str, tensor: torch.Tensor) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, name: tensor}


QUERY = "bert.encoder.layer.1.attention.self.query.weight"


WORDS = "bert.embeddings.word_embeddings.weight"


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 3e38])
def test_weights_that_are_not_finite_are_refused(value: float, tmp_path: Path) -> None:
    name = "cls.predictions.bias"

    def fill(tensors: Tensors) -> Tensors:
        tensors[name][-9:] = value
        return tensors

    folder = change(written(tmp_path), fill)
    if value == 3e38:  # the sum overflows, the weights do not
        assert load(folder).model.mlm_head.output_bias.max() == torch.tensor(value)
        return
    with pytest.raises(CheckpointError, match=name):
        load(folder)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (with_tensor("classifier.weight", torch.ones(2)), "classifier.weight"),
        (without(QUERY), QUERY),
        (without("cls.predictions.transform.dense.bias"), r"cls.*dense\.bias"),
        (with_tensor(QUERY, torch.ones(128, 64)), rf"{QUERY}.*\(128, 64\).*\(128, 128\)"),
        (with_tensor(WORDS, torch.ones(VOCAB + 8, 128)), rf"{WORDS}.*\(1008, 128\)"),
        (with_tensor(QUERY, torch.ones(128, 128, dtype=torch.int8)), rf"{QUERY}.*int8"),
        (
            with_tensor("cls.predictions.decoder.weight", torch.ones(VOCAB, 128)),
            rf"decoder\.weight.*{WORDS}",
        ),
        (with_tensor("embeddings.word_embeddings.weight", torch.ones(VOCAB, 128)), WORDS),
    ],
)
def test_wrong_tensor_is_named(
    edit: Callable[[Tensors], Tensors], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(change(written(tmp_path), edit))


@pytest.mark.parametrize(
    "fields",
    [
        {"model_type": "roberta"},
        {"hidden_act": "relu"},
        {"position_embedding_type": "relative_key"},
        {"add_cross_attention": True},
        {"pruned_heads": {"0": [1]}},
        {"vocab_size": "many"},
        {"num_attention_heads": 3},
    ],
)
def test_other_architectures_are_refused_by_field(fields: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=next(iter(fields))):
        load(change_config(written(tmp_path), **fields))


def test_pickle_is_refused_and_left_alone_beside_safetensors(tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "pytorch_model.bin").write_bytes(b"never read")
    load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(MissingInputError, match="save_pretrained"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "content", "fact"),
    [
        ("model.safetensors", None, "model"),
        ("config.json", b"{}", "hidden_size: "),
        ("config.json", None, "config"),
    ],
)
def test_missing_file_is_named(name: str, content: bytes | None, fact: str, tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises((CheckpointError, MissingInputError), match=fact):
        load(folder)


def test_each_name_of_gelu_means_what_transformers_computes() -> None:
    from transformers.activations import ACT2FN

    x = torch.linspace(-5, 5, 201)
    for name, ours in READ_ACTIVATIONS.items():
        form = "tanh" if ours == "gelu_tanh" else "none"
        mine = torch.nn.functional.gelu(x, approximate=form)
        torch.testing.assert_close(ACT2FN[name](x), mine, rtol=0, atol=2e-6)


def test_old_config_without_model_type_is_read() -> None:
    described = hf_config(small_config(), vocab_size=VOCAB, objective="mlm")
    del described["model_type"], described["position_embedding_type"]
    config = HFConfig.model_validate(described)
    assert config.shape == small_config()
    assert (config.vocab_size, config.objective) == (VOCAB, "mlm")
