"""Building one step and publishing what it makes.

    found in the store under its key  ->  nothing to do
    leased by another run             ->  that one builds it
    else                              ->  lease, stage, manifest, commit

The first two are for `flows.orchestration.run`, which both engines call.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self

from flows.cards.cards import has_card, write_card
from flows.engine.keys import StepKey, pieces_digest
from flows.engine.provenance import checkout, environment, host_kind
from flows.engine.stages import Step, amount
from flows.formats import time_text
from flows.store.artifacts import ArtifactStore, Attempt
from flows.store.leases import Lease
from flows.store.pointers import now
from flows.store.runs import StepRecord
from flows.trackers.records import TrackedStep, tracked_step
from flows.trackers.tracking import tracked
from model.processes.launcher import call_group
from model.training.health import read_warnings
from pipelines.runners.code import code_digest
from pipelines.telling.progress import working_on
from schemas.addresses import public_address
from schemas.card_configs import CardsConfig
from schemas.configs import ExecutionConfig
from schemas.disclosure import recorded
from schemas.errors import BertloomError, LeaseLostError, NetworkError, RunnerError
from schemas.fingerprint import content_digest, logical_digest
from schemas.manifest import InputRef, Manifest, ProducedBy, StageInput, StageOutput, path_order
from schemas.stage import Stage

RETRY_DELAYS: tuple[float, ...] = (10, 60)
"""Seconds before each further try of a step that failed for a passing reason."""

# OSErrors that another try meets again.
_LASTING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM,
     errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.EEXIST,
     errno.ELOOP, errno.EXDEV, errno.EMLINK, errno.EMFILE, errno.EINVAL, errno.EBADF, errno.ESPIPE,
     errno.ENODEV, errno.ENXIO, errno.ENOSYS, errno.ENOTSUP, errno.EILSEQ, errno.ENOEXEC}
)  # fmt: skip


FAILED = "  FAILED: "
"""In the line of a step that failed, between its name and the error."""


@functools.lru_cache(maxsize=8)
def opened_store(root: str) -> ArtifactStore:
    """A store, opened once a process."""
    return ArtifactStore(root)


class StepResult(NamedTuple):
    """What became of a step."""

    label: str
    manifest: Manifest
    was_cached: bool
    """Whether it was there, or another run was faster in building it."""

    seconds: float
    warning: str = ""
    """What the user should know, "" for nothing."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """The step's own warning, and those of its training, of a cached one too."""
        trained = (warning.text for warning in read_warnings(self.manifest.statistics))
        return (*filter(None, [self.warning]), *trained)

    @property
    def record(self) -> StepRecord:
        """As the run's record holds it, and as flows return it."""
        return StepRecord(
            label=self.label,
            manifest=self.manifest.path,
            was_cached=self.was_cached,
            seconds=round(self.seconds, 3),
            warning=self.warning,
        )


class StepLine(str):
    """What became of a step, in one line; with the facts, for whoever shows them otherwise."""

    result: StepResult
    holds: str
    """How much the artifact holds, and how much of it was reused."""

    number: int
    """Which of the run's steps it is, in the order in which they end."""

    total: int
    left: tuple[str, ...]
    """Labels of the steps that are not done yet."""

    at_once: int
    """How many steps may run at once."""

    def __new__(cls, result: StepResult, *, left: Sequence[str] = (), total: int = 1,
                at_once: int = 1) -> Self:  # fmt: skip
        """The line of a result."""
        manifest = result.manifest
        state = "cached" if result.was_cached else f"built in {time_text(result.seconds)}"
        holds = f"{amount(manifest)}{_reused(result)}"
        text = f"{result.label:<28}  {state:<20}  {manifest.artifact_id}  {holds}"
        made = super().__new__(cls, text)
        made.result, made.holds, made.left = result, holds, tuple(left)
        made.number, made.total, made.at_once = total - len(left), total, at_once
        return made


def _reused(result: StepResult) -> str:
    reuse = result.manifest.produced_by.reuse
    if reuse is None or not reuse.pieces_reused or result.was_cached:
        return ""
    share = reuse.work_reused / reuse.work if reuse.work else 1.0
    return f", {reuse.pieces_reused:,} of {reuse.pieces:,} pieces reused ({share:.0%} of work)"


