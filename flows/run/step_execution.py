"""Build one step: run its stage and publish the artifact."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from flows.run.artifact_inputs import find_artifact_files, input_ref
from flows.run.cache_keys import StepKey, item_key
from flows.run.graph import Step
from flows.run.provenance import checkout, environment, platform_name
from flows.store.artifacts import ArtifactStore, Attempt
from flows.store.leases import Lease
from flows.store.pointers import now
from flows.store.runs import StepRecord
from model.training.checkpoints import LOCK_FILE, lock_holder
from model.training.health import read_warnings
from model.training.workers import call_group
from pipelines.progress import step_scope
from pipelines.runners.code import code_digest
from schemas.errors import BertloomError, LeaseLostError, NetworkError, RunnerError
from schemas.execution_configs import ExecutionConfig
from schemas.fingerprint import content_digest
from schemas.manifest import (
    InputRef,
    Manifest,
    ProducedBy,
    RawInput,
    StageInput,
    StageOutput,
    path_order,
)
from schemas.redaction import public_address, redact_record
from schemas.stage import Stage

_TRANSIENT_ERRNOS = {
    None, errno.EIO, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ENOMEM, errno.EPIPE,
    errno.ESTALE, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED,
    errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTUNREACH, errno.ENOBUFS,
}  # fmt: skip
"""Errors of disks and networks that can pass; None for a library's error without a number."""


class StepResult(NamedTuple):
    """Artifact of a step, and how the run got it."""

    label: str
    manifest: Manifest
    was_cached: bool
    """True if it was in the store, or another run published it first."""

    seconds: float
    warning: str = ""
    """Warning of the step itself, "" for none."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warning of the step and warnings of its training, which a cached step repeats."""
        training = (warning.text for warning in read_warnings(self.manifest.statistics))
        return (*filter(None, [self.warning]), *training)

    @property
    def record(self) -> StepRecord:
        """Result as plain values, for run records and for Prefect."""
        return StepRecord(
            label=self.label,
            manifest=self.manifest.manifest_path,
            was_cached=self.was_cached,
            seconds=round(self.seconds, 3),
            warning=self.warning,
        )


def build_step(
    step: Step,
    key: StepKey,
    *,
    store: ArtifactStore,
    inputs: Mapping[str, Manifest],
    execution: ExecutionConfig,
    lease: Lease,
    rebuild: bool = False,
) -> StepResult:
    """Run the stage of a step and publish its artifact.

    Args:
        step: Step to build.
        key: Its cache key.
        store: Artifact store.
        inputs: Manifest of each input, by input name.
        execution: Where the stage runs.
        lease: Lease of the cache key, which the caller holds.
        rebuild: Replace an artifact that is in the store.

    Raises:
        LeaseLostError: Another run took the lease while the stage ran.
        BertloomError: The stage or the store failed. Nothing is published.
    """
    stage, clock, started_at = step.stage, time.monotonic(), now()
    folders = stage_folders(step, key, store=store)
    artifact_files = find_artifact_files(key.raw_inputs, config=step.config, store=store)
    attempt = store.begin(stage.name)
    with (
        _discard_on_error(step, attempt, store=store),
        _stop_when_lost(lease, step),
        step_scope(step.label),
    ):
        stage_inputs = {name: stage_input(name, inputs[name], store=store) for name in step.inputs}
        output = stage.load()(
            step.config, inputs=stage_inputs, output=attempt.output, execution=execution, **folders
        )
        if not isinstance(output, StageOutput):
            raise TypeError(f"{step.label}: expected a StageOutput, got {type(output).__name__}")
    produced_by = ProducedBy(
        run_id=lease.run_id,
        git_commit=checkout().commit,
        git_dirty=checkout().is_dirty,
        runner=execution.runner,
        worker_code_digest=worker_code(stage),
        platform=platform_name(),
        started_at=started_at,
        ended_at=now(),
        duration_seconds=round(time.monotonic() - clock, 3),
        reuse=output.reuse,
    )
    manifest = _manifest(
        step,
        key,
        output,
        attempt=attempt,
        refs=(*(input_ref(name, inputs[name]) for name in step.inputs), *artifact_files.inputs),
        raw_inputs=artifact_files.mark(output.raw_inputs or key.raw_inputs),
        produced_by=produced_by,
    )
    commit = store.commit(manifest, replace=rebuild)
    warning = ""
    if (
        commit.replaced is not None
        and commit.replaced.content_digest != commit.manifest.content_digest
    ):
        warning = (
            "rebuild produced different output for the same cache key: the stage changed and its "
            "`version` did not, or it depends on an input that is not part of the key"
        )
    return StepResult(
        step.label, commit.manifest, not commit.created, time.monotonic() - clock, warning
    )


def worker_code(stage: Stage) -> str:
    """Return the digest of the code that workers of a stage's jobs run; "" if it has no jobs."""
    return f"sha256:{code_digest()}" if stage.package == "pipelines" else ""


