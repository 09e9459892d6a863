"""BERT_BASE and BERT_LARGE on a GPU: tokens per second, utilization, memory, losses.

    python -m benchmarks.bench_gpu [--device cuda] [--presets base large] [--lengths 128 512]
                                   [--precisions bf16] [--modes eager compiled] [--steps 200]
                                   [--max-seconds 60] [--micro-batch-tokens 32768] [--no-peer]
                                   [--json FILE]

    python -m benchmarks.bench_gpu --device cpu --presets tiny --steps 3 --micro-batch-tokens 1024

No GPU has run it yet. Each case trains a new model with `model.training.loop.Trainer` on one batch
of full, packed instances with dropout 0.1, gradients clipped to a global norm of 1 and AdamW; only
data, logs and checkpoints are missing. Warm-up steps, in which kernels are selected and code is
compiled, are not timed. The peer, in the same run, is `transformers`' BertForPreTraining with
`AdamW(fused=True)` on the same instances (its default attention, not compiled).

* utilization: FLOPs of the model's matrix products divided by the peak that the card's maker
  publishes; none for an unknown card;
* memory: peak of allocated tensors; on a CPU, peak of the whole process;
* loss: of four instances without dropout, from equal new weights on both sides, on this device and
  on the CPU in fp32.

A case that exceeds the memory is reported and skipped. Each timing ends after `--max-seconds`, so a
case takes a few minutes with its compilation. Without a GPU the benchmark measures nothing unless
--device cpu is given.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.bench_pretraining import VOCAB, batch_of, peer_steps, precision
from model.data.batches import LoaderState, PretrainingBatch, StepBatch
from model.encoder.heads import BertForPretraining
from model.launch.distributed import ProcessGroup, choose_device, choose_precision, device_name
from model.launch.stopping import StopRequest
from model.monitoring.throughput import (
    Peak,
    batch_flops,
    model_flops_utilization,
    peak_flops,
    peak_memory,
)
from model.optim.optimizer import build_optimizer
from model.pretraining.loop import PretrainingModule
from model.training.checkpoints import Checkpoints
from model.training.loop import StepMetrics, Trainer, compile_blocks
from pipelines.seeds import key_for
from schemas.model_configs import PRESETS, ModelConfig, PretrainConfig

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


class Timer:
    """Time of the steps after the warm-up, until a number of steps or of seconds."""

    def __init__(self, *, steps: int, seconds: float, device: torch.device) -> None:
        self._device, self._steps, self._seconds = device, WARMUP + steps, seconds
        self._started = 0.0
        self.steps = -WARMUP
        self.elapsed = 0.0

    def __iter__(self) -> Generator[None]:
        """Yield once per step."""
        for number in range(self._steps):
            if number == WARMUP:
                wait_for(self._device)
                self._started = time.perf_counter()
            elif number > WARMUP and time.perf_counter() - self._started > self._seconds:
                break
            yield
            self.steps += 1

    def stop(self) -> None:
        """End the time when the device has finished the last step."""
        wait_for(self._device)
        self.elapsed = time.perf_counter() - self._started


class CaseTraining(PretrainingModule):
    """Pretraining on the same batch in every step, without logs and checkpoints."""

    def __init__(
        self, case: Case, batch: PretrainingBatch, *, device: torch.device, timer: Timer
    ) -> None:
        self.name, self.timer, self.is_resumed = "benchmark", timer, False
        self.config = PretrainConfig.model_validate(
            {
                "instances": "benchmark",
                "model": {"preset": case.preset},
                "budget": {"max_steps": 1},
                "optimizer": {"name": "adamw", "max_grad_norm": 1.0},
                "checkpoints": {"save_minutes": 1e6},
                "precision": case.precision,
                "compile": case.mode == "compiled",
            }
        )
        self.checkpoint_config = self.config.checkpoints
        self.is_bf16, self.is_compiled = case.is_bf16, self.config.compile
        self.model = new_model(case.preset).to(device)
        self.optimizer = build_optimizer(self.model.named_parameters(), self.config.optimizer)
        predictions, pairs = len(batch.masked_ids), len(batch.tokens.lengths)
        tokens = int(batch.tokens.lengths.sum())
        if device.type == "cuda":
            batch = pinned(batch)
        self.batch = StepBatch((batch,), predictions, pairs, pairs, tokens, LoaderState())
        self._done = 0

    @property
    def steps(self) -> int:
        return self._done

    @property
    def seconds(self) -> float:
        return 0.0

    def batches(self) -> Generator[StepBatch]:
        for _ in self.timer:
            yield self.batch

    def learning_rate(self) -> float:
        return 1e-4

    def dropout_key(self, number: int) -> int:
        return key_for(0, "benchmark", self._done, number)

    def divergence_reason(self, loss: float) -> str:
        del loss
        return ""

    def count_step(self, batch: StepBatch) -> None:
        del batch
        self._done += 1

    def on_step_end(self, batch: StepBatch, metrics: StepMetrics) -> None:
        pass

    def should_evaluate(self) -> bool:
        return False

    def save_snapshot(self) -> None:
        pass


def pinned(batch: PretrainingBatch) -> PretrainingBatch:
    """Return the batch in pinned memory, as the loader does."""

    def pin(part: Any) -> dict[str, Any]:
        fields = part._asdict().items()
        return {name: v.pin_memory() for name, v in fields if isinstance(v, torch.Tensor)}

    return batch._replace(tokens=batch.tokens._replace(**pin(batch.tokens)), **pin(batch))


def run_ours(case: Case, batch: PretrainingBatch, *, device: torch.device, timer: Timer) -> None:
    """Run the trainer's steps."""
    choose_precision("bf16" if case.is_bf16 else "fp32", device)
    training = CaseTraining(case, batch, device=device, timer=timer)
    Trainer(
        training,
        group=ProcessGroup(0, 1, device),
        checkpoints=Checkpoints("memory://benchmark", keep_last=1),
        stop=StopRequest(),
    ).run()