def worker_code(stage: Stage) -> str:
    """Digest of the sources that workers of a stage's jobs run; "" where it has no jobs."""
    return f"sha256:{code_digest()}" if stage.module.startswith("pipelines.") else ""


def build_step(
    step: Step,
    key: StepKey,
    *,
    store: ArtifactStore,
    inputs: Mapping[str, Manifest],
    execution: ExecutionConfig,
    lease: Lease,
    rebuild: bool = False,
    recipe_name: str = "",
    cards: CardsConfig | None = None,
) -> StepResult:
    """Run a step's stage and publish its artifact, with its card; tell trackers of it.

    Args:
        step: what to do.
        key: its cache key.
        store: where artifacts are.
        inputs: the manifest of each of the stage's inputs.
        execution: where to run.
        lease: the step's. The manifest records its run.
        rebuild: put the artifact in the place of one that is there.
        recipe_name: what trackers call its experiment.
        cards: what the recipe says of licences.

    Raises:
        LeaseLostError: another run took the lease while the stage ran.
        BertloomError: as the stage and the store say. Nothing is published then.
    """
    stage, clock = step.stage, time.monotonic()
    folders = _folders(step, key, store=store, rebuild=rebuild)
    attempt = store.begin(stage.name)

    def described() -> TrackedStep:
        return tracked_step(
            step.label,
            recipe=recipe_name or "bertloom",
            stage=stage.name,
            key=key.cache_key,
            config=step.config.model_dump(mode="json"),
            inputs={name: inputs[name] for name in step.inputs},
            run_id=lease.run_id,
        )

    with tracked(stage.name, described, work=folders.get("work")) as tracking:
        began = now()
        with (
            _cleared_on_error(step, attempt, store=store),
            _under_lease(lease, step),
            working_on(step.label),
        ):
            given = {name: stage_input(name, inputs[name], store=store) for name in step.inputs}
            # Called here: each frame on the way to it is one more to read in a stage's error.
            output = stage.run(
                step.config, inputs=given, output=attempt.output, execution=execution, **folders
            )
            _check_output(step, output)
        produced = _produced_by(
            stage, output, began=began, clock=clock, execution=execution, run_id=lease.run_id
        )
        manifest = _manifest(
            step, key, output, attempt=attempt, inputs=inputs, produced_by=produced
        )
        # In its folder before anybody finds it.
        missing_card = _write_card(manifest, store=store, cards=cards or CardsConfig())
        commit = store.commit(manifest, replace=rebuild)
        tracking.read_to_the_end()
        if stage.resumes and lease.renew():
            store.clear_work(stage.name, key.cache_key)
        untold = tracking.finish(commit.manifest)
    replaced = commit.replaced.content if commit.replaced else commit.manifest.content
    notes = [_warning(commit.manifest, replaced=replaced), missing_card, *untold]
    warning = "; ".join(filter(None, notes))
    seconds = time.monotonic() - clock
    return StepResult(step.label, commit.manifest, not commit.won, seconds, warning)


def _check_output(step: Step, output: object) -> None:
    if not isinstance(output, StageOutput):
        found = type(output).__name__
        raise TypeError(f"{step.label}: expected a StageOutput, found {found}")


def _produced_by(
    stage: Stage,
    output: StageOutput,
    *,
    began: str,
    clock: float,
    execution: ExecutionConfig,
    run_id: str,
) -> ProducedBy:
    """What made it; `clock` is the monotonic time of its beginning."""
    return ProducedBy(
        run_id=run_id,
        git_commit=checkout().commit,
        git_dirty=checkout().is_dirty,
        runner=execution.runner,
        worker_code=worker_code(stage),
        host_kind=host_kind(),
        started=began,
        ended=now(),
        seconds=round(time.monotonic() - clock, 3),
        reuse=output.reuse,
    )


@contextlib.contextmanager
def _cleared_on_error(step: Step, attempt: Attempt, *, store: ArtifactStore) -> Iterator[None]:
    """What the stage wrote is deleted where it fails, but for pieces."""
    try:
        yield
    except BaseException as error:
        if not step.stage.keeps_pieces:  # the next run goes on from finished pieces
            try:
                store.abandon(attempt)
            except OSError as left:
                error.add_note(f"what the stage left at {attempt.output} is there yet: {left}")
        raise


