"""A training step of pretraining next to transformers, and the gain of packing.

    python -m benchmarks.bench_pretraining [--threads 2] [--repeat 5] [--part NAME ...]
                                           [--instances FOLDER]

A step is forward, backward, gradients clipped to a global norm of 1, Adam with decoupled decay, and
zeroing gradients. Both sides train with dropout 0.1, the same shape, the same vocabulary of 30,522,
the same instances with 15 % of their tokens masked, and next sentence prediction.

* ours: `BertForPretraining` and the optimizer `adamw`;
* peer: `BertForPreTraining` of transformers with its default attention, `attention_mask`,
  `token_type_ids`, `labels` and `next_sentence_label`, `clip_grad_norm_` and `torch.optim.AdamW`;
* peer, fused: the same model with `AdamW(fused=True)`.

Parts: `mini` and `base` compare a step at length 128 in fp32, `mini-bf16` and `base-bf16` the same
under autocast. `packing` compares our step on packed instances of at most 512 tokens with the
peer's step on the same instances padded to 512. Lengths come from the shards in `--instances`, or
from a mix of full and short instances that fills 76 % of 512.

The sides take turns in each repeat; ratios are taken within a repeat. Prints medians. The peer
draws from torch's global generator, in this process only.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from benchmarks.timing import parser_for, ratio, take_turns, wall_seconds
from model.data.batches import PretrainingBatch, TokenBatch
from model.encoder.dropout import seed_dropout
from model.encoder.heads import BertForPretraining
from model.optim import build_optimizer
from pipelines.arrays import offsets_of, ranges
from pipelines.seeds import rng_for
from schemas.model_configs import PRESETS, ModelConfig, OptimizerConfig

if TYPE_CHECKING:
    from transformers import BertForPreTraining

VOCAB = 30_522
MASKED = 0.15
LENGTH = 512  # of `packing`
Step = Callable[[], None]


class Part(NamedTuple):
    """One comparison with the peer."""

    preset: str
    batch: int
    bf16: bool


PARTS = {
    "mini": Part("mini", 32, False),
    "base": Part("base", 8, False),
    "mini-bf16": Part("mini", 32, True),
    "base-bf16": Part("base", 8, True),
}


def batch_of(lengths: npt.NDArray[np.int64]) -> PretrainingBatch:
    """Return random instances of these lengths."""
    starts = offsets_of(lengths)[:-1]
    ids, segments = (np.zeros(int(lengths.sum()), np.int64) for _ in range(2))
    masked = []
    for number, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        rng = rng_for(0, "bench-pretraining", number)
        ids[start : start + length] = rng.integers(1_000, VOCAB, length)
        segments[start + length // 2 : start + length] = 1
        chosen = rng.choice(length, max(1, round(MASKED * length)), replace=False)
        masked.append(start + np.sort(chosen))
    masked_positions = np.concatenate(masked)
    masked_ids = ids[masked_positions]
    ids[masked_positions] = 103  # [MASK]
    labels = np.arange(len(lengths), dtype=np.int64) % 2
    tokens = TokenBatch(
        input_ids=torch.from_numpy(ids),
        segment_ids=torch.from_numpy(segments),
        position_ids=torch.from_numpy(ranges(0, lengths)),
        starts=torch.from_numpy(starts),
        lengths=lengths,
    )
    return PretrainingBatch(
        tokens,
        torch.from_numpy(masked_positions),
        torch.from_numpy(masked_ids),
        torch.from_numpy(labels),
        np.arange(len(lengths)),
    )


def precision(*, bf16: bool, device: str = "cpu") -> contextlib.AbstractContextManager[None]:
    """Autocast to bfloat16, or nothing."""
    return torch.autocast(device, dtype=torch.bfloat16) if bf16 else contextlib.nullcontext()


def our_step(preset: str, batches: list[PretrainingBatch], *, bf16: bool) -> list[Step]:
    """Return a step on each of the batches, all of one model."""
    model = BertForPretraining(ModelConfig.model_validate({"preset": preset}), vocab_size=VOCAB)
    config = OptimizerConfig(name="adamw", adam_epsilon=1e-6, max_grad_norm=1.0)
    optimizer = build_optimizer(model.named_parameters(), config)
    model.train()
    steps = iter(range(1 << 62))

    def step_on(batch: PretrainingBatch) -> None:
        seed_dropout(model, next(steps))  # as the trainer does before every micro-batch
        with precision(bf16=bf16):
            loss = model(batch, len(batch.masked_ids), len(batch.tokens.lengths)).loss
        loss.backward()
        optimizer.step(learning_rate=1e-4)
        optimizer.zero_grad()

    return [partial(step_on, batch) for batch in batches]


def peer_model(preset: str, *, device: str = "cpu") -> BertForPreTraining:
    """Return the peer's model with new weights, to be trained, with torch's fused attention."""
    from transformers import BertConfig, BertForPreTraining

    layers, hidden, heads = PRESETS[preset]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCAB,
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        attn_implementation="sdpa",
    )
    with torch.device(device):
        return BertForPreTraining(config).train()


def peer_inputs(
    batch: PretrainingBatch, *, width: int, device: str = "cpu"
) -> dict[str, torch.Tensor]:
    """Return the peer's arguments: the instances of a batch in rows of a width."""
    tokens = batch.tokens
    lengths = torch.from_numpy(tokens.lengths)
    rows = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    labels = torch.full_like(tokens.input_ids, -100)
    labels[batch.masked_positions] = batch.masked_ids

    def pad(values: torch.Tensor, *, fill: int) -> torch.Tensor:
        padded = values.new_full((len(lengths), width), fill)
        padded[rows, tokens.position_ids] = values
        return padded

    inputs = {
        "input_ids": pad(tokens.input_ids, fill=0),
        "token_type_ids": pad(tokens.segment_ids, fill=0),
        "attention_mask": pad(torch.ones_like(tokens.input_ids), fill=0),
        "labels": pad(labels, fill=-100),
        "next_sentence_label": batch.next_sentence_labels,
    }
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def peer_step(
    model: BertForPreTraining,
    inputs: dict[str, torch.Tensor],
    *,
    fused: bool,
    bf16: bool,
    device: str = "cpu",
) -> Step:
    """Return the peer's step with a new optimizer, fused or as torch chooses."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01, fused=fused or None
    )

    def step() -> None:
        with precision(bf16=bf16, device=device):
            loss = model(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def peer_steps(preset: str, batch: PretrainingBatch, *, width: int, bf16: bool) -> dict[str, Step]:
    """Return the peer's step with each of its optimizers, for the same model."""
    model, inputs = peer_model(preset), peer_inputs(batch, width=width)
    return {
        "peer": peer_step(model, inputs, fused=False, bf16=bf16),
        "peer, fused": peer_step(model, inputs, fused=True, bf16=bf16),
    }


