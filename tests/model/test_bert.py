"""The encoder against itself: layouts, attention kernels, dropout and precision."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from support.batch_builder import VOCAB, random_batch, random_model
from torch import nn

from model.attention import Dropout, attention_layout, seed_dropout
from model.bert import BertModel
from model.data.batches import TokenBatch
from schemas.model_configs import ModelConfig

LENGTHS = (9, 31, 31, 5, 64, 31, 17)


def batch_of(lengths: tuple[int, ...]) -> TokenBatch:
    return random_batch(lengths).tokens


def model_of(*, dropout: float = 0.0, is_causal: bool = False, **fields: Any) -> BertModel:
    """A model with random weights, biases and norms included."""
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = ModelConfig.model_validate({"preset": "tiny", **rates, **fields})
    return random_model(config, objective="left-to-right" if is_causal else "mlm+nsp").bert


def weighted(sequence: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
    """Return a loss that weighs every output differently, about 1 in total."""
    generator = torch.Generator().manual_seed(7)
    total = sequence.new_zeros(())
    for value in (sequence, pooled):
        weights = torch.randn(value.shape, generator=generator) / value.numel() ** 0.5
        total = total + (weights * value).sum()
    return total


def test_vectors_at_positions_equal_those_of_all_tokens() -> None:
    model = model_of(dropout=0.1)
    batch = batch_of(LENGTHS)
    positions = batch.starts + 2
    gradients = []
    for chosen in (None, positions):
        seed_dropout(model, 1)
        model.zero_grad()
        actual = model(batch, positions=chosen)
        sequence = actual.sequence if chosen is not None else actual.sequence[positions]
        weighted(sequence, actual.pooled).backward()
        values = [parameter.grad for parameter in model.parameters()]
        gradients.append([sequence, actual.pooled, *values])
    for some, every in zip(*gradients, strict=True):
        torch.testing.assert_close(some, every, atol=1e-5, rtol=1e-5)


def test_last_block_computes_only_the_positions_read() -> None:
    model = model_of()
    batch = batch_of(LENGTHS)
    sizes: list[int] = []
    dense: Any = model.layers[-1].intermediate
    dense.register_forward_hook(lambda *call: sizes.append(len(call[2])))
    model(batch, positions=batch.starts[:0])
    assert sizes == [len(LENGTHS)]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 1e-9], ids=["sdpa", "own-kernel"])
def test_instances_do_not_see_each_other(dropout: float, is_causal: bool) -> None:
    # A rate that rounds to no dropped level goes the way of training, but drops nothing.
    model = model_of(dropout=dropout, is_causal=is_causal, initializer_range=0.1)
    batch = batch_of(LENGTHS)
    before = model(batch).sequence
    changed = batch._replace(input_ids=batch.input_ids.clone())
    start, length = int(batch.starts[1]), LENGTHS[1]
    changed.input_ids[start : start + length] += 1
    after = model(changed).sequence
    own = torch.zeros(len(before), dtype=torch.bool)
    own[start : start + length] = True
    torch.testing.assert_close(after[~own], before[~own], atol=1e-6, rtol=0)
    assert ((after - before)[own].abs().amax(1) > 1e-3).all()


def test_causal_tokens_see_only_what_came_before() -> None:
    model = model_of(is_causal=True, initializer_range=0.1)
    batch = batch_of((40,))
    changed = batch._replace(input_ids=batch.input_ids.clone())
    changed.input_ids[25] += 1
    before, after = model(batch).sequence, model(changed).sequence
    torch.testing.assert_close(after[:25], before[:25], atol=1e-6, rtol=0)
    assert ((after - before)[25:].abs().amax(1) > 1e-4).all()


@pytest.mark.parametrize("is_causal", [False, True])
def test_own_kernel_equals_sdpa_without_dropout(is_causal: bool) -> None:
    outputs, gradients = [], []
    for dropout in (0.0, 1e-9):
        model = model_of(dropout=dropout, is_causal=is_causal, initializer_range=0.1)
        batch = batch_of(LENGTHS)
        actual = model(batch)
        sequence = actual.sequence
        weighted(sequence, actual.pooled).backward()
        outputs.append(sequence)
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-5, rtol=0)
    for plain, own in zip(*gradients, strict=True):
        torch.testing.assert_close(own, plain, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("is_causal", [False, True])
def test_gradient_uses_mask_of_forward_pass(is_causal: bool) -> None:
    """Central differences in float32, every pass under the same key."""
    model = model_of(dropout=0.4, is_causal=is_causal, initializer_range=0.1)
    batch = batch_of((12, 33, 33, 5))

    def loss() -> torch.Tensor:
        seed_dropout(model, 11)
        actual = model(batch)
        return weighted(actual.sequence, actual.pooled)

    loss().backward()
    for name in ("embeddings.word", "layers.0.attention.qkv", "layers.1.attention.output"):
        parameter = model.get_parameter(f"{name}.weight")
        assert parameter.grad is not None
        # Along the gradient, which is the direction in which the loss moves most.
        expected = float(parameter.grad.norm())
        direction = parameter.grad / expected
        step, ends = 3e-3, []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(direction, alpha=sign * step)
                ends.append(float(loss()))
                parameter.sub_(direction, alpha=sign * step)
        actual = (ends[0] - ends[1]) / (2 * step)
        assert actual == pytest.approx(expected, rel=0.03), name


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_rate_and_scale_of_dropout(rate: float) -> None:
    dropout = Dropout(rate)
    size = 400_001  # no multiple of 4
    actual = dropout(torch.ones(size))
    kept = actual[actual != 0]
    sigma = (rate * (1 - rate) / size) ** 0.5
    assert abs(1 - len(kept) / size - rate) < 4 * sigma + 2**-17
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - rate)), rtol=2e-4, atol=0)
    # All four elements that share a draw are dropped equally often.
    for lane in range(4):
        share = (actual[lane::4] == 0).float().mean()
        assert abs(float(share) - rate) < 5 * (2 * sigma)
    residual = torch.full((size,), 2.0)
    dropout.generator.manual_seed(0)
    torch.testing.assert_close(dropout.add(torch.ones(size), residual), actual + 2.0)
    assert torch.equal(dropout.eval()(residual), residual)


def test_attention_drops_at_its_rate() -> None:
    """Values that are all 1 give contexts whose mean is that of the kept, scaled probabilities."""
    config = ModelConfig.model_validate({"preset": "tiny", "attention_probs_dropout_prob": 0.3})
    attention = BertModel(config, vocab_size=VOCAB).layers[0].attention
    with torch.no_grad():
        attention.qkv.bias[256:] = 1.0
        attention.output.weight.copy_(torch.eye(128))
    layout = attention_layout(
        np.array([64] * 32),
        heads=2,
        device=torch.device("cpu"),
        flash=False,
        has_dropout=True,
    )
    actual = attention(torch.zeros(64 * 32, 128), layout)
    # Uniform probabilities: 64 of 1/64 a token and head, each kept with probability 0.7.
    per_token = actual.detach()[:, ::64]  # one number a head
    assert abs(float(per_token.mean()) - 1) < 5 * (0.3 / 0.7 / 64 / per_token.numel()) ** 0.5
    assert float(per_token.std()) == pytest.approx((0.3 / 0.7 / 64) ** 0.5, rel=0.05)


def test_dropout_is_a_function_of_the_key() -> None:
    model = model_of(dropout=0.1)
    batch = batch_of(LENGTHS)
    before = torch.get_rng_state()

    def run(key: int, on: nn.Module = model) -> torch.Tensor:
        seed_dropout(on, key)
        return torch.cat([model(batch).sequence, model(batch).sequence]).detach()

    first = run((1 << 64) - 1)
    assert not torch.equal(first[: len(first) // 2], first[len(first) // 2 :])
    assert not torch.equal(first, run(2))
    assert torch.equal(first, run((1 << 64) - 1))
    # Wrapped by torch.compile or DistributedDataParallel the names differ, the draws do not.
    wrapped = nn.Module()
    wrapped.module = model
    assert torch.equal(first, run((1 << 64) - 1, wrapped))
    copied = copy.deepcopy(model)
    seed_dropout(copied, 2)
    seed_dropout(model, 2)
    assert torch.equal(copied(batch).sequence, model(batch).sequence)
    assert torch.equal(torch.get_rng_state(), before)
    model.eval()
    assert torch.equal(run(1), run(2))


def test_every_dropout_has_its_own_draws() -> None:
    model = model_of(dropout=0.1)
    dropouts = [module for module in model.modules() if isinstance(module, Dropout)]
    assert len(dropouts) == 1 + 3 * model.config.num_hidden_layers
    draws = {tuple(dropout(torch.ones(200)).tolist()) for dropout in dropouts}
    assert len(draws) == len(dropouts)
