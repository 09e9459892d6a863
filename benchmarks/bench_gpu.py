"""BERT_BASE and BERT_LARGE on a GPU, next to transformers: speed, utilization, memory, losses.

    python -m benchmarks.bench_gpu [--device cuda] [--presets base large] [--lengths N ...]
                                   [--precisions bf16] [--modes eager compiled] [--steps 50]
                                   [--max-seconds 6] [--micro-batch-tokens 32768]
                                   [--peak-tflops X] [--peer layers|model|none] [--json FILE]

    python -m benchmarks.bench_gpu --device cpu --presets tiny --steps 3 --micro-batch-tokens 1024

By default it measures BASE at lengths 128 and 512 and LARGE at 512. Every second instance has the
maximum length; the others are shorter, so that 78 % of a padded batch are tokens. Without a GPU it
measures nothing unless --device cpu is given.

* bertloom: steps of `model.training.loop.Trainer` on one packed batch in pinned memory, with
  dropout 0.1, gradients clipped to a global norm of 1 and AdamW. Only data, logs and checkpoints
  are missing.
* transformers: `BertForPreTraining` with scaled_dot_product_attention on the same instances in
  padded rows, with the same dropout, clipping, and `AdamW(fused=True)`. `--peer layers` compiles
  each layer and the heads, like bertloom, which takes seconds; `--peer model` compiles the whole
  model, which takes minutes for LARGE. It is measured once per preset, length and precision,
  compiled unless --modes is eager.

Each side runs warm-up steps, in which it compiles, then steps until --steps or --max-seconds. The
initial weights are drawn once per preset. A case that fails is reported with its reason, and the
others run. The exit code is then 1, unless the only reason is memory.

Utilization is model FLOPs per second divided by the peak in the data sheet of the card
(`model.training.throughput`: H200, H100, A100 and others), or by --peak-tflops. Model FLOPs are
those of the real tokens for both sides. The printed ratios compare tokens per second without
padding, and positions per second with padding. The second ratio excludes the gain of packing.

Loss: of four instances without dropout, by the initial weights, on the device in the precision and
mode of the case, and on the CPU in fp32.

Records
    `--json FILE` writes one JSON object per line, one per side and case, with the fields of
    `Measurement`. Every line has all fields; null means "not known" or "not measured". The line of
    the peer has the same `preset`, `length` and `precision` as the lines it is compared with.
"""

from __future__ import annotations

import argparse
import copy
import functools
import gc
import json
import sys
import time
import traceback
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.bench_pretraining import (
    VOCAB,
    batch_of,
    peer_inputs,
    peer_model,
    peer_step,
    precision,
)
from model.bert import BertForPretraining
from model.data.batches import PretrainingBatch, StepBatch
from model.optim import build_optimizer
from model.pretraining.loop import PretrainingTrainer
from model.training.checkpoints import Checkpoints
from model.training.distributed import ProcessGroup, choose_device, choose_precision, device_name
from model.training.loop import StepMetrics, Trainer, TrainingState, compile_blocks
from model.training.progress import Amounts, TrainingProgress
from model.training.stopping import StopRequest
from model.training.throughput import peak_flops, peak_memory, step_flops
from pipelines.seeds import key_for
from schemas.model_configs import PRESETS, ModelConfig, PretrainConfig

Side = Literal["bertloom", "transformers"]
PeerMode = Literal["layers", "model", "none"]

DEFAULT_LENGTHS = {"large": (512,)}
OTHER_LENGTHS = (128, 512)
CHECKED = 4  # instances whose loss is compared with the CPU's
WARMUP = 3
FORMULA = (
    "utilization = 3 x FLOPs of the forward matrix products / (seconds x peak); "
    "forward = L x (2 T (4 H^2 + 2 H F) + 4 H sum(n^2)) + 2 P (H^2 + H V) + 2 B (H^2 + 2 H)"
)