def stage_folders(step: Step, key: StepKey, *, store: ArtifactStore) -> dict[str, str]:
    """Return the URLs of the folders that a stage resumes from, by the stage's parameter."""
    stage, folders = step.stage, {}
    if stage.supports_resume:
        folders["work"] = store.work(stage.name, key.cache_key)
    if stage.supports_reuse:
        folders["pieces"] = store.pieces(stage.name, item_key(key.spec))
    return folders


def checkpoint_writer(step: Step, key: StepKey, *, store: ArtifactStore) -> str:
    """Return the number of the process that writes checkpoints of a step; "" for none.

    On S3 and GCS, only the lease of the step keeps other processes away.
    """
    if not step.stage.supports_resume or not store.backend.is_local:
        return ""
    locks = Path(store.work(step.stage.name, key.cache_key)).rglob(LOCK_FILE)
    return next(filter(None, map(lock_holder, locks)), "")


def delete_progress(step: Step, key: StepKey, *, store: ArtifactStore) -> None:
    """Delete checkpoints and finished work items of a step. Requires the lease of its key."""
    if step.stage.supports_resume:
        store.clear_work(step.stage.name, key.cache_key)
    if step.stage.supports_reuse:
        store.clear_pieces(step.stage.name, item_key(key.spec))


def stage_input(name: str, manifest: Manifest, *, store: ArtifactStore) -> StageInput:
    """Return an artifact in the form that stages read.

    Records are excluded: they are not part of the content digest, and so of no cache key.
    """
    return StageInput(
        name=name,
        artifact_id=manifest.artifact_id,
        data=store.url(manifest.data_path),
        files=tuple(entry for entry in manifest.files if not entry.excluded_from_digest),
        counters=manifest.counters,
        statistics=manifest.statistics,
    )


def is_transient(error: BaseException) -> bool:
    """Return whether another try of a step can succeed: a network or disk error, not a user's.

    A `RunnerError` is judged by the error that it was raised from.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, NetworkError):
            return True
        if isinstance(cause, OSError):
            permanent = (FileNotFoundError, PermissionError, FileExistsError)
            return cause.errno in _TRANSIENT_ERRNOS and not isinstance(cause, permanent)
        if isinstance(cause, BertloomError) and not isinstance(cause, RunnerError):
            return False
        cause = cause.__cause__
    return False


def _manifest(
    step: Step,
    key: StepKey,
    output: StageOutput,
    *,
    attempt: Attempt,
    refs: tuple[InputRef, ...],
    raw_inputs: tuple[RawInput, ...],
    produced_by: ProducedBy,
) -> Manifest:
    files = sorted(output.files, key=lambda entry: path_order(entry.path))
    notes = output.notes
    for item in raw_inputs:
        notes = tuple(note.replace(item.uri, public_address(item.uri)) for note in notes)
    return Manifest(
        artifact_id=attempt.artifact_id,
        stage=step.stage.name,
        stage_version=key.spec["stage_version"],
        cache_key=key.cache_key,
        cache_key_inputs=key.spec,
        content_digest=content_digest(files),
        artifact_path=attempt.location,
        files=(*files, *output.records),
        counters=dict(sorted(output.counters.items())),
        statistics=output.statistics,
        table_name=output.table_name,
        notes=redact_record(notes),
        raw_inputs=tuple(
            item.model_copy(update={"uri": public_address(item.uri)}) for item in raw_inputs
        ),
        inputs=refs,
        produced_by=produced_by,
        environment=environment(),
        config=redact_record(step.config.model_dump(mode="json")),
    )


@contextlib.contextmanager
def _discard_on_error(step: Step, attempt: Attempt, *, store: ArtifactStore) -> Iterator[None]:
    """Delete what a stage wrote if it fails, except work items that the next run can reuse."""
    try:
        yield
    except BaseException as error:
        if not step.stage.supports_reuse:
            try:
                store.abandon(attempt)
            except OSError as problem:
                error.add_note(f"{attempt.output} was not deleted: {problem}")
        raise


@contextlib.contextmanager
def _stop_when_lost(lease: Lease, step: Step) -> Iterator[None]:
    """Stop the processes that the block waits for as soon as the lease is lost.

    Raises:
        LeaseLostError: Another run took the lease before the end of the block.
    """
    with call_group() as stop_calls:
        lease.on_lost = stop_calls
        try:
            yield
        except Exception as error:
            if not _is_lost(lease):
                raise
            raise _lease_lost(lease, step) from error
    if not lease.is_held():
        raise _lease_lost(lease, step)


def _is_lost(lease: Lease) -> bool:
    """Return True only if another run certainly took the lease."""
    with contextlib.suppress(Exception):  # the store cannot be read
        return not lease.is_held()
    return False


def _lease_lost(lease: Lease, step: Step) -> LeaseLostError:
    run, holder = lease.run_id, lease.new_holder()
    return LeaseLostError(
        f"{step.label}: expected run {run} to hold the lease, got {holder or 'a run that ended'}. "
        "Nothing was published and no checkpoint was deleted. Run again to use its result",
        run=run,
        step=step.label,
        holder=holder,
    )
