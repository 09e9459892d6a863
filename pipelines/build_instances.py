"""`build-instances`: token shards become masked, paired instances, a shard for each pass over each.

`part-00003-pass-01.arrow` holds what pass 1 makes of the token shard `part-00003.arrow`, in the
order of its documents: the loader takes any permutation by random access, so nothing is shuffled.
`held-out-00003.arrow` holds what pass 0 makes of that shard's held-out documents; it is there where
the shard has any. No instance has tokens of both: random Bs come from documents of A's own part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.counters import Counters, check_balance
from pipelines.held_out import HELD_OUT, TRAINING
from pipelines.instances import InstanceBatch, create_instances
from pipelines.masking import VocabularyIds
from pipelines.seeds import rng_for
from pipelines.shard_jobs import WorkReport, add_up, run_shard_job
from pipelines.shards import ShardWriter, Statistics
from pipelines.token_documents import NegativePool, TokenDocuments
from pipelines.token_shards import TokenShards
from pipelines.vocabulary import VOCAB_FILE
from pipelines.wordpiece import WordPieceTokenizer
from schemas.arrow import instances_schema
from schemas.configs import ExecutionConfig, InstancesConfig
from schemas.manifest import FileEntry, StageInput, StageOutput

STAGE_VERSION = 2
LIBRARIES = ("pyarrow", "numpy")

HELD_OUT_DOCUMENTS, HELD_OUT_SHARDS = 128, 16
"""Documents that a pool of held-out ones aims at, and shards that are opened for them at most."""


class InstancePiece(NamedTuple):
    """One pass over one token shard."""

    number: int
    shard: int
    """Number of the token shard in its artifact."""

    duplicate: int
    """Number of the pass."""

    pool: tuple[int, ...]
    """Numbers of the token shards that random Bs come from, this one among them."""

    weight: int


def plan(config: InstancesConfig, tokens: StageInput) -> list[InstancePiece]:
    """A piece for each pass over each shard; decided by the configuration and the shards' sizes."""
    sizes = np.array([entry.size for entry in tokens.files], np.int64)
    pools = [choose_pool(sizes, shard, config=config) for shard in range(len(sizes))]
    places = [
        (shard, duplicate) for duplicate in range(config.duplicates) for shard in range(len(sizes))
    ]
    return [
        InstancePiece(number, shard, duplicate, pools[shard], int(sizes[shard]))
        for number, (shard, duplicate) in enumerate(places)
    ]


def choose_pool(sizes: np.ndarray, shard: int, *, config: InstancesConfig) -> tuple[int, ...]:
    """The shard itself, and others in an order drawn for it as long as they fit `pool_bytes`."""
    if config.pairing == "none":
        return (shard,)
    others = np.delete(np.arange(len(sizes)), shard)
    if sizes[others].sum() > config.pool_bytes:
        others = rng_for(config.seed, "pool", shard).permutation(others)
        fitting = np.cumsum(sizes[others]) <= config.pool_bytes
        # One other shard at least: a pool of a single document's shard could draw nothing.
        others = others[: max(1, int(np.count_nonzero(fitting)))]
    return tuple(sorted([shard, *others.tolist()]))


def held_out_pool(
    shards: TokenShards, shard: int, *, config: InstancesConfig
) -> dict[int, TokenDocuments]:
    """The held-out documents of the shard and of others in an order drawn for it.

    As many others as it takes to have `HELD_OUT_DOCUMENTS`, but no more than `HELD_OUT_SHARDS` of
    them (a shard of books has few documents) unless there is nothing to draw yet.
    """
    pool = {shard: shards.held_out(shard)}
    if config.pairing == "none":
        return pool
    others = rng_for(config.seed, "held-out-pool", shard).permutation(
        np.delete(np.arange(len(shards)), shard)
    )
    found = pool[shard].documents_with_tokens
    for opened, number in enumerate(others.tolist()):
        if found >= HELD_OUT_DOCUMENTS or (opened >= HELD_OUT_SHARDS and found > 1):
            break
        documents = shards.held_out(number)
        if documents.documents_with_tokens:
            pool[number] = documents
            found += documents.documents_with_tokens
    return pool


