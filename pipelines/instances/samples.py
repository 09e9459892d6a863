"""Decoded sample instances, which `build-instances` records for the report of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from pydantic import BaseModel, ConfigDict

from pipelines.instances.plan import pool_numbers
from pipelines.io.files import write_text_file
from pipelines.io.shards import open_shard
from pipelines.io.stage_inputs import InputFile
from schemas.manifest import FileEntry, StageInput

INSTANCE_SAMPLES_FILE = "__records__/samples.json"

LABELS = {0: "B is the next segment", 1: "B is random", -1: "A without B"}
"""Meaning of `next_sentence_label`."""

_MAX_ROWS, _MAX_TOKENS = 20_000, 90


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TokenRun(_Record):
    """Consecutive tokens of one type."""

    type: str
    """`a`, `b`, `special`, or one to predict: `mask`, `kept` or `random`."""

    text: str
    original: str = ""
    """Token before masking."""


class InstanceSample(_Record):
    """An instance as text."""

    label: str
    row: int
    num_tokens: int
    num_predictions: int
    a: tuple[TokenRun, ...]
    b: tuple[TokenRun, ...]
    num_hidden: tuple[int, int]
    """Number of tokens of A and of B that are not shown."""

    document_ids: tuple[str, ...]
    """Documents of A and of B."""


class InstanceSamples(_Record):
    """Record of `build-instances`: one instance of each next-sentence label."""

    instances: tuple[InstanceSample, ...] = ()

    def write(self, *, output: str) -> FileEntry:
        """Write the record to the stage's output folder."""
        text = self.model_dump_json()
        return write_text_file(
            INSTANCE_SAMPLES_FILE, text, output=output, excluded_from_digest=True
        )


def sample_instances(
    entry: FileEntry, *, output: str, tokens: StageInput, vocabulary: Sequence[str]
) -> InstanceSamples:
    """Decode one instance of each label of a shard, chosen by the digest of its row."""
    pool = [InputFile.of(tokens, tokens.files[number]) for number in pool_numbers(entry)]
    with open_shard(f"{output}/{entry.stored_name}") as reader:
        batch = reader.get_batch(0)
    labels = batch.column("next_sentence_label").to_pylist()[:_MAX_ROWS]
    order = sorted(range(len(labels)), key=lambda row: _row_digest(entry, row))
    rows = [next(row for row in order if labels[row] == label) for label in sorted(set(labels))]
    return InstanceSamples(
        instances=tuple(
            _sample(batch.slice(row, 1).to_pylist()[0], row, pool, vocabulary) for row in rows
        )
    )


def _row_digest(entry: FileEntry, row: int) -> bytes:
    return hashlib.blake2b(f"{entry.sha256} {row}".encode(), digest_size=8).digest()


def _sample(
    row: dict[str, Any], number: int, pool: Sequence[InputFile], vocabulary: Sequence[str]
) -> InstanceSample:
    ids, start = row["input_ids"], row["segment_b_start"]
    original = dict(zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True))
    tokens = [
        _token(vocabulary, token, original.get(position), segment="a" if position < start else "b")
        for position, token in enumerate(ids)
    ]
    label = row["next_sentence_label"]
    return InstanceSample(
        label=LABELS[label],
        row=number,
        num_tokens=len(ids),
        num_predictions=len(original),
        a=tuple(_join(tokens[:start][:_MAX_TOKENS])),
        b=tuple(_join(tokens[start:][:_MAX_TOKENS])),
        num_hidden=(max(0, start - _MAX_TOKENS), max(0, len(ids) - start - _MAX_TOKENS)),
        document_ids=tuple(_document_ids(row, pool)),
    )


def _document_ids(row: dict[str, Any], pool: Sequence[InputFile]) -> Iterator[str]:
    places = [(0, row["document_row"])]
    if row["next_sentence_label"] == 1:
        places.append((row["segment_b_shard"], row["segment_b_row"]))
    for shard, number in places:
        with open_shard(pool[shard].url, columns=["document_id"]) as reader:
            yield reader.read_all().column(0)[number].as_py()


def _token(
    vocabulary: Sequence[str], token: int, original: int | None, *, segment: str
) -> TokenRun:
    text = vocabulary[token]
    if original is None:
        return TokenRun(type="special" if text in ("[CLS]", "[SEP]") else segment, text=text)
    change = "mask" if text == "[MASK]" else "kept" if token == original else "random"
    return TokenRun(type=change, text=text, original=vocabulary[original])


def _join(tokens: Sequence[TokenRun]) -> Iterator[TokenRun]:
    """Join unchanged tokens of one type; word pieces become words."""
    for (run_type, original), group in groupby(tokens, key=lambda run: (run.type, run.original)):
        if original:
            yield from group
        else:
            text = " ".join(run.text for run in group)
            yield TokenRun(type=run_type, text=text.replace(" ##", ""))
