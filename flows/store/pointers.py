"""Pointers: the small files by which artifacts are found and kept.

    keys/STAGE/AA/CACHE_KEY.json    what a key leads to; created put-if-absent: THE commit
    refs/NAME.json                  a name that moves on, by compare-and-swap: no move gets lost
    pins/ARTIFACT_ID.json           {reason, pinned, pointer}: kept though no name leads to it

A key's pointer is created in `ArtifactStore.commit` and taken back in `ArtifactStore.withdraw`; a
ref is swapped in `set_ref` and `swap_ref`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from flows.store.backend import StoreBackend
from flows.store.records import damaged, parse_record, read_record
from schemas.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ConfigError,
    RefConflictError,
)
from schemas.manifest import Manifest
from schemas.paths import RelativePath
from schemas.sealed import read_sealed, sealed_json

_LOGGER = logging.getLogger(__name__)
# Each part begins with something else than a dot: no way up, and no hidden file.
_REF_NAME = re.compile(r"[\w@+=-][\w@+=.-]*(/[\w@+=-][\w@+=.-]*)*")
_TRIES = 100


def now() -> str:
    """The time in UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat()


class Pointer(BaseModel):
    """What a cache key, or a ref, leads to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    manifest: RelativePath
    """Path of the manifest, relative to the root of the store."""

    content: str
    artifact_id: str
    stage: str
    cache_key: str
    committed: str
    """ISO 8601, UTC."""

    parts: dict[str, RelativePath] = {}
    """A publication of several artifacts: path of the manifest of each, by the step's label."""

    def to_json(self) -> bytes:
        """The bytes of its file."""
        return sealed_json(self.model_dump(exclude_defaults=True))

    def __str__(self) -> str:
        """The stage and the artifact."""
        return f"{self.stage} {self.artifact_id}"


def pointer_to(manifest: Manifest) -> Pointer:
    """A pointer to an artifact, as of now."""
    return Pointer(
        manifest=manifest.path,
        content=manifest.content,
        artifact_id=manifest.artifact_id,
        stage=manifest.stage,
        cache_key=manifest.cache_key,
        committed=now(),
    )


def parse_pointer(stored: bytes) -> Pointer | None:
    """A pointer from the bytes of its file; None where they are none."""
    try:
        return Pointer.model_validate(read_sealed(stored))
    except ValueError:  # of which pydantic's are
        return None


def key_path(stage: str, cache_key: str) -> str:
    """Path of the pointer of a key, relative to the root of the store."""
    return f"keys/{stage}/{cache_key[:2]}/{cache_key}.json"


def ref_path(name: str) -> str:
    """Path of a ref, relative to the root of the store.

    Raises:
        ConfigError: the name cannot be that of a ref.
    """
    if not _REF_NAME.fullmatch(name):
        raise ConfigError(
            f"ref {name!r}: expected letters, digits and any of _-.@+= in parts between /, none "
            "of them beginning with a dot"
        )
    return f"refs/{name}.json"


