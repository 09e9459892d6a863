"""Beam pipeline of a shard job.

Plan -> ReadPlan -> SpreadItems -> ProcessItems -> results -> WriteResults
                                                -> blobs -> ReduceBuckets -> WriteBuckets
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.metrics.metric import Metrics
from pydantic import TypeAdapter

from pipelines.progress import ItemProgress, current_record_item, item_scope
from pipelines.runners.code import CodeVersionCheck
from pipelines.runners.local import map_items
from pipelines.shard_job.job_files import RESULTS_PER_FILE, JobFiles
from pipelines.shard_job.spill import SpillFile, read_blobs
from pipelines.shard_job.work import BucketReduce, ShardFn, WorkResult

BLOBS = "blobs"
ITEMS, BUCKETS = "items", "buckets"
"""Kinds of results."""

_BUCKETS_PER_WORKER = 4
_KeyedBytes = tuple[int, bytes]


@dataclass
class _ItemProcessor:
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


class _ProcessItems(beam.DoFn):
    """Processes the items of an element, in worker processes if there are several workers."""

    def __init__(
        self,
        job: str,
        work: ShardFn,
        files: JobFiles,
        *,
        item_type: type[Any],
        spill: str,
        workers: int,
    ) -> None:
        self._code = CodeVersionCheck()  # first: other code may not be able to unpickle the work
        self._job, self._spill, self._workers = job, spill, workers
        self._processor, self._item_type = _ItemProcessor(work, files), item_type
        self._blobs: SpillFile | None = None

    def setup(self) -> None:
        self._parse = TypeAdapter(list[self._item_type]).validate_json  # type: ignore[name-defined]
        self._blobs = SpillFile(self._spill) if self._spill else None

    def teardown(self) -> None:
        if self._blobs is not None:
            self._blobs.close()

    def process(self, element: str) -> Iterator[Any]:
        record_item = current_record_item()
        for result in map_items(self._processor, self._parse(element), workers=self._workers):
            rows = sum(entry.rows or 0 for entry in result.files)
            if record_item is not None:
                record_item(result.index, ItemProgress(1.0, rows))
            self._count({**result.counters, "rows": rows})
            blobs = result.blobs if self._blobs is None else self._blobs.write(result.blobs)
            for blob in blobs:
                yield beam.pvalue.TaggedOutput(BLOBS, (blob.bucket, blob.data))
            yield result.to_json()

    def _count(self, counters: Mapping[str, int]) -> None:
        """Count for the runner's console.

        Manifests have the counters of the results, as a retried bundle cannot count these twice.
        """
        for name, amount in counters.items():
            Metrics.counter(self._job, name).inc(amount)


def _type_blob(blob: _KeyedBytes) -> _KeyedBytes:
    """Return the blob: the type hints give its PCollection a deterministic coder."""
    return blob


def _merge_blobs(combine: Callable[[Sequence[bytes]], bytes], blobs: Iterable[bytes]) -> bytes:
    held = list(blobs)
    return combine(held) if len(held) > 1 else held[0]


def _reduce_bucket(grouping: BucketReduce, spill: str, element: tuple[int, Iterable[bytes]]) -> str:
    """Return the JSON result of a bucket, given its number and its blobs or their locations."""
    bucket, blobs = element
    return grouping.reduce(bucket, read_blobs(blobs, spill) if spill else blobs).to_json()


@dataclass(kw_only=True, eq=False)
class ReduceBuckets(beam.PTransform[Any, Any]):
    """(bucket, bytes) pairs in; JSON results out, one per bucket."""

    grouping: BucketReduce
    spill: str = ""
    """Folder of the spill files whose locations the pairs have; "": they have the blobs."""

    workers: int = 1
    """Number of worker processes that this process starts. 1: none."""

    def expand(self, blobs: Any) -> Any:
        reduce_bucket = functools.partial(_reduce_bucket, self.grouping, self.spill)
        reduce_buckets = functools.partial(map_items, reduce_bucket, workers=self.workers)
        batch_size = _BUCKETS_PER_WORKER * self.workers if self.workers > 1 else 1
        if self.grouping.combine is None:
            buckets = blobs | "GroupBuckets" >> beam.GroupByKey()
        else:
            merge = functools.partial(_merge_blobs, self.grouping.combine)
            merged = blobs | "GroupBuckets" >> beam.CombinePerKey(merge)
            buckets = merged | "ListBlobs" >> beam.MapTuple(lambda bucket, blob: (bucket, [blob]))
        return (
            buckets
            | "BatchBuckets" >> beam.BatchElements(batch_size, batch_size)
            | "ReduceBuckets" >> beam.FlatMap(reduce_buckets).with_output_types(str)
        )


def _key_result(result: str) -> tuple[int, str]:
    return json.loads(result)["index"] // RESULTS_PER_FILE, result


@dataclass(kw_only=True, eq=False)
class WriteResults(beam.PTransform[Any, Any]):
    """JSON results in; files of a job, with one result per line.

    No element of the graph has more than `RESULTS_PER_FILE` results, whatever the plan.
    """

    files: JobFiles
    kind: str

    def expand(self, results: Any) -> Any:
        write = functools.partial(self.files.write_results, self.kind)
        return (
            results
            | "KeyResults" >> beam.Map(_key_result).with_output_types(tuple[int, str])
            | "GroupResults" >> beam.GroupByKey()
            | "WriteFile" >> beam.MapTuple(write)
        )


def _read_plan(prefix: str) -> list[str]:
    return JobFiles(prefix).read_plan()


def shard_pipeline(
    job: str,
    files: JobFiles,
    *,
    item_type: type[Any],
    work: ShardFn,
    grouping: BucketReduce | None,
    spill: str = "",
    workers: int = 1,
) -> Callable[[beam.Pipeline], None]:
    """Return a function that adds a job to a pipeline.

    Args:
        job: Name of the job on the runner.
        files: Its files, with a written plan.
        item_type: Class of the items.
        work: Work on each item.
        grouping: Work on the blobs of each bucket.
        spill: Folder that all workers share, for blobs; "": the runner groups the blobs themselves.
        workers: Number of worker processes that this process starts. 1: none.
    """
    # A combiner needs the blobs themselves, and leaves little of them.
    spill = spill if grouping is not None and grouping.combine is None else ""
    process_items = _ProcessItems(
        job, work, files, item_type=item_type, spill=spill, workers=workers
    )

    def build(pipeline: beam.Pipeline) -> None:
        processed = (
            pipeline
            | f"{job}: Plan" >> beam.Create([files.prefix])
            | "ReadPlan" >> beam.FlatMap(_read_plan).with_output_types(str)
            | "SpreadItems" >> beam.Reshuffle()
            | "ProcessItems" >> beam.ParDo(process_items).with_outputs(BLOBS, main="results")
        )
        _ = processed["results"] | "WriteResults" >> WriteResults(files=files, kind=ITEMS)
        if grouping is not None:
            _ = (
                processed[BLOBS]
                | "TypeBlobs" >> beam.Map(_type_blob).with_output_types(_KeyedBytes)
                | "ReduceBuckets" >> ReduceBuckets(grouping=grouping, spill=spill, workers=workers)
                | "WriteBuckets" >> WriteResults(files=files, kind=BUCKETS)
            )

    return build
