"""BERT_BASE and BERT_LARGE on a GPU: tokens per second, utilization, memory, losses.

    python -m benchmarks.bench_gpu [--device cuda] [--presets base large] [--lengths 128 512]
                                   [--precisions bf16 fp32] [--modes eager compiled] [--steps 20]
                                   [--micro-batch-tokens 32768] [--no-peer] [--json FILE]

    python -m benchmarks.bench_gpu --device cpu --presets tiny --steps 3 --micro-batch-tokens 1024

A step is one training step: one packed micro-batch of full instances, forward and backward with
dropout 0.1, gradients clipped to a global norm of 1, AdamW. Each case starts from new weights and
is timed after warm-up steps, in which kernels are selected and code is compiled. The peer, in the
same run, is `transformers`' BertForPreTraining with `AdamW(fused=True)` on the same instances (its
default attention, not compiled).

* utilization: FLOPs of the model's matrix products divided by the peak that the card's maker
  publishes, or by the fastest matrix product measured here for an unknown card;
* memory: peak of allocated tensors; on a CPU, peak of the whole process;
* loss: of four instances without dropout, from equal new weights on both sides, on this device and
  on the CPU in fp32.

A case that exceeds the memory is reported and skipped. Without a GPU the benchmark measures nothing
unless --device cpu is given.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from benchmarks.bench_pretraining import VOCAB, batch_of, peer_steps, precision
from model.data.batches import PretrainingBatch
from model.encoder.dropout import seed_dropout
from model.encoder.heads import BertForPretraining
from model.launch.distributed import choose_device, device_name
from model.monitoring.throughput import (
    Peak,
    batch_flops,
    model_flops_utilization,
    peak_flops,
    peak_memory,
)
from model.optim.optimizer import build_optimizer
from schemas.model_configs import PRESETS, ModelConfig, OptimizerConfig

CHECKED = 4  # instances whose loss is compared with the CPU's
WARMUP = 3


class Case(NamedTuple):
    """One row of the table."""

    preset: str
    length: int
    precision: str
    mode: str

    @property
    def is_bf16(self) -> bool:
        return self.precision == "bf16"


class Speed(NamedTuple):
    """Measurements of a series of steps."""

    tokens_per_second: float
    utilization: float | None
    memory_bytes: int


def new_model(preset: str) -> BertForPretraining:
    """The model with new weights, the same each time."""
    config = ModelConfig.model_validate({"preset": preset})
    return BertForPretraining(config, vocab_size=VOCAB)


def full_batch(length: int, *, tokens: int) -> PretrainingBatch:
    """Return the full instances that fit the given number of tokens, at least one."""
    count = max(1, tokens // length)
    return batch_of(np.full(count, length, np.int64), padded_length=None)


def compiled(model: nn.Module, case: Case) -> nn.Module:
    """The model as the trainer wraps it."""
    if case.mode == "eager":
        return model
    wrapped: nn.Module = torch.compile(model, dynamic=True)  # type: ignore[assignment]
    return wrapped


def our_step(case: Case, batch: PretrainingBatch, *, device: torch.device) -> Callable[[], None]:
    """Run one of our training steps on a batch."""
    model = new_model(case.preset).to(device)
    optimizer = build_optimizer(
        model.named_parameters(), OptimizerConfig(name="adamw", max_grad_norm=1.0)
    )
    model.train()
    wrapped, placed = compiled(model, case), batch.to(device)
    numbers = itertools.count()

    def step() -> None:
        seed_dropout(model, next(numbers))
        with precision(bf16=case.is_bf16, device=device.type):
            loss = wrapped(placed, len(batch.masked_ids), len(batch.tokens.lengths)).loss
        loss.backward()
        optimizer.step(learning_rate=1e-4)
        optimizer.zero_grad()

    return step


def measure(
    step: Callable[[], None],
    case: Case,
    batch: PretrainingBatch,
    *,
    steps: int,
    device: torch.device,
    peak: Peak | None,
) -> Speed:
    """Time the given number of steps after warm-up steps."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(WARMUP):
        step()
    wait_for(device)
    start = time.perf_counter()
    for _ in range(steps):
        step()
    wait_for(device)
    seconds = time.perf_counter() - start
    flops = batch_flops(new_config(case), vocab_size=VOCAB, batches=[batch]) * steps
    return Speed(
        tokens_per_second=int(batch.tokens.lengths.sum()) * steps / seconds,
        utilization=model_flops_utilization(flops, seconds=seconds, processes=1, peak=peak),
        memory_bytes=peak_memory(device),
    )


