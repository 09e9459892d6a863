"""Plan of `build-instances`: work items, and the token shards that random segments come from.

The pool of training documents depends on the contents of the shards (sha256, size, rows) and not on
their numbers, which follow the digests of the raw files and change when one dump part of many
changes. Held-out documents are few: one item processes those of up to `HELD_OUT_SHARDS` shards,
which are also their pool.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.instances import HELD_OUT, TRAINING
from pipelines.io.stage_inputs import InputFile
from pipelines.seeds import key_for, random_bits
from schemas.corpus_configs import InstancesConfig
from schemas.manifest import FileEntry, StageInput

POOL_DOCUMENTS = 128
"""Minimum number of documents of a shard that needs no other shard in its pool."""

HELD_OUT_SHARDS = 256
"""Maximum number of token shards whose held-out documents are one item."""

HELD_OUT_BYTES = 128 << 20
"""Approximate maximum of bytes of held-out documents of an item, which a worker keeps in memory."""


class TokenShard(NamedTuple):
    """A shard of the tokens artifact."""

    number: int
    """Position in the artifact."""

    file: InputFile


class InstanceItem(NamedTuple):
    """One pass over the training documents of a token shard, or the held-out documents of some."""

    number: int
    part: str
    """`TRAINING` or `HELD_OUT`."""

    pass_number: int
    """0 for held-out documents."""

    pool: tuple[TokenShard, ...]
    """Shards that random Bs come from."""

    weight: int

    @property
    def own(self) -> tuple[TokenShard, ...]:
        """Shards whose documents become instances: the first ones of the pool."""
        return self.pool if self.part == HELD_OUT else self.pool[:1]


class ShardRanking(NamedTuple):
    """Random order of all other shards for each shard, drawn from their contents."""

    names: npt.NDArray[np.uint64]
    """The first 64 bits of each shard's sha256."""

    sizes: npt.NDArray[np.int64]
    """Bytes of each shard."""

    seed: int

    @classmethod
    def of(cls, files: Sequence[FileEntry], *, seed: int) -> ShardRanking:
        """Return the ranking of an artifact's shards with the seed of the configuration."""
        names = [int(entry.sha256[:16], 16) for entry in files]
        sizes = [entry.size_bytes for entry in files]
        return cls(np.array(names, np.uint64), np.array(sizes, np.int64), seed)

    def others(self, shard: int) -> npt.NDArray[np.int64]:
        """Return the other shards in the order drawn for a shard."""
        key = key_for(self.seed, "pool", int(self.names[shard]))
        ranks = random_bits(np.array([key], np.uint64), self.names)
        order = np.argsort(ranks, kind="stable")  # shards with equal contents are interchangeable
        others: npt.NDArray[np.int64] = order[order != shard]
        return others


def plan(config: InstancesConfig, tokens: StageInput) -> list[InstanceItem]:
    """Return one work item per pass over each shard, and items for held-out documents.

    The passes over a shard are consecutive, because they read the same shards.
    """
    files = tokens.files
    shards = [TokenShard(number, InputFile.of(tokens, entry)) for number, entry in enumerate(files)]
    ranking = ShardRanking.of(files, seed=config.seed)
    items: list[InstanceItem] = []
    for shard, entry in enumerate(files):
        numbers = choose_pool(files, shard, ranking=ranking, config=config)
        pool = tuple(shards[number] for number in numbers)
        for pass_number in range(config.dupe_factor):
            items.append(InstanceItem(len(items), TRAINING, pass_number, pool, entry.size_bytes))
    for group in _group_held_out(shards, share=config.held_out_fraction):
        weight = max(1, round(sum(shard.file.size for shard in group) * config.held_out_fraction))
        items.append(InstanceItem(len(items), HELD_OUT, 0, group, weight))
    return items


def _group_held_out(
    shards: Sequence[TokenShard], *, share: float
) -> Iterator[tuple[TokenShard, ...]]:
    """Yield groups of consecutive shards of nearly equal numbers, none if nothing is held out."""
    if share == 0.0:
        return
    size = share * sum(shard.file.size for shard in shards)
    count = math.ceil(max(len(shards) / HELD_OUT_SHARDS, size / HELD_OUT_BYTES))
    groups = min(count, len(shards))
    for group in range(groups):
        start, stop = (len(shards) * bound // groups for bound in (group, group + 1))
        yield tuple(shards[start:stop])


def choose_pool(
    files: Sequence[FileEntry], shard: int, *, ranking: ShardRanking, config: InstancesConfig
) -> tuple[int, ...]:
    """Return the shard and others, in an order drawn for it, that fit `negative_pool_bytes`.

    A shard with fewer than `POOL_DOCUMENTS` gets at least one other: nothing can be drawn from a
    pool of one document.
    """
    if config.pairing == "none":
        return (shard,)
    others = ranking.others(shard)
    sizes = np.cumsum(ranking.sizes[others])
    fitting = int(np.count_nonzero(sizes <= config.negative_pool_bytes))
    is_small = (files[shard].rows or 0) < POOL_DOCUMENTS
    return (shard, *others[: max(fitting, int(is_small))].tolist())


def pool_text(pool: Sequence[TokenShard]) -> str:
    """Format the numbers of a pool's token shards for the statistics of a file: `3,7,1`."""
    return ",".join(str(shard.number) for shard in pool)


def pool_numbers(entry: FileEntry) -> list[int]:
    """Return the numbers of the token shards that `segment_b_shard` of a file's rows refers to."""
    return [int(number) for number in str(entry.statistics["pool"]).split(",")]
