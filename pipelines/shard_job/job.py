"""Shard jobs: plan work items, process them in one `ParDo`, write shards, collect the results.

Text never crosses a shuffle. A work item names some input (a split of a dump, a shard). A `ShardFn`
reads it, processes it as a chain of generators, writes shards to the output folder, and returns
their names, digests and counters. Only these results, and small blobs for grouping (digests, word
counts), pass through Beam. A shard that no result names, because its worker was retried or killed,
is ignored.

Beam runs the jobs of engines and of several workers; it is loaded when such a job runs. One worker
on this machine processes the items in a loop, with the same output.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pipelines.io.file_systems import is_local
from pipelines.progress import Progress
from pipelines.runners.local import start_fork_server
from pipelines.runners.registry import get_runner
from pipelines.runners.runner import Runner
from pipelines.shard_job.item_cache import (
    CacheableShardFn,
    CachingShardFn,
    ItemCache,
    measure_reuse,
)
from pipelines.shard_job.items import ItemProcessor, run_in_this_process
from pipelines.shard_job.job_files import ResultList, open_job_files
from pipelines.shard_job.work import BucketReduce, ShardFn, WorkResult
from schemas.errors import RunnerError
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import FileEntry, Reuse

MIN_REMOTE_SECONDS = 0.25
"""CPU seconds of the shortest item that is recorded in a bucket."""


class JobResult(NamedTuple):
    """Results of a job."""

    reports: ResultList
    """Result of each item, in the order of the plan."""

    groups: Iterable[WorkResult]
    """Results of the grouping, by bucket."""

    reuse: Reuse
    """Amount of restored work."""

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """All files of the items, in the order of the plan."""
        return self.reports.files


def run_shard_job(
    job: str,
    planned: Sequence[Any],
    *,
    work: CacheableShardFn,
    output: str,
    execution: ExecutionConfig,
    pieces: str = "",
    grouping: BucketReduce | None = None,
) -> JobResult:
    """Process every item, or restore the result of an earlier job.

    Args:
        job: Name of the job in logs and on the runner.
        planned: Work items.
        work: Work on each item.
        output: URL of the folder that the work writes to. Workers need access to it.
        execution: Runner and its options.
        pieces: URL of the cache of items (`pipelines.shard_job.item_cache`); "": process all items.
        grouping: Work on the blobs of each bucket.

    Raises:
        BertloomError: A worker raised it, on any runner: with its class, message and attributes.
        OSError: A worker raised it: a full disk, a store that does not answer.
        RunnerError: The runner failed, or an item was not processed exactly once.
    """
    runner = get_runner(execution)
    runner.check_store(output)
    runner.cancel_earlier_jobs(job)
    shard_fn: ShardFn = work
    if pieces:
        min_seconds = 0.0 if is_local(pieces) else MIN_REMOTE_SECONDS
        shard_fn = CachingShardFn(work, ItemCache(pieces, output), min_seconds)
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(open_job_files(output, is_local=runner.is_local))
        if runner.is_local:
            weights = {item.number: item.weight for item in planned}
            stack.enter_context(Progress(job, weights=weights))
        process = ItemProcessor(shard_fn, files)
        with files.errors.reraise(job):
            if runner.is_local and runner.workers == 1:
                results, groups = run_in_this_process(job, planned, process, grouping=grouping)
            else:
                results, groups = _run_pipeline(job, planned, process, runner, grouping=grouping)
    if results.numbers != [item.number for item in planned]:
        raise RunnerError(
            f"{job}: planned {len(planned)} items, got {len(results)} results; the runner lost or "
            "repeated work"
        )
    return JobResult(results, groups, measure_reuse(planned, results.reused))


def _run_pipeline(
    job: str,
    planned: Sequence[Any],
    process: ItemProcessor,
    runner: Runner,
    *,
    grouping: BucketReduce | None,
) -> tuple[ResultList, ResultList]:
    """Run a job as a Beam pipeline. Return the results of the items and of the buckets."""
    if runner.workers > 1:
        start_fork_server()  # loads the workers' modules while this process loads Beam
    from pipelines.shard_job.pipeline import BUCKETS, ITEMS, shard_pipeline  # lazy: loads Beam

    # A process with a pool of workers gets all items together.
    elements = [planned] if runner.workers > 1 else [[item] for item in planned]
    files = process.files
    files.write_plan(elements)
    build = shard_pipeline(
        job,
        process,
        item_type=type(planned[0]) if planned else tuple,
        grouping=grouping,
        spill=files.spill_folder if runner.is_local else "",
        workers=runner.workers,
    )
    runner.run(job, build, num_elements=len(elements))
    return files.read_results(ITEMS), files.read_results(BUCKETS)
