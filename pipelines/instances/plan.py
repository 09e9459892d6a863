"""Plan of `build-instances`: work items, and the token shards that random segments come from.

A pool depends on the contents of the shards (sha256, size, rows) and not on their numbers, which
follow the digests of the raw files and change when one dump part of many changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.instances import HELD_OUT, TRAINING
from pipelines.seeds import key_for, random_bits
from schemas.corpus_configs import InstancesConfig
from schemas.manifest import FileEntry, StageInput

POOL_DOCUMENTS = 128
"""Minimum number of documents of a shard that needs no other shard in its pool."""


_FIRST_OTHERS = 64

REMEMBERED_BYTES = 512 << 20
"""Maximum bytes of held-out documents that a worker caches: those of 50 billion tokens at a
fraction of 0.005."""


class InstanceItem(NamedTuple):
    """One pass over the training documents of one token shard, or its held-out documents."""

    number: int
    part: str
    """`TRAINING` or `HELD_OUT`."""

    shard: int
    """Number of the token shard in its artifact."""

    pass_number: int
    """0 for held-out documents."""

    pool: tuple[int, ...]
    """Numbers of the token shards that random Bs come from, this shard first. () for held-out
    documents, whose pool depends on their number in each shard."""

    weight: int


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

    def others(
        self, shard: int, *, purpose: str, first: int | None = None
    ) -> npt.NDArray[np.int64]:
        """Return the other shards in the order drawn for a shard, at least `first` (None: all)."""
        key = key_for(self.seed, purpose, int(self.names[shard]))
        ranks = random_bits(np.array([key], np.uint64), self.names)
        chosen = np.arange(len(ranks))
        if first is not None and first < len(ranks):  # a partition is cheaper than a sort
            chosen = np.flatnonzero(ranks <= np.partition(ranks, first)[first])
        # Shards with equal contents are interchangeable.
        order = chosen[np.argsort(ranks[chosen], kind="stable")]
        others: npt.NDArray[np.int64] = order[order != shard]
        return others


def plan(config: InstancesConfig, tokens: StageInput) -> list[InstanceItem]:
    """Return one work item per pass over each shard, and one per shard for held-out documents.

    The passes over a shard are consecutive, because they read the same shards.
    """
    files = tokens.files
    ranking = ShardRanking.of(files, seed=config.seed)
    pools = [
        choose_pool(files, shard, ranking=ranking, config=config) for shard in range(len(files))
    ]
    passes = [
        (TRAINING, shard, pass_number, pools[shard], files[shard].size_bytes)
        for shard in range(len(files))
        for pass_number in range(config.dupe_factor)
    ]
    share = config.held_out_fraction
    held_out = [
        (HELD_OUT, shard, 0, (), max(1, round(entry.size_bytes * share)))
        for shard, entry in enumerate(files)
        if share > 0.0
    ]
    return [InstanceItem(number, *item) for number, item in enumerate([*passes, *held_out])]


def colocation_key(planned: Sequence[InstanceItem]) -> Callable[[InstanceItem], int]:
    """Return a key that is equal for the items that one worker should process.

    The pool of held-out documents of a shard has a dozen other shards: a worker that can keep the
    held-out documents of all shards reads each shard once.
    """
    held_out = sum(item.weight for item in planned if item.part == HELD_OUT)
    fits = held_out <= REMEMBERED_BYTES
    return lambda item: -1 if fits and item.part == HELD_OUT else item.number


def choose_pool(
    files: Sequence[FileEntry], shard: int, *, ranking: ShardRanking, config: InstancesConfig
) -> tuple[int, ...]:
    """Return the shard and others, in an order drawn for it, that fit `negative_pool_bytes`.

    A shard with fewer than `POOL_DOCUMENTS` gets at least one other: nothing can be drawn from a
    pool of one document.
    """
    if config.pairing == "none":
        return (shard,)
    first, fitting = 0, 0
    others = np.empty(0, np.int64)
    while fitting == len(others) and len(others) < len(files) - 1:
        first = max(_FIRST_OTHERS, 4 * first)
        others = ranking.others(shard, purpose="pool", first=first)
        fitting = int(
            np.count_nonzero(np.cumsum(ranking.sizes[others]) <= config.negative_pool_bytes)
        )
    is_small = (files[shard].rows or 0) < POOL_DOCUMENTS
    return (shard, *others[: max(fitting, int(is_small))].tolist())


def pool_text(numbers: Sequence[int]) -> str:
    """Format the numbers of a pool's token shards for the statistics of a file: `3,7,1`."""
    return ",".join(map(str, numbers))


def pool_numbers(entry: FileEntry) -> list[int]:
    """Return the numbers of the token shards that `segment_b_shard` of a file's rows refers to."""
    return [int(number) for number in str(entry.statistics["pool"]).split(",")]
