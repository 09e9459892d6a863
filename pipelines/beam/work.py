"""What a job does with a piece of input, and what it reports of it. Nothing here needs Beam."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pipelines.counters import Counters
from pipelines.runners.errors import ErrorFiles
from schemas.manifest import FileEntry


class Blob(NamedTuple):
    """A few bytes for the group `bucket`."""

    bucket: int
    data: bytes


@dataclass
class WorkReport:
    """The files, counts and blobs of one piece."""

    index: int
    """Number of the piece in the plan, or of the group."""

    files: list[FileEntry] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    blobs: list[Blob] = field(default_factory=list)
    """Sent on to the grouping of the job, not part of the report."""

    details: list[Any] = field(default_factory=list)
    """Small JSON values for the launching process."""

    reused: bool = False
    """Whether it was restored from an earlier job (`pipelines.beam.reuse`)."""

    def to_json(self) -> str:
        files = [entry.model_dump(mode="json") for entry in self.files]
        counters = dict(self.counters)
        return json.dumps(
            {
                "index": self.index,
                "files": files,
                "counters": counters,
                "details": self.details,
                "reused": self.reused,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> WorkReport:
        raw = json.loads(text)
        files = [FileEntry.model_validate(entry) for entry in raw["files"]]
        return cls(
            raw["index"],
            files,
            Counters(raw["counters"]),
            details=raw["details"],
            reused=raw["reused"],
        )


class HandOver(Protocol):
    """Keeps what a piece has come to, for another worker to go on from."""

    def leave(self, report: WorkReport) -> None:
        """The report up to the last of its files, with what is needed to work on behind it."""


class ShardWork(Protocol):
    """What a job does with a piece. Sent to workers by value, so it holds configuration only."""

    def setup(self) -> None:
        """Open what is read-only and large, once a worker."""

    def process(self, piece: Any) -> WorkReport: ...


@dataclass
class ItemProcessor:
    """Calls a job's work on items, set up before the first one, and records its errors."""

    work: ShardWork
    errors: ErrorFiles
    _is_set_up: bool = False

    def __call__(self, item: Any) -> WorkReport:
        with self.errors.telling(item):
            if not self._is_set_up:
                self.work.setup()
                self._is_set_up = True
            return self.work.process(item)


class Grouping(NamedTuple):
    """What a job does with the blobs of a bucket, which Beam brings together. Sent to workers."""

    report: Callable[[int, Iterable[bytes]], WorkReport]
    """Called once for each bucket that has any, with its number; it may write files."""

    merge: Callable[[Sequence[bytes]], bytes] | None = None
    """Makes one blob of several of a bucket, before the shuffle and after it; None where each has
    to reach the report."""


class Piece(Protocol):
    """A planned piece of input: a small value that can be sent to any worker."""

    @property
    def number(self) -> int:
        """Position in the plan, from 0."""

    @property
    def weight(self) -> int:
        """Rough cost, for dealing pieces out evenly; bytes, say."""


def add_up(reports: Iterable[WorkReport]) -> Counters:
    """The counters of all reports together."""
    total = Counters()
    for report in reports:
        total.update(report.counters)
    return total
