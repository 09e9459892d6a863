"""A step's cache key, and running it: find its artifact, or build and publish it.

No Prefect here: `flows.engines` runs the steps of a recipe one after the other, `flows.tasks` as
the tasks of a Prefect flow; both call `run_step`.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flows.artifacts import ArtifactStore, Attempt, now
from flows.provenance import checkout, environment, host_kind, key_environment, without_secrets
from flows.stage_table import Stage, Step, is_named, named_steps
from schemas.configs import ExecutionConfig
from schemas.errors import ConfigError
from schemas.fingerprint import (
    FIRST_PARTY,
    cache_key,
    code_fingerprint,
    content_digest,
    fingerprint,
    key_spec,
    logical_digest,
)
from schemas.manifest import InputRef, Manifest, ProducedBy, RawInput, StageInput, StageOutput


class StepResult(NamedTuple):
    """What became of a step."""

    label: str
    manifest: Manifest
    was_cached: bool
    seconds: float
    warning: str = ""
    """What the user should know, "" for nothing."""


@functools.cache
def code_of(module: str, packages: Sequence[str] = FIRST_PARTY) -> tuple[str, dict[str, str]]:
    """`code_fingerprint` as it was when this process first asked: of the code that it runs."""
    return code_fingerprint(module, packages=packages)


class StepKey(NamedTuple):
    """A step's cache key, and what it was made from."""

    cache_key: str
    spec: dict[str, Any]
    raw_inputs: tuple[RawInput, ...]


def step_key(step: Step, *, inputs: Mapping[str, Manifest], code_identity: str) -> StepKey:
    """The cache key of a step whose inputs are there.

    Reads the raw files, if the stage has any, to digest them; digests are remembered.

    Raises:
        InputError: a raw file is missing or is not what its checksum list says.
        FingerprintError: something cannot be digested.
    """
    stage = step.stage
    module = importlib.import_module(stage.module)
    raw = tuple(module.raw_inputs(step.config)) if stage.has_raw_inputs else ()
    spec = key_spec(
        stage.name,
        stage_version=module.STAGE_VERSION,
        config=step.config.identity(),
        inputs={name: _input_identity(inputs[name]) for name in step.inputs},
        raw_inputs=[item.identity or item.sha256 for item in raw],
        code="version" if code_identity == "version" else code_of(stage.module, stage.packages)[0],
        environment=key_environment(module.LIBRARIES),
    )
    return StepKey(cache_key(spec), spec, raw)


def _input_identity(manifest: Manifest) -> dict[str, str]:
    # What a stage may act on, and nothing of how or when it came to be: a stage that is built again
    # to the same bytes changes no key after it.
    return {"content": manifest.content, "statistics": fingerprint(manifest.statistics)}


def run_step(
    step: Step,
    *,
    store: ArtifactStore,
    inputs: Mapping[str, Manifest],
    execution: ExecutionConfig,
    run_id: str,
    code_identity: str = "closure",
    rebuild: bool = False,
) -> StepResult:
    """Find a step's artifact in the store, or build and publish it.

    Args:
        step: what to do.
        store: where artifacts are.
        inputs: the manifest of each of the stage's inputs.
        execution: where to run.
        run_id: recorded in the manifest.
        code_identity: see `Recipe.code_identity`.
        rebuild: build even if the artifact is there, and put the new one in its place.

    Raises:
        BertloomError: as the stage and the store say. Nothing is published then.
    """
    started = time.monotonic()
    key = step_key(step, inputs=inputs, code_identity=code_identity)
    if not rebuild:
        hit = store.lookup(step.stage.name, key.cache_key)
        if hit is not None:
            return StepResult(step.label, hit, was_cached=True, seconds=time.monotonic() - started)
    attempt = store.begin(step.stage.name)
    began, clock = now(), time.monotonic()
    try:
        output = _call(
            step,
            key.cache_key,
            store=store,
            inputs=inputs,
            execution=execution,
            attempt=attempt,
        )
    except BaseException as error:
        try:
            store.abandon(attempt)
        except OSError as left:
            error.add_note(f"what the stage left at {attempt.output} was not deleted: {left}")
        raise
    produced = _produced_by(run_id, execution, began=began, seconds=time.monotonic() - clock)
    manifest = _manifest(step, key, output, attempt=attempt, inputs=inputs, produced_by=produced)
    commit = store.commit(manifest, replace=rebuild)
    if step.stage.is_resumable:
        store.clear_work(step.stage.name, key.cache_key)
    replaced = commit.replaced.content if commit.replaced else None
    warning = _warning(step, commit.manifest, replaced=replaced)
    seconds = time.monotonic() - started
    return StepResult(step.label, commit.manifest, not commit.won, seconds, warning)


def _call(
    step: Step,
    cache_key: str,
    *,
    store: ArtifactStore,
    inputs: Mapping[str, Manifest],
    execution: ExecutionConfig,
    attempt: Attempt,
) -> StageOutput:
    function = getattr(importlib.import_module(step.stage.module), step.stage.function)
    given = {name: stage_input(name, inputs[name], store=store) for name in step.inputs}
    work = {"work": store.work(step.stage.name, cache_key)} if step.stage.is_resumable else {}
    output = function(step.config, inputs=given, output=attempt.output, execution=execution, **work)
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
    run_id: str, execution: ExecutionConfig, *, began: str, seconds: float
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
        inputs=tuple(_input_ref(name, inputs[name]) for name in step.inputs),
        produced_by=produced_by,
        environment=environment(),
        config=without_secrets(step.config.model_dump(mode="json")),
    )


def _input_ref(name: str, manifest: Manifest) -> InputRef:
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
    stage = step.stage
    before, after = code_of(stage.module, stage.packages)[1], _code_now(stage)
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    if changed:
        return (
            f"{', '.join(changed)} changed on disk while the stage ran; the key is that of the "
            "code as it was at the start"
        )
    return ""


def _code_now(stage: Stage) -> dict[str, str]:
    return code_fingerprint(stage.module, packages=stage.packages)[1]


def rebuilt_labels(rebuild: Iterable[str], found: Sequence[Step]) -> set[str]:
    """Labels of the steps that `rebuild` names: `all`, stage names, or labels.

    Raises:
        ConfigError: it names a stage that there is not.
    """
    chosen: set[str] = set()
    for name in rebuild:
        matched = {step.label for step in found if name == "all" or is_named(step, name)}
        if not matched:
            labels = named_steps(found)
            raise ConfigError(f"no stage {name!r} to rebuild: choose all, or from {labels}")
        chosen |= matched
    return chosen
