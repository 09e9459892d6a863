"""FLOPs of a step compared with torch's counter, peaks of devices, and throughput between lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from support.batch_builder import VOCAB, peer_inputs, random_batch, random_model
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForPreTraining

from model.training import throughput
from model.training.distributed import ProcessGroup
from model.training.throughput import (
    ThroughputMeter,
    listed_peak,
    peak_flops,
    peak_memory,
    step_flops,
)
from schemas.model_configs import ModelConfig

SMALL = ModelConfig(
    num_hidden_layers=2, hidden_size=48, num_attention_heads=4, intermediate_size=80
)
CPU = torch.device("cpu")
LENGTHS = (8, 40, 128)


@pytest.mark.parametrize("has_nsp", [True, False])
def test_formula_matches_counted_flops_of_our_model(has_nsp: bool) -> None:
    """Instances do not attend to each other."""
    model = random_model(SMALL)
    parts = [random_batch((length,)) for length in LENGTHS]
    counted = 0
    for batch in parts:
        with FlopCounterMode(display=False) as counter:
            encoded = model.bert(batch.tokens)
            logits = model.mlm_logits(encoded.sequence, batch.masked_positions)
            pairs = model.nsp_logits(encoded.pooled) if has_nsp else logits
            (logits.logsumexp(1).sum() + pairs.logsumexp(1).sum()).backward()
        counted += counter.get_total_flops()
    flops = step_flops(
        SMALL,
        vocab_size=VOCAB,
        lengths=np.array(LENGTHS),
        predictions=sum(len(batch.masked_ids) for batch in parts),
        pooled=len(LENGTHS) if has_nsp else 0,
    )
    assert counted == pytest.approx(flops, rel=0.01)


def test_formula_matches_counted_flops_of_hugging_face_model() -> None:
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=SMALL.hidden_size,
        num_hidden_layers=SMALL.num_hidden_layers,
        num_attention_heads=SMALL.num_attention_heads,
        intermediate_size=SMALL.feed_forward_size,
        attn_implementation="eager",
    )
    batch = random_batch((64,) * 4)
    inputs = {**peer_inputs(batch), "next_sentence_label": torch.zeros(4, dtype=torch.int64)}
    with FlopCounterMode(display=False) as counter:
        BertForPreTraining(config)(**inputs).loss.backward()
    flops = step_flops(
        SMALL,
        vocab_size=VOCAB,
        lengths=np.full(4, 64),
        predictions=4 * 64,  # it predicts every token, masked or not
        pooled=4,
    )
    assert counter.get_total_flops() == pytest.approx(flops, rel=1e-3)


def test_causal_attention_counts_pairs_up_to_the_diagonal() -> None:
    arguments: dict[str, Any] = {"vocab_size": 1, "lengths": np.array([3, 1]), "predictions": 0}
    difference = step_flops(SMALL, **arguments) - step_flops(SMALL, **arguments, causal=True)
    assert difference == 3 * 2 * 2 * 2 * 48 * (9 + 1 - 6 - 1)


def test_large_batches_do_not_overflow() -> None:
    large = ModelConfig.model_validate({"preset": "large"})
    lengths = np.full(65_536, 512, np.int32)
    flops = step_flops(large, vocab_size=30_522, lengths=lengths, predictions=76 * 65_536)
    assert flops > 3 * 2 * 65_536 * 512 * 24 * 12 * 1024 * 1024 > 2**53


@pytest.mark.parametrize(
    ("name", "number_format", "tera"),
    [
        ("NVIDIA H200", "bf16", 989.5),
        ("NVIDIA H100 80GB HBM3", "tf32", 494.5),
        ("A100-SXM4-40GB", "fp32", 19.5),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312.0),
        ("NVIDIA A100 80GB PCIe", "bf16", 312.0),
        # Slices and variants of listed devices, and others:
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16", None),
        ("NVIDIA H200 MIG 1g.18gb", "bf16", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16", None),
        ("NVIDIA H20", "bf16", None),
    ],
)
def test_listed_peak(name: str, number_format: throughput.Format, tera: float | None) -> None:
    expected = tera and pytest.approx(tera * 1e12)
    assert listed_peak(name, number_format) == expected


@pytest.mark.parametrize(("setting", "tera"), [("tf32", 494.5), ("ieee", 67.0)])
def test_fp32_peak_is_tf32_when_torch_permits_it(
    monkeypatch: pytest.MonkeyPatch, setting: str, tera: float
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H100 80GB HBM3")
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = setting
    try:
        peak = peak_flops(torch.device("cuda"), precision="fp32")
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert peak == pytest.approx(tera * 1e12)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_only_gpus_have_a_peak(device: str) -> None:
    for precision in get_args(throughput.Precision):
        assert peak_flops(torch.device(device), precision=precision) is None


def test_throughput_since_last_record() -> None:
    meter = ThroughputMeter(ProcessGroup(0, 1, CPU), peak=1e6, seconds=100.0)
    for _ in range(2):
        meter.add(300, flops=500_000, waited=0.5)
    record = meter.record(12, seconds=104.0)
    assert record[:3] == (12, 104.0, 150.0)
    assert record.loader_wait_share == 0.25
    assert record.model_flops_utilization == 0.25
    meter.add(300, flops=0, waited=0.0)
    assert meter.record(13, seconds=105.0)[:3] == (13, 105.0, 300.0)


def test_peak_memory_of_the_host_is_in_bytes() -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("no /proc to compare with")
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    assert peak_memory(CPU) == pytest.approx(int(line.split()[1]) * 1024, rel=0.05)
