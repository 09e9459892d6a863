"""`build-instances`: token shards become masked, paired instances, a shard for each pass over each.

`part-00003-pass-01.arrow` holds what pass 1 makes of the token shard `part-00003.arrow`, in the
order of its documents: the loader takes any permutation by random access, so nothing is shuffled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.build_vocabulary import VOCAB_FILE
from pipelines.counters import Counters, check_balance
from pipelines.instances import InstanceBatch, create_instances
from pipelines.masking import VocabularyIds
from pipelines.seeds import rng_for
from pipelines.shard_jobs import WorkReport, add_up, run_shard_job
from pipelines.shards import ShardWriter, open_shard
from pipelines.token_documents import NegativePool, TokenDocuments
from pipelines.wordpiece import WordPieceTokenizer
from schemas.arrow import instances_schema, tokens_schema
from schemas.configs import ExecutionConfig, InstancesConfig
from schemas.manifest import FileEntry, StageInput, StageOutput

STAGE_VERSION = 1
LIBRARIES = ("pyarrow", "numpy")


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


def read_token_documents(url: str, *, vocab_size: int, with_ids: bool) -> TokenDocuments:
    """A token shard as flat arrays, views of the mapped file where it has one record batch."""
    with open_shard(url, expected=tokens_schema(vocab_size)) as reader:
        table = reader.read_all().combine_chunks()
    ids = table.column("document_id").to_pylist() if with_ids else ()
    token_ids, _ = _flat(table.column("token_ids"), tokens_schema(vocab_size).field("token_ids"))
    lengths, offsets = _flat(
        table.column("sentence_lengths"), tokens_schema(vocab_size).field("sentence_lengths")
    )
    return TokenDocuments(token_ids, lengths, offsets.astype(np.int64), ids)


def _flat(column: pa.ChunkedArray, field: pa.Field) -> tuple[np.ndarray, np.ndarray]:
    lists = column.chunk(0) if column.num_chunks else pa.array([], field.type)
    offsets = lists.offsets.to_numpy()
    values = lists.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return values.to_numpy(), offsets - offsets[0]


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
    """The work on one pass over one token shard."""

    config: InstancesConfig
    tokens: StageInput
    vocab_url: str
    vocab_size: int
    output: str
    _vocabulary: VocabularyIds | None = field(default=None, repr=False)
    _pool: dict[int, TokenDocuments] = field(default_factory=dict, repr=False)

    def setup(self) -> None:
        self._open()

    def _open(self) -> VocabularyIds:
        if self._vocabulary is None:
            # Casing decides nothing here: only the pieces and their ids are wanted.
            tokenizer = WordPieceTokenizer.from_vocab_file(self.vocab_url, lowercase=False)
            self._vocabulary = VocabularyIds(
                vocab_size=tokenizer.vocab_size,
                cls_id=tokenizer.cls_id,
                sep_id=tokenizer.sep_id,
                mask_id=tokenizer.mask_id,
                is_continuation=tokenizer.is_continuation,
            )
        return self._vocabulary

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_vocabulary": None, "_pool": {}}

    def process(self, piece: InstancePiece) -> WorkReport:
        counters = Counters()
        schema = instances_schema(self.vocab_size)
        stem = self.tokens.files[piece.shard].path.removesuffix(".arrow")
        with ShardWriter(
            f"{stem}-pass-{piece.duplicate:02d}.arrow", schema=schema, output=self.output
        ) as shard:
            for batch in self._batches(piece, counters):
                counters.update(batch.statistics())
                shard.write(instance_rows(batch, schema))
        entry = shard.entry(
            statistics={
                "tokens": counters["tokens"],
                "token_shard": piece.shard,
                "duplicate": piece.duplicate,
            }
        )
        return WorkReport(piece.number, [entry], counters)

    def _batches(self, piece: InstancePiece, counters: Counters) -> Iterator[InstanceBatch]:
        own = self._read(piece.shard, with_ids=True)
        # Pools of the pieces of one shard are the same: the shards are opened once.
        self._pool = {
            number: self._pool.get(number) or self._read(number, with_ids=False)
            for number in piece.pool
            if number != piece.shard
        }
        return create_instances(
            own,
            NegativePool({**self._pool, piece.shard: own}),
            self.config,
            vocabulary=self._open(),
            duplicate=piece.duplicate,
            own_shard=piece.shard,
            count=counters.count,
        )

    def _read(self, number: int, *, with_ids: bool) -> TokenDocuments:
        url = f"{self.tokens.data}/{self.tokens.files[number].object}"
        return read_token_documents(url, vocab_size=self.vocab_size, with_ids=with_ids)


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
    check_balance(counters, "documents", where="build-instances")
    files: tuple[FileEntry, ...] = tuple(entry for report in reports for entry in report.files)
    return StageOutput(
        files=files,
        counters=dict(sorted(counters.items())),
        statistics=_statistics(config, counters, vocab_size),
        table="instances",
    )


def _statistics(config: InstancesConfig, counters: Counters, vocab_size: int) -> dict[str, Any]:
    """What the loader must know, and the shares a person looks at first."""
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
        **{name: round(share, 6) for name, share in shares.items()},
    }
