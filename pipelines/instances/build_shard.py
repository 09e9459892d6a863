"""Build a shard of instances: read token shards, pair, mask and write one pass."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.arrays import Int64s, flat_lists, list_array, ranges
from pipelines.counters import Counters
from pipelines.instances import HELD_OUT, HELD_OUT_PREFIX, is_held_out
from pipelines.instances.masking import read_vocabulary_ids
from pipelines.instances.next_sentence_pool import NextSentencePool
from pipelines.instances.pairing import InstanceBatch, create_instances
from pipelines.instances.plan import REMEMBERED_BYTES, InstanceItem, ShardRanking, pool_text
from pipelines.instances.token_documents import TokenDocuments
from pipelines.io.file_systems import is_local
from pipelines.io.files import Statistics
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from pipelines.lengths import LengthHistogram, LengthsRecord, PairCounts
from pipelines.shard_job.item_cache import CacheableShardFn
from pipelines.shard_job.work import WorkResult
from schemas.arrow import instances_schema, tokens_schema
from schemas.corpus_configs import InstancesConfig
from schemas.manifest import FileEntry, StageInput

FETCHED_BYTES = 1 << 30
"""Maximum bytes of remote shards that a worker caches, in addition to the shard in use."""


class TokenShards:
    """Reads the training documents and the held-out documents of token shards by number.

    A part never holds a token of the other. The row numbers of held-out documents are cached, so
    that ids are read once per shard, and held-out documents up to `REMEMBERED_BYTES`: held-out
    pools need few documents of many shards. Remote shards are cached up to `FETCHED_BYTES`.

    Args:
        shards: URLs, or files of an artifact, by number. The digest of a file is checked when it is
            first read, and each time that it is fetched.
        vocab_size: Size of the vocabulary of their ids.
        share: Fraction of documents that are held out. At 0, no id is read.
    """

    def __init__(self, shards: Sequence[str | InputFile], *, vocab_size: int, share: float) -> None:
        self._shards = shards
        self._schema = tokens_schema(vocab_size)
        self._share = share
        self._rows: dict[int, Int64s] = {}
        self._held_out: dict[int, TokenDocuments] = {}
        self._remembered = 0
        self._fetched: OrderedDict[int, pa.Table] = OrderedDict()

    def __len__(self) -> int:
        """Number of shards."""
        return len(self._shards)

    def read(self, number: int) -> tuple[TokenDocuments, TokenDocuments]:
        """Return the training documents and the held-out documents of a shard, with ids."""
        return self._training(number, with_ids=True), self.held_out(number)

    def training(self, number: int) -> TokenDocuments:
        """Return the training documents of a shard without ids, for a pool."""
        return self._training(number, with_ids=False)

    def held_out(self, number: int) -> TokenDocuments:
        """Return the held-out documents of a shard, with ids."""
        if number not in self._held_out:
            self._read(number)
        return self._held_out[number]

    def _training(self, number: int, *, with_ids: bool) -> TokenDocuments:
        table = self._read(number)
        return training_documents(table, self._rows[number], with_ids=with_ids)

    def _read(self, number: int) -> pa.Table:
        """Return the rows of a shard, and cache its held-out documents."""
        table = self._table(number)
        if number not in self._rows:
            self._rows[number] = held_out_rows(table, share=self._share)
        if number not in self._held_out:
            # A view would keep the whole shard mapped.
            found = held_out_documents(table, self._rows[number])
            self._remembered += found.nbytes
            if self._remembered > REMEMBERED_BYTES:
                self._held_out.clear()
                self._remembered = found.nbytes
            self._held_out[number] = found.copy()
        return table

    def _table(self, number: int) -> pa.Table:
        """Return the memory-mapped rows of a shard, or of its fetched copy."""
        if number in self._fetched:
            self._fetched.move_to_end(number)
            return self._fetched[number]
        shard = self._shards[number]
        url = shard.url if isinstance(shard, InputFile) else shard
        if number in self._rows and is_local(url):
            shard = url  # its digest was checked when it was first read
        with open_shard(shard, expected=self._schema) as reader:
            table: pa.Table = reader.read_all()
        if not is_local(url):
            # The copy is deleted, but its bytes stay on disk while they are mapped.
            self._fetched[number] = table
            while len(self._fetched) > 1 and self._bytes_fetched() > FETCHED_BYTES:
                self._fetched.popitem(last=False)
        return table

    def _bytes_fetched(self) -> int:
        return sum(table.nbytes for table in self._fetched.values())


def held_out_rows(table: pa.Table, *, share: float) -> Int64s:
    """Return the rows of a tokens table that are held out, ascending."""
    if share == 0.0:
        return np.empty(0, np.int64)
    ids = pc.coalesce(table.column("split_id"), table.column("document_id")).to_pylist()
    return np.flatnonzero(is_held_out(ids, share=share))


def training_documents(table: pa.Table, held_out: Int64s, *, with_ids: bool) -> TokenDocuments:
    """Return the documents of a tokens table that are not held out."""
    return _documents(table, _other_runs(held_out, table.num_rows), with_ids=with_ids)


def held_out_documents(table: pa.Table, held_out: Int64s) -> TokenDocuments:
    """Return the documents of a tokens table that are held out, with their ids."""
    return _documents(table, np.stack((held_out, held_out + 1), axis=1), with_ids=True)


def _other_runs(rows: Int64s, size: int) -> Int64s:
    """Return ranges (first, stop) of the rows 0 .. size-1 that are not in `rows`; shape (n, 2)."""
    runs = np.stack((np.append(0, rows + 1), np.append(rows, size)), axis=1)
    return runs[runs[:, 0] < runs[:, 1]]


def _documents(table: pa.Table, runs: Int64s, *, with_ids: bool) -> TokenDocuments:
    """Return ranges of rows as flat arrays: views of the mapped file for one range of one batch."""
    names = ["token_ids", "sentence_lengths", *(["document_id"] if with_ids else [])]
    total, table = table.num_rows, table.select(names)
    if len(runs) == 1:
        table = table.slice(int(runs[0, 0]), int(runs[0, 1] - runs[0, 0]))
    elif total:
        slices = [table.slice(first, stop - first) for first, stop in runs.tolist()]
        table = pa.concat_tables(slices or [table.slice(0, 0)])
    table = table.combine_chunks()
    ids = table.column("document_id").to_pylist() if with_ids else ()
    (token_ids, _), (lengths, offsets) = (
        flat_lists(column.chunk(0) if column.num_chunks else pa.array([], column.type))
        for column in (table.column("token_ids"), table.column("sentence_lengths"))
    )
    rows = ranges(runs[:, 0], runs[:, 1] - runs[:, 0]) if table.num_rows < total else None
    return TokenDocuments(token_ids.to_numpy(), lengths.to_numpy(), offsets, ids, rows)


HELD_OUT_DOCUMENTS, HELD_OUT_SHARDS = 128, 16
"""Number of documents in a held-out pool, and maximum number of other shards opened for them."""


def held_out_pool(
    shards: TokenShards, shard: int, *, ranking: ShardRanking, config: InstancesConfig
) -> dict[int, TokenDocuments]:
    """Return the held-out documents of a shard and of others, by number of the shard.

    Others follow in an order drawn for the shard until there are `HELD_OUT_DOCUMENTS` documents, at
    most `HELD_OUT_SHARDS` shards (a shard of books has few documents) unless there is nothing to
    draw yet. A shard without held-out documents, or unpaired segments, need no others.
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
    """Builds the instances of one pass over one token shard, or of its held-out documents."""

    config: InstancesConfig
    tokens: StageInput
    vocab: InputFile
    vocab_size: int
    output: str

    def setup(self) -> None:
        self._vocabulary = read_vocabulary_ids(self.vocab)
        self._shards = TokenShards(
            [InputFile.of(self.tokens, entry) for entry in self.tokens.files],
            vocab_size=self.vocab_size,
            share=self.config.held_out_fraction,
        )
        self._pool: dict[int, TokenDocuments] = {}
        self._held_out: tuple[int, dict[int, TokenDocuments]] = (-1, {})

    def identity(self, item: InstanceItem) -> Any:
        files = self.tokens.files
        return {
            "part": item.part,
            "dupe_index": item.pass_number,
            "pool": [files[number].sha256 for number in self._pool_numbers(item)],
            "vocabulary": [self.vocab.sha256, self.vocab_size],
        }

    def rename_files(self, files: Sequence[FileEntry], item: InstanceItem) -> list[FileEntry]:
        return [
            entry.model_copy(
                update={
                    "path": self._path(item),
                    "statistics": {**entry.statistics, **self._origin(item)},
                }
            )
            for entry in files
        ]

    def process(self, item: InstanceItem) -> WorkResult:
        if item.part == HELD_OUT:
            return self._process_held_out(item)
        shards = self._shards
        training, held_out = shards.read(item.shard)
        # All passes over a shard have the same pool, so its shards are opened once.
        self._pool = {
            number: self._pool.get(number) or shards.training(number) for number in item.pool[1:]
        }
        entry, counters, lengths = self._write(item, [training, *self._pool.values()])
        # Every pass drops the held-out documents, so that the counts of each pass add up.
        for records, amount in (
            ("documents", len(held_out)),
            ("source-tokens", len(held_out.token_ids)),
        ):
            counters.count(f"{records}-in", amount)
            counters.count(f"{records}-dropped-held-out", amount)
        return WorkResult(item.number, [entry], counters, statistics=lengths)

    def _process_held_out(self, item: InstanceItem) -> WorkResult:
        documents = list(self._held_out_pool(item.shard).values())
        if not len(documents[0]):
            return WorkResult(item.number)
        entry, counters, _ = self._write(item, documents)
        found = {f"{HELD_OUT}-{name}": value for name, value in counters.items()}
        return WorkResult(item.number, [entry], Counters(found))

    def _held_out_pool(self, shard: int) -> dict[int, TokenDocuments]:
        if self._held_out[0] != shard:
            ranking = ShardRanking.of(self.tokens.files, seed=self.config.seed)
            pool = held_out_pool(self._shards, shard, ranking=ranking, config=self.config)
            self._held_out = (shard, pool)
        return self._held_out[1]

    def _pool_numbers(self, item: InstanceItem) -> list[int]:
        """Return the numbers of the token shards of the pool, in its order."""
        return list(self._held_out_pool(item.shard) if item.part == HELD_OUT else item.pool)

    def _path(self, item: InstanceItem) -> str:
        stem = self.tokens.files[item.shard].path.removesuffix(".arrow")
        if item.part == HELD_OUT:
            return f"{HELD_OUT_PREFIX}{stem.removeprefix('part-')}.arrow"
        return f"{stem}-pass-{item.pass_number:02d}.arrow"

    def _origin(self, item: InstanceItem) -> Statistics:
        """Return statistics of the file: the origin of its rows."""
        return {
            "token_shard": item.shard,
            "pool": pool_text(self._pool_numbers(item)),
            "dupe_index": item.pass_number,
            "part": item.part,
        }

    def _write(
        self, item: InstanceItem, documents: Sequence[TokenDocuments]
    ) -> tuple[FileEntry, Counters, dict[str, Any]]:
        """Write the instances of the first shard of a pool.

        Returns:
            The file, its counters, and a `LengthsRecord` as JSON values.
        """
        counters, lengths = Counters(), list[dict[str, Any]]()
        schema = instances_schema(self.vocab_size)
        batches = create_instances(
            NextSentencePool(dict(enumerate(documents))),
            self.config,
            vocabulary=self._vocabulary,
            pass_number=item.pass_number,
            count=counters.count,
        )
        with ShardWriter(self._path(item), schema=schema, output=self.output) as shard:
            for batch in batches:
                counters.update(batch.statistics())
                shard.write(instance_rows(batch, schema))
                lengths.append(self._lengths(batch).model_dump(mode="json"))
        statistics: Statistics = {"tokens": counters["tokens"], **self._origin(item)}
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
