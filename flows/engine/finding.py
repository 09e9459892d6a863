"""Find the artifact of a step under its cache key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from flows.engine.keys import StepKey, step_key
from flows.engine.stages import Step
from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.manifest import Manifest


class KeyedStep(NamedTuple):
    """A step, with its key if the artifacts of all its inputs are known."""

    step: Step
    inputs: dict[str, Manifest]
    key: StepKey | None
    missing: list[str]
    """Labels of the steps whose artifacts are not known."""


def keyed_steps(steps: Iterable[Step], *, manifests: Mapping[str, Manifest]) -> Iterator[KeyedStep]:
    """The steps in order, each with its key.

    Args:
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
        key = step_key(step, inputs=inputs)
        yield KeyedStep(step, inputs, key, [])


class Found(NamedTuple):
    """The artifact of a step, or None."""

    manifest: Manifest | None = None
    damage: str = ""
    """What is wrong with the artifact under its key."""


def find(step: Step, key: StepKey, *, store: ArtifactStore, changes_nothing: bool = False) -> Found:
    """Find the artifact of a step; all its files exist and have their sizes.

    Args:
        step: the step.
        key: its cache key.
        store: where artifacts are.
        changes_nothing: leave a damaged artifact as it is; else its pointer goes to quarantine.
    """
    stage = step.stage.name
    try:
        if not changes_nothing:
            return Found(store.lookup(stage, key.cache_key))
        if (pointer := store.pointer(stage, key.cache_key)) is None:
            return Found()
        manifest = store.read_manifest(pointer.manifest)
        store.check_files(manifest)
    except (ArtifactNotFoundError, ArtifactCorruptError) as error:
        return Found(damage=str(error))
    return Found(manifest)
