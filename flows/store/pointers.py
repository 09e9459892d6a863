"""Pointers: the small files through which artifacts are found and retained.

keys/STAGE/AA/CACHE_KEY.json   artifact of a cache key, put-if-absent: this commits the artifact
refs/NAME.json                 name that moves, by compare-and-swap
pins/ARTIFACT_ID.json          artifact to retain, with the reason
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict

from flows.store.backend import StoreBackend
from flows.store.records import parse_record
from schemas.checksummed import dump_json, load_json
from schemas.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ConfigError,
    RefConflictError,
)
from schemas.manifest import Manifest
from schemas.paths import RelativePath

_LOGGER = logging.getLogger(__name__)
# A part that starts with a dot could be `..` or a hidden file.
_REF_NAME = re.compile(r"[\w@+=-][\w@+=.-]*(/[\w@+=-][\w@+=.-]*)*")
_MAX_TRIES = 100


def now() -> str:
    """Return the time in UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat()


class Pointer(BaseModel):
    """Artifact that a cache key or a ref points to."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    manifest: RelativePath
    """Path of the manifest in the store."""

    content_digest: str
    artifact_id: str
    stage: str
    cache_key: str
    committed: str
    """ISO 8601, UTC."""

    parts: dict[str, RelativePath] = {}
    """Path of each manifest of a published corpus, by step label."""

    @property
    def manifests(self) -> tuple[str, ...]:
        """Paths of all manifests that it points to."""
        return (self.manifest, *self.parts.values())

    def to_json(self) -> bytes:
        """Return the bytes of its file."""
        return dump_json(self.model_dump(exclude_defaults=True))

    def __str__(self) -> str:
        return f"{self.stage} {self.artifact_id}"


class Pin(BaseModel):
    """Artifact that garbage collection retains with everything upstream of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    reason: str
    pinned: str
    """ISO 8601, UTC."""

    pointer: Pointer


def pointer_to(manifest: Manifest) -> Pointer:
    """Return a pointer to an artifact, as of now."""
    return Pointer(
        manifest=manifest.manifest_path,
        content_digest=manifest.content_digest,
        artifact_id=manifest.artifact_id,
        stage=manifest.stage,
        cache_key=manifest.cache_key,
        committed=now(),
    )


def parse_pointer(stored: bytes) -> Pointer | None:
    """Return the pointer in the bytes of a file, None if they are corrupt."""
    try:
        return Pointer.model_validate(load_json(stored))
    except ValueError:  # includes pydantic's
        return None


def key_path(stage: str, cache_key: str) -> str:
    """Return the path of the pointer of a cache key."""
    return f"keys/{stage}/{cache_key[:2]}/{cache_key}.json"


def ref_path(name: str) -> str:
    """Return the path of a ref.

    Raises:
        ConfigError: The name is not valid.
    """
    if not _REF_NAME.fullmatch(name):
        raise ConfigError(
            f"ref {name!r}: expected letters, digits and _-.@+= in parts separated by /, none of "
            "which starts with a dot"
        )
    return f"refs/{name}.json"


