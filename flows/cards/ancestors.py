"""What an artifact was made from: its manifest and those before it."""

from __future__ import annotations

from typing import NamedTuple

from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactNotFoundError
from schemas.manifest import InputRef, Manifest


class Ancestors(NamedTuple):
    """An artifact and all that it was made from, each before what it was made of."""

    manifests: tuple[Manifest, ...]
    """The artifact's own first."""

    gone: tuple[InputRef, ...]
    """Those that are no longer in the store."""

    def of_stage(self, stage: str) -> Manifest | None:
        """The nearest of a stage, or None."""
        return next((found for found in self.manifests if found.stage == stage), None)


def find_ancestors(store: ArtifactStore, manifest: Manifest) -> Ancestors:
    """Follow an artifact's inputs to the raw files."""
    found, gone, seen = [manifest], list[InputRef](), set[str]()
    waiting = list(manifest.inputs)
    while waiting:
        ref = waiting.pop(0)
        if ref.manifest in seen:
            continue
        seen.add(ref.manifest)
        try:
            found.append(store.manifest(ref.manifest))
        except ArtifactNotFoundError:
            gone.append(ref)
            continue
        waiting += found[-1].inputs
    return Ancestors(tuple(found), tuple(gone))
