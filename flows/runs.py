"""One run of a recipe: which steps, which store, what it says, what it leaves behind.

Both engines are built from these pieces; see `flows.engines`.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from flows.artifacts import ArtifactStore, now
from flows.provenance import checkout, without_secrets
from flows.show import step_line
from flows.stage_table import Step, steps, steps_until
from flows.stages import StepResult, code_of, rebuilt_labels, run_step
from schemas.errors import BertloomError, ConfigError, RunnerError
from schemas.recipe import Recipe

RETRY_DELAYS: tuple[float, ...] = (10, 60)
"""Seconds to wait before each further try of a step that failed for a passing reason."""

# OSErrors that waiting does not mend.
_LASTING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT,
     errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EEXIST, errno.EMFILE, errno.EINVAL}
)  # fmt: skip

Say = Callable[[str], None]


class StepRef(NamedTuple):
    """A step's result as small as an engine passes it on."""

    label: str
    manifest: str
    """Path of the manifest in the store."""

    was_cached: bool
    seconds: float
    warning: str


class RunPlan(NamedTuple):
    """What an engine needs to know of a run."""

    recipe: Recipe
    run_id: str
    steps: list[Step]
    rebuilt: set[str]
    """Labels of the steps to build even if they are there."""


def start_run(recipe: Recipe, *, rebuild: Sequence[str] = (), until: str = "") -> RunPlan:
    """Make the store if need be, check the recipe's runner, and record the run's start.

    Raises:
        ConfigError: the runner is unknown, or `rebuild` or `until` names no stage.
        StoreError: the store cannot be used.
    """
    from pipelines.runners import RUNNERS  # Beam takes a second to load

    if recipe.execution.runner not in RUNNERS:
        known = ", ".join(RUNNERS)
        raise ConfigError(f"unknown runner {recipe.execution.runner!r}: choose one of {known}")
    found = steps_until(steps(recipe), until)
    for step in found:
        code_of(step.stage.module, step.stage.packages)  # before anyone edits it
    started = datetime.now(UTC).strftime("%Y%m%dt%H%M%S")
    run_id = f"{started}-{uuid.uuid4().hex[:8]}"
    run = RunPlan(recipe, run_id, found, rebuilt_labels(rebuild, found))
    write_record(run, state="running", results=(), failures={})
    return run


def execute_step(
    recipe: Recipe,
    label: str,
    *,
    inputs: Mapping[str, StepRef],
    run_id: str,
    rebuild: bool,
    say: Say,
) -> StepRef:
    """Run one step of a recipe, move its ref, and say what became of it."""
    store = ArtifactStore(recipe.store)
    step = next(step for step in steps(recipe) if step.label == label)
    manifests = {name: store.read_manifest(ref.manifest) for name, ref in inputs.items()}
    result = run_step(
        step,
        store=store,
        inputs=manifests,
        execution=recipe.execution,
        run_id=run_id,
        code_identity=recipe.code_identity,
        rebuild=rebuild,
    )
    store.set_ref(f"{recipe.name}/{label}", result.manifest)
    say(step_line(result))
    if result.warning:
        say(f"  warning: {result.warning}")
    path = result.manifest.path
    return StepRef(label, path, result.was_cached, round(result.seconds, 3), result.warning)


def write_record(
    run: RunPlan,
    *,
    state: str,
    results: Sequence[StepRef],
    failures: Mapping[str, str],
    flow_run_id: str = "",
) -> None:
    """Write what the run has done so far to `runs/RUN_ID/run.json`."""
    code = checkout()
    record: dict[str, Any] = {
        "run_id": run.run_id,
        "state": state,
        "written": now(),
        "flow_run_id": flow_run_id,
        "git_commit": code.commit,
        "git_dirty": code.is_dirty,
        "recipe": without_secrets(run.recipe.model_dump(mode="json")),
        "rebuild": sorted(run.rebuilt),
        "steps": [result._asdict() for result in results],
        "failures": {label: without_secrets(text) for label, text in failures.items()},
    }
    ArtifactStore(run.recipe.store).write_run(run.run_id, record)


def load_results(recipe: Recipe, refs: Sequence[StepRef]) -> list[StepResult]:
    """The full results that small ones stand for."""
    store = ArtifactStore(recipe.store)
    return [
        StepResult(
            ref.label,
            store.read_manifest(ref.manifest),
            ref.was_cached,
            ref.seconds,
            ref.warning,
        )
        for ref in refs
    ]


def is_passing(error: BaseException) -> bool:
    """Whether a failure may be gone at another try: a network's or a disk's, not a user's error.

    A `RunnerError` is judged by what it was raised from.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError):
            return seen.errno not in _LASTING and not isinstance(
                seen, (FileNotFoundError, PermissionError, FileExistsError)
            )
        if isinstance(seen, BertloomError) and not isinstance(seen, RunnerError):
            return False
        seen = seen.__cause__
    return False
