"""FLOPs of a step compared with torch's counter, peaks of devices, and throughput between lines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForPreTraining

from model.data.batches import PretrainingBatch, TokenBatch
from model.encoder.bert import BertModel, initialize_weights
from model.encoder.losses import tied_decoder_loss
from model.launch.distributed import ProcessGroup
from model.monitoring import throughput
from model.monitoring.throughput import (
    Peak,
    ThroughputMeter,
    batch_flops,
    forward_flops,
    listed_peak,
    model_flops_utilization,
    peak_flops,
    peak_memory,
)
from schemas.model_configs import ModelConfig

VOCAB_SIZE = 300
SMALL = ModelConfig(
    num_hidden_layers=2, hidden_size=48, num_attention_heads=4, intermediate_size=80
)
CPU = torch.device("cpu")


def training_flops(model: ModelConfig, **arguments: Any) -> int:
    """Return FLOPs of forward and backward pass: each product has two gradients of its size."""
    return 3 * forward_flops(model, **arguments)


def batch_of(lengths: list[int], *, predictions: int = 3) -> PretrainingBatch:
    """Return packed instances whose first tokens are predicted."""
    n = np.array(lengths, np.int64)
    total = int(n.sum())
    places = np.concatenate([np.arange(length) for length in lengths])
    tokens = TokenBatch(
        input_ids=torch.arange(total) % VOCAB_SIZE,
        segment_ids=torch.zeros(total, dtype=torch.int64),
        position_ids=torch.from_numpy(places),
        starts=torch.from_numpy(np.cumsum(n) - n),
        lengths=n,
        padded_length=None,
    )
    chosen = torch.arange(predictions)
    return PretrainingBatch(tokens, chosen, chosen, torch.zeros(len(n), dtype=torch.int64), n)


class Pretraining(torch.nn.Module):
    """Encoder, fused MLM loss and the dense layers of the heads."""

    def __init__(self, config: ModelConfig, *, is_causal: bool = False) -> None:
        super().__init__()
        self.encoder = BertModel(config, vocab_size=VOCAB_SIZE, is_causal=is_causal)
        initialize_weights(self.encoder, initializer_range=0.02, seed=0)
        self.transform = torch.nn.Linear(config.hidden_size, config.hidden_size)
        self.next_sentence = torch.nn.Linear(config.hidden_size, 2)
        self.bias = torch.nn.Parameter(torch.zeros(VOCAB_SIZE))

    def forward(self, batch: PretrainingBatch) -> torch.Tensor:
        output = self.encoder(batch.tokens)
        hidden = self.transform(output.sequence[batch.masked_positions])
        words = self.encoder.embeddings.word.weight
        mlm = tied_decoder_loss(
            hidden, words, bias=self.bias, labels=batch.masked_ids, scale=1.0
        ).loss
        nsp: torch.Tensor = self.next_sentence(output.pooled).logsumexp(1).sum()
        return mlm + nsp


def counted(model: torch.nn.Module, batch: PretrainingBatch) -> int:
    """Return the FLOPs that torch counts in a forward and backward pass on the CPU."""
    with FlopCounterMode(display=False) as counter:
        model(batch).backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("shape", ["small", "tiny"])
def test_formula_matches_counted_flops_of_our_model(shape: str) -> None:
    config = SMALL if shape == "small" else ModelConfig.model_validate({"preset": "tiny"})
    model = Pretraining(config)
    batch = batch_of([64] * 6, predictions=58)
    expected = training_flops(
        config, vocab_size=VOCAB_SIZE, lengths=batch.tokens.lengths, predictions=58, pooled=6
    )
    # torch also counts sums over rows that are computed as products with ones.
    assert counted(model, batch) == pytest.approx(expected, rel=0.01)


def test_instances_do_not_attend_to_each_other() -> None:
    lengths = [8, 40, 128]
    model = Pretraining(SMALL)
    one_by_one = sum(counted(model, batch_of([length])) for length in lengths)
    expected = training_flops(
        SMALL, vocab_size=VOCAB_SIZE, lengths=np.array(lengths), predictions=9, pooled=3
    )
    assert one_by_one == pytest.approx(expected, rel=0.01)
    as_one_row = training_flops(
        SMALL, vocab_size=VOCAB_SIZE, lengths=np.array([sum(lengths)]), predictions=9, pooled=3
    )
    assert one_by_one != pytest.approx(as_one_row, rel=0.05)


def test_formula_matches_counted_flops_of_hugging_face_model() -> None:
    config = BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=SMALL.hidden_size,
        num_hidden_layers=SMALL.num_hidden_layers,
        num_attention_heads=SMALL.num_attention_heads,
        intermediate_size=SMALL.feed_forward_size,
        attn_implementation="eager",
    )
    model = BertForPreTraining(config)
    ids = torch.arange(4 * 64).view(4, 64) % VOCAB_SIZE
    arguments: dict[str, Any] = {"next_sentence_label": torch.zeros(4, dtype=torch.int64)}
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids, **arguments).loss.backward()
    expected = training_flops(
        SMALL,
        vocab_size=VOCAB_SIZE,
        lengths=np.full(4, 64),
        predictions=4 * 64,  # it predicts every token, masked or not
        pooled=4,
    )
    assert counter.get_total_flops() == pytest.approx(expected, rel=1e-3)


def test_causal_attention_counts_pairs_up_to_the_diagonal() -> None:
    arguments: dict[str, Any] = {"vocab_size": 1, "lengths": np.array([3, 1]), "predictions": 0}
    difference = forward_flops(SMALL, **arguments) - forward_flops(SMALL, **arguments, causal=True)
    assert difference == 2 * 2 * 2 * 48 * (9 + 1 - 6 - 1)


def test_flops_of_micro_batches_add_up() -> None:
    parts = [batch_of([5, 9]), batch_of([17], predictions=4)]
    whole = batch_flops(SMALL, vocab_size=VOCAB_SIZE, batches=parts)
    arguments: dict[str, Any] = {"lengths": np.array([5, 9, 17]), "predictions": 7}
    assert whole == training_flops(SMALL, vocab_size=VOCAB_SIZE, pooled=3, **arguments)
    alone = batch_flops(SMALL, vocab_size=VOCAB_SIZE, batches=parts, next_sentence=False)
    assert alone == training_flops(SMALL, vocab_size=VOCAB_SIZE, **arguments)


def test_padding_does_not_count() -> None:
    packed = batch_of([5, 9])
    padded = packed._replace(tokens=packed.tokens._replace(padded_length=16))
    works = [batch_flops(SMALL, vocab_size=9, batches=[batch]) for batch in (packed, padded)]
    assert works[0] == works[1]


def test_large_batches_do_not_overflow() -> None:
    large = ModelConfig.model_validate({"preset": "large"})
    lengths = np.full(65_536, 512, np.int32)
    flops = training_flops(large, vocab_size=30_522, lengths=lengths, predictions=76 * 65_536)
    tokens = 65_536 * 512
    assert flops > 6 * tokens * 24 * 12 * 1024 * 1024 > 2**53


# Peaks


@pytest.mark.parametrize(
    ("name", "number_format", "tera"),
    [
        ("NVIDIA H200", "bf16", 989.5),
        ("NVIDIA H100 80GB HBM3", "tf32", 494.5),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("A100-SXM4-40GB", "fp32", 19.5),
        ("NVIDIA L4", "bf16", 121),
        ("Tesla V100-SXM2-16GB", "fp32", 15.7),
        ("Tesla T4", "fp32", 8.1),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2),
    ],
)
def test_peak_of_listed_device(name: str, number_format: throughput.Format, tera: float) -> None:
    assert listed_peak(name, number_format=number_format) == Peak(
        pytest.approx(tera * 1e12), "data sheet", name, number_format
    )


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA H200 MIG 1g.18gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA H20",
        "Some new device",
    ],
)
def test_slices_and_variants_of_listed_devices_have_no_listed_peak(name: str) -> None:
    assert listed_peak(name, number_format="bf16") is None


def test_device_without_bf16_units_has_no_bf16_peak() -> None:
    assert listed_peak("Tesla V100-SXM2-16GB", number_format="bf16") is None
    assert listed_peak("Tesla T4", number_format="tf32") is None


@pytest.mark.parametrize(
    ("capability", "setting", "expected"),
    [((9, 0), "tf32", "tf32"), ((9, 0), "ieee", "fp32"), ((7, 5), "tf32", "fp32")],
)
def test_fp32_peak_is_tf32_when_torch_permits_it(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], setting: str, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H100 80GB HBM3")
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = setting
    try:
        peak = peak_flops("cuda", precision="fp32")
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert peak is not None
    assert peak.format == expected
    assert peak.flops == pytest.approx(494.5e12 if expected == "tf32" else 67e12)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_cpu_peak_is_measured_briefly(precision: throughput.Precision) -> None:
    began = time.perf_counter()
    peak = peak_flops("cpu", precision=precision)
    assert time.perf_counter() - began < 2.0  # other processes may have the processor
    assert peak is not None
    assert peak.source == "measured matmul"
    assert peak.format == precision
    assert 1e8 < peak.flops < 1e15


def test_other_device_types_have_no_peak() -> None:
    assert peak_flops("meta", precision="fp32") is None


def test_utilization() -> None:
    peak = Peak(2e12, "data sheet", "device", "bf16")
    assert model_flops_utilization(6e12, seconds=3.0, processes=4, peak=peak) == 0.25
    assert model_flops_utilization(6e12, seconds=3.0, processes=4, peak=None) is None
    assert model_flops_utilization(6e12, seconds=0.0, processes=4, peak=peak) is None


# The meter


def test_throughput_since_last_record() -> None:
    peak = Peak(1e6, "data sheet", "device", "fp32")
    meter = ThroughputMeter(ProcessGroup(0, 1, CPU), peak=peak, seconds=100.0)
    for _ in range(2):
        meter.add(tokens=300, padded_tokens=400, flops=500_000, waited=0.5)
    record = meter.record(12, seconds=104.0)
    assert record[:4] == (12, 104.0, 150.0, 200.0)
    assert record.loader_wait_share == 0.25
    assert record.model_flops_utilization == 0.25
    meter.add(tokens=300, padded_tokens=400, flops=0, waited=0.0)
    assert meter.record(13, seconds=105.0)[:4] == (13, 105.0, 300.0, 400.0)
    without = ThroughputMeter(ProcessGroup(0, 1, CPU), peak=None)
    without.add(tokens=30, padded_tokens=30, flops=1, waited=0.0)
    assert without.record(1, seconds=1.0).model_flops_utilization is None


def test_peak_memory_of_the_host_is_in_bytes() -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("no /proc to compare with")
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    assert peak_memory(CPU) == pytest.approx(int(line.split()[1]) * 1024, rel=0.05)
