"""The whole model of pretraining against transformers', and its losses against their meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.batch_builder import (
    LENGTHS,
    VOCAB,
    peer_inputs,
    random_batch,
    random_model,
    small_config,
    write_files,
)
from torch import nn

from model.data.batches import PretrainingBatch, TokenBatch
from model.encoder.bert import EncoderOutput
from model.encoder.dropout import seed_dropout
from model.encoder.heads import BertForPretraining
from model.encoder.hf_weights import hf_state, save_model
from schemas.model_configs import ModelConfig, Objective

SHAPES = [
    ("tiny", "gelu"),
    ("tiny", "gelu_tanh"),
    pytest.param("base", "gelu", marks=pytest.mark.slow),
    pytest.param("base", "gelu_tanh", marks=pytest.mark.slow),
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


@pytest.mark.parametrize(("preset", "activation"), SHAPES)
def test_equals_transformers(preset: str, activation: str, tmp_path: Path) -> None:
    """Logits and loss within 1e-5, gradients of all parameters within 1e-4, in both layouts."""
    model = random_model(small_config(preset, hidden_act=activation))
    peer = peer_of(model, tmp_path)
    packed = random_batch()
    theirs = peer(**peer_inputs(packed), next_sentence_label=packed.next_sentence_labels)
    theirs.loss.backward()
    places = peer_inputs(packed)["labels"] != -100
    expected = {name: value.grad for name, value in peer.named_parameters()}
    for batch in (packed, random_batch(padded_length=max(LENGTHS))):
        model.zero_grad()
        encoded = model.bert(batch.tokens)
        mlm = model.mlm_logits(encoded.sequence, batch.masked_positions)
        close(mlm, theirs.prediction_logits[places], within=1e-5)
        close(model.nsp_logits(encoded.pooled), theirs.seq_relationship_logits, within=1e-5)
        output = model(batch, *totals(batch))
        close(output.loss, theirs.loss, within=1e-5)
        output.loss.backward()
        found = {name: value.grad for name, value in model.named_parameters()}
        assert all(gradient is not None for gradient in found.values())
        for name, gradient in hf_state(found).items():
            close(gradient, expected[name], within=1e-4, what=name)


def close(found: torch.Tensor, expected: torch.Tensor, *, within: float, what: str = "") -> None:
    assert found.shape == expected.shape, what
    difference = float((found.detach() - expected.detach()).abs().max())
    assert difference <= within, f"{what} differs by {difference}"
    assert float(expected.detach().abs().max()) > 0.0, f"{what}: nothing to compare"


def test_causal_equals_transformers(tmp_path: Path) -> None:
    from transformers import BertLMHeadModel

    model = random_model(objective="left-to-right")
    write_files(save_model(model), tmp_path)
    with torch.random.fork_rng():
        peer = BertLMHeadModel.from_pretrained(tmp_path).eval()
    for batch in (random_batch(), random_batch(padded_length=max(LENGTHS))):
        inputs = peer_inputs(batch)
        places = inputs.pop("labels") != -100
        theirs = peer(**inputs).logits[places]
        encoded = model.bert(batch.tokens)
        close(model.mlm_logits(encoded.sequence, batch.masked_positions), theirs, within=1e-5)


def test_micro_batches_add_up_to_the_global_batch() -> None:
    model = random_model()
    whole = random_batch((20, 14, 9, 30))
    output = model(whole, *totals(whole))
    output.loss.backward()
    expected = {name: value.grad for name, value in model.named_parameters()}
    model.zero_grad()
    parts = [model(one, *totals(whole)) for one in split(whole)]
    for part in parts:
        part.loss.backward()
    assert sum(float(part.loss.detach()) for part in parts) == pytest.approx(
        float(output.loss.detach()), rel=1e-6
    )
    for name in ("mlm_correct", "nsp_correct"):
        assert sum(int(getattr(part, name)) for part in parts) == int(getattr(output, name))
    for name, value in model.named_parameters():
        torch.testing.assert_close(value.grad, expected[name], rtol=1e-4, atol=1e-6)


def split(batch: PretrainingBatch) -> list[PretrainingBatch]:
    """Yield each instance of a packed batch separately."""
    parts = []
    tokens = batch.tokens
    bounds = zip(tokens.starts.tolist(), tokens.lengths.tolist(), strict=True)
    for row, (start, length) in enumerate(bounds):
        here = slice(start, start + length)
        inside = (batch.masked_positions >= start) & (batch.masked_positions < start + length)
        parts.append(
            PretrainingBatch(
                tokens._replace(
                    input_ids=tokens.input_ids[here],
                    segment_ids=tokens.segment_ids[here],
                    position_ids=tokens.position_ids[here],
                    starts=torch.zeros(1, dtype=torch.int64),
                    lengths=tokens.lengths[row : row + 1],
                ),
                batch.masked_positions[inside] - start,
                batch.masked_ids[inside],
                batch.next_sentence_labels[row : row + 1],
                batch.rows[row : row + 1],
            )
        )
    return parts


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
    model = BertForPretraining(small_config("mini"), vocab_size=VOCAB, seed=1)
    for name, value in model.named_parameters():
        if value.ndim > 1:
            assert float(value.detach().abs().max()) <= 0.04, name
            # A normal cut at two deviations has 0.88 of the deviation.
            assert float(value.detach().std()) == pytest.approx(0.0176, rel=0.15), name
        elif name.endswith("norm.weight"):
            assert (value == 1).all(), name
        else:
            assert not value.any(), name
    assert float(model.nsp_head.weight.detach().abs().max()) > 0.0
    again = BertForPretraining(small_config("mini"), vocab_size=VOCAB, seed=1)
    other = BertForPretraining(small_config("mini"), vocab_size=VOCAB, seed=2)
    assert torch.equal(again.mlm_head.dense.weight, model.mlm_head.dense.weight)
    assert not torch.equal(other.mlm_head.dense.weight, model.mlm_head.dense.weight)


def test_building_a_model_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    random_model()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_autocast_is_close_to_float32() -> None:
    model, batch = random_model(), random_batch()
    exact = model(batch, *totals(batch))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = model(batch, *totals(batch))
    assert rounded.loss.dtype == torch.float32
    assert float(rounded.loss.detach()) == pytest.approx(float(exact.loss.detach()), rel=5e-3)
    rounded.loss.backward()
    assert all(value.grad is not None for value in model.parameters())


@pytest.mark.parametrize("padded_length", [None, 40])
def test_last_block_computes_only_rows_that_are_read(padded_length: int | None) -> None:
    """Loss and gradients are those of a last block that computes all rows, dropout included."""
    config = ModelConfig.model_validate({"preset": "tiny"})
    model, batch = random_model(config).train(), random_batch(padded_length=padded_length)
    read = len(batch.masked_positions) + len(batch.tokens.starts)
    shapes: list[tuple[int, ...]] = []
    model.bert.layers[-1].output.register_forward_hook(
        lambda _module, inputs, _output: shapes.append(tuple(inputs[0].shape))
    )
    forward, results = model.bert.forward, []
    for is_whole in (False, True):
        if is_whole:

            def whole(tokens: TokenBatch, positions: torch.Tensor) -> EncoderOutput:
                encoded = forward(tokens)
                return encoded._replace(sequence=encoded.sequence.index_select(0, positions))

            model.bert.forward = whole  # type: ignore[method-assign]
        seed_dropout(model, 1)
        model.zero_grad()
        loss = model(batch, *totals(batch)).loss
        loss.backward()
        results.append([loss.detach(), *(p.grad for p in model.parameters())])
    assert shapes[0] == (read, config.feed_forward_size)
    assert shapes[1] == (len(batch.tokens.input_ids), config.feed_forward_size)
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-6, rtol=1e-5)
