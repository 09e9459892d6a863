"""Pointers: the small files through which artifacts are found and retained.

keys/STAGE/AA/CACHE_KEY.json   artifact of a cache key, put-if-absent: this commits the artifact
refs/NAME.json                 name that moves
pins/ARTIFACT_ID.json          artifact to retain, with the reason
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime

from pydantic import Field

from flows.store.backend import StoreBackend
from flows.store.records import Record, load_records, read_record, read_records
from schemas.checksummed import load_json
from schemas.errors import (
    ArtifactNotFoundError,
    ConfigError,
    RefConflictError,
)
from schemas.manifest import Manifest, RelativePath

_LOGGER = logging.getLogger(__name__)
# A part that starts with a dot could be `..` or a hidden file.
_REF_NAME = re.compile(r"[\w@+=-][\w@+=.-]*(/[\w@+=-][\w@+=.-]*)*")


def now() -> str:
    """Return the time in UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat()


class Pointer(Record):
    """Artifact that a cache key or a ref points to."""

    manifest: RelativePath
    """Path of the manifest in the store."""

    content_digest: str
    artifact_id: str
    stage: str
    cache_key: str
    committed: str
    """ISO 8601, UTC."""

    parts: dict[str, RelativePath] = Field(default_factory=dict)
    """Path of each manifest of a published corpus, by step label."""

    @property
    def manifests(self) -> tuple[str, ...]:
        """Paths of all manifests that it points to."""
        return (self.manifest, *self.parts.values())

    @property
    def path(self) -> str:
        """Path of the pointer under its cache key."""
        return key_path(self.stage, self.cache_key)

    @property
    def location(self) -> str:
        """Folder of the artifact."""
        return self.manifest.rpartition("/")[0]

    def __str__(self) -> str:
        return f"{self.stage} {self.artifact_id}"


class Pin(Record):
    """Artifact that garbage collection retains with everything upstream of it."""

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


def parse_pointer(stored: bytes | None) -> Pointer | None:
    """Return the pointer in the bytes of a file, None if they are corrupt or there is no file."""
    try:
        return Pointer.model_validate(load_json(stored or b""))
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

    # Keys

    def pointer(self, stage: str, cache_key: str) -> Pointer | None:
        """Return the pointer of a cache key without a look at its artifact, None if absent."""
        return read_record(self.backend, Pointer, key_path(stage, cache_key))

    def pointers(self, stage: str | None = None) -> list[Pointer]:
        """Return every published artifact, or those of a stage, newest first.

        Corrupt pointers are logged.
        """
        pointers = []
        paths = self.backend.names(f"keys/{stage}" if stage else "keys")
        for pointer in read_records(self.backend, Pointer, paths).values():
            if isinstance(pointer, Pointer):
                pointers.append(pointer)
            else:
                _LOGGER.warning("skipped: %s", pointer)
        return sorted(pointers, key=lambda pointer: pointer.committed, reverse=True)

    # Refs

    def ref(self, name: str) -> Pointer | None:
        """Return what a ref points to, None if there is no such ref."""
        return read_record(self.backend, Pointer, ref_path(name))

    def refs(self) -> list[str]:
        """Return the names of all refs, sorted."""
        return [_ref_name(path) for path in self.backend.names("refs")]

    def ref_pointers(self) -> dict[str, Pointer]:
        """Return what each ref points to, by name."""
        pointers = load_records(self.backend, Pointer, "refs")
        return {_ref_name(path): pointer for path, pointer in pointers.items()}

    def set_ref(self, name: str, manifest: Manifest) -> None:
        """Point a ref such as `RECIPE/build-tokens` to an artifact. The last caller wins.

        Nothing is written if it points there already. A corrupt ref is replaced.
        """
        path, new = ref_path(name), pointer_to(manifest)
        current = parse_pointer(self.backend.read_if_exists(path))
        if current is None or current.model_copy(update={"committed": new.committed}) != new:
            self.backend.replace(path, new.to_json())

    def swap_ref(self, name: str, pointer: Pointer, *, expected: Pointer | None) -> None:
        """Move a ref such as `corpus/simplewiki/latest` if it points to `expected`.

        Raises:
            RefConflictError: It points to something else. Nothing is changed.
        """
        old = expected.to_json() if expected else None
        if not self.backend.compare_and_swap(ref_path(name), pointer.to_json(), expected=old):
            raise RefConflictError(
                f"ref {name!r}: expected {expected or 'no ref'}, got {self.ref(name) or 'no ref'}: "
                "another run moved it. Check where it points to, then try again"
            )

    # Pins

    def pin(self, manifest: Manifest, *, reason: str) -> None:
        """Retain an artifact and everything upstream of it until it is unpinned."""
        pin = Pin(reason=reason, pinned=now(), pointer=pointer_to(manifest))
        self.backend.replace(_pin_path(manifest.artifact_id), pin.to_json())

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
        self.backend.delete(_pin_path(artifact_id))

    def pins(self) -> dict[str, Pin]:
        """Return all pins, by artifact id."""
        pins = load_records(self.backend, Pin, "pins").values()
        return {pin.pointer.artifact_id: pin for pin in pins}


def _ref_name(path: str) -> str:
    return path.removeprefix("refs/").removesuffix(".json")


def _pin_path(artifact_id: str) -> str:
    return f"pins/{artifact_id}.json"
