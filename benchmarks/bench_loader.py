"""Tokens per second from memory-mapped instance shards to training batches, one core, shuffled.

    python -m benchmarks.bench_loader [--tokens 40000000] [--shards 100] [--repeat 5]

Writes shards of random ids to a temporary folder, with lengths like those of Wikipedia at 128. The
loader runs without its thread (prefetch_factor 0), so that the process time includes all its work:
shuffling over all shards, gathering, targets, layout and tensors, in batches of 256 instances. The
peer, in the same run, is torch's DataLoader (no worker processes) over a map-style dataset of the
same mapped shards with a NumPy collator, as such loaders are usually written. Rounds are
interleaved; prints the median of `--repeat` rounds.
"""

from __future__ import annotations

import cProfile
import functools
import os
import pstats
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from benchmarks.timing import cpu_seconds, parser_for, take_turns
from model.data.collator import MicroBatchCollator
from model.data.dataset import InstanceDataset
from model.data.loader import PretrainingDataLoader
from pipelines.arrays import list_array, offsets_of, ranges
from pipelines.instances.masking import VocabularyIds
from pipelines.io.shards import ShardWriter
from schemas.arrow import instances_schema
from schemas.corpus_configs import MaskingConfig
from schemas.manifest import FileEntry, StageInput
from schemas.model_configs import BatchConfig

VOCAB_SIZE, LENGTH, INSTANCES = 30_522, 128, 256
GPU_TOKENS = 1e6  # what BERT BASE in bf16 at length 128 is thought to train on an H200 in a second
GOAL = 20e6


def random_rows(rows: int, rng: np.random.Generator) -> pa.RecordBatch:
    """Nine of ten instances nearly fill their row, the others have any length."""
    schema = instances_schema(VOCAB_SIZE)
    is_short = rng.random(rows) < 0.1
    lengths = np.where(is_short, rng.integers(5, LENGTH, rows), rng.integers(112, LENGTH + 1, rows))
    counts = np.minimum(20, np.maximum(1, np.rint(lengths * 0.15))).astype(np.int64)
    stride = (lengths - 2) // counts
    columns = {
        "input_ids": (rng.integers(1000, VOCAB_SIZE, lengths.sum()), lengths),
        "masked_lm_positions": (1 + ranges(0, counts) * np.repeat(stride, counts), counts),
        "masked_lm_ids": (rng.integers(1000, VOCAB_SIZE, counts.sum()), counts),
        "segment_b_start": (rng.integers(3, lengths - 1), None),
        "next_sentence_label": (rng.integers(0, 2, rows), None),
    }

    def array(field: pa.Field) -> pa.Array:
        values, sizes = columns.get(field.name, (np.zeros(rows, np.int64), None))
        if sizes is None:
            return pa.array(values).cast(field.type)
        return list_array(values, offsets_of(sizes), field.type)

    return pa.RecordBatch.from_arrays([array(field) for field in schema], schema=schema)