class Case(NamedTuple):
    """Settings that one record measures."""

    side: Side
    preset: str
    length: int
    precision: Literal["bf16", "fp32"]
    mode: Literal["eager", "compiled"]

    @property
    def is_bf16(self) -> bool:
        return self.precision == "bf16"

    @property
    def config(self) -> ModelConfig:
        """Shape of the model."""
        return ModelConfig.model_validate({"preset": self.preset})


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One line of `--json`."""

    side: Side
    """Library that trained: `bertloom` (packed) or `transformers` (padded)."""

    preset: str
    """Name of the shape in `schemas.model_configs.PRESETS`, such as `base`."""

    length: int
    """Maximum number of tokens of an instance; width of the peer's rows."""

    precision: Literal["bf16", "fp32"]
    """Precision of autocast."""

    mode: Literal["eager", "compiled"]
    """Execution of the model: `compiled` uses torch.compile."""

    compiled: Literal["layers", "model"] | None
    """Part that torch.compile compiles: each layer, or the whole model; null in eager mode."""

    instances: int
    """Number of instances of a step."""

    tokens: int
    """Number of tokens of a step, without padding."""

    positions: int
    """Number of tokens of a step, with padding; equals `tokens` if packed."""

    seconds: float
    """Duration of the whole case: initial weights, compilation, warm-up, timed steps, losses."""

    steps: int | None = None
    """Number of timed steps."""

    step_seconds: float | None = None
    """Mean duration of a timed step."""

    tokens_per_second: float | None = None
    """`tokens` / `step_seconds`."""

    positions_per_second: float | None = None
    """`positions` / `step_seconds`."""

    utilization: float | None = None
    """Model-FLOP utilization, 0 to 1; null if the peak is not known."""

    memory_bytes: int | None = None
    """Peak of allocated tensors; on a CPU, peak of the whole process so far."""

    loss: float | None = None
    """Loss on the device; null for the peer."""

    cpu_loss: float | None = None
    """Loss of the same weights and instances on the CPU in fp32; null for the peer."""

    problem: str | None = None
    """Reason why the case has no figures."""

    device: str
    """Name of the card, or `cpu`."""

    peak_tflops: float | None
    """Peak of the card in 10^12 FLOPs per second."""

    torch: str
    """Version of torch."""

    transformers: str | None
    """Version of transformers; null if the peer was not measured."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options that all cases share."""

    device: torch.device
    steps: int
    max_seconds: float
    micro_batch_tokens: int
    peer: PeerMode
    peaks: dict[str, float | None]
    """Peak FLOPs per second of the device by precision."""


@functools.lru_cache(maxsize=1)
def initial_model(preset: str) -> BertForPretraining:
    """Return a model with new weights on the CPU, drawn once per preset. Do not change it."""
    return BertForPretraining(ModelConfig.model_validate({"preset": preset}), vocab_size=VOCAB)


def new_model(preset: str, *, device: torch.device) -> BertForPretraining:
    """Return a model with the initial weights on a device."""
    return copy.deepcopy(initial_model(preset)).to(device)


def mixed_lengths(longest: int, *, tokens: int) -> npt.NDArray[np.int64]:
    """Return lengths of instances with about this number of tokens in all.

    Every second one has the maximum length; the others are spread evenly from an eighth of it.
    """
    shortest = longest / 8
    pairs = max(1, round(tokens / (longest + (shortest + longest) / 2)))
    short = shortest + (longest - shortest) * (np.arange(pairs) + 0.5) / pairs
    lengths = np.full(2 * pairs, longest, np.int64)
    lengths[1::2] = short.round()
    return lengths


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


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class CaseTrainer(PretrainingTrainer):
    """Pretraining on the same batch in every step, without logs and checkpoints."""

    def __init__(
        self, case: Case, batch: PretrainingBatch, *, device: torch.device, timer: Timer
    ) -> None:
        self.timer = timer
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
        model = new_model(case.preset, device=device)
        Trainer.__init__(
            self,
            "benchmark",
            model=model,
            optimizer=build_optimizer(model.named_parameters(), self.config.optimizer),
            state=TrainingState(),
            group=ProcessGroup(0, 1, device),
            checkpoints=Checkpoints("memory://benchmark", keep_last=1),
            checkpoint_config=self.config.checkpoints,
            stop=StopRequest(),
            log=None,
            progress=TrainingProgress(
                "benchmark", path=None, budget=self.config.budget, done=Amounts()
            ),
            is_bf16=case.is_bf16,
            is_compiled=self.config.compile,
        )
        predictions, pairs = len(batch.masked_ids), len(batch.tokens.lengths)
        if device.type == "cuda":
            batch = batch.pin_memory()  # as the loader does
        self.batch = StepBatch((batch,), predictions, pairs, batch.tokens.lengths)

    def batches(self) -> Generator[StepBatch]:
        for _ in self.timer:
            yield self.batch

    def learning_rate(self) -> float:
        return 1e-4

    def dropout_key(self, number: int) -> int:
        return key_for(0, "benchmark", self.done.steps, number)

    def on_step_end(self, batch: StepBatch, metrics: StepMetrics) -> str:
        del batch, metrics
        return ""

    def after_step(self) -> None:
        pass


def run_bertloom(
    case: Case, batch: PretrainingBatch, *, device: torch.device, timer: Timer
) -> None:
    """Run the trainer's steps."""
    choose_precision(case.precision, device)
    CaseTrainer(case, batch, device=device, timer=timer).run()


