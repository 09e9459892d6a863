"""Running a step: find its artifact, or build and publish it.

No Prefect here: `flows.engine.loop` runs the steps of a recipe by itself, `flows.orchestration` as
the tasks of Prefect flows; both call `run_step`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from flows.engine.keys import StepKey, code_now, code_of, pieces_digest, step_key
from flows.engine.provenance import checkout, environment, host_kind
from flows.engine.stages import Step, amount
from flows.formats import time_text
from flows.store.artifacts import ArtifactStore, Attempt
from flows.store.leases import hold_lease
from flows.store.pointers import now, pointer_to
from flows.store.verification import verify, withdraw
from pipelines.telling.progress import working_on
from schemas.configs import ExecutionConfig
from schemas.disclosure import without_secrets
from schemas.errors import ConfigError, RunnerError
from schemas.fingerprint import content_digest, logical_digest
from schemas.manifest import (
    InputRef,
    Manifest,
    ProducedBy,
    Reuse,
    StageInput,
    StageOutput,
)


class StepResult(NamedTuple):
    """What became of a step."""

    label: str
    manifest: Manifest
    was_cached: bool
    seconds: float
    warning: str = ""
    """What the user should know, "" for nothing."""


def step_line(result: StepResult) -> str:
    """What became of a step, in one line."""
    manifest = result.manifest
    state = "cached" if result.was_cached else f"built in {time_text(result.seconds)}"
    reuse = manifest.produced_by.reuse
    reused = ""
    if reuse is not None and reuse.pieces_reused and not result.was_cached:
        share = reuse.work_reused / reuse.work if reuse.work else 1.0
        reused = (
            f", {reuse.pieces_reused:,} of {reuse.pieces:,} pieces reused ({share:.0%} of work)"
        )
    return f"{result.label:<28}  {state:<20}  {manifest.artifact_id}  {amount(manifest)}{reused}"


def run_step(
    step: Step,
    *,
    store: ArtifactStore,
    inputs: Mapping[str, Manifest],
    execution: ExecutionConfig,
    run_id: str,
    code_identity: str = "closure",
    rebuild: bool = False,
    say: Callable[[str], None] = print,
    stopping: threading.Event | None = None,
) -> StepResult:
    """Find a step's artifact in the store, or build and publish it.

    Where another run is building it, that one is waited for.

    Args:
        step: what to do.
        store: where artifacts are.
        inputs: the manifest of each of the stage's inputs.
        execution: where to run.
        run_id: recorded in the manifest.
        code_identity: see `Recipe.code_identity`.
        rebuild: build even if the artifact is there, and put the new one in its place.
        say: takes a line of text on what is waited for.
        stopping: set when the run is to end: nothing is waited for, or begun, any more.

    Raises:
        BertloomError: as the stage and the store say. Nothing is published then.
    """
    started = time.monotonic()
    name = step.stage.name
    key = step_key(step, inputs=inputs, code_identity=code_identity)

    def found() -> StepResult | None:
        hit = None if rebuild else _look_up(store, name, key, execution=execution)
        seconds = time.monotonic() - started
        return StepResult(step.label, hit, was_cached=True, seconds=seconds) if hit else None

    def is_done() -> bool:
        _check_stopping(step, stopping)
        return found() is not None

    if (cached := found()) is not None:
        return cached
    with hold_lease(store, name, key.cache_key, holder=run_id, is_done=is_done, say=say):
        # Another run may have published it since the look above.
        if (cached := found()) is not None:
            return cached
        _check_stopping(step, stopping)
        task = _Task(step, key, store=store, inputs=inputs, execution=execution, run_id=run_id)
        manifest, replaced, won = task.build(rebuild=rebuild)
    warning = _warning(step, manifest, replaced=replaced)
    return StepResult(step.label, manifest, not won, time.monotonic() - started, warning)


def _check_stopping(step: Step, stopping: threading.Event | None) -> None:
    if stopping is not None and stopping.is_set():
        raise RunnerError(f"{step.label}: not begun, as the run was stopped")


def _check_code(step: Step) -> None:
    """A stage is imported when it is built: by then its code must be that of the key still.

    Raises:
        ConfigError: it was edited since this process looked at it first.
    """
    changed = _changed_code(step)
    if changed:
        raise ConfigError(
            f"{step.label}: {', '.join(changed)} changed on disk since this run began, so that "
            "what it would make is not what its key says. Run again"
        )


def _changed_code(step: Step) -> list[str]:
    stage = step.stage
    before, after = code_of(stage.module, stage.packages)[1], code_now(stage)
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def _look_up(
    store: ArtifactStore, stage: str, key: StepKey, *, execution: ExecutionConfig
) -> Manifest | None:
    hit = store.lookup(stage, key.cache_key)
    if hit is None or execution.verify_on_hit == "size":
        return hit
    verdicts = verify(store, [pointer_to(hit)])
    if verdicts[0].is_sound:
        return hit
    withdraw(store, verdicts)
    return None


class _Task:
    """The building of one step whose key is known."""

    def __init__(
        self,
        step: Step,
        key: StepKey,
        *,
        store: ArtifactStore,
        inputs: Mapping[str, Manifest],
        execution: ExecutionConfig,
        run_id: str,
    ) -> None:
        self._step, self._key, self._store = step, key, store
        self._inputs, self._execution, self._run_id = inputs, execution, run_id

    def build(self, *, rebuild: bool) -> tuple[Manifest, str | None, bool]:
        """The published manifest, the content it took the place of, and whether it is ours."""
        stage, store = self._step.stage, self._store
        _check_code(self._step)
        attempt = store.begin(stage.name)
        began, clock = now(), time.monotonic()
        try:
            output = self._call(attempt, rebuild=rebuild)
        except BaseException as error:
            if not stage.keeps_pieces:  # finished pieces are taken over by the next run
                try:
                    store.abandon(attempt)
                except OSError as left:
                    error.add_note(f"what the stage left at {attempt.output} is there yet: {left}")
            raise
        produced = _produced_by(
            self._run_id,
            self._execution,
            began=began,
            seconds=time.monotonic() - clock,
            reuse=output.reuse,
        )
        manifest = _manifest(
            self._step,
            self._key,
            output,
            attempt=attempt,
            inputs=self._inputs,
            produced_by=produced,
        )
        commit = store.commit(manifest, replace=rebuild)
        if stage.resumes:
            store.clear_work(stage.name, self._key.cache_key)
        replaced = commit.replaced.content if commit.replaced else None
        return commit.manifest, replaced, commit.won

    def _call(self, attempt: Attempt, *, rebuild: bool) -> StageOutput:
        step, store = self._step, self._store
        stage = step.stage
        given = {name: stage_input(name, self._inputs[name], store=store) for name in step.inputs}
        folders = {}
        if stage.resumes:
            folders["work"] = store.work(stage.name, self._key.cache_key)
        if stage.keeps_pieces:
            shared = pieces_digest(self._key.spec)
            if rebuild:  # nothing from before is taken over, now or later
                store.backend.delete_folder(f"pieces/{stage.name}/{shared}")
            folders["pieces"] = store.pieces(stage.name, shared)
        with working_on(step.label):
            output = stage.run(
                step.config,
                inputs=given,
                output=attempt.output,
                execution=self._execution,
                **folders,
            )
        if not isinstance(output, StageOutput):
            raise TypeError(f"{step.label}: expected a StageOutput, found {type(output).__name__}")
        return output


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


def _produced_by(
    run_id: str,
    execution: ExecutionConfig,
    *,
    began: str,
    seconds: float,
    reuse: Reuse | None,
) -> ProducedBy:
    code = checkout()
    return ProducedBy(
        run_id=run_id,
        git_commit=code.commit,
        git_dirty=code.is_dirty,
        runner=execution.runner,
        host_kind=host_kind(),
        started=began,
        ended=now(),
        seconds=round(seconds, 3),
        reuse=reuse,
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
    files = tuple(sorted(output.files, key=lambda entry: entry.path))
    raw = output.raw_inputs or key.raw_inputs
    return Manifest(
        artifact_id=attempt.artifact_id,
        stage=stage.name,
        stage_version=key.spec["stage_version"],
        cache_key=key.cache_key,
        key_spec=key.spec,
        code=code_of(stage.module, stage.packages)[1],
        content=content_digest(files),
        logical_content=logical_digest(files),
        location=attempt.location,
        files=files,
        counters=dict(sorted(output.counters.items())),
        statistics=output.statistics,
        table=output.table,
        notes=output.notes,
        raw_inputs=tuple(
            item.model_copy(update={"uri": without_secrets(item.uri)}) for item in raw
        ),
        inputs=tuple(input_ref(name, inputs[name]) for name in step.inputs),
        produced_by=produced_by,
        environment=environment(),
        config=without_secrets(step.config.model_dump(mode="json")),
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


def _warning(step: Step, manifest: Manifest, *, replaced: str | None) -> str:
    """What a rebuild or an edit during the run has brought to light."""
    if replaced is not None and replaced != manifest.content:
        return (
            "the rebuild made other files than before under the same key: the stage depends on "
            "something that is not in it"
        )
    changed = _changed_code(step)
    if changed:
        return (
            f"{', '.join(changed)} changed on disk while the stage ran; the key is that of the "
            "code as it was at the start"
        )
    return ""
