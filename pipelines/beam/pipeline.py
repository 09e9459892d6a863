"""The Beam pipeline of a shard job: it only wires work and grouping, which do not know of Beam."""

from __future__ import annotations

import functools
import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.metrics.metric import Metrics
from apache_beam.options.pipeline_options import GoogleCloudOptions
from apache_beam.transforms.combiners import ToListCombineFn

from pipelines.beam.plan_file import ByteRange, PlanFile, plan_text
from pipelines.beam.reports import MOST_TOGETHER, Outbox
from pipelines.beam.reuse import ReusingWork
from pipelines.beam.spill import BlobFile, report_bucket
from pipelines.beam.work import Grouping, ItemProcessor, ShardWork
from pipelines.io.file_systems import file_system
from pipelines.runners.code import SameCode
from pipelines.runners.errors import ErrorFiles
from pipelines.runners.local import map_items

BLOBS = "blobs"


MOST_PLAN_BYTES = 1 << 20
"""Of a plan that is part of a pipeline's graph although its pieces could lie in a file."""

_ELEMENTS = 4096
_BUCKETS_PER_WORKER = 4


@dataclass(eq=False)
class SpreadPieces(beam.PTransform[Any, Any]):
    """Nothing in; planned pieces out.

    A long plan lies in a file of the pipeline's `temp_location`, where it has one. Nobody knows
    when it was read last, so it stays there, as what else pipelines leave in that folder.
    """

    pieces: Sequence[Any]

    def expand(self, begin: Any) -> Any:
        size = -(-len(self.pieces) // _ELEMENTS) or 1
        lanes = [self.pieces[at : at + size] for at in range(0, len(self.pieces), size)]
        text, ranges = plan_text(lanes)
        place = begin.pipeline.options.view_as(GoogleCloudOptions).temp_location
        if not place or len(text) <= MOST_PLAN_BYTES:
            return begin | "CreatePieces" >> beam.Create(self.pieces)
        url = f"{place.rstrip('/')}/bertloom-plan-{uuid.uuid4().hex}.ndjson"
        fs, path = file_system(url)
        fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        fs.pipe_file(path, text)
        plan = PlanFile(url, type(self.pieces[0]))
        return (
            begin | "CreateRanges" >> beam.Create(ranges) | "ReadPlan" >> beam.FlatMap(plan.pieces)
        )


class _ProcessItems(beam.DoFn):
    """Processes the items of an element, in worker processes if there are several workers."""

    def __init__(
        self,
        work: ShardWork,
        *,
        plan: PlanFile,
        errors: ErrorFiles,
        spill: str,
        reports: tuple[str, int],
        workers: int,
    ) -> None:
        self._code = SameCode()  # before the work, which another code may not even unpack
        self._processor, self._plan, self._spill = ItemProcessor(work, errors), plan, spill
        self._reports, self._workers = reports, workers
        self._blobs: BlobFile | None = None
        kind = type(work.work if isinstance(work, ReusingWork) else work)
        self._counted_under = kind.__name__

    def setup(self) -> None:
        self._blobs = BlobFile(self._spill) if self._spill else None

    def teardown(self) -> None:
        if self._blobs is not None:
            self._blobs.close()

    def process(self, element: tuple[int, Iterable[ByteRange]]) -> Iterator[Any]:
        url, most_bytes = self._reports
        sent = Outbox(url, most_bytes=most_bytes)
        items = itertools.chain.from_iterable(map(self._plan.pieces, element[1]))
        for report in map_items(self._processor, items, workers=self._workers):
            rows = sum(entry.rows or 0 for entry in report.files)
            for name, amount in {**report.counters, "rows": rows}.items():
                # For the runner's own console; the manifest takes the reports' counts, which
                # no retried bundle can count twice.
                Metrics.counter(self._counted_under, name).inc(amount)
            blobs = report.blobs if self._blobs is None else self._blobs.places(report.blobs)
            for blob in blobs:
                yield beam.pvalue.TaggedOutput(BLOBS, (blob.bucket, blob.data))
            yield from sent.add(report)
        yield from sent.rest()


_KeyedBytes = tuple[int, bytes]


def _blob(blob: _KeyedBytes) -> _KeyedBytes:
    """As it is: only gives the PCollection a type, so that its coder is deterministic."""
    return blob


@dataclass(kw_only=True, eq=False)
class DoShardWork(beam.PTransform[Any, Any]):
    """Nothing in; out: `reports` (what an `Outbox` sends) and `blobs` ((bucket, bytes) pairs)."""

    work: ShardWork
    plan: PlanFile
    ranges: Sequence[ByteRange]
    errors: ErrorFiles
    report_url: str
    """Begins the names of files of reports."""

    spill: str = ""
    """Path of a folder for blobs, whose places are sent instead; "" to send them themselves."""

    workers: int = 1
    """Number of worker processes that this process starts for the items. 1: none."""

    def expand(self, begin: Any) -> Any:
        do_work = beam.ParDo(
            _ProcessItems(
                self.work,
                plan=self.plan,
                errors=self.errors,
                spill=self.spill,
                reports=(self.report_url, MOST_TOGETHER // max(1, len(self.ranges))),
                workers=self.workers,
            )
        )
        outputs = (
            begin
            | "PlanWork" >> beam.Create(list(enumerate(self.ranges)), reshuffle=False)
            | "SpreadWork" >> beam.GroupByKey()
            | "DoWork" >> do_work.with_outputs(BLOBS, main="reports")
        )
        return {
            "reports": outputs["reports"],
            BLOBS: outputs[BLOBS] | "TypeBlobs" >> beam.Map(_blob).with_output_types(_KeyedBytes),
        }


class _MergeBlobs(beam.CombineFn):
    # How many blobs are held before they are merged: merging costs a sort.
    _HELD = 16

    def __init__(self, merge: Callable[[Sequence[bytes]], bytes]) -> None:
        self._merge = merge

    def create_accumulator(self) -> list[bytes]:
        return []

    def add_input(self, accumulator: list[bytes], element: bytes) -> list[bytes]:
        return self.merge_accumulators([accumulator, [element]])

    def merge_accumulators(self, accumulators: Iterable[list[bytes]]) -> list[bytes]:
        merged: list[bytes] = []
        for accumulator in accumulators:
            merged.extend(accumulator)
            if len(merged) >= self._HELD:
                merged = [self._merge(merged)]
        return merged

    def compact(self, accumulator: list[bytes]) -> list[bytes]:
        return [self._merge(accumulator)] if len(accumulator) > 1 else accumulator

    def extract_output(self, accumulator: list[bytes]) -> list[bytes]:
        return self.compact(accumulator)


@dataclass(kw_only=True, eq=False)
class GroupBlobs(beam.PTransform[Any, Any]):
    """(bucket, bytes) pairs in; JSON reports out, one for each bucket."""

    grouping: Grouping
    spill: str = ""
    """As of `DoShardWork`."""

    workers: int = 1
    """As of `DoShardWork`."""

    def expand(self, blobs: Any) -> Any:
        merge = self.grouping.merge
        report_buckets = functools.partial(
            map_items,
            functools.partial(report_bucket, self.grouping, self.spill),
            workers=self.workers,
        )
        batch_size = _BUCKETS_PER_WORKER * self.workers if self.workers > 1 else 1
        return (
            blobs
            | "GroupBuckets"
            >> (beam.CombinePerKey(_MergeBlobs(merge)) if merge else beam.GroupByKey())
            | "BatchBuckets" >> beam.BatchElements(batch_size, batch_size)
            | "ReportBuckets" >> beam.FlatMap(report_buckets).with_output_types(str)
        )


class _WriteReports(beam.DoFn):
    def __init__(self, url: str) -> None:
        self._url = url

    def process(self, reports: list[str]) -> None:
        # Sorted, so that a bundle which runs twice writes the same bytes twice.
        fs, path = file_system(self._url)
        fs.pipe_file(path, "\n".join(sorted(reports)).encode())


@dataclass(kw_only=True, eq=False)
class CollectReports(beam.PTransform[Any, Any]):
    """PCollections of JSON reports, or names of files, in; one file of them out, at `url`."""

    url: str

    def expand(self, reports: Any) -> Any:
        return (
            reports
            | "GatherReports" >> beam.CombineGlobally(ToListCombineFn())
            | "WriteReports" >> beam.ParDo(_WriteReports(self.url))
        )


def shard_pipeline(
    job: str,
    plan: PlanFile,
    ranges: Sequence[ByteRange],
    *,
    work: ShardWork,
    errors: ErrorFiles,
    grouping: Grouping | None,
    report_urls: Mapping[str, str],
    spill: str = "",
    workers: int = 1,
) -> Callable[[beam.Pipeline], None]:
    """A function that adds a job to a pipeline.

    Args:
        job: names the job on the runner.
        plan: the pieces.
        ranges: those of each element.
        work: what to do with each.
        errors: where a worker's error is written down.
        grouping: what to do with the blobs of each bucket.
        report_urls: where reports are written, of `work` and of `groups`.
        spill: path of a folder that all workers share, for blobs that are grouped as they are; ""
            for the runner to bring them together.
        workers: Number of worker processes that this process starts for the items.
    """

    def build(pipeline: beam.Pipeline) -> None:
        # A combiner wants the blobs themselves, and leaves little of them.
        kept = spill if grouping is not None and grouping.merge is None else ""
        done = pipeline | job >> DoShardWork(
            work=work,
            plan=plan,
            ranges=ranges,
            errors=errors,
            report_url=report_urls["work"],
            spill=kept,
            workers=workers,
        )
        _ = done["reports"] | "CollectReports" >> CollectReports(url=report_urls["work"])
        if grouping is not None:
            grouped = done[BLOBS] | "GroupBlobs" >> GroupBlobs(
                grouping=grouping, spill=kept, workers=workers
            )
            _ = grouped | "CollectGroups" >> CollectReports(url=report_urls["groups"])

    return build