def instance_rows(batch: InstanceBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of instances as rows of the instances table."""

    def lists(name: str, values: Any, offsets: Any) -> pa.ListArray:
        kind = schema.field(name).type
        numbers = pa.array(values, kind.value_type)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), numbers, type=kind)

    masked = batch.masked_lm_offsets
    columns = {
        "input_ids": lists("input_ids", batch.input_ids, batch.input_offsets),
        "masked_lm_positions": lists("masked_lm_positions", batch.masked_lm_positions, masked),
        "masked_lm_ids": lists("masked_lm_ids", batch.masked_lm_ids, masked),
    }
    return pa.RecordBatch.from_arrays(
        [
            columns[column.name]
            if column.name in columns
            else pa.array(getattr(batch, column.name), column.type)
            for column in schema
        ],
        schema=schema,
    )


@dataclass
class BuildInstanceShard:
    """The work on one pass over one token shard; the first also makes its held-out instances."""

    config: InstancesConfig
    tokens: StageInput
    vocab_url: str
    vocab_size: int
    output: str
    _vocabulary: VocabularyIds | None = field(default=None, repr=False)
    _shards: TokenShards | None = field(default=None, repr=False)
    _pool: dict[int, TokenDocuments] = field(default_factory=dict, repr=False)

    def setup(self) -> None:
        self._open()

    def _open(self) -> tuple[VocabularyIds, TokenShards]:
        if self._vocabulary is None or self._shards is None:
            # Casing decides nothing here: only the pieces and their ids are wanted.
            tokenizer = WordPieceTokenizer.from_vocab_file(self.vocab_url, lowercase=False)
            self._vocabulary = VocabularyIds(
                vocab_size=tokenizer.vocab_size,
                cls_id=tokenizer.cls_id,
                sep_id=tokenizer.sep_id,
                mask_id=tokenizer.mask_id,
                is_continuation=tokenizer.is_continuation,
            )
            self._shards = TokenShards(
                [f"{self.tokens.data}/{entry.object}" for entry in self.tokens.files],
                vocab_size=self.vocab_size,
                share=self.config.held_out_share,
            )
        return self._vocabulary, self._shards

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_vocabulary": None, "_shards": None, "_pool": {}}

    def process(self, piece: InstancePiece) -> WorkReport:
        _, shards = self._open()
        stem = self.tokens.files[piece.shard].path.removesuffix(".arrow")
        training, held_out = shards.read(piece.shard)
        # Pools of the pieces of one shard are the same: the shards are opened once.
        self._pool = {
            number: self._pool.get(number) or shards.training(number)
            for number in piece.pool
            if number != piece.shard
        }
        path = f"{stem}-pass-{piece.duplicate:02d}.arrow"
        pool = {**self._pool, piece.shard: training}
        entry, counters = self._write(path, piece, pool, part=TRAINING)
        # Every pass leaves the held-out documents out, so that its counts add up by themselves.
        for name in ("documents-in", "documents-dropped-held-out"):
            counters.count(name, len(held_out))
        entries = [entry]
        if piece.duplicate == 0 and len(held_out):
            pool = held_out_pool(shards, piece.shard, config=self.config)
            path = f"{HELD_OUT}-{stem.removeprefix('part-')}.arrow"
            entry, found = self._write(path, piece, pool, part=HELD_OUT)
            counters.update({f"{HELD_OUT}-{name}": value for name, value in found.items()})
            entries.append(entry)
        return WorkReport(piece.number, entries, counters)

    def _write(
        self, path: str, piece: InstancePiece, pool: dict[int, TokenDocuments], *, part: str
    ) -> tuple[FileEntry, Counters]:
        """Write the instances of the piece's own documents in `pool`."""
        counters = Counters()
        schema = instances_schema(self.vocab_size)
        batches = create_instances(
            pool[piece.shard],
            NegativePool(pool),
            self.config,
            vocabulary=self._open()[0],
            duplicate=piece.duplicate,
            own_shard=piece.shard,
            count=counters.count,
        )
        with ShardWriter(path, schema=schema, output=self.output) as shard:
            for batch in batches:
                counters.update(batch.statistics())
                shard.write(instance_rows(batch, schema))
        statistics: Statistics = {
            "tokens": counters["tokens"],
            "token_shard": piece.shard,
            "duplicate": piece.duplicate,
            "part": part,
        }
        return shard.entry(statistics=statistics), counters


def build_instances(
    config: InstancesConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
) -> StageOutput:
    """Make the instances of a corpus.

    Args:
        config: lengths, pairing, masking, passes and the seed.
        inputs: `tokens` and `vocabulary`.
        output: URL of the folder to write to.
        execution: where to run.

    Raises:
        CountError: documents in are not those kept and dropped.
    """
    tokens, vocabulary = inputs["tokens"], inputs["vocabulary"]
    vocab = next(entry for entry in vocabulary.files if entry.path == VOCAB_FILE)
    vocab_size = int(vocabulary.statistics["vocab_size"])
    reports, _ = run_shard_job(
        "build-instances",
        plan(config, tokens),
        work=BuildInstanceShard(
            config=config,
            tokens=tokens,
            vocab_url=f"{vocabulary.data}/{vocab.object}",
            vocab_size=vocab_size,
            output=output,
        ),
        output=output,
        execution=execution,
    )
    counters = add_up(reports)
    for things in ("documents", f"{HELD_OUT}-documents"):
        check_balance(counters, things, where="build-instances")
    files = [entry for report in reports for entry in report.files]
    return StageOutput(
        files=tuple(sorted(files, key=lambda entry: entry.statistics["part"] == HELD_OUT)),
        counters=dict(sorted(counters.items())),
        statistics=_statistics(config, counters, vocab_size),
        table="instances",
    )


def _statistics(config: InstancesConfig, counters: Counters, vocab_size: int) -> dict[str, Any]:
    """What the loader must know, and of the training instances the shares a person looks at."""
    instances, tokens = counters["instances"], counters["tokens"]
    paired = instances - counters["without-segment-b"]
    shares = {
        "mean_fill": tokens / (instances * config.max_seq_length) if instances else 0.0,
        "masked_share": counters["masked-tokens"] / tokens if tokens else 0.0,
        "random_next_share": counters["random-next"] / paired if paired else 0.0,
    }
    return {
        "vocab_size": vocab_size,
        "max_seq_length": config.max_seq_length,
        "max_predictions": config.masking.max_predictions,
        "held_out_instances": counters[f"{HELD_OUT}-instances"],
        **{name: round(share, 6) for name, share in shares.items()},
    }
