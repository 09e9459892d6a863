"""The whole model of pretraining against transformers', and its losses against their meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.batch_builder import (
    VOCAB,
    peer_inputs,
    random_batch,
    random_model,
    small_config,
    write_files,
)
from torch import nn

from model.bert import BertForPretraining
from model.data.batches import PretrainingBatch
from model.hf_weights import hf_state, save_model
from schemas.model_configs import Objective

SHAPES = [
    ("tiny", "gelu", {}),
    ("tiny", "gelu_tanh", {"num_hidden_layers": 24}),  # as many as large has
    pytest.param("base", "gelu", {}, marks=pytest.mark.slow),
    pytest.param("large", "gelu_tanh", {"num_hidden_layers": 3}, marks=pytest.mark.slow),
]


def peer_of(model: BertForPretraining, folder: Path) -> Any:
    """transformers' BertForPreTraining with the same weights."""
    from transformers import BertForPreTraining

    write_files(save_model(model), folder)
    with torch.random.fork_rng():
        return BertForPreTraining.from_pretrained(folder).eval()


def totals(batch: PretrainingBatch) -> tuple[int, int]:
    """Predictions and pairs, where the batch is the whole global batch."""
    return len(batch.masked_ids), int((batch.next_sentence_labels != -100).sum())


@pytest.mark.parametrize(("preset", "activation", "changes"), SHAPES)
def test_equals_transformers(
    preset: str, activation: str, changes: dict[str, int], tmp_path: Path
) -> None:
    """Logits and loss within 1e-5, gradients of all parameters within 1e-4."""
    model = random_model(small_config(preset, hidden_act=activation, **changes))
    peer = peer_of(model, tmp_path)
    batch = random_batch()
    theirs = peer(**peer_inputs(batch), next_sentence_label=batch.next_sentence_labels)
    theirs.loss.backward()
    places = peer_inputs(batch)["labels"] != -100
    expected = {name: value.grad for name, value in peer.named_parameters()}
    encoded = model.bert(batch.tokens)
    mlm = model.mlm_logits(encoded.sequence, batch.masked_positions)
    close(mlm, theirs.prediction_logits[places], within=1e-5)
    close(model.nsp_logits(encoded.pooled), theirs.seq_relationship_logits, within=1e-5)
    output = model(batch, *totals(batch))
    close(output.loss, theirs.loss, within=1e-5)
    output.loss.backward()
    result = {name: value.grad for name, value in model.named_parameters()}
    assert all(gradient is not None for gradient in result.values())
    for name, gradient in hf_state(result).items():
        close(gradient, expected[name], within=1e-4, what=name)


def close(result: torch.Tensor, expected: torch.Tensor, *, within: float, what: str = "") -> None:
    assert result.shape == expected.shape, what
    difference = float((result.detach() - expected.detach()).abs().max())
    assert difference <= within, f"{what} differs by {difference}"
    assert float(expected.detach().abs().max()) > 0.0, f"{what}: nothing to compare"


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_causal_equals_transformers(activation: str, tmp_path: Path) -> None:
    from transformers import BertLMHeadModel

    model = random_model(small_config(hidden_act=activation), objective="left-to-right")
    write_files(save_model(model), tmp_path)
    with torch.random.fork_rng():
        peer = BertLMHeadModel.from_pretrained(tmp_path).eval()
    batch = random_batch()
    inputs = peer_inputs(batch)
    places = inputs.pop("labels") != -100
    theirs = peer(**inputs).logits[places]
    theirs.logsumexp(1).sum().backward()
    expected = {name: value.grad for name, value in peer.named_parameters()}
    logits = model.mlm_logits(model.bert(batch.tokens).sequence, batch.masked_positions)
    close(logits, theirs, within=1e-5)
    logits.logsumexp(1).sum().backward()
    result = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    for name, gradient in hf_state(result).items():
        close(gradient, expected[name], within=1e-4, what=name)


def test_all_layers_equal_those_of_transformers(tmp_path: Path) -> None:
    model, batch = random_model(), random_batch()
    inputs = peer_inputs(batch)
    is_real = inputs["attention_mask"].bool()
    peer = peer_of(model, tmp_path)
    expected = peer(**inputs, output_hidden_states=True).hidden_states
    result = model.bert(batch.tokens, all_layers=True)
    assert len(result.layers) == len(expected) == model.config.num_hidden_layers + 1
    for ours, theirs in zip(result.layers, expected, strict=True):
        close(ours, theirs[is_real], within=1e-5)
    assert model.bert(batch.tokens).layers == ()