def run_peer(
    case: Case,
    batch: PretrainingBatch,
    *,
    device: torch.device,
    timer: Timer,
    compiled: Literal["layers", "model"] | None,
) -> None:
    """Run the peer's steps."""
    choose_precision(case.precision, device)
    model = peer_model(case.preset, device=device.type)
    if compiled is not None:
        for part in [model] if compiled == "model" else [*model.bert.encoder.layer, model.cls]:
            part.compile()
    inputs = peer_inputs(batch, width=case.length, device=device.type)
    step = peer_step(model, inputs, fused=True, bf16=case.is_bf16, device=device.type)
    for _ in timer:
        step()


def measure(case: Case, settings: Settings) -> Measurement:
    """Return all figures of one case, or why it has none."""
    began = time.perf_counter()
    torch.compiler.reset()
    gc.collect()  # a model of the case before may be in a reference cycle
    lengths = mixed_lengths(case.length, tokens=settings.micro_batch_tokens)
    is_padded = case.side == "transformers"
    batch = batch_of(lengths)
    peak = settings.peaks[case.precision]
    measurement = Measurement(
        **case._asdict(),
        compiled=compiled_part(case, settings),
        instances=len(lengths),
        tokens=int(lengths.sum()),
        positions=case.length * len(lengths) if is_padded else int(lengths.sum()),
        seconds=0.0,
        device=device_name(settings.device),
        peak_tflops=None if peak is None else peak / 1e12,
        torch=torch.__version__,
        transformers=None if settings.peer == "none" else transformers_version(),
    )
    try:
        measurement = add_speed(measurement, case, batch, settings=settings)
        if case.side == "bertloom":
            loss, cpu_loss = losses(case, device=settings.device)
            measurement = replace(measurement, loss=loss, cpu_loss=cpu_loss)
    except torch.OutOfMemoryError:
        measurement = replace(measurement, problem="out of memory: lower --micro-batch-tokens")
    except Exception as error:  # a short loan of a GPU must give the other figures
        traceback.print_exc()
        measurement = replace(measurement, problem=f"{type(error).__name__}: {error}")
    return replace(measurement, seconds=time.perf_counter() - began)


def compiled_part(case: Case, settings: Settings) -> Literal["layers", "model"] | None:
    """Return what of the case's model is compiled."""
    if case.mode == "eager":
        return None
    return "model" if case.side == "transformers" and settings.peer == "model" else "layers"


def add_speed(
    measurement: Measurement, case: Case, batch: PretrainingBatch, *, settings: Settings
) -> Measurement:
    """Time the steps of one side after the warm-up."""
    device = settings.device
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    timer = Timer(steps=settings.steps, seconds=settings.max_seconds, device=device)
    if case.side == "bertloom":
        run_bertloom(case, batch, device=device, timer=timer)
    else:
        compiled = measurement.compiled
        run_peer(case, batch, device=device, timer=timer, compiled=compiled)
    timer.stop()
    lengths = batch.tokens.lengths
    flops = timer.steps * step_flops(
        case.config,
        vocab_size=VOCAB,
        lengths=lengths,
        predictions=len(batch.masked_ids),
        pooled=len(lengths),
    )
    peak = settings.peaks[case.precision]
    return replace(
        measurement,
        steps=timer.steps,
        step_seconds=timer.elapsed / timer.steps,
        tokens_per_second=measurement.tokens * timer.steps / timer.elapsed,
        positions_per_second=measurement.positions * timer.steps / timer.elapsed,
        utilization=None if peak is None else flops / (timer.elapsed * peak),
        memory_bytes=peak_memory(device),
    )


def losses(case: Case, *, device: torch.device) -> tuple[float, float]:
    """Return the loss of some instances by the initial weights: on the device in the precision and
    mode of the case, and on the CPU in fp32."""
    batch, counts = checked_batch(case.length)
    model = new_model(case.preset, device=device).eval()
    if case.mode == "compiled":
        compile_blocks(model)
    with torch.no_grad(), precision(bf16=case.is_bf16, device=device.type):
        loss = float(model(batch.to(device), *counts).loss)
    return loss, cpu_loss(case.preset, case.length)


@functools.lru_cache(maxsize=1)
def cpu_loss(preset: str, length: int) -> float:
    """Return the loss of the checked instances on the CPU in fp32."""
    batch, counts = checked_batch(length)
    model = new_model(preset, device=torch.device("cpu")).eval()
    with torch.inference_mode():
        return float(model(batch, *counts).loss)


def checked_batch(length: int) -> tuple[PretrainingBatch, tuple[int, int]]:
    """Return the instances whose loss is compared, and their numbers of predictions and pairs."""
    lengths = np.full(CHECKED, length, np.int64)
    lengths[-1] = length // 2
    batch = batch_of(lengths)
    return batch, (len(batch.masked_ids), len(lengths))


