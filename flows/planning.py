"""What a run would do: each step's key, whether its artifact is there, and if not, why not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple

from flows.artifacts import ArtifactStore
from flows.stage_table import STAGES, Stage, Step, steps, steps_until
from flows.stages import StepKey, code_of, rebuilt_labels, step_key
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.manifest import Manifest
from schemas.recipe import Recipe

_SHOWN_DIFFERENCES = 4


class PlannedStep(NamedTuple):
    """What a run would do with a step."""

    label: str
    state: Literal["cached", "build", "unknown"]
    """`unknown`: its inputs have to be built first, and only then can its key be told."""

    cache_key: str = ""
    artifact_id: str = ""
    reason: str = ""


def plan(
    recipe: Recipe,
    *,
    store: ArtifactStore | None,
    rebuild: Collection[str] = (),
    until: str = "",
    stages: Mapping[str, Stage] = STAGES,
) -> list[PlannedStep]:
    """Look up every step of a recipe, and change nothing.

    Args:
        recipe: what would be run.
        store: where artifacts are; None where there is no store yet.
        rebuild: stages that would be built even if they are there; see `rebuilt_labels`.
        until: a stage or a step: it and what it needs are planned; "" for all.
        stages: the registry.

    Raises:
        InputError: a raw file is missing or is not what its checksum list says.
    """
    found = steps_until(steps(recipe, stages=stages), until)
    rebuilt = rebuilt_labels(rebuild, found)
    manifests: dict[str, Manifest] = {}
    planned = []
    for step in found:
        missing = [label for label in step.inputs.values() if label not in manifests]
        if missing:
            reason = f"after {', '.join(missing)}"
            planned.append(PlannedStep(step.label, "unknown", reason=reason))
            continue
        inputs = {name: manifests[label] for name, label in step.inputs.items()}
        key = step_key(step, inputs=inputs, code_identity=recipe.code_identity)
        manifest, reason = _find(step, key, store=store, recipe=recipe)
        if manifest is not None:
            manifests[step.label] = manifest
        if manifest is None or step.label in rebuilt:
            reason = reason or "asked for"
            planned.append(PlannedStep(step.label, "build", key.cache_key, reason=reason))
        else:
            at = manifest.artifact_id
            planned.append(PlannedStep(step.label, "cached", key.cache_key, at))
    return planned


def _find(
    step: Step, key: StepKey, *, store: ArtifactStore | None, recipe: Recipe
) -> tuple[Manifest | None, str]:
    """The artifact of a step, or None and the reason why it has to be built."""
    if store is None:
        return None, "no store yet"
    try:
        pointer = store.pointer(step.stage.name, key.cache_key)
        if pointer is not None:
            manifest = store.read_manifest(pointer.manifest)
            store.check_files(manifest)
            return manifest, ""
    except (ArtifactCorruptError, ArtifactNotFoundError) as error:
        return None, str(error)
    earlier = _earlier(step, store=store, recipe=recipe)
    return None, _compare(step, key, earlier) if earlier else "never built"


def _earlier(step: Step, *, store: ArtifactStore, recipe: Recipe) -> Manifest | None:
    """What the recipe last used for the step, or else the stage's newest artifact."""
    candidates = [store.ref(f"{recipe.name}/{step.label}")]
    newest = sorted(store.pointers(step.stage.name), key=lambda pointer: pointer.committed)
    candidates += newest[-1:]
    for pointer in candidates:
        if pointer is None:
            continue
        try:
            return store.read_manifest(pointer.manifest)
        except (ArtifactNotFoundError, ArtifactCorruptError):
            continue  # it can be no help here; `bertloom verify` is for finding that out
    return None


def _compare(step: Step, key: StepKey, earlier: Manifest) -> str:
    differences = describe_differences(earlier.key_spec, key.spec)
    if key.spec["code"] != earlier.key_spec.get("code"):
        now = code_of(step.stage.module, step.stage.packages)[1]
        names = {*now, *earlier.code}
        changed = sorted(name for name in names if now.get(name) != earlier.code.get(name))
        where = ", ".join(changed) if changed else "counted another way"
        differences = [text for text in differences if not text.startswith("code")]
        differences.append(f"code: {where}")
    shown = differences[:_SHOWN_DIFFERENCES]
    if len(differences) > len(shown):
        shown.append(f"and {len(differences) - len(shown)} more")
    return f"{'; '.join(shown)} (compared with {earlier.artifact_id})"


def describe_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """How one key's specification differs from another's, one text a field."""
    old, new = dict(_leaves(before, "")), dict(_leaves(after, ""))
    texts = []
    for path in sorted({*old, *new}):
        if old.get(path, _ABSENT) == new.get(path, _ABSENT):
            continue
        if path.startswith(("inputs.", "raw_inputs")):
            name = path.split(".")[1] if "." in path else "raw files"
            text = f"{name} changed"
        else:
            text = f"{path.removeprefix('config.')} {_show(old, path)} -> {_show(new, path)}"
        if text not in texts:
            texts.append(text)
    return texts


_ABSENT = object()


def _leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        inner = ((f"{path}.{key}" if path else key, item) for key, item in value.items())
        return [leaf for where, item in inner for leaf in _leaves(item, where)]
    return [(path, list(value) if isinstance(value, tuple) else value)]


def _show(leaves: Mapping[str, Any], path: str) -> str:
    return str(leaves[path]) if path in leaves else "(none)"