def measure(sides: dict[str, Step], *, repeat: int) -> dict[str, list[float]]:
    """Return the seconds of each side's steps."""
    timed = {name: partial(wall_seconds, step) for name, step in sides.items()}
    return take_turns(timed, repeat=repeat, warmup=2)


def report(title: str, tokens: int, seconds: dict[str, list[float]]) -> None:
    """Print speed in real tokens, and how many times as fast the first side is."""
    print(f"{title}: {tokens:,} tokens a step", flush=True)
    ours = next(iter(seconds.values()))
    for name, each in seconds.items():
        median = statistics.median(each)
        line = f"  {name:16} {tokens / median:10,.0f} tokens/s {median * 1e3:8,.0f} ms"
        print(line if each is ours else f"{line}   ours is {ratio(ours, each)}", flush=True)


def compare(name: str, part: Part, *, repeat: int) -> None:
    """Time one part against the peer, and print."""
    batch = batch_of(np.full(part.batch, 128, np.int64))
    (ours,) = our_step(part.preset, [batch], bf16=part.bf16)
    sides = {"ours": ours, **peer_steps(part.preset, batch, width=128, bf16=part.bf16)}
    layers, hidden, heads = PRESETS[part.preset]
    shape = f"L={layers} H={hidden} A={heads}, {part.batch} x 128"
    report(f"{name}: {shape}", part.batch * 128, measure(sides, repeat=repeat))


def shard_lengths(folder: Path) -> Iterator[npt.NDArray[np.int64]]:
    """Lengths of the instances in each shard below a folder."""
    for path in sorted(folder.rglob("*.arrow")):
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            column = reader.read_all().column("input_ids")
            yield pc.list_value_length(column).to_numpy().astype(np.int64)


def packing_lengths(folder: Path | None, *, count: int) -> npt.NDArray[np.int64]:
    """Return lengths of real instances, or of a mix that fills 76 % of 512 on average."""
    rng = rng_for(0, "bench-pretraining", "lengths")
    if folder is not None:
        lengths = np.concatenate([*shard_lengths(folder)] or [np.zeros(0, np.int64)])
        if not len(lengths) or lengths.max() > LENGTH:
            raise SystemExit(
                f"{folder}: found {len(lengths)} instances, expected some, of at most {LENGTH} "
                "tokens: name the folder of an artifact of build-instances"
            )
        # As full as all of them together, which so few drawn at random would not be.
        quantiles = np.quantile(lengths, (np.arange(count) + 0.5) / count, method="nearest")
        return rng.permutation(quantiles.astype(np.int64))
    # Half of all fill the row, as documents that are cut do; the others are the ends of documents.
    short = rng.integers(20, LENGTH, count)
    return np.where(np.arange(count) % 2 == 0, LENGTH - rng.integers(0, 12, count), short)


def compare_packing(folder: Path | None, *, repeat: int) -> None:
    """Time our step on packed instances and the peer's on padded ones, and print."""
    lengths = packing_lengths(folder, count=16)
    batch = batch_of(lengths)
    (ours,) = our_step("mini", [batch], bf16=False)
    fill = lengths.mean() / LENGTH
    seconds = measure(
        {"ours": ours, **peer_steps("mini", batch, width=LENGTH, bf16=False)}, repeat=repeat
    )
    report(f"packing: L=4 H=256 A=4, {fill:.0%} filled", int(lengths.sum()), seconds)


def main() -> None:
    parser = parser_for(__doc__, repeat=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--part", nargs="*", choices=[*PARTS, "packing"], default=None)
    parser.add_argument("--instances", type=Path, help="folder of instance shards, for packing")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {arguments.threads} threads")
    for name in arguments.part or [*PARTS, "packing"]:
        if name == "packing":
            compare_packing(arguments.instances, repeat=arguments.repeat)
        else:
            compare(name, PARTS[name], repeat=arguments.repeat)


if __name__ == "__main__":
    main()