@functools.cache
def transformers_version() -> str:
    import transformers

    return str(transformers.__version__)


def list_cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases in order, presets outermost; a peer's case follows those of bertloom."""
    for preset in arguments.presets:
        for length in arguments.lengths or DEFAULT_LENGTHS.get(preset, OTHER_LENGTHS):
            for name in arguments.precisions:
                for mode in arguments.modes:
                    yield Case("bertloom", preset, length, name, mode)
                if arguments.peer != "none":
                    mode = "compiled" if "compiled" in arguments.modes else "eager"
                    yield Case("transformers", preset, length, name, mode)


def format_line(row: Measurement) -> str:
    """Return a line for the console."""
    text = f"{row.side:12} {row.preset:>6} {row.length:>4} {row.precision} {row.mode:<8}"
    if row.tokens_per_second is not None and row.memory_bytes is not None:
        share = "     -" if row.utilization is None else f"{row.utilization:6.1%}"
        text += f" {row.tokens_per_second:11,.0f} tokens/s {row.positions_per_second:11,.0f}"
        text += f" with padding {share} {row.memory_bytes / 2**30:6.1f} GiB"
    if row.loss is not None:
        text += f"   loss {row.loss:.4f}, CPU {row.cpu_loss:.4f}"
    text += f"   {row.seconds:.0f} s in all"
    return f"{text}   {row.problem}" if row.problem else text


def format_ratios(peer: Measurement, rows: list[Measurement]) -> Iterator[str]:
    """Yield how many times as fast as the peer each of our lines of the same instances is."""
    for row in rows:
        is_same = (row.preset, row.length, row.precision) == (
            peer.preset,
            peer.length,
            peer.precision,
        )
        if row.side != "bertloom" or not is_same or not row.step_seconds or not peer.step_seconds:
            continue
        tokens = peer.step_seconds / row.step_seconds
        positions = tokens * row.positions / peer.positions
        yield (
            f"  {row.mode} bertloom / {peer.mode} transformers: "
            f"x{tokens:.2f} in tokens, x{positions:.2f} in positions with padding"
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--presets", nargs="+", choices=[*PRESETS], default=["base", "large"])
    parser.add_argument(
        "--lengths", nargs="+", type=int, help="default: 128 and 512, for large only 512"
    )
    parser.add_argument("--precisions", nargs="+", choices=["bf16", "fp32"], default=["bf16"])
    parser.add_argument(
        "--modes", nargs="+", choices=["eager", "compiled"], default=["eager", "compiled"]
    )
    parser.add_argument("--steps", type=int, default=50, help="timed steps of a case")
    parser.add_argument("--max-seconds", type=float, default=6.0, help="limit of the timed steps")
    parser.add_argument("--micro-batch-tokens", type=int, default=32_768)
    parser.add_argument("--peak-tflops", type=float, help="peak of the card in any precision")
    parser.add_argument(
        "--peer",
        choices=["layers", "model", "none"],
        default="layers",
        help="what of transformers to compile, or none to leave it out",
    )
    parser.add_argument("--json", type=Path, help="also write a JSON object per line to this file")
    return parser.parse_args()


def find_peak(
    device: torch.device, name: Literal["bf16", "fp32"], tflops: float | None
) -> float | None:
    """Return the given peak, or that of the data sheet."""
    if tflops is None:
        return peak_flops(device, precision=name)
    return tflops * 1e12


def main() -> int:
    arguments = parse_arguments()
    device = choose_device(arguments.device)
    if arguments.device == "auto" and device.type == "cpu":
        print("no GPU here: nothing was measured. To try this: --device cpu --presets tiny")
        return 0
    settings = Settings(
        device=device,
        steps=arguments.steps,
        max_seconds=arguments.max_seconds,
        micro_batch_tokens=arguments.micro_batch_tokens,
        peer=arguments.peer,
        peaks={
            name: find_peak(device, name, arguments.peak_tflops) for name in arguments.precisions
        },
    )
    print(f"torch {torch.__version__}, {device_name(device)}\n{FORMULA}")
    for name, peak in settings.peaks.items():
        if peak is not None:
            print(f"peak {name}: {peak / 1e12:.4g} TFLOP/s")
    rows: list[Measurement] = []
    if arguments.json:
        arguments.json.write_text("", encoding="utf-8")
    for case in list_cases(arguments):
        row = measure(case, settings)
        print(format_line(row), flush=True)
        if case.side == "transformers":
            print("\n".join(format_ratios(row, rows)), flush=True)
        rows.append(row)
        if arguments.json:
            with arguments.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
    return int(any(row.problem and "out of memory" not in row.problem for row in rows))


if __name__ == "__main__":
    sys.exit(main())
