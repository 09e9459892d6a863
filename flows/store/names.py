"""What a store does by name: refs, pins, and folders for work that is not finished."""

from __future__ import annotations

from typing import Any

from flows.store import refs
from flows.store.backend import StoreBackend
from flows.store.pointers import Pointer
from schemas.manifest import Manifest


class StoreNames:
    """The part of an `ArtifactStore` that needs its files only."""

    backend: StoreBackend

    # Names, pins and runs

    def set_ref(self, name: str, manifest: Manifest) -> None:
        """Let a name, such as `RECIPE/build-tokens`, lead to an artifact from now on.

        Nothing is written where it does already.
        """
        refs.set_ref(self.backend, name, manifest)

    def swap_ref(self, name: str, pointer: Pointer, *, expected: Pointer | None) -> None:
        """Let a name lead elsewhere if it leads to `expected` (None: if there is no such name).

        Raises:
            RefConflictError: it leads elsewhere; nothing is changed.
        """
        refs.swap_ref(self.backend, name, pointer, expected=expected)

    def delete_ref(self, name: str) -> None:
        """Take a name away; it may be gone already."""
        refs.delete_ref(self.backend, name)

    def ref(self, name: str) -> Pointer | None:
        """What a name leads to, or None."""
        return refs.read_ref(self.backend, name)

    def refs(self) -> list[str]:
        """Every name, sorted."""
        return refs.ref_names(self.backend)

    def pin(self, manifest: Manifest, *, reason: str) -> None:
        """Keep an artifact, and all that it was made from, until it is unpinned."""
        refs.pin(self.backend, manifest, reason=reason)

    def unpin(self, artifact_id: str) -> None:
        """Raises ArtifactNotFoundError if the artifact is not pinned."""
        refs.unpin(self.backend, artifact_id)

    def pins(self) -> dict[str, dict[str, Any]]:
        """Every pin by the artifact's id: `reason`, `pinned` (ISO 8601, UTC), `pointer`."""
        return refs.pins(self.backend)

    # Work that can go on

    def work(self, stage: str, cache_key: str) -> str:
        """URL of a folder, which is there, for what a stage needs to go on under this key."""
        path = f"work/{stage}/{cache_key}"
        self.backend.make_folder(path)
        return self.backend.url(path)

    def clear_work(self, stage: str, cache_key: str) -> None:
        """Take that folder away, as its artifact is published; the holder of the lease calls it."""
        self.backend.delete_folder(f"work/{stage}/{cache_key}")

    def pieces(self, stage: str, digest: str) -> str:
        """URL of a folder, which is there, for records of pieces (`pipelines.beam.reuse`)."""
        path = f"pieces/{stage}/{digest}"
        self.backend.make_folder(path)
        return self.backend.url(path)
