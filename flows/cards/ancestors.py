"""The manifests upstream of an artifact."""

from __future__ import annotations

from dataclasses import dataclass

from flows.run.artifact_inputs import REUSED_VOCABULARY
from flows.store.artifact import upstream_artifacts
from flows.store.artifacts import ArtifactStore
from schemas.manifest import InputRef, Manifest


@dataclass(frozen=True)
class Ancestors:
    """An artifact and everything that it was made from."""

    manifests: dict[str, Manifest]
    """Manifests by artifact id, each after its inputs; the artifact's own is the last."""

    @property
    def missing(self) -> dict[str, InputRef]:
        """Inputs that are no longer in the store, by artifact id."""
        refs = (ref for manifest in self.manifests.values() for ref in manifest.inputs)
        return {
            ref.artifact_id: ref
            for ref in refs
            if ref.artifact_id not in self.manifests and ref.name != REUSED_VOCABULARY
        }

    def of_stage(self, stage: str) -> list[Manifest]:
        """Return the manifests of a stage."""
        return [manifest for manifest in self.manifests.values() if manifest.stage == stage]

    def input(self, manifest: Manifest, name: str) -> Manifest | None:
        """Return an input of a manifest; None if it has no such input or the input is missing."""
        ref = manifest.input(name)
        return self.manifests.get(ref.artifact_id) if ref else None


def find_ancestors(store: ArtifactStore, manifest: Manifest) -> Ancestors:
    """Follow the inputs of an artifact up to the raw files.

    A reused vocabulary ends the walk: no row and no weight comes from its earlier corpus.
    """
    artifacts = upstream_artifacts([store.artifact(manifest)], excluded_input=REUSED_VOCABULARY)
    return Ancestors({key: artifact.manifest for key, artifact in artifacts.items()})
