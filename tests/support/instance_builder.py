"""Small instance artifacts with random rows, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.instances.masking import VocabularyIds
from pipelines.io.shards import ShardWriter
from schemas.arrow import instances_schema
from schemas.manifest import StageInput

CLS, SEP, MASK = 2, 3, 4
VOCAB_SIZE, LONGEST = 300, 40
VOCABULARY = VocabularyIds(VOCAB_SIZE, CLS, SEP, MASK, np.arange(VOCAB_SIZE) % 4 == 3)


class Row(NamedTuple):
    """An instance as it is written."""

    input_ids: list[int]
    segment_b_start: int
    positions: list[int]
    masked_ids: list[int]
    label: int

    @property
    def original_ids(self) -> list[int]:
        """Before masking."""
        ids = list(self.input_ids)
        for position, token in zip(self.positions, self.masked_ids, strict=True):
            ids[position] = token
        return ids


def random_row(rng: np.random.Generator) -> Row:
    """`[CLS] A [SEP] B [SEP]`, or one in five times `[CLS] A [SEP]`, masked in 0 to 6 places."""
    length = int(rng.integers(5, LONGEST + 1))
    ids = rng.integers(5, VOCAB_SIZE, length).tolist()
    ids[0], ids[-1] = CLS, SEP
    is_paired = rng.random() < 0.8
    b_start = int(rng.integers(3, length - 1)) if is_paired else length
    ids[b_start - 1] = SEP
    candidates = [position for position in range(1, length - 1) if position != b_start - 1]
    count = min(len(candidates), int(rng.integers(0, 7)))
    positions = sorted(rng.choice(candidates, count, replace=False).tolist())
    originals = [ids[position] for position in positions]
    for position in positions:
        ids[position] = MASK if rng.random() < 0.8 else int(rng.integers(5, VOCAB_SIZE))
    label = int(rng.integers(0, 2)) if is_paired else -1
    return Row(ids, b_start, positions, originals, label)


def record_batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    zeros = [0] * len(rows)
    columns: dict[str, list[Any]] = {
        "input_ids": [row.input_ids for row in rows],
        "segment_b_start": [row.segment_b_start for row in rows],
        "masked_lm_positions": [row.positions for row in rows],
        "masked_lm_ids": [row.masked_ids for row in rows],
        "next_sentence_label": [row.label for row in rows],
    }
    arrays = [pa.array(columns.get(field.name, zeros), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def write_artifact(
    folder: str,
    shards: dict[str, list[list[Row]]],
    *,
    vocab_size: int = VOCAB_SIZE,
    schema: pa.Schema | None = None,
    compression: str | None = None,
) -> StageInput:
    """An artifact of these shards: by logical name, rows of each record batch."""
    kind = schema or instances_schema(vocab_size)
    entries = []
    for path, batches in shards.items():
        with ShardWriter(path, schema=kind, output=folder, compression=compression) as writer:
            for rows in batches:
                writer.write(record_batch(rows, kind))
        tokens = sum(len(row.input_ids) for rows in batches for row in rows)
        entries.append(writer.entry(statistics={"tokens": tokens}))
    return StageInput(
        name="instances",
        artifact_id="0123456789abcdef",
        data=folder,
        files=tuple(entries),
        statistics={"vocab_size": vocab_size, "max_seq_length": LONGEST},
    )


def random_shards(rows: int) -> dict[str, list[list[Row]]]:
    """Training shards of several record batches, an empty one among them, and a held-out one."""
    rng = np.random.default_rng(0)
    made = [random_row(rng) for _ in range(rows + 4)]
    cuts = [rows * number // 5 for number in range(6)]
    shards_by_path: dict[str, list[list[Row]]] = {}
    for number in range(5):
        own = made[cuts[number] : cuts[number + 1]]
        shards_by_path[f"part-{number:05d}-pass-00.arrow"] = [own[:3], [], own[3:4], own[4:]]
    shards_by_path["part-99999-pass-00.arrow"] = []
    shards_by_path["__held-out__/held-out-00000.arrow"] = [made[rows:]]
    return shards_by_path


def training_rows(shards: dict[str, list[list[Row]]]) -> list[Row]:
    """All training rows in the order of an InstanceDataset."""
    return [
        row
        for path in sorted(shards)
        if path.startswith("part-")
        for rows in shards[path]
        for row in rows
    ]