def run_peer(case: Case, batch: PretrainingBatch, *, device: torch.device, timer: Timer) -> None:
    """Run the peer's steps."""
    padded = batch_of(batch.tokens.lengths, padded_length=case.length)
    steps = peer_steps(case.preset, padded, bf16=case.is_bf16, device=device.type)
    for _ in timer:
        steps["peer, fused"]()


def measure(
    run: Callable[..., None],
    case: Case,
    batch: PretrainingBatch,
    *,
    steps: int,
    max_seconds: float,
    device: torch.device,
    peak: Peak | None,
) -> Speed:
    """Time one side's steps after the warm-up."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    timer = Timer(steps=steps, seconds=max_seconds, device=device)
    run(case, batch, device=device, timer=timer)
    timer.stop()
    flops = batch_flops(new_config(case), vocab_size=VOCAB, batches=[batch]) * timer.steps
    return Speed(
        tokens_per_second=int(batch.tokens.lengths.sum()) * timer.steps / timer.elapsed,
        utilization=model_flops_utilization(flops, seconds=timer.elapsed, processes=1, peak=peak),
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
    if case.mode == "compiled":
        compile_blocks(model)
    with torch.no_grad(), precision(bf16=case.is_bf16, device=device.type):
        here = float(model.to(device)(batch.to(device), *counts).loss)
    return here, on_cpu


def run_case(
    case: Case,
    *,
    device: torch.device,
    tokens: int,
    steps: int,
    max_seconds: float,
    peak: Peak | None,
    peer: bool,
) -> dict[str, Any]:
    """All figures of one case, or that it did not fit the memory."""
    torch.compiler.reset()
    gc.collect()  # the case before, whose model may be held by a circle of references
    found: dict[str, Any] = case._asdict()
    batch = full_batch(case.length, tokens=tokens)
    given: dict[str, Any] = {
        "steps": steps,
        "max_seconds": max_seconds,
        "device": device,
        "peak": peak,
    }
    try:
        found |= measure(run_ours, case, batch, **given)._asdict()
        if peer and case.mode == "eager":
            theirs = measure(run_peer, case, batch, **given)
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
    parser.add_argument("--precisions", nargs="+", choices=["bf16", "fp32"], default=["bf16"])
    parser.add_argument(
        "--modes", nargs="+", choices=["eager", "compiled"], default=["eager", "compiled"]
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--max-seconds", type=float, default=60.0, help="limit of each timing")
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
            print(f"peak {name}: {peak.flops / 1e12:.3g} TFLOP/s in {peak.format}, data sheet")
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
            max_seconds=arguments.max_seconds,
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