@contextlib.contextmanager
def _under_lease(lease: Lease, step: Step) -> Iterator[None]:
    """Stop the calls that the block makes to other processes as soon as the lease is lost.

    Raises:
        LeaseLostError: Another run took the lease before the end of the block.
    """
    with call_group() as stop_calls:
        lease.on_lost = stop_calls
        try:
            yield
        except Exception as error:
            if lease.is_held():
                raise
            raise LeaseLostError(lease.run_id, step.label, lease.new_holder()) from error
    if not lease.renew():
        raise LeaseLostError(lease.run_id, step.label, lease.new_holder())


def _write_card(manifest: Manifest, *, store: ArtifactStore, cards: CardsConfig) -> str:
    """What to say where the card could not be written, for which no work is thrown away."""
    try:
        if has_card(manifest):
            write_card(manifest, store=store, cards=cards)
    except Exception as error:  # whatever it is, what the stage made is as good as without a card
        return (
            f"it has no card ({type(error).__name__}: {error}): `bertloom card "
            f"{manifest.artifact_id} --write` writes one"
        )
    return ""


def _folders(step: Step, key: StepKey, *, store: ArtifactStore, rebuild: bool) -> dict[str, str]:
    """Where a stage goes on from, and where its pieces are."""
    stage, folders = step.stage, {}
    if stage.resumes:
        folders["work"] = store.work(stage.name, key.cache_key)
    if stage.keeps_pieces:
        shared = pieces_digest(key.spec)
        if rebuild:  # no piece from before is used, now or later
            store.backend.delete_folder(f"pieces/{stage.name}/{shared}")
        folders["pieces"] = store.pieces(stage.name, shared)
    return folders


def stage_input(name: str, manifest: Manifest, *, store: ArtifactStore) -> StageInput:
    """An artifact as a stage sees it."""
    return StageInput(
        name=name,
        artifact_id=manifest.artifact_id,
        data=store.url(manifest.data),
        files=manifest.files,
        counters=manifest.counters,
        statistics=manifest.statistics,
    )


def _manifest(
    step: Step,
    key: StepKey,
    output: StageOutput,
    *,
    attempt: Attempt,
    inputs: Mapping[str, Manifest],
    produced_by: ProducedBy,
) -> Manifest:
    stage = step.stage
    files = tuple(sorted(output.files, key=lambda entry: path_order(entry.path)))
    raw, notes = output.raw_inputs or key.raw_inputs, output.notes
    for item in raw:
        notes = tuple(note.replace(item.uri, public_address(item.uri)) for note in notes)
    return Manifest(
        artifact_id=attempt.artifact_id,
        stage=stage.name,
        stage_version=key.spec["stage_version"],
        cache_key=key.cache_key,
        key_spec=key.spec,
        content=content_digest(files),
        logical_content=logical_digest(files),
        location=attempt.location,
        files=files,
        counters=dict(sorted(output.counters.items())),
        statistics=output.statistics,
        table=output.table,
        notes=recorded(notes),
        raw_inputs=tuple(item.model_copy(update={"uri": public_address(item.uri)}) for item in raw),
        inputs=tuple(input_ref(name, inputs[name]) for name in step.inputs),
        produced_by=produced_by,
        environment=environment(),
        config=recorded(step.config.model_dump(mode="json")),
    )


def input_ref(name: str, manifest: Manifest) -> InputRef:
    """An artifact as the manifests of those made from it name it."""
    return InputRef(
        name=name,
        stage=manifest.stage,
        artifact_id=manifest.artifact_id,
        cache_key=manifest.cache_key,
        content=manifest.content,
        manifest=manifest.path,
    )


def _warning(manifest: Manifest, *, replaced: str) -> str:
    """Say if a rebuild wrote other files under the same key."""
    if replaced != manifest.content:
        return (
            "the rebuild made other files than before under the same key: either the stage's code "
            "changed and its `version` did not, or it depends on something that is not in its key"
        )
    return ""


def is_passing(error: BaseException) -> bool:
    """Whether a failure may be gone at another try: a network's or a disk's, not a user's error.

    A `RunnerError` is judged by what it was raised from.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, NetworkError):
            return True
        if isinstance(seen, OSError):
            return seen.errno not in _LASTING and not isinstance(
                seen, (FileNotFoundError, PermissionError, FileExistsError)
            )
        if isinstance(seen, BertloomError) and not isinstance(seen, RunnerError):
            return False
        seen = seen.__cause__
    return False
