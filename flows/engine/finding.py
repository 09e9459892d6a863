"""Finding a step's artifact: under its key, or one whose key differs in its code alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from flows.engine.keys import StepKey, differing_fields, step_key
from flows.engine.stages import Step
from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.manifest import Manifest
from schemas.recipe import Recipe


class KeyedStep(NamedTuple):
    """A step, with its key if the artifacts of all its inputs are known."""

    step: Step
    inputs: dict[str, Manifest]
    key: StepKey | None
    missing: list[str]
    """Labels of the steps whose artifacts are not known."""


def keyed_steps(
    recipe: Recipe, steps: Iterable[Step], *, manifests: Mapping[str, Manifest]
) -> Iterator[KeyedStep]:
    """The steps in order, each with its key.

    Args:
        recipe: whose steps they are.
        steps: each after those it reads from.
        manifests: artifacts by label. The caller adds that of each step before the next.

    Raises:
        InputError: a raw file is missing or is not what its checksum list says.
    """
    for step in steps:
        missing = [label for label in step.inputs.values() if label not in manifests]
        if missing:
            yield KeyedStep(step, {}, None, missing)
            continue
        inputs = {name: manifests[label] for name, label in step.inputs.items()}
        key = step_key(step, inputs=inputs, code_identity=recipe.code_identity)
        yield KeyedStep(step, inputs, key, [])


class Found(NamedTuple):
    """The artifact of a step, or None."""

    manifest: Manifest | None = None
    is_adoptable: bool = False
    """Whether it has another key, which differs in its code alone."""

    reason: str = ""
    """Why there is none to adopt."""

    damage: str = ""
    """What is wrong with the one under its key."""


def find(
    recipe: Recipe,
    step: Step,
    key: StepKey,
    *,
    store: ArtifactStore,
    adopts: bool,
    changes_nothing: bool = False,
) -> Found:
    """Find the artifact of a step; all its files are there and have their sizes.

    Args:
        recipe: whose last artifact of the step may be adopted.
        step: what is looked for.
        key: its cache key.
        store: where artifacts are.
        adopts: whether one whose key differs in its code alone will do.
        changes_nothing: leave what is damaged as it is; else its pointer goes to quarantine.
    """
    stage = step.stage.name
    try:
        if not changes_nothing:
            manifest = store.lookup(stage, key.cache_key)
        elif pointer := store.pointer(stage, key.cache_key):
            manifest = store.read_manifest(pointer.manifest)
            store.check_files(manifest)
        else:
            manifest = None
    except (ArtifactNotFoundError, ArtifactCorruptError) as error:
        return Found(damage=str(error))
    if manifest is not None or not adopts:
        return Found(manifest)
    try:
        return _last(recipe, step, key, store=store)
    except (ArtifactNotFoundError, ArtifactCorruptError) as error:
        return Found(reason=str(error))


def _last(recipe: Recipe, step: Step, key: StepKey, *, store: ArtifactStore) -> Found:
    """The recipe's last artifact of a step, if its key differs from `key` in its code alone."""
    pointer = store.ref(f"{recipe.name}/{step.label}")
    if pointer is None:
        return Found(reason=f"the recipe {recipe.name!r} has built none in this store")
    own = store.pointer(pointer.stage, pointer.cache_key)
    if own is None or own.manifest != pointer.manifest:
        why = "was withdrawn: damaged, or taken back (see quarantine/)"
        return Found(reason=f"{pointer.artifact_id} {why}")
    manifest = store.read_manifest(pointer.manifest)
    store.check_files(manifest)
    others = [name for name in differing_fields(manifest.key_spec, key.spec) if name != "code"]
    if others:
        which = f"{manifest.artifact_id} differs in more than its code"
        return Found(reason=f"{which}: {', '.join(others)}")
    return Found(manifest, is_adoptable=True)
