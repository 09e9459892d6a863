"""Published artifacts with the refs that point to them."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from flows.store.artifacts import ArtifactStore
from flows.store.pointers import Pointer
from schemas.errors import ArtifactCorruptError
from schemas.manifest import Manifest


class ListedArtifact(NamedTuple):
    """Published artifact."""

    pointer: Pointer
    manifest: Manifest | None
    """None if it is missing or corrupt."""

    refs: tuple[str, ...]
    is_pinned: bool

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.manifest.size if self.manifest else 0


def list_artifacts(store: ArtifactStore, stage: str | None = None) -> list[ListedArtifact]:
    """Return every published artifact, or those of a stage, newest first."""
    names = defaultdict(list)
    for name, pointer in store.ref_pointers().items():
        names[pointer.manifest].append(name)
    pins = store.pins()
    pointers = sorted(store.pointers(stage), key=lambda item: item.committed, reverse=True)
    manifests = store.manifests(pointer.manifest for pointer in pointers)
    return [
        ListedArtifact(
            pointer,
            None if isinstance(manifest, ArtifactCorruptError) else manifest,
            tuple(names[pointer.manifest]),
            pointer.artifact_id in pins,
        )
        for pointer in pointers
        for manifest in [manifests.get(pointer.manifest)]
    ]
