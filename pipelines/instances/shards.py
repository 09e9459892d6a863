"""The instances of one pass over one shard of tokens, or of its held-out documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.arrays import list_array
from pipelines.beam.item_cache import CacheableShardFn
from pipelines.beam.shard_work import SharedInput, WorkResult
from pipelines.counters import Counters
from pipelines.instances.creation import InstanceBatch, create_instances
from pipelines.instances.held_out import HELD_OUT, HELD_OUT_PREFIX, TRAINING
from pipelines.instances.masking import VocabularyIds
from pipelines.instances.plan import InstancePiece, Ranking, pool_text
from pipelines.instances.token_documents import NegativePool, TokenDocuments
from pipelines.instances.token_shards import TokenShards
from pipelines.instances.vocabulary import read_vocabulary_ids
from pipelines.io.files import Statistics
from pipelines.io.shards import ShardWriter
from pipelines.io.stage_inputs import InputFile
from pipelines.lengths import LengthHistogram, LengthsRecord, PairCounts
from schemas.arrow import instances_schema
from schemas.corpus_configs import InstancesConfig
from schemas.manifest import FileEntry

HELD_OUT_DOCUMENTS, HELD_OUT_SHARDS = 128, 16
"""Documents that a pool of held-out ones aims at, and others that are opened for them at most."""


def held_out_pool(
    shards: TokenShards, shard: int, *, ranking: Ranking, config: InstancesConfig
) -> dict[int, TokenDocuments]:
    """The held-out documents of the shard, and then of others in an order drawn for it.

    None but its own where it has none, or where segments are not paired. As many others as it takes
    to have `HELD_OUT_DOCUMENTS`, but no more than `HELD_OUT_SHARDS` of them (a shard of books has
    few documents) unless there is nothing to draw yet.

    Args:
        shards: of the artifact.
        shard: number of the one whose instances are made.
        ranking: of the shards.
        config: says whether segments are paired.
    """
    pool = {shard: shards.held_out(shard)}
    if config.pairing == "none" or not len(pool[shard]):
        return pool
    others = ranking.others(shard, purpose="held-out-pool")
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
    masked = batch.masked_lm_offsets
    ragged = {
        "input_ids": batch.input_offsets,
        "masked_lm_positions": masked,
        "masked_lm_ids": masked,
    }
    return pa.RecordBatch.from_arrays(
        [
            list_array(getattr(batch, column.name), ragged[column.name], column.type)
            if column.name in ragged
            else pa.array(getattr(batch, column.name), column.type)
            for column in schema
        ],
        schema=schema,
    )


@dataclass
class BuildInstanceShard(CacheableShardFn):
    """The work on one pass over one token shard, or on its held-out documents."""

    config: InstancesConfig
    tokens: SharedInput
    vocab: InputFile
    vocab_size: int
    output: str
    _vocabulary: VocabularyIds | None = field(default=None, repr=False)
    _shards: TokenShards | None = field(default=None, repr=False)
    _pool: dict[int, TokenDocuments] = field(default_factory=dict, repr=False)
    _held_out: tuple[int, dict[int, TokenDocuments]] = field(default=(-1, {}), repr=False)

    def setup(self) -> None:
        self._open()

    def _open(self) -> tuple[VocabularyIds, TokenShards]:
        if self._vocabulary is None or self._shards is None:
            self._vocabulary = read_vocabulary_ids(self.vocab)
            tokens = self.tokens.get()
            self._shards = TokenShards(
                [InputFile.of(tokens, entry) for entry in tokens.files],
                vocab_size=self.vocab_size,
                share=self.config.held_out_fraction,
            )
        return self._vocabulary, self._shards

    def __getstate__(self) -> dict[str, Any]:
        opened = {"_vocabulary": None, "_shards": None}
        return {**self.__dict__, **opened, "_pool": {}, "_held_out": (-1, {})}

    def identity(self, piece: InstancePiece) -> Any:
        files = self.tokens.get().files
        return {
            "part": piece.part,
            "dupe_index": piece.pass_number,
            "pool": [files[number].sha256 for number in self._pool_numbers(piece)],
            "vocabulary": [self.vocab.sha256, self.vocab_size],
        }

    def has_cheap_identity(self, piece: InstancePiece) -> bool:
        return piece.part == TRAINING  # the others' pools have to be looked for

    def expected_rows(self, counters: Mapping[str, int]) -> int:
        return counters["instances"] + counters[f"{HELD_OUT}-instances"]

    def rename_files(self, files: Sequence[FileEntry], piece: InstancePiece) -> list[FileEntry]:
        return [
            entry.model_copy(
                update={
                    "path": self._path(piece),
                    "statistics": {**entry.statistics, **self._origin(piece)},
                }
            )
            for entry in files
        ]

    def process(self, piece: InstancePiece) -> WorkResult:
        if piece.part == HELD_OUT:
            return self._process_held_out(piece)
        _, shards = self._open()
        training, held_out = shards.read(piece.shard)
        # Pools of the pieces of one shard are the same: the shards are opened once.
        self._pool = {
            number: self._pool.get(number) or shards.training(number) for number in piece.pool[1:]
        }
        entry, counters, lengths = self._write(piece, [training, *self._pool.values()])
        # Every pass leaves the held-out documents out, so that its counts add up by themselves.
        for name in ("documents-in", "documents-dropped-held-out"):
            counters.count(name, len(held_out))
        return WorkResult(piece.number, [entry], counters, details=[lengths])

    def _process_held_out(self, piece: InstancePiece) -> WorkResult:
        documents = list(self._held_out_pool(piece.shard).values())
        if not len(documents[0]):
            return WorkResult(piece.number)
        entry, counters, _ = self._write(piece, documents)
        found = {f"{HELD_OUT}-{name}": value for name, value in counters.items()}
        return WorkResult(piece.number, [entry], Counters(found))

    def _held_out_pool(self, shard: int) -> dict[int, TokenDocuments]:
        if self._held_out[0] != shard:
            ranking = Ranking.of(self.tokens.get().files, seed=self.config.seed)
            shards = self._open()[1]
            pool = held_out_pool(shards, shard, ranking=ranking, config=self.config)
            self._held_out = (shard, pool)
        return self._held_out[1]

    def _pool_numbers(self, piece: InstancePiece) -> list[int]:
        """Numbers of the token shards that the pool is made of, in its order."""
        return list(self._held_out_pool(piece.shard) if piece.part == HELD_OUT else piece.pool)

    def _path(self, piece: InstancePiece) -> str:
        stem = self.tokens.get().files[piece.shard].path.removesuffix(".arrow")
        if piece.part == HELD_OUT:
            return f"{HELD_OUT_PREFIX}{stem.removeprefix('part-')}.arrow"
        return f"{stem}-pass-{piece.pass_number:02d}.arrow"

    def _origin(self, piece: InstancePiece) -> Statistics:
        """What says, beside the rows, where they come from."""
        return {
            "token_shard": piece.shard,
            "pool": pool_text(self._pool_numbers(piece)),
            "dupe_index": piece.pass_number,
            "part": piece.part,
        }

    def _write(
        self, piece: InstancePiece, documents: Sequence[TokenDocuments]
    ) -> tuple[FileEntry, Counters, dict[str, Any]]:
        """Write the instances of the piece's own documents, the first ones.

        Args:
            documents: of the shards of the pool, in its order.

        Returns:
            The file, its counters, and a `LengthsRecord` as JSON values.
        """
        counters, lengths = Counters(), list[dict[str, Any]]()
        schema = instances_schema(self.vocab_size)
        batches = create_instances(
            documents[0],
            NegativePool(dict(enumerate(documents))),
            self.config,
            vocabulary=self._open()[0],
            pass_number=piece.pass_number,
            own_shard=0,
            count=counters.count,
        )
        with ShardWriter(self._path(piece), schema=schema, output=self.output) as shard:
            for batch in batches:
                counters.update(batch.statistics())
                shard.write(instance_rows(batch, schema))
                lengths.append(self._lengths(batch).model_dump(mode="json"))
        statistics: Statistics = {"tokens": counters["tokens"], **self._origin(piece)}
        record = LengthsRecord.merge(lengths).model_dump(mode="json")
        return shard.entry(statistics=statistics), counters, record

    def _lengths(self, batch: InstanceBatch) -> LengthsRecord:
        lengths = np.diff(batch.input_offsets)
        pairs = PairCounts.from_pairs(
            lengths,
            np.asarray(batch.next_sentence_label),
            max_seq_length=self.config.max_seq_length,
        )
        histogram = LengthHistogram.from_lengths(lengths)
        return LengthsRecord(histograms={"instances": histogram}, pairs=pairs)


def corpus_statistics(
    config: InstancesConfig, counters: Counters, vocab_size: int
) -> dict[str, Any]:
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
        "max_predictions_per_seq": config.masking.max_predictions_per_seq,
        "held_out_instances": counters[f"{HELD_OUT}-instances"],
        **{name: round(share, 6) for name, share in shares.items()},
    }