def new_config(case: Case) -> ModelConfig:
    """The shape of a case's model."""
    return ModelConfig.model_validate({"preset": case.preset})


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def losses(case: Case, *, device: torch.device) -> tuple[float, float]:
    """Loss of some instances by new weights: on the device in the case's precision and mode, and
    on the CPU in fp32."""
    batch = full_batch(case.length, tokens=CHECKED * case.length)
    model = new_model(case.preset).eval()
    counts = len(batch.masked_ids), len(batch.tokens.lengths)
    with torch.inference_mode():
        on_cpu = float(model(batch, *counts).loss)
    with torch.no_grad(), precision(bf16=case.is_bf16, device=device.type):
        here = float(compiled(model.to(device), case)(batch.to(device), *counts).loss)
    return here, on_cpu


def run_case(
    case: Case, *, device: torch.device, tokens: int, steps: int, peak: Peak | None, peer: bool
) -> dict[str, Any]:
    """All figures of one case, or that it did not fit the memory."""
    torch.compiler.reset()
    gc.collect()  # the case before, whose model may be held by a circle of references
    found: dict[str, Any] = case._asdict()
    batch = full_batch(case.length, tokens=tokens)
    given = {"steps": steps, "device": device, "peak": peak}
    try:
        ours = measure(our_step(case, batch, device=device), case, batch, **given)
        found |= ours._asdict()
        if peer and case.mode == "eager":
            padded = batch_of(batch.tokens.lengths, padded_length=case.length)
            sides = peer_steps(case.preset, padded, bf16=case.is_bf16, device=device.type)
            theirs = measure(sides["peer, fused"], case, batch, **given)
            found |= {f"peer_{name}": value for name, value in theirs._asdict().items()}
        found["loss"], found["cpu_loss"] = losses(case, device=device)
    except torch.OutOfMemoryError:
        found["problem"] = "does not fit the memory: lower --micro-batch-tokens"
    return found


def line(found: dict[str, Any]) -> str:
    """A row for the console."""
    text = f"{found['preset']:>6} {found['length']:>4} {found['precision']} {found['mode']:<8}"
    for side in ("", "peer_"):
        if (speed := found.get(f"{side}tokens_per_second")) is not None:
            used = found[f"{side}utilization"]
            share = "     -" if used is None else f"{used:6.1%}"
            memory = found[f"{side}memory_bytes"] / 2**30
            text += f" {speed:11,.0f} tokens/s {share} {memory:6.1f} GiB{' peer' if side else ''}"
    if "loss" in found:
        text += f"   loss {found['loss']:.4f}, CPU {found['cpu_loss']:.4f}"
    return f"{text}   {found['problem']}" if "problem" in found else text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--presets", nargs="+", choices=[*PRESETS], default=["base", "large"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument(
        "--precisions", nargs="+", choices=["bf16", "fp32"], default=["bf16", "fp32"]
    )
    parser.add_argument(
        "--modes", nargs="+", choices=["eager", "compiled"], default=["eager", "compiled"]
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--micro-batch-tokens", type=int, default=32_768)
    parser.add_argument("--no-peer", action="store_true", help="leave transformers out")
    parser.add_argument("--json", type=Path, help="write a line of JSON a case to this file too")
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    if arguments.device == "auto" and device.type == "cpu":
        print("no GPU here: nothing was measured. To try this: --device cpu --presets tiny")
        return
    peaks = {name: peak_flops(device, precision=name) for name in arguments.precisions}
    print(f"torch {torch.__version__}, {device_name(device)}", flush=True)
    for name, peak in peaks.items():
        if peak is not None:
            print(f"peak {name}: {peak.flops / 1e12:.3g} TFLOP/s in {peak.format}, {peak.source}")
    rows = []
    for each in itertools.product(
        arguments.presets, arguments.lengths, arguments.precisions, arguments.modes
    ):
        case = Case(*each)
        found = run_case(
            case,
            device=device,
            tokens=arguments.micro_batch_tokens,
            steps=arguments.steps,
            peak=peaks[case.precision],
            peer=not arguments.no_peer,
        )
        rows.append(found | {"device": device_name(device), "torch": torch.__version__})
        print(line(found), flush=True)
        if arguments.json:
            arguments.json.write_text(
                "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
            )


if __name__ == "__main__":
    main()