class StorePointers:
    """The part of an `ArtifactStore` that reads keys, and reads and moves refs and pins.

    A file that is no pointer, where one is read, raises ArtifactCorruptError.
    """

    backend: StoreBackend

    def _parsed(self, path: str, stored: bytes) -> Pointer:
        return parse_record(Pointer, stored, self.backend.url(path), kind=path.partition("/")[0])

    def _pointer(self, path: str) -> Pointer | None:
        stored = self.backend.read_if_exists(path)
        return None if stored is None else self._parsed(path, stored)

    # Keys

    def pointer(self, stage: str, cache_key: str) -> Pointer | None:
        """What a key leads to, unchecked; None where there is nothing."""
        return self._pointer(key_path(stage, cache_key))

    def pointers(self, stage: str | None = None) -> Iterator[Pointer]:
        """Every published key, of one stage or of all, in no particular order.

        A pointer that cannot be read is passed over with a warning; see `corrupt_pointers`.
        """
        for found in self._keys(stage).values():
            if isinstance(found, Pointer):
                yield found
            else:
                _LOGGER.warning("passed over: %s", found)

    def corrupt_pointers(self) -> dict[tuple[str, str], str]:
        """What is wrong with each pointer that cannot be read, by its stage and cache key.

        A `lookup` of the key takes such a pointer back.
        """
        return {
            (path.split("/")[1], path.rpartition("/")[2].removesuffix(".json")): str(found)
            for path, found in self._keys(None).items()
            if not isinstance(found, Pointer)
        }

    def _keys(self, stage: str | None) -> dict[str, Pointer | ArtifactCorruptError]:
        found: dict[str, Pointer | ArtifactCorruptError] = {}
        paths = self.backend.names(f"keys/{stage}" if stage else "keys")
        for path, stored in self.backend.read_many(paths).items():
            try:
                found[path] = self._parsed(path, stored)
            except ArtifactCorruptError as error:
                found[path] = error
        return found

    # Refs

    def ref(self, name: str) -> Pointer | None:
        """What a name leads to, or None."""
        return self._pointer(ref_path(name))

    def refs(self) -> list[str]:
        """Every name, sorted."""
        paths = self.backend.names("refs")
        return [path.removeprefix("refs/").removesuffix(".json") for path in paths]

    def set_ref(self, name: str, manifest: Manifest) -> None:
        """Let a name, such as `RECIPE/build-tokens`, lead to an artifact; the last caller wins.

        Nothing is written where it leads there already. A damaged ref is put right.
        """
        path = ref_path(name)
        wanted = manifest.path, manifest.content, dict[str, str]()
        for _ in range(_TRIES):
            stored = self.backend.read_if_exists(path)
            found = parse_pointer(stored) if stored is not None else None
            if found is not None and (found.manifest, found.content, found.parts) == wanted:
                return
            if self.backend.compare_and_swap(path, pointer_to(manifest).to_json(), expected=stored):
                return
        raise RefConflictError(
            f"ref {name!r}: other runs moved it {_TRIES} times while this one wanted to; try again"
        )

    def swap_ref(self, name: str, pointer: Pointer, *, expected: Pointer | None) -> None:
        """Let a name, such as `corpus/simplewiki/latest`, that leads to `expected` lead elsewhere.

        Raises:
            RefConflictError: it leads to something else. Nothing is changed.
        """
        path = ref_path(name)
        stored = self.backend.read_if_exists(path)
        found = None if stored is None else self._parsed(path, stored)
        if found == expected:
            if self.backend.compare_and_swap(path, pointer.to_json(), expected=stored):
                return
            found = self.ref(name)
        raise RefConflictError(
            f"ref {name!r}: expected it to lead to {expected or 'nothing'}, found "
            f"{found or 'nothing'}: another run moved it meanwhile. Look at what is there, and try "
            "again"
        )

    def delete_ref(self, name: str) -> None:
        """Delete a name; it may be gone already. The artifact stays until garbage is collected."""
        self.backend.delete(ref_path(name))

    # Pins

    def pin(self, manifest: Manifest, *, reason: str) -> None:
        """Keep an artifact, and all that it was made from, until it is unpinned."""
        pointer = pointer_to(manifest).model_dump(exclude_defaults=True)
        record = {"reason": reason, "pinned": now(), "pointer": pointer}
        self.backend.replace(f"pins/{manifest.artifact_id}.json", sealed_json(record))

    def unpin(self, artifact_id: str) -> None:
        """Take a pin away.

        Raises:
            ArtifactNotFoundError: the artifact is not pinned.
        """
        found = self.pins()
        if artifact_id not in found:
            raise ArtifactNotFoundError(
                f"{self.backend.root}: {artifact_id} is not pinned; pinned are "
                f"{', '.join(found) or 'none'}"
            )
        self.backend.delete(f"pins/{artifact_id}.json")

    def pins(self) -> dict[str, dict[str, Any]]:
        """Every pin by the artifact's id: `reason`, `pinned` (ISO 8601, UTC), `pointer`.

        Raises:
            ArtifactCorruptError: one cannot be read.
        """
        found = {}
        for path in self.backend.names("pins"):
            record = read_record(self.backend, path)
            try:
                Pointer.model_validate(record["pointer"])
            except (ValueError, KeyError) as error:
                raise damaged(self.backend.url(path), "pins", error) from error
            found[path.removeprefix("pins/").removesuffix(".json")] = record
        return found
