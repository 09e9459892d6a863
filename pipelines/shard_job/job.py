"""Shard jobs: plan work items, process them in one `ParDo`, write shards, collect the results.

Text never crosses a shuffle. A work item names some input (a split of a dump, a shard). A `ShardFn`
reads it, processes it as a chain of generators, writes shards to the output folder, and returns
their names, digests and counters. Only these results, and small blobs for grouping (digests, word
counts), pass through Beam. A shard that no result names, because its worker was retried or killed,
is ignored.

Beam is loaded when a job runs, not when it is planned.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pipelines.progress import Progress
from pipelines.runners.job_context import ErrorFiles
from pipelines.runners.registry import get_runner
from pipelines.runners.runner import Runner
from pipelines.shard_job.item_cache import (
    MIN_REMOTE_SECONDS,
    CacheableShardFn,
    CachingShardFn,
    ItemCache,
    measure_reuse,
)
from pipelines.shard_job.work import (
    BucketReduce,
    ResultList,
    ShardFn,
    WorkResult,
    written_plan,
)
from schemas.errors import RunnerError
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import FileEntry, Reuse


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
    from pipelines.shard_job.pipeline import shard_pipeline  # lazy: loads Beam

    runner = get_runner(execution)
    runner.check_store(output)
    runner.cancel_earlier_jobs(job)
    shard_fn: ShardFn = work
    if pieces:
        cache = ItemCache(pieces, output)
        min_seconds = MIN_REMOTE_SECONDS if cache.is_remote else 0.0
        shard_fn = CachingShardFn(work, cache, min_seconds)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_job_folder(output, runner))
        urls = {name: f"{folder}/.results-{name}-{uuid.uuid4().hex}" for name in ("work", "groups")}
        errors = ErrorFiles(f"{folder}/.results-errors-{uuid.uuid4().hex}")
        # A process with a pool of workers gets all items together.
        elements = [planned] if runner.workers > 1 else [[item] for item in planned]
        plan = stack.enter_context(written_plan(elements, folder=folder))
        build = shard_pipeline(
            job,
            plan,
            item_type=type(planned[0]) if planned else tuple,
            work=shard_fn,
            errors=errors,
            grouping=grouping,
            urls=urls,
            spill=f"{folder}/blobs" if runner.is_local else "",
            workers=runner.workers,
        )
        if runner.is_local:
            weights = {item.number: item.weight for item in planned}
            stack.enter_context(Progress(job, weights=weights))
        with errors.reraise(job):
            runner.run(job, build, num_elements=len(elements))
        results = ResultList(urls["work"])
        groups = ResultList(urls["groups"]) if grouping is not None else []
    if results.numbers != [item.number for item in planned]:
        raise RunnerError(
            f"{job}: planned {len(planned)} items, got {len(results)} results; the runner lost or "
            "repeated work"
        )
    return JobResult(results, groups, measure_reuse(planned, results.reused))


@contextlib.contextmanager
def _job_folder(output: str, runner: Runner) -> Iterator[str]:
    """Yield the URL of a folder for plan and results: on this machine's disk for a local job.

    Workers elsewhere only share the output folder, where these files are hidden.
    """
    if not runner.is_local:
        yield output
        return
    with TemporaryDirectory(prefix="bertloom-reports-") as folder:
        yield folder
