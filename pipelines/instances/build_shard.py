"""Build shards of instances: read token shards, pair, mask and write one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.arrays import Bools, flat_lists, list_array
from pipelines.counters import Counters
from pipelines.instances import HELD_OUT, HELD_OUT_PREFIX, is_held_out
from pipelines.instances.masking import read_vocabulary_ids
from pipelines.instances.next_sentence_pool import NextSentencePool
from pipelines.instances.pairing import InstanceBatch, create_instances
from pipelines.instances.plan import InstanceItem, pool_numbers, pool_text
from pipelines.instances.token_documents import TokenDocuments
from pipelines.io.files import Statistics
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from pipelines.lengths import Histograms, count_lengths, merge_lengths
from pipelines.shard_job.item_cache import CacheableShardFn
from pipelines.shard_job.work import WorkResult
from schemas.arrow import instances_schema, tokens_schema
from schemas.corpus_configs import InstancesConfig
from schemas.manifest import FileEntry


class PartDocuments(NamedTuple):
    """Training documents or held-out documents of a token shard."""

    documents: TokenDocuments
    other_documents: int
    """Number of documents of the other part."""

    other_tokens: int
    """Number of tokens of the other part."""


def held_out_mask(table: pa.Table, *, share: float) -> Bools:
    """Return whether each row of a tokens table is held out."""
    if share == 0.0:
        return np.zeros(table.num_rows, np.bool_)
    ids = pc.coalesce(table.column("split_id"), table.column("document_id")).to_pylist()
    return is_held_out(ids, share=share)


def read_part(shard: InputFile, schema: pa.Schema, *, part: str, share: float) -> PartDocuments:
    """Read the documents of a part of a token shard. No array has a token of the other part.

    Args:
        shard: Shard of the tokens artifact; its digest is verified.
        schema: Result of `tokens_schema` for the vocabulary.
        part: `TRAINING` or `HELD_OUT`.
        share: Fraction of documents that are held out.
    """
    with open_shard(shard, expected=schema) as reader:
        table: pa.Table = reader.read_all()
    is_own = held_out_mask(table, share=share) == (part == HELD_OUT)
    own = _select_rows(table, is_own)
    (token_ids, _), (lengths, offsets) = (
        flat_lists(column.chunk(0) if column.num_chunks else pa.array([], column.type))
        for column in (own.column("token_ids"), own.column("sentence_lengths"))
    )
    names = own.column("document_id").to_pylist()
    rows = None if is_own.all() else np.flatnonzero(is_own)
    documents = TokenDocuments(token_ids.to_numpy(), lengths.to_numpy(), offsets, names, rows)
    if part == HELD_OUT:
        documents = documents.copy()  # a view would keep the file of each shard of a pool
    tokens = pc.sum(pc.list_value_length(table.column("token_ids"))).as_py() or 0
    return PartDocuments(documents, len(is_own) - len(documents), tokens - len(token_ids))


def _select_rows(table: pa.Table, mask: Bools) -> pa.Table:
    """Return the selected rows in one chunk: a view if they are consecutive rows of one batch.

    `Table.filter` needs an index per token.
    """
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False)).reshape(-1, 2)
    slices = [table.slice(start, stop - start) for start, stop in edges.tolist()]
    return pa.concat_tables(slices or [table.slice(0, 0)]).combine_chunks()


def instance_rows(batch: InstanceBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of instances as rows of the instances table."""
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
    """Builds the instances of one pass over a token shard, or of the held-out documents of some."""

    config: InstancesConfig
    vocab: InputFile
    vocab_size: int
    output: str

    def setup(self) -> None:
        self._vocabulary = read_vocabulary_ids(self.vocab)
        self._parts: dict[tuple[str, InputFile], PartDocuments] = {}
        self._pool = NextSentencePool({})

    def identity(self, item: InstanceItem) -> Any:
        return {
            "part": item.part,
            "dupe_index": item.pass_number,
            "pool": [shard.file.sha256 for shard in item.pool],
            "vocabulary": [self.vocab.sha256, self.vocab_size],
        }

    def rename_files(self, files: Sequence[FileEntry], item: InstanceItem) -> list[FileEntry]:
        renamed = []
        for entry in files:
            position = pool_numbers(entry).index(int(entry.statistics["token_shard"]))
            statistics = {**entry.statistics, **_origin(item, position)}
            update = {"path": _path(item, position), "statistics": statistics}
            renamed.append(entry.model_copy(update=update))
        return renamed

    def process(self, item: InstanceItem) -> WorkResult:
        self._read_pool(item)
        result = WorkResult(item.number)
        for position, shard in enumerate(item.own):
            part = self._parts[item.part, shard.file]
            if item.part == HELD_OUT and not len(part.documents):
                continue
            entry, counters, lengths = self._write(item, position)
            result.files.append(entry)
            if item.part == HELD_OUT:
                counters = Counters({f"{HELD_OUT}-{name}": n for name, n in counters.items()})
            else:
                result.statistics = lengths
                _count_held_out(part, counters)
            result.counters.update(counters)
        return result

    def _read_pool(self, item: InstanceItem) -> None:
        """Read the token shards of an item, except those that the item before it has read.

        All passes over a shard have the same pool.
        """
        shards = [(item.part, shard.file) for shard in item.pool]
        if shards == list(self._parts):
            return
        kept = {shard: self._parts[shard] for shard in shards if shard in self._parts}
        self._parts, self._pool = {}, NextSentencePool({})  # frees memory before shards are read
        schema, share = tokens_schema(self.vocab_size), self.config.held_out_fraction
        self._parts = {
            (part, file): kept.get((part, file)) or read_part(file, schema, part=part, share=share)
            for part, file in shards
        }
        documents = [part.documents for part in self._parts.values()]
        self._pool = NextSentencePool(dict(enumerate(documents)))

    def _write(self, item: InstanceItem, position: int) -> tuple[FileEntry, Counters, Histograms]:
        """Write the instances of a shard of the pool.

        Returns:
            The file, its counters and the lengths of its instances.
        """
        counters, lengths = Counters(), list[Histograms]()
        schema = instances_schema(self.vocab_size)
        batches = create_instances(
            self._pool,
            self.config,
            vocabulary=self._vocabulary,
            pass_number=item.pass_number,
            count=counters.count,
            own_shard=position,
        )
        with ShardWriter(_path(item, position), schema=schema, output=self.output) as shard:
            for batch in batches:
                counters.update(batch.statistics())
                shard.write(instance_rows(batch, schema))
                lengths.append({"instances": count_lengths(np.diff(batch.input_offsets))})
        statistics: Statistics = {"tokens": counters["tokens"], **_origin(item, position)}
        return shard.entry(statistics=statistics), counters, merge_lengths(lengths)


def _path(item: InstanceItem, position: int) -> str:
    stem = item.pool[position].file.path.removesuffix(".arrow")
    if item.part == HELD_OUT:
        return f"{HELD_OUT_PREFIX}{stem.removeprefix('part-')}.arrow"
    return f"{stem}-pass-{item.pass_number:02d}.arrow"


def _origin(item: InstanceItem, position: int) -> Statistics:
    """Return statistics of a file: the origin of its rows."""
    return {
        "token_shard": item.pool[position].number,
        "pool": pool_text(item.pool),
        "dupe_index": item.pass_number,
        "part": item.part,
    }


def _count_held_out(part: PartDocuments, counters: Counters) -> None:
    """Count the held-out documents, which every pass drops: the counts of each pass add up."""
    for records, amount in (
        ("documents", part.other_documents),
        ("source-tokens", part.other_tokens),
    ):
        counters.count(f"{records}-in", amount)
        counters.count(f"{records}-dropped-held-out", amount)


def corpus_statistics(
    config: InstancesConfig, counters: Counters, vocab_size: int
) -> dict[str, Any]:
    """Return what the loader needs, and figures of the training instances for readers."""
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