def write_shards(folder: Path, *, tokens: int, shards: int) -> StageInput:
    """Write an artifact of random instances with about the given number of tokens."""
    rng = np.random.default_rng(0)
    rows = max(1, tokens // shards // 114)
    entries: list[FileEntry] = []
    for number in range(shards):
        writer = ShardWriter(
            f"part-{number:05d}.arrow", schema=instances_schema(VOCAB_SIZE), output=str(folder)
        )
        num_tokens = 0
        with writer:
            for begin in range(0, rows, 1024):
                batch = random_rows(min(1024, rows - begin), rng)
                writer.write(batch)
                num_tokens += len(batch.column("input_ids").flatten())
        entries.append(writer.entry(statistics={"tokens": num_tokens}))
    return StageInput(
        name="instances",
        artifact_id="random",
        data=str(folder),
        files=tuple(entries),
        statistics={"vocab_size": VOCAB_SIZE, "max_seq_length": LENGTH},
    )


class PlainDataset(Dataset[dict[str, Any]]):
    """One instance at a time from the mapped shards, as NumPy arrays."""

    def __init__(self, folder: Path) -> None:
        self._batches: list[tuple[Any, ...]] = []
        rows = [0]
        for path in sorted(folder.glob("*.arrow")):
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                lists = [batch.column(name) for name in
                         ("input_ids", "masked_lm_positions", "masked_lm_ids")]  # fmt: skip
                self._batches.append(
                    (
                        *((one.offsets.to_numpy(), one.values.to_numpy()) for one in lists),
                        batch.column("segment_b_start").to_numpy(),
                        batch.column("next_sentence_label").to_numpy(),
                    )
                )
                rows.append(rows[-1] + batch.num_rows)
        self._first = np.array(rows)

    def __len__(self) -> int:
        return int(self._first[-1])

    def __getitem__(self, row: int) -> dict[str, Any]:
        batch = int(np.searchsorted(self._first, row, side="right")) - 1
        at = row - int(self._first[batch])
        ids, positions, masked, b_start, label = self._batches[batch]
        return {
            "input_ids": ids[1][ids[0][at] : ids[0][at + 1]],
            "positions": positions[1][positions[0][at] : positions[0][at + 1]],
            "masked_ids": masked[1][masked[0][at] : masked[0][at + 1]],
            "segment_b_start": b_start[at],
            "next_sentence_label": label[at],
        }


def collate_padded(items: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Rows padded to the full length, labels of -100 where nothing is predicted."""
    input_ids = np.zeros((len(items), LENGTH), np.int64)
    segment_ids = np.zeros((len(items), LENGTH), np.int64)
    attention = np.zeros((len(items), LENGTH), np.int64)
    labels = np.full((len(items), LENGTH), -100, np.int64)
    for row, item in enumerate(items):
        length = len(item["input_ids"])
        input_ids[row, :length] = item["input_ids"]
        segment_ids[row, item["segment_b_start"] : length] = 1
        attention[row, :length] = 1
        labels[row, item["positions"]] = item["masked_ids"]
    pairs = np.array([item["next_sentence_label"] for item in items], np.int64)
    arrays = {
        "input_ids": input_ids,
        "token_type_ids": segment_ids,
        "attention_mask": attention,
        "labels": labels,
        "next_sentence_label": pairs,
    }
    return {name: torch.from_numpy(values) for name, values in arrays.items()}


def plain_batches(folder: Path) -> Iterator[int]:
    """Real tokens of each batch of torch's DataLoader."""
    dataset = PlainDataset(folder)
    sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(
        dataset, batch_size=INSTANCES, sampler=sampler, collate_fn=collate_padded, drop_last=True
    )
    while True:
        for batch in loader:
            yield int(batch["attention_mask"].sum())


def our_batches(
    instances: InstanceDataset, *, masking: str, objective: Any = "mlm+nsp"
) -> Iterator[int]:
    """Return the number of real tokens in each of our batches."""
    is_continuation = np.random.default_rng(1).random(VOCAB_SIZE) < 0.15
    batch = BatchConfig(global_batch_size=INSTANCES)
    loader = PretrainingDataLoader(
        instances,
        batch=batch,
        collator=MicroBatchCollator(objective, batch.per_device_max_tokens),
        seed=0,
        vocabulary=VocabularyIds(VOCAB_SIZE, 101, 102, 103, is_continuation),
        dynamic_masking=MaskingConfig() if masking == "dynamic" else None,
        prefetch_factor=0,
    )
    return (batch.tokens for batch in loader)


def seconds_for(batches: Iterator[int], count: int) -> tuple[float, int]:
    """Return the process time and real tokens of the given number of batches."""
    tokens: list[int] = []
    seconds = cpu_seconds(lambda: tokens.extend(next(batches) for _ in range(count)))
    return seconds, sum(tokens)


def show_profile(batches: Iterator[int], count: int) -> None:
    profile = cProfile.Profile()
    profile.runcall(seconds_for, batches, count)
    pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(22)


def measure(folder: Path, data: StageInput, *, repeat: int, profile: str) -> None:
    start = time.process_time()
    instances = InstanceDataset.open(data, vocab_size=VOCAB_SIZE, max_seq_length=LENGTH)
    size = sum(entry.size_bytes for entry in data.files)
    print(
        f"{len(instances):,} instances, {instances.tokens / 1e6:.0f} M tokens, {size / 1e6:.0f} MB "
        f"in {len(data.files)} shards; verified and opened in {time.process_time() - start:.2f} s"
    )
    ours: dict[str, Callable[[], Iterator[int]]] = {
        "packed": lambda: our_batches(instances, masking="stored"),
        "packed, dynamic masks": lambda: our_batches(instances, masking="dynamic"),
        "packed, left to right": lambda: our_batches(
            instances, masking="stored", objective="left-to-right"
        ),
    }
    if profile:
        batches = ours[profile]()
        next(batches)
        show_profile(batches, 1000)
        return
    runs = {name: make() for name, make in ours.items()}
    runs["torch DataLoader, padded"] = plain_batches(folder)
    counts = {name: 200 if name in ours else 20 for name in runs}
    sides = {
        name: functools.partial(seconds_for, batches, counts[name])
        for name, batches in runs.items()
    }
    # The warm-up touches the pages, and fills the first windows.
    rounds = take_turns(sides, repeat=repeat)
    speeds = {name: [tokens / seconds for seconds, tokens in each] for name, each in rounds.items()}
    plain = statistics.median(speeds["torch DataLoader, padded"])
    for name, rates in speeds.items():
        speed = statistics.median(rates)
        print(
            f"{name:25} {speed / 1e6:6.1f} M tokens/s ({min(rates) / 1e6:.1f} to "
            f"{max(rates) / 1e6:.1f}); x{speed / plain:.1f} torch's DataLoader; an H200 at about "
            f"{GPU_TOKENS / 1e6:.0f} M tokens/s (BASE at {LENGTH}) takes {GPU_TOKENS / speed:.1%} "
            "of a core"
        )
    stored = statistics.median(speeds["packed"])
    reached = "reached" if stored >= GOAL else "NOT reached"
    print(f"goal of {GOAL / 1e6:.0f} M tokens/s with stored masks: {reached}")


def main() -> None:
    parser = parser_for(__doc__, repeat=5)
    parser.add_argument("--tokens", type=int, default=40_000_000, help="tokens in all shards")
    parser.add_argument("--shards", type=int, default=100, help="number of shards")
    parser.add_argument("--profile", default="", help="print a profile of our loader")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="bertloom-") as name:
        os.environ["BERTLOOM_CACHE"] = f"{name}/cache"
        folder = Path(name) / "shards"
        folder.mkdir()
        data = write_shards(folder, tokens=options.tokens, shards=options.shards)
        measure(folder, data, repeat=options.repeat, profile=options.profile)


if __name__ == "__main__":
    main()
