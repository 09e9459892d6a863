"""Code paths of GPUs, traced on meta tensors: which operators run on which shapes."""

from __future__ import annotations

import contextlib
from functools import partialmethod
from typing import Any

import numpy as np
import pytest
import torch
from support.batch_builder import VOCAB, random_batch, small_config
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from model import attention, bert
from model.bert import BertForPretraining, tied_decoder_loss
from model.data.batches import PretrainingBatch
from model.training.distributed import ProcessGroup
from model.training.loop import wrap_model
from schemas.model_configs import ModelConfig

META = torch.device("meta")
MANY_LENGTHS = tuple(range(20, 120, 5))


@pytest.fixture(autouse=True)
def _no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn autocast off, which does not know meta tensors."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())


class Operators(TorchDispatchMode):
    """Records the name and arguments of every operator."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((str(func), args))
        return func(*args, **(kwargs or {}))

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [args for called, args in self.calls if name in called]


def step(model: BertForPretraining, batch: PretrainingBatch) -> None:
    """Run forward and backward on the model's device."""
    device = model.mlm_head.output_bias.device
    pairs = int((batch.next_sentence_labels >= 0).sum())
    model(batch.to(device), len(batch.masked_ids), pairs).loss.backward()


def model_on_meta(config: ModelConfig) -> BertForPretraining:
    return BertForPretraining(config, vocab_size=VOCAB).to(META).train()


def test_fp32_attention_is_one_call_per_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    plain = functional.scaled_dot_product_attention

    def counted(query: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(tuple(query.shape))
        return plain(query, *args, **kwargs)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", counted)
    model = model_on_meta(ModelConfig.model_validate({"preset": "tiny"}))
    step(model, random_batch(MANY_LENGTHS))
    config = model.config
    shape = (len(MANY_LENGTHS), config.num_attention_heads, max(MANY_LENGTHS), 64)
    assert calls == [shape] * config.num_hidden_layers


def test_one_padded_call_has_the_values_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    model = BertForPretraining(small_config(initializer_range=0.1), vocab_size=VOCAB)
    tokens = random_batch(MANY_LENGTHS).tokens
    grouped = model.bert(tokens).sequence
    monkeypatch.setattr(attention, "plan_groups", lambda lengths, **_: [np.arange(len(lengths))])
    torch.testing.assert_close(model.bert(tokens).sequence, grouped, atol=1e-5, rtol=0)


def test_flash_attention_is_one_call_per_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert, "_has_flash", lambda x, depth: True)
    model = model_on_meta(ModelConfig.model_validate({"preset": "tiny"}))
    with Operators() as operators:
        step(model, random_batch(MANY_LENGTHS))
    layers = model.config.num_hidden_layers
    assert len(operators.named("_flash_attention_forward")) == layers
    assert len(operators.named("_flash_attention_backward")) == layers


def test_rows_of_logits_are_aligned() -> None:
    shapes = [(40, 16), (VOCAB, 16), (VOCAB,)]
    hidden, weight, bias = (torch.zeros(s, device=META, requires_grad=True) for s in shapes)
    labels = torch.zeros(40, dtype=torch.int64, device=META)
    with Operators() as operators:
        tied_decoder_loss(hidden, weight, bias=bias, labels=labels, scale=1.0)
    (product,) = operators.named("addmm")
    assert product[2].shape == (16, -(-VOCAB // 64) * 64)


@pytest.mark.slow
@pytest.mark.parametrize("has_flash", [True, False], ids=["flash", "padded"])
def test_compiled_blocks_fit_batches_of_any_fill(
    has_flash: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bert, "_has_flash", lambda x, depth: has_flash)
    compile_module = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", partialmethod(compile_module, backend="aot_eager"))
    model = model_on_meta(ModelConfig.model_validate({"preset": "tiny", "num_hidden_layers": 10}))
    wrapped: Any = wrap_model(model, group=ProcessGroup(0, 1, META), is_compiled=True)
    torch.compiler.reset()
    counters.clear()
    for stop in (60, 100, 110, 120):
        step(wrapped, random_batch(tuple(range(20, stop, 7))))
        assert counters["stats"]["unique_graphs"] == 2  # the last block computes fewer rows
    assert not counters["graph_break"]
