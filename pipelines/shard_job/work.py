"""Work of a job: its items, the function that processes them, and their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pipelines.counters import Counters
from schemas.manifest import FileEntry


class WorkItem(Protocol):
    """A planned part of the input: a named tuple of plain values and named tuples."""

    @property
    def number(self) -> int:
        """Position in the plan, from 0."""

    @property
    def weight(self) -> int:
        """Rough cost, in bytes of input."""


class Blob(NamedTuple):
    """A few bytes for the bucket of a job's grouping."""

    bucket: int
    data: bytes


@dataclass
class WorkResult:
    """Files, counters and blobs of one item, or of one bucket."""

    index: int
    """Number of the item in the plan, or of the bucket."""

    files: list[FileEntry] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    blobs: list[Blob] = field(default_factory=list)
    """Input of the job's grouping. Not part of the JSON text."""

    statistics: Any = None
    """Statistics of the job for the launching process, as JSON values."""

    reused: bool = False
    """True if the item was restored from an earlier job (`pipelines.shard_job.item_cache`)."""

    def to_json(self) -> str:
        return json.dumps(
            {
                "index": self.index,
                "files": [entry.model_dump(mode="json") for entry in self.files],
                "counters": dict(self.counters),
                "statistics": self.statistics,
                "reused": self.reused,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> WorkResult:
        raw = json.loads(text)
        raw["files"] = [FileEntry.model_validate(entry) for entry in raw["files"]]
        raw["counters"] = Counters(raw["counters"])
        return cls(**raw)


def sum_counters(results: Iterable[WorkResult]) -> Counters:
    """Return the sums of the counters of all results."""
    total = Counters()
    for result in results:
        total.update(result.counters)
    return total


class ShardFn(Protocol):
    """Work of a job on an item: a `DoFn` without Beam. Workers get a copy, without open
    files."""

    def setup(self) -> None:
        """Open what is read-only and large, once per worker."""

    def process(self, item: Any) -> WorkResult: ...


class BucketReduce(NamedTuple):
    """Work of a job on the blobs of each bucket, which Beam groups. Workers get a copy."""

    reduce: Callable[[int, Iterable[bytes]], WorkResult]
    """Called once per bucket that has blobs, with its number; can write files."""

    combine: Callable[[Sequence[bytes]], bytes] | None = None
    """Combines blobs of a bucket, before and after the shuffle. None: `reduce` gets each blob."""