class StorePointers:
    """Keys, refs and pins of an `ArtifactStore`. A corrupt file raises ArtifactCorruptError."""

    backend: StoreBackend

    def _parse(self, path: str, stored: bytes) -> Pointer:
        return parse_record(Pointer, stored, backend=self.backend, path=path)

    def _read(self, path: str) -> Pointer | None:
        stored = self.backend.read_if_exists(path)
        return None if stored is None else self._parse(path, stored)

    # Keys

    def pointer(self, stage: str, cache_key: str) -> Pointer | None:
        """Return the pointer of a cache key without a look at its artifact, None if absent."""
        return self._read(key_path(stage, cache_key))

    def pointers(self, stage: str | None = None) -> Iterator[Pointer]:
        """Yield every published artifact, or those of a stage. Corrupt pointers are logged."""
        for pointer in self._keys(stage).values():
            if isinstance(pointer, Pointer):
                yield pointer
            else:
                _LOGGER.warning("skipped: %s", pointer)

    def corrupt_pointers(self) -> dict[tuple[str, str], str]:
        """Return the error of each corrupt pointer, by stage and cache key."""
        return {
            (path.split("/")[1], path.rpartition("/")[2].removesuffix(".json")): str(pointer)
            for path, pointer in self._keys(None).items()
            if not isinstance(pointer, Pointer)
        }

    def _keys(self, stage: str | None) -> dict[str, Pointer | ArtifactCorruptError]:
        pointers: dict[str, Pointer | ArtifactCorruptError] = {}
        paths = self.backend.names(f"keys/{stage}" if stage else "keys")
        for path, stored in self.backend.read_many(paths).items():
            try:
                pointers[path] = self._parse(path, stored)
            except ArtifactCorruptError as error:
                pointers[path] = error
        return pointers

    # Refs

    def ref(self, name: str) -> Pointer | None:
        """Return what a ref points to, None if there is no such ref."""
        return self._read(ref_path(name))

    def refs(self) -> list[str]:
        """Return the names of all refs, sorted."""
        paths = self.backend.names("refs")
        return [path.removeprefix("refs/").removesuffix(".json") for path in paths]

    def set_ref(self, name: str, manifest: Manifest) -> None:
        """Point a ref such as `RECIPE/build-tokens` to an artifact. The last caller wins.

        Nothing is written if it points there already. A corrupt ref is replaced.
        """
        path, new = ref_path(name), pointer_to(manifest)
        for _ in range(_MAX_TRIES):
            stored = self.backend.read_if_exists(path)
            current = parse_pointer(stored) if stored is not None else None
            if current is not None and current == new.model_copy(
                update={"committed": current.committed}
            ):
                return
            if self.backend.compare_and_swap(path, new.to_json(), expected=stored):
                return
        raise RefConflictError(
            f"ref {name!r}: other runs moved it {_MAX_TRIES} times in the meantime. Try again"
        )

    def swap_ref(self, name: str, pointer: Pointer, *, expected: Pointer | None) -> None:
        """Move a ref such as `corpus/simplewiki/latest` if it points to `expected`.

        Raises:
            RefConflictError: It points to something else. Nothing is changed.
        """
        path = ref_path(name)
        stored = self.backend.read_if_exists(path)
        current = None if stored is None else self._parse(path, stored)
        if current == expected:
            if self.backend.compare_and_swap(path, pointer.to_json(), expected=stored):
                return
            current = self.ref(name)
        raise RefConflictError(
            f"ref {name!r}: expected {expected or 'no ref'}, got {current or 'no ref'}: another "
            "run moved it. Check where it points to, then try again"
        )

    def delete_ref(self, name: str) -> None:
        """Delete a ref if it exists. The artifact stays until garbage collection."""
        self.backend.delete(ref_path(name))

    # Pins

    def pin(self, manifest: Manifest, *, reason: str) -> None:
        """Retain an artifact and everything upstream of it until it is unpinned."""
        pin = Pin(reason=reason, pinned=now(), pointer=pointer_to(manifest))
        path = f"pins/{manifest.artifact_id}.json"
        self.backend.replace(path, dump_json(pin.model_dump(exclude_defaults=True)))

    def unpin(self, artifact_id: str) -> None:
        """Delete a pin.

        Raises:
            ArtifactNotFoundError: The artifact is not pinned.
        """
        if artifact_id not in (pins := self.pins()):
            raise ArtifactNotFoundError(
                f"{self.backend.root}: {artifact_id} is not pinned; pins: "
                f"{', '.join(pins) or 'none'}"
            )
        self.backend.delete(f"pins/{artifact_id}.json")

    def pins(self) -> dict[str, Pin]:
        """Return all pins, by artifact id."""
        return {
            path.removeprefix("pins/").removesuffix(".json"): parse_record(
                Pin, self.backend.read(path), backend=self.backend, path=path
            )
            for path in self.backend.names("pins")
        }