def test_micro_batches_add_up_to_the_global_batch() -> None:
    model = random_model()
    lengths = (20, 14, 9, 30)
    whole = random_batch(lengths)
    output = model(whole, *totals(whole))
    output.loss.backward()
    expected = {name: value.grad for name, value in model.named_parameters()}
    model.zero_grad()
    single = [random_batch((length,), first=n) for n, length in enumerate(lengths)]
    labels = whole.next_sentence_labels.split(1)
    parts = [
        model(batch._replace(next_sentence_labels=label), *totals(whole))
        for batch, label in zip(single, labels, strict=True)
    ]
    for part in parts:
        part.loss.backward()
    assert sum(float(part.loss.detach()) for part in parts) == pytest.approx(
        float(output.loss.detach()), rel=1e-6
    )
    for name in ("mlm_correct", "nsp_correct"):
        assert sum(int(getattr(part, name)) for part in parts) == int(getattr(output, name))
    for name, value in model.named_parameters():
        torch.testing.assert_close(value.grad, expected[name], rtol=1e-4, atol=1e-6)


def test_sums_are_what_the_logits_say() -> None:
    model, batch = random_model(), random_batch()
    output = model(batch, 100, 10)
    encoded = model.bert(batch.tokens)
    mlm = model.mlm_logits(encoded.sequence, batch.masked_positions)
    nll = nn.functional.cross_entropy(mlm, batch.masked_ids, reduction="sum")
    nsp = model.nsp_logits(encoded.pooled)[:-1]
    nsp_nll = nn.functional.cross_entropy(nsp, batch.next_sentence_labels[:-1], reduction="sum")
    torch.testing.assert_close(output.mlm_loss_sum, nll.detach())
    torch.testing.assert_close(output.nsp_loss_sum, nsp_nll.detach())
    torch.testing.assert_close(output.loss, nll / 100 + nsp_nll / 10)
    assert int(output.mlm_correct) == int((mlm.argmax(1) == batch.masked_ids).sum())
    assert int(output.nsp_correct) == int((nsp.argmax(1) == batch.next_sentence_labels[:-1]).sum())
    assert not any(value.requires_grad for value in output[1:])


def test_empty_sums_are_zero_and_every_gradient_is_there() -> None:
    """DistributedDataParallel waits for a gradient of each parameter that requires one."""
    model, batch = random_model(), random_batch()
    none = batch.masked_positions[:0]
    empty = batch._replace(
        masked_positions=none,
        masked_ids=none,
        next_sentence_labels=torch.full_like(batch.next_sentence_labels, -100),
    )
    output = model(empty, 0, 0)
    assert [float(value.detach()) for value in output] == [0.0] * 5
    output.loss.backward()
    for name, value in model.named_parameters():
        assert value.grad is not None, name
        assert not value.grad.any(), name


@pytest.mark.parametrize("objective", ["mlm", "left-to-right"])
def test_without_nsp_its_parameters_stay_but_are_not_trained(objective: Objective) -> None:
    model, batch = random_model(objective=objective), random_batch()
    output = model(batch, *totals(batch))
    output.loss.backward()
    unused = {name for name, value in model.named_parameters() if not value.requires_grad}
    assert unused == {"bert.pooler.weight", "bert.pooler.bias", "nsp_head.weight", "nsp_head.bias"}
    without = {name for name, value in model.named_parameters() if value.grad is None}
    assert without == unused
    assert [float(value) for value in output[3:]] == [0.0] * 2
    names = set(random_model().state_dict())
    assert set(model.state_dict()) == names


def test_left_to_right_sees_nothing_of_what_comes() -> None:
    batch = random_batch((16,))
    changed = batch.tokens._replace(input_ids=batch.tokens.input_ids.clone())
    changed.input_ids[10:] = 7
    for objective, sees in (("left-to-right", False), ("mlm", True)):
        model = random_model(objective=objective)
        positions = torch.arange(10)
        one, other = (
            model.mlm_logits(model.bert(tokens).sequence, positions)
            for tokens in (batch.tokens, changed)
        )
        assert bool((one - other).abs().max() > 1e-6) is sees


def test_initial_weights_are_those_of_the_reference() -> None:
    before = torch.random.get_rng_state()
    model = BertForPretraining(small_config("mini"), vocab_size=VOCAB, seed=1)
    for name, value in model.named_parameters():
        if value.ndim > 1:
            assert float(value.detach().abs().max()) <= 0.04, name
        else:
            expected = float(name.endswith("norm.weight"))
            assert torch.equal(value, torch.full_like(value, expected)), name
    values = torch.cat([p.detach().flatten() for p in model.parameters() if p.ndim == 2])
    assert float(values.mean()) == pytest.approx(0, abs=1e-4)
    # A normal cut at two sigma has 0.8796 of its standard deviation.
    assert float(values.std()) == pytest.approx(0.02 * 0.8796, rel=0.01)
    other = BertForPretraining(small_config("mini"), vocab_size=VOCAB, seed=2)
    assert not torch.equal(other.mlm_head.dense.weight, model.mlm_head.dense.weight)
    deeper = BertForPretraining(small_config("mini", num_hidden_layers=6), vocab_size=VOCAB, seed=1)
    for name, value in model.named_parameters():
        assert torch.equal(deeper.get_parameter(name), value), name
    assert torch.equal(torch.random.get_rng_state(), before)
