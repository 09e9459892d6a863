"""Beam pipeline of a shard job.

CreateRanges -> SpreadRanges -> ProcessItems -> results -> WriteResults
                                             -> blobs -> ReduceBuckets -> WriteBuckets
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.metrics.metric import Metrics
from apache_beam.transforms.combiners import ToListCombineFn

from pipelines.beam.item_cache import CachingShardFn
from pipelines.beam.shard_work import (
    MAX_INLINE_BYTES,
    BucketReduce,
    ByteRange,
    ItemProcessor,
    PlanFile,
    ResultBatcher,
    ShardFn,
    SpillFile,
    reduce_bucket,
)
from pipelines.io.file_systems import file_system
from pipelines.progress import ItemProgress, ItemProgressFile, current_recorder, recorder_scope
from pipelines.runners.code import CodeVersionCheck
from pipelines.runners.job_context import ErrorFiles
from pipelines.runners.local import map_items

BLOBS = "blobs"

_BUCKETS_PER_WORKER = 4
_KeyedBytes = tuple[int, bytes]


class _ProcessItems(beam.DoFn):
    """Processes the items of an element, in worker processes if there are several workers."""

    def __init__(
        self,
        work: ShardFn,
        *,
        plan: PlanFile,
        errors: ErrorFiles,
        spill: str,
        results: tuple[str, int],
        progress: str,
        workers: int,
    ) -> None:
        self._code = CodeVersionCheck()  # first: other code may not be able to unpickle the work
        self._processor, self._plan, self._spill = ItemProcessor(work, errors), plan, spill
        self._results, self._progress_url, self._workers = results, progress, workers
        self._blobs: SpillFile | None = None
        self._namespace = type(work.work if isinstance(work, CachingShardFn) else work).__name__

    def setup(self) -> None:
        self._blobs = SpillFile(self._spill) if self._spill else None
        self._progress_file = ItemProgressFile(*file_system(self._progress_url))

    def finish_bundle(self) -> None:
        self._progress_file.flush()

    def teardown(self) -> None:
        if self._blobs is not None:
            self._blobs.close()

    def process(self, element: tuple[int, Iterable[ByteRange]]) -> Iterator[Any]:
        url, max_inline_bytes = self._results
        batcher = ResultBatcher(url, max_inline_bytes=max_inline_bytes)
        items = itertools.chain.from_iterable(map(self._plan.items, element[1]))
        # In the launching thread, the local runner's, the job's own recorder is the current one.
        recorder = current_recorder() or self._progress_file
        with recorder_scope(recorder):
            for result in map_items(self._processor, items, workers=self._workers):
                rows = sum(entry.rows or 0 for entry in result.files)
                size_bytes = sum(entry.size_bytes for entry in result.files)
                recorder.record(result.index, ItemProgress(1.0, rows, size_bytes))
                self._count({**result.counters, "rows": rows})
                blobs = result.blobs if self._blobs is None else self._blobs.write(result.blobs)
                for blob in blobs:
                    yield beam.pvalue.TaggedOutput(BLOBS, (blob.bucket, blob.data))
                yield from batcher.add(result)
        yield from batcher.flush()

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


class _WriteFile(beam.DoFn):
    def __init__(self, url: str) -> None:
        self._url = url

    def process(self, results: list[str]) -> None:
        # Sorted: a repeated bundle writes the same bytes.
        fs, path = file_system(self._url)
        fs.pipe_file(path, "\n".join(sorted(results)).encode())


@dataclass(kw_only=True, eq=False)
class WriteResults(beam.PTransform[Any, Any]):
    """JSON results, or names of files of them, in; one file of all, at `url`."""

    url: str

    def expand(self, results: Any) -> Any:
        return (
            results
            | "GatherResults" >> beam.CombineGlobally(ToListCombineFn())
            | "WriteFile" >> beam.ParDo(_WriteFile(self.url))
        )


def shard_pipeline(
    job: str,
    plan: PlanFile,
    ranges: Sequence[ByteRange],
    *,
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
        plan: Work items.
        ranges: Items of each element.
        work: Work on each item.
        errors: Files of the workers' errors.
        grouping: Work on the blobs of each bucket.
        urls: Files of the results of `work` and of `groups`, and start of the URLs of the
            workers' `progress` files.
        spill: Folder that all workers share, for blobs; "": the runner groups the blobs themselves.
        workers: Number of worker processes that this process starts. 1: none.
    """
    # A combiner needs the blobs themselves, and leaves little of them.
    spill = spill if grouping is not None and grouping.combine is None else ""
    process_items = _ProcessItems(
        work,
        plan=plan,
        errors=errors,
        spill=spill,
        results=(urls["work"], MAX_INLINE_BYTES // max(1, len(ranges))),
        progress=urls["progress"],
        workers=workers,
    )

    def build(pipeline: beam.Pipeline) -> None:
        processed = (
            pipeline
            | f"{job}: CreateRanges" >> beam.Create(list(enumerate(ranges)), reshuffle=False)
            | "SpreadRanges" >> beam.GroupByKey()
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
