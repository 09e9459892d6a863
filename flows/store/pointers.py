"""Pointers: the small files by which an artifact is found, and reading what they lead to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.errors import ArtifactCorruptError
from schemas.manifest import MANIFEST_VERSION, Manifest
from schemas.sealed import read_sealed, sealed_json


def to_json(value: Mapping[str, Any]) -> bytes:
    """Indented JSON with its own digest, as every record of the store is written."""
    return sealed_json(value)


def now() -> str:
    """The time in UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat()


class Pointer(BaseModel):
    """What a cache key, or a ref, leads to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    manifest: str
    """Path of the manifest, relative to the root of the store."""

    content: str
    artifact_id: str
    stage: str
    cache_key: str
    committed: str
    """ISO 8601, UTC."""

    parts: dict[str, str] = {}
    """Of a publication of several artifacts: path of the manifest of each, by the step's label."""

    def to_json(self) -> bytes:
        """As it is stored."""
        return to_json(self.model_dump(exclude_defaults=True))


def key_path(stage: str, cache_key: str) -> str:
    """Where the pointer of a key lies, relative to the root."""
    return f"keys/{stage}/{cache_key[:2]}/{cache_key}.json"


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
        return Pointer.model_validate(read_sealed(stored).value)
    except ValueError:  # of which pydantic's are
        return None


def parse_manifest(stored: bytes, *, where: str) -> Manifest:
    """A manifest from the bytes of its file.

    Raises:
        ArtifactCorruptError: they are not a manifest, or one of another version.
    """
    raw = raw_manifest(stored, where=where)
    if (version := raw.get("manifest_version")) != MANIFEST_VERSION:
        raise ArtifactCorruptError(
            f"{where}: expected manifest_version {MANIFEST_VERSION}, found {version!r}"
        )
    try:
        return Manifest.model_validate(raw)
    except ValidationError as error:
        raise ArtifactCorruptError(f"{where}: expected a manifest: {error}") from error


def raw_manifest(stored: bytes, *, where: str) -> dict[str, Any]:
    """The fields of a manifest of any version, unchecked but for its digest.

    Raises:
        ArtifactCorruptError: it is not what was written.
    """
    try:
        return read_sealed(stored).value
    except ValueError as error:
        raise ArtifactCorruptError(
            f"{where}: expected a manifest: {error}. `bertloom verify` takes the artifact back, "
            "and the next run builds it again"
        ) from error
