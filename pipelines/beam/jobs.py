"""The one shape that every heavy job has: a planned list of pieces, a `ParDo`, shards beside it.

Text never crosses a shuffle. A piece names some input (a split of a dump, a document shard); a
`ShardWork` reads it, does all the work as a chain of generators, writes shard files straight to the
output folder, and reports their names, digests and counts. Only reports, and the few bytes a work
wants grouped ("blobs": digests, word counts), go through Beam's own data plane.

A shard file that no report names, because its worker was retried or killed, is never looked at.

Beam is loaded when a job runs, not when it is planned.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pipelines.beam.plan_file import SharedInput, written_plan
from pipelines.beam.reports import Reports
from pipelines.beam.reuse import WORTH_REQUESTS, PieceWork, ReusingWork, reuse_of, reusing
from pipelines.beam.work import Grouping, WorkReport
from pipelines.io.file_systems import file_system
from pipelines.io.temporary_folders import temporary_folder
from pipelines.runners.earlier import wait_for_earlier_job
from pipelines.runners.errors import ErrorFiles
from pipelines.runners.launch import Launch
from pipelines.telling.progress import Progress
from schemas.errors import ConfigError, RunnerError
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import FileEntry, Reuse

MIN_REMOTE_BYTES = 8 << 20
"""Bytes of input from which on a job goes to an engine although most of its items are cached."""


def group_items(
    items: Sequence[Any], *, max_elements: int, colocate_by: Callable[[Any], Any] | None = None
) -> list[list[Any]]:
    """Return the items of each element of a job's graph; an engine gives elements to its workers.

    Args:
        items: Items of the job.
        max_elements: Maximum number of elements.
        colocate_by: Key of an item; items with equal keys are in one element. None: no two are.
    """
    groups: dict[Any, list[Any]] = {}
    for item in items:
        groups.setdefault(colocate_by(item) if colocate_by else item.number, []).append(item)
    size = math.ceil(len(groups) / max_elements)
    grouped = list(groups.values())
    return [
        list(itertools.chain.from_iterable(grouped[start : start + size]))
        for start in range(0, len(grouped), size or 1)
    ]


class FinishedJob(NamedTuple):
    """The reports of a job."""

    reports: Reports
    """A report a piece, in the order of the plan."""

    groups: Sequence[WorkReport]
    """Those of the grouping, by bucket."""

    reuse: Reuse
    """How much was restored."""

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """All files of the pieces, in the order of the plan."""
        return self.reports.files


def run_shard_job(
    job: str,
    planned: Sequence[Any],
    *,
    work: PieceWork,
    output: str,
    execution: ExecutionConfig,
    pieces: str = "",
    grouping: Grouping | None = None,
    together: Callable[[Any], Any] | None = None,
    shared: SharedInput | None = None,
) -> FinishedJob:
    """Do `work` on every piece, or restore what an earlier job made of it.

    Args:
        job: names the job in logs and on the runner.
        planned: the pieces.
        work: what to do with each.
        output: URL of the folder that the work writes to; needed by other processes too unless
            the runner works in this one.
        execution: where to run.
        pieces: URL of the folder of finished pieces (`pipelines.beam.reuse`); "" to do all anew.
        grouping: what to do with the blobs of each bucket.
        together: what pieces have in common that are best done by one worker, such as a shard that
            all of them read.
        shared: what `work` holds and is too long for the graph of a job.

    Raises:
        BertloomError: as a worker raised it, on whatever runner: its class, words and attributes.
        OSError: the same, of a full disk or a store that is out of reach.
        RunnerError: the runner failed, or a piece has not been reported exactly once.
    """
    from pipelines.beam.pipeline import shard_pipeline  # start-up: 2,100 ms
    from pipelines.runners.run import run_pipeline  # start-up: 2,100 ms, the same

    launch = Launch.of(execution)
    _check_reachable(output, execution, launch)
    wait_for_earlier_job(job, launch)
    doing = reusing(work, pieces=pieces, output=output)
    if isinstance(doing, ReusingWork):
        if doing.files.is_remote:
            doing = replace(doing, worth_seconds=WORTH_REQUESTS)
        if not launch.is_local and doing.has_nearly_all(planned, but=MIN_REMOTE_BYTES):
            launch = Launch.of(ExecutionConfig())
    fs, folder = file_system(output)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(_report_folder(output, launch))
        urls = {kind: f"{place}/.reports-{kind}-{uuid.uuid4().hex}" for kind in ("work", "groups")}
        errors = ErrorFiles(f"{place}/.reports-errors-{uuid.uuid4().hex}")

        elements = group_items(planned, max_elements=launch.max_elements, colocate_by=together)
        plan = stack.enter_context(written_plan(elements, folder=place))
        if shared is not None:
            stack.enter_context(shared.written(f"{place}/.plan-input-{uuid.uuid4().hex}.json"))
        build = shard_pipeline(
            job,
            *plan,
            work=doing,
            errors=errors,
            grouping=grouping,
            report_urls=urls,
            # Where reports are on this machine's disk, all workers are.
            spill=f"{place}/blobs" if launch.is_local else "",
            workers=launch.workers,
        )
        with Progress(job, fs=fs, folder=folder, total=len(planned)), errors.raised_again(job):
            run_pipeline(job, build, launch=launch, pieces=len(elements))
        reports = Reports(urls["work"])
        groups = Reports(urls["groups"]) if grouping is not None else []
    if reports.numbers != [piece.number for piece in planned]:
        raise RunnerError(
            f"{job}: {len(planned)} pieces were planned and {len(reports)} reported "
            "(each must be, exactly once); the runner lost or repeated work"
        )
    return FinishedJob(reports, groups, reuse_of(planned, reports.reused))


@contextlib.contextmanager
def _report_folder(output: str, launch: Launch) -> Iterator[str]:
    """The URL of a folder for reports: on this machine's disk where all workers are on it.

    Elsewhere they lie hidden beside the shards. An object store would answer three requests more
    for each file of reports.
    """
    if not launch.is_local:
        yield output
        return
    with temporary_folder("reports") as folder:
        yield folder


def _check_reachable(output: str, execution: ExecutionConfig, launch: Launch) -> None:
    if output.startswith("memory:") and (launch.workers > 1 or not launch.is_local):
        raise ConfigError(
            f"a memory:// store lives in one process; runner {execution.runner!r} with "
            f"{execution.workers} workers uses others. Use a folder, or the local runner with one "
            "worker"
        )
