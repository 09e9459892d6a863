"""Which pieces `build-instances` works on, and which token shards random segments come from.

What decides a pool is what the shards hold: their sha256, sizes and rows. Their numbers do not, for
these follow the digests of the raw files, and so move when one dump part of many changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.instances.held_out import HELD_OUT, TRAINING
from pipelines.seeds import key_for, random_bits
from schemas.corpus_configs import InstancesConfig
from schemas.manifest import FileEntry, StageInput

POOL_DOCUMENTS = 128
"""A shard with fewer documents gets another beside it, even if none fits `negative_pool_bytes`."""


_FIRST_OTHERS = 64

REMEMBERED_BYTES = 512 << 20
"""Bytes of held-out documents that a worker keeps: those of 50 billion tokens at a share of
.005."""


class InstancePiece(NamedTuple):
    """One pass over the training documents of one token shard, or its held-out documents."""

    number: int
    part: str
    """`TRAINING` or `HELD_OUT`."""

    shard: int
    """Number of the token shard in its artifact."""

    pass_number: int
    """0 for held-out documents."""

    pool: tuple[int, ...]
    """Numbers of the token shards that random Bs come from, this one first; () for held-out
    documents, whose pool is found when they are counted."""

    weight: int


class Ranking(NamedTuple):
    """An order of all other shards for each shard, drawn from what they hold."""

    names: npt.NDArray[np.uint64]
    """The first 64 bits of each shard's sha256."""

    sizes: npt.NDArray[np.int64]
    """Bytes of each shard."""

    seed: int

    @classmethod
    def of(cls, files: Sequence[FileEntry], *, seed: int) -> Ranking:
        """The ranking of an artifact's shards; the seed is the configuration's."""
        names = [int(entry.sha256[:16], 16) for entry in files]
        sizes = [entry.size_bytes for entry in files]
        return cls(np.array(names, np.uint64), np.array(sizes, np.int64), seed)

    def others(
        self, shard: int, *, purpose: str, first: int | None = None
    ) -> npt.NDArray[np.int64]:
        """Numbers of the others in the order drawn for one, int64.

        Args:
            shard: that one.
            purpose: names the order.
            first: of how many at least, if there are so many; None of all.
        """
        key = key_for(self.seed, purpose, int(self.names[shard]))
        ranks = random_bits(np.array([key], np.uint64), self.names)
        chosen = np.arange(len(ranks))
        if first is not None and first < len(ranks):  # sorting all takes ten times as long
            chosen = np.flatnonzero(ranks <= np.partition(ranks, first)[first])
        # Of shards that hold the same, either may come first.
        order = chosen[np.argsort(ranks[chosen], kind="stable")]
        others: npt.NDArray[np.int64] = order[order != shard]
        return others


def plan(config: InstancesConfig, tokens: StageInput) -> list[InstancePiece]:
    """A piece for each pass over each shard, and one for what is held out of each, if anything is.

    Decided by the configuration and the shards' contents. The passes over a shard follow one
    another, as they read the same shards.
    """
    files = tokens.files
    ranking = Ranking.of(files, seed=config.seed)
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
    return [InstancePiece(number, *piece) for number, piece in enumerate([*passes, *held_out])]


def colocation_key(planned: Sequence[InstancePiece]) -> Callable[[InstancePiece], int]:
    """Return a key that is equal for the items that one worker should process.

    The pool of held-out documents of a shard has a dozen other shards: a worker that can keep the
    held-out documents of all shards reads each shard once.
    """
    held_out = sum(piece.weight for piece in planned if piece.part == HELD_OUT)
    fits = held_out <= REMEMBERED_BYTES
    return lambda piece: -1 if fits and piece.part == HELD_OUT else piece.number


def choose_pool(
    files: Sequence[FileEntry], shard: int, *, ranking: Ranking, config: InstancesConfig
) -> tuple[int, ...]:
    """The shard itself, and others in an order drawn for it while they fit `negative_pool_bytes`.

    One other at least where the shard has fewer than `POOL_DOCUMENTS`: a pool of a single
    document could draw nothing.
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
    """Numbers of the token shards of a pool, as a file's statistics hold them: `3,7,1`."""
    return ",".join(map(str, numbers))


def pool_numbers(entry: FileEntry) -> list[int]:
    """Numbers of the token shards that `segment_b_shard` of a file's rows means."""
    return [int(number) for number in str(entry.statistics["pool"]).split(",")]
