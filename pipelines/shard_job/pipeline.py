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

from pipelines.io.file_systems import file_system
from pipelines.progress import ItemProgress, current_recorder
from pipelines.runners.code import CodeVersionCheck
from pipelines.runners.job_context import ErrorFiles
from pipelines.runners.local import map_items
from pipelines.shard_job.item_cache import CachingShardFn
from pipelines.shard_job.work import (
    RESULTS_PER_FILE,
    BucketReduce,
    ItemProcessor,
    ShardFn,
    SpillFile,
    read_plan,
    reduce_bucket,
)

BLOBS = "blobs"

_BUCKETS_PER_WORKER = 4
_KeyedBytes = tuple[int, bytes]


class _ProcessItems(beam.DoFn):
    """Processes the items of an element, in worker processes if there are several workers."""

    def __init__(
        self,
        work: ShardFn,
        *,
        item_type: type[Any],
        errors: ErrorFiles,
        spill: str,
        workers: int,
    ) -> None:
        self._code = CodeVersionCheck()  # first: other code may not be able to unpickle the work
        self._processor, self._item_type = ItemProcessor(work, errors), item_type
        self._spill, self._workers = spill, workers
        self._blobs: SpillFile | None = None
        self._namespace = type(work.work if isinstance(work, CachingShardFn) else work).__name__

    def setup(self) -> None:
        self._blobs = SpillFile(self._spill) if self._spill else None
        self._parse = TypeAdapter(list[self._item_type]).validate_json  # type: ignore[name-defined]

    def teardown(self) -> None:
        if self._blobs is not None:
            self._blobs.close()

    def process(self, element: str) -> Iterator[Any]:
        recorder = current_recorder()
        for result in map_items(self._processor, self._parse(element), workers=self._workers):
            rows = sum(entry.rows or 0 for entry in result.files)
            if recorder is not None:
                size_bytes = sum(entry.size_bytes for entry in result.files)
                recorder.record(result.index, ItemProgress(1.0, rows, size_bytes))
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
            Metrics.counter(self._namespace, name).inc(amount)


def _type_blob(blob: _KeyedBytes) -> _KeyedBytes:
    """Return the blob: the type hints give its PCollection a deterministic coder."""
    return blob


def _merge_blobs(combine: Callable[[Sequence[bytes]], bytes], blobs: Iterable[bytes]) -> bytes:
    held = list(blobs)
    return combine(held) if len(held) > 1 else held[0]


@dataclass(kw_only=True, eq=False)
class ReduceBuckets(beam.PTransform[Any, Any]):
    """(bucket, bytes) pairs in; JSON results out, one per bucket."""

    grouping: BucketReduce
    spill: str = ""
    """Folder of the spill files whose locations the pairs have; "": they have the blobs."""

    workers: int = 1
    """Number of worker processes that this process starts. 1: none."""

    def expand(self, blobs: Any) -> Any:
        reduce_buckets = functools.partial(
            map_items,
            functools.partial(reduce_bucket, self.grouping, self.spill),
            workers=self.workers,
        )
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


class _WriteFile(beam.DoFn):
    def __init__(self, url: str) -> None:
        self._url = url

    def process(self, element: tuple[int, Iterable[str]]) -> None:
        number, results = element
        fs, path = file_system(f"{self._url}-{number}")
        # Sorted: a repeated bundle writes the same bytes.
        fs.pipe_file(path, "\n".join(sorted(results)).encode())


@dataclass(kw_only=True, eq=False)
class WriteResults(beam.PTransform[Any, Any]):
    """JSON results in; files `URL-0`, `URL-1`, ... with one result per line.

    No element of the graph has more than `RESULTS_PER_FILE` results, whatever the plan.
    """

    url: str

    def expand(self, results: Any) -> Any:
        return (
            results
            | "KeyResults" >> beam.Map(_key_result).with_output_types(tuple[int, str])
            | "GroupResults" >> beam.GroupByKey()
            | "WriteFile" >> beam.ParDo(_WriteFile(self.url))
        )


def shard_pipeline(
    job: str,
    plan: str,
    *,
    item_type: type[Any],
    work: ShardFn,
    errors: ErrorFiles,
    grouping: BucketReduce | None,
    urls: Mapping[str, str],
    spill: str = "",
    workers: int = 1,
) -> Callable[[beam.Pipeline], None]:
    """Return a function that adds a job to a pipeline.

    Args:
        job: Name of the job on the runner.
        plan: URL of the plan (`written_plan`).
        item_type: Class of the items.
        work: Work on each item.
        errors: Files of the workers' errors.
        grouping: Work on the blobs of each bucket.
        urls: Start of the URLs of the results of `work` and of `groups`.
        spill: Folder that all workers share, for blobs; "": the runner groups the blobs themselves.
        workers: Number of worker processes that this process starts. 1: none.
    """
    # A combiner needs the blobs themselves, and leaves little of them.
    spill = spill if grouping is not None and grouping.combine is None else ""
    process_items = _ProcessItems(
        work,
        item_type=item_type,
        errors=errors,
        spill=spill,
        workers=workers,
    )

    def build(pipeline: beam.Pipeline) -> None:
        processed = (
            pipeline
            | f"{job}: Plan" >> beam.Create([plan])
            | "ReadPlan" >> beam.FlatMap(read_plan).with_output_types(str)
            | "SpreadItems" >> beam.Reshuffle()
            | "ProcessItems" >> beam.ParDo(process_items).with_outputs(BLOBS, main="results")
        )
        _ = processed["results"] | "WriteResults" >> WriteResults(url=urls["work"])
        if grouping is not None:
            _ = (
                processed[BLOBS]
                | "TypeBlobs" >> beam.Map(_type_blob).with_output_types(_KeyedBytes)
                | "ReduceBuckets" >> ReduceBuckets(grouping=grouping, spill=spill, workers=workers)
                | "WriteBuckets" >> WriteResults(url=urls["groups"])
            )

    return build
