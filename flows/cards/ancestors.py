"""The manifests upstream of an artifact."""

from __future__ import annotations

from dataclasses import dataclass, field

from flows.run.artifact_inputs import REUSED_VOCABULARY
from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactNotFoundError
from schemas.manifest import InputRef, Manifest


@dataclass(frozen=True)
class Ancestors:
    """An artifact and everything that it was made from."""

    manifests: dict[str, Manifest] = field(default_factory=dict)
    """Manifests by path, each after its inputs; the artifact's own is the last."""

    missing: dict[str, InputRef] = field(default_factory=dict)
    """Inputs that are no longer in the store, by the path of their manifest."""

    def of_stage(self, stage: str) -> list[Manifest]:
        """Return the manifests of a stage."""
        return [manifest for manifest in self.manifests.values() if manifest.stage == stage]

    def input(self, manifest: Manifest, name: str) -> Manifest | None:
        """Return an input of a manifest; None if it has no such input or the input is missing."""
        ref = manifest.input(name)
        return self.manifests.get(ref.manifest) if ref else None


def find_ancestors(store: ArtifactStore, manifest: Manifest) -> Ancestors:
    """Follow the inputs of an artifact up to the raw files.

    A reused vocabulary ends the walk: no row and no weight comes from its earlier corpus.
    """
    ancestors = Ancestors()
    _add(manifest, ancestors, store)
    return ancestors


def _add(manifest: Manifest, ancestors: Ancestors, store: ArtifactStore) -> None:
    for ref in manifest.inputs:
        if ref.name != REUSED_VOCABULARY and ref.manifest not in ancestors.manifests:
            try:
                artifact = store.input(ref)
                _add(artifact.manifest, ancestors, artifact.store)
            except ArtifactNotFoundError:
                ancestors.missing[ref.manifest] = ref
    ancestors.manifests[manifest.manifest_path] = manifest
