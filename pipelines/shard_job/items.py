"""Process items and reduce buckets: what every runner does, in the graph of Beam or in a loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from pipelines.progress import ItemProgress, current_record_item, item_scope
from pipelines.runners.job_context import bertloom_errors
from pipelines.shard_job.job_files import JobFiles, ResultList
from pipelines.shard_job.spill import SpillFile, read_blobs
from pipelines.shard_job.work import Blob, BucketReduce, ShardFn, WorkResult

_MAX_UNCOMBINED = 16
"""Number of blobs of a bucket that are combined at once."""


@dataclass
class ItemProcessor:
    """Calls a job's work on items, set up before the first one, and records its errors."""

    work: ShardFn
    files: JobFiles
    _is_set_up: bool = False

    def __call__(self, item: Any) -> WorkResult:
        with self.files.errors.recording(item), item_scope(item.number):
            if not self._is_set_up:
                self.work.setup()
                self._is_set_up = True
            return self.work.process(item)


def record_finished(result: WorkResult) -> int:
    """Report an item as finished to the progress of this job, and return its rows."""
    rows = sum(entry.rows or 0 for entry in result.files)
    if record_item := current_record_item():
        record_item(result.index, ItemProgress(1.0, rows))
    return rows


def reduce_bucket(grouping: BucketReduce, spill: str, element: tuple[int, Iterable[bytes]]) -> str:
    """Return the JSON result of a bucket, given its number and its blobs or their locations."""
    bucket, blobs = element
    return grouping.reduce(bucket, read_blobs(blobs, spill) if spill else blobs).to_json()


class _BlobGroups:
    """Blobs of a job in this process, by bucket: combined, or their locations in a file."""

    def __init__(self, grouping: BucketReduce | None, spill: str) -> None:
        self._grouping = grouping
        self._combine = grouping.combine if grouping is not None else None
        self._spill = "" if self._combine is not None else spill
        self._file = SpillFile(spill)
        self._blobs: dict[int, list[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()

    def add(self, blobs: list[Blob]) -> None:
        if self._grouping is None:
            return
        for bucket, data in self._file.write(blobs) if self._spill else blobs:
            held = self._blobs.setdefault(bucket, [])
            held.append(data)
            if self._combine is not None and len(held) == _MAX_UNCOMBINED:
                held[:] = [self._combine(held)]

    def reduce(self) -> Iterator[str]:
        """Yield the result of each bucket."""
        if self._grouping is None:
            return
        for bucket, blobs in sorted(self._blobs.items()):
            combined = [self._combine(blobs)] if self._combine and len(blobs) > 1 else blobs
            yield reduce_bucket(self._grouping, self._spill, (bucket, combined))


def run_in_this_process(
    job: str, items: Iterable[Any], process: ItemProcessor, *, grouping: BucketReduce | None
) -> tuple[ResultList, ResultList]:
    """Process the items of a job one after the other, without Beam, which takes seconds to load.

    Args:
        job: Name of the job in errors.
        items: Work items.
        process: Work on each item.
        grouping: Work on the blobs of each bucket.

    Returns:
        Results of the items and of the buckets, equal to those of `pipelines.shard_job.pipeline`.

    Raises:
        BertloomError: The work raised it.
        RunnerError: The work raised another error.
    """
    results: list[str] = []
    with bertloom_errors(job), _BlobGroups(grouping, process.files.spill_folder) as groups:
        for item in items:
            result = process(item)
            record_finished(result)
            groups.add(result.blobs)
            results.append(result.to_json())
        return ResultList(results), ResultList(groups.reduce())
