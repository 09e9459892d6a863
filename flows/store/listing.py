"""What is published, with the names that lead to it."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from flows.store.artifacts import ArtifactStore, parse_manifest
from flows.store.pointers import Pointer
from schemas.errors import ArtifactCorruptError
from schemas.manifest import Manifest


class ListedArtifact(NamedTuple):
    """A published artifact."""

    pointer: Pointer
    manifest: Manifest | None
    """None where it cannot be read."""

    refs: tuple[str, ...]
    is_pinned: bool

    @property
    def size(self) -> int:
        """Bytes."""
        return self.manifest.size if self.manifest else 0


def list_artifacts(store: ArtifactStore, stage: str | None = None) -> list[ListedArtifact]:
    """Every published artifact, or those of a stage, the newest first.

    Pointers, and then manifests, are fetched side by side.
    """
    names = defaultdict(list)
    for name in store.refs():
        if (pointer := store.ref(name)) is not None:
            names[pointer.manifest].append(name)
    pinned = set(store.pins())
    found = sorted(store.pointers(stage), key=lambda item: item.committed, reverse=True)
    stored = store.backend.read_many(pointer.manifest for pointer in found)
    return [
        ListedArtifact(
            pointer,
            _manifest(stored.get(pointer.manifest), where=store.url(pointer.manifest)),
            tuple(names[pointer.manifest]),
            pointer.artifact_id in pinned,
        )
        for pointer in found
    ]


def _manifest(stored: bytes | None, *, where: str) -> Manifest | None:
    try:
        return parse_manifest(stored, where=where) if stored else None
    except ArtifactCorruptError:
        return None
