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
import heapq
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
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

_HANDFULS = 4  # at least so many in each lane, so that the lanes come out about even
MOST_RANGES = 4096
"""Elements of a job's graph where the runner deals them out: more pieces share them."""

_GROUPS = 512  # from so many on, pieces that belong together are one element whatever they weigh
WORTH_PROCESSES = 8 << 20
"""Worker processes take seconds to start, in which this one does so many bytes of work: where not
more is left to do, there are none."""


def deal(
    pieces: Sequence[Any],
    lanes: int,
    *,
    weights: Mapping[int, int] | None = None,
    together: Callable[[Any], Any] | None = None,
) -> list[list[Any]]:
    """Deal pieces to `lanes` lanes of about equal weight, the heaviest first.

    A local runner hands each worker a fixed share, so the balance has to be made beforehand.

    Args:
        pieces: what to deal out.
        lanes: how many get some; 0 for as many as there are pieces, up to `MOST_RANGES`.
        weights: what they weigh, by number, where that is not their own weight.
        together: see `run_shard_job`. Such pieces stay in one lane, one after the other, as far as
            they are no more than a fraction of what a lane gets.
    """
    known = weights or {piece.number: piece.weight for piece in pieces}
    if lanes <= 0:
        return _ranges(pieces, known, together=together)
    if lanes >= len(pieces):
        return [[piece] for piece in pieces]
    most = sum(known.values()) / (lanes * _HANDFULS) if together else 0
    weighed = _handfuls(pieces, known, most=most, together=together or attrgetter("number"))
    dealt: list[list[Any]] = [[] for _ in range(lanes)]
    loads = [(0, lane) for lane in range(lanes)]
    for weight, handful in sorted(weighed, key=lambda pair: (-pair[0], pair[1][0].number)):
        load, lane = loads[0]
        dealt[lane] += handful
        heapq.heapreplace(loads, (load + weight, lane))
    return dealt


def _ranges(
    pieces: Sequence[Any], known: Mapping[int, int], *, together: Callable[[Any], Any] | None
) -> list[list[Any]]:
    """Pieces for a runner that deals them out itself: few that are read together, or one alone."""
    total = sum(known.values())
    if together is not None:
        groups = len({together(piece) for piece in pieces})
        most = total if groups >= _GROUPS else total / _GROUPS
        handfuls = _handfuls(pieces, known, most=most, together=together)
    else:
        handfuls = [(known[piece.number], [piece]) for piece in pieces]
    if len(handfuls) <= MOST_RANGES:
        return [handful for _, handful in handfuls]
    ranges: list[list[Any]] = []
    load, most = 0, total / MOST_RANGES
    for weight, handful in handfuls:
        if not ranges or (load + weight / 2 > len(ranges) * most and len(ranges) < MOST_RANGES):
            ranges.append([])
        ranges[-1] += handful
        load += weight
    return ranges


def _handfuls(
    pieces: Sequence[Any],
    known: Mapping[int, int],
    *,
    most: float,
    together: Callable[[Any], Any],
) -> list[tuple[int, list[Any]]]:
    """Pieces that have something in common, and what they weigh: no more than `most`, or one."""
    groups: dict[Any, list[Any]] = {}
    for piece in pieces:
        groups.setdefault(together(piece), []).append(piece)
    handfuls: list[tuple[int, list[Any]]] = []
    for group in groups.values():
        begins = len(handfuls)
        for piece in group:
            weight = known[piece.number]
            if len(handfuls) > begins and handfuls[-1][0] + weight <= most:
                before, handful = handfuls.pop()
                handful.append(piece)
                handfuls.append((before + weight, handful))
            else:
                handfuls.append((weight, [piece]))
    return handfuls


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
    weights: dict[int, int] | None = None
    doing = reusing(work, pieces=pieces, output=output)
    if isinstance(doing, ReusingWork):
        if doing.files.is_remote:
            doing = replace(doing, worth_seconds=WORTH_REQUESTS)
        if launch.lanes > 1:
            weights = doing.weights_left(planned)
            if sum(weights.values()) < WORTH_PROCESSES:
                launch = Launch.of(ExecutionConfig())
        elif launch.lanes == 0 and doing.has_nearly_all(planned, but=WORTH_PROCESSES):
            launch = Launch.of(ExecutionConfig())  # sooner done here than a job is started
    fs, folder = file_system(output)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(_report_folder(output, launch))
        urls = {kind: f"{place}/.reports-{kind}-{uuid.uuid4().hex}" for kind in ("work", "groups")}
        errors = ErrorFiles(f"{place}/.reports-errors-{uuid.uuid4().hex}")

        lanes = deal(planned, launch.lanes, weights=weights, together=together)
        plan = stack.enter_context(written_plan(lanes, folder=place))
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
            spill=f"{place}/blobs" if launch.lanes else "",
        )
        with Progress(job, fs=fs, folder=folder, total=len(planned)), errors.raised_again(job):
            run_pipeline(job, build, launch=launch, pieces=len(lanes))
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
    if launch.lanes == 0:
        yield output
        return
    with temporary_folder("reports") as folder:
        yield folder


def _check_reachable(output: str, execution: ExecutionConfig, launch: Launch) -> None:
    in_process = execution.runner == "threads" or launch.lanes == 1
    if output.startswith("memory:") and not in_process:
        raise ConfigError(
            f"a memory:// store lives in one process; runner {execution.runner!r} with "
            f"{execution.workers} workers uses others. Use a folder, or the local runner with one "
            "worker"
        )
