"""The Beam pipeline of a shard job: it only wires work and grouping, which do not know of Beam."""

from __future__ import annotations

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
from pipelines.beam.spill import BlobFile, blobs_at
from pipelines.beam.work import Grouping, ShardWork
from pipelines.io.file_systems import file_system
from pipelines.runners.code import SameCode
from pipelines.runners.errors import ErrorFiles

BLOBS = "blobs"


MOST_PLAN_BYTES = 1 << 20
"""Of a plan that is part of a pipeline's graph although its pieces could lie in a file."""

_ELEMENTS = 4096


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


class _DoWork(beam.DoFn):
    def __init__(
        self,
        work: ShardWork,
        *,
        plan: PlanFile,
        errors: ErrorFiles,
        spill: str,
        reports: tuple[str, int],
    ) -> None:
        self._code = SameCode()  # before the work, which another code may not even unpack
        self._work, self._plan, self._errors, self._spill = work, plan, errors, spill
        self._reports = reports
        self._blobs: BlobFile | None = None
        kind = type(work.work if isinstance(work, ReusingWork) else work)
        self._counted_under = kind.__name__

    def setup(self) -> None:
        self._work.setup()
        self._blobs = BlobFile(self._spill) if self._spill else None

    def teardown(self) -> None:
        if self._blobs is not None:
            self._blobs.close()

    def process(self, element: tuple[int, Iterable[ByteRange]]) -> Iterator[Any]:
        url, most_bytes = self._reports
        sent = Outbox(url, most_bytes=most_bytes)
        for where in element[1]:
            for piece in self._plan.pieces(where):
                with self._errors.telling(piece):
                    report = self._work.process(piece)
                    if self._blobs is not None:
                        report.blobs = self._blobs.places(report.blobs)
                rows = sum(entry.rows or 0 for entry in report.files)
                for name, amount in {**report.counters, "rows": rows}.items():
                    # For the runner's own console; the manifest takes the reports' counts, which
                    # no retried bundle can count twice.
                    Metrics.counter(self._counted_under, name).inc(amount)
                for blob in report.blobs:
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

    def expand(self, begin: Any) -> Any:
        do_work = beam.ParDo(
            _DoWork(
                self.work,
                plan=self.plan,
                errors=self.errors,
                spill=self.spill,
                reports=(self.report_url, MOST_TOGETHER // max(1, len(self.ranges))),
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


class _ReportBucket(beam.DoFn):
    def __init__(self, grouping: Grouping, spill: str) -> None:
        self._grouping, self._spill = grouping, spill

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[str]:
        bucket, blobs = element
        found = blobs_at(blobs, self._spill) if self._spill else blobs
        yield self._grouping.report(bucket, found).to_json()


@dataclass(kw_only=True, eq=False)
class GroupBlobs(beam.PTransform[Any, Any]):
    """(bucket, bytes) pairs in; JSON reports out, one for each bucket."""

    grouping: Grouping
    spill: str = ""
    """As of `DoShardWork`."""

    def expand(self, blobs: Any) -> Any:
        merge = self.grouping.merge
        return (
            blobs
            | "GroupBuckets"
            >> (beam.CombinePerKey(_MergeBlobs(merge)) if merge else beam.GroupByKey())
            | "ReportBuckets"
            >> beam.ParDo(_ReportBucket(self.grouping, self.spill)).with_output_types(str)
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
        )
        _ = done["reports"] | "CollectReports" >> CollectReports(url=report_urls["work"])
        if grouping is not None:
            grouped = done[BLOBS] | "GroupBlobs" >> GroupBlobs(grouping=grouping, spill=kept)
            _ = grouped | "CollectGroups" >> CollectReports(url=report_urls["groups"])

    return build
