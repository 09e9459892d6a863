"""Pointers: the small files through which artifacts are found and retained.

keys/STAGE/AA/CACHE_KEY.json   artifact of a cache key, put-if-absent: this commits the artifact
refs/NAME.json                 name that moves; gc keeps its artifact and everything upstream

Runs write the refs `RECIPE/STEP`, publications `NAME/VERSION` and `NAME/latest`. Refs that users
set contain no slash, so that nothing else moves them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from pydantic import Field

from flows.store.records import Record
from schemas.errors import ConfigError
from schemas.manifest import Manifest, RelativePath

# A part that starts with a dot could be `..` or a hidden file.
REF_NAME = r"[\w@+=-][\w@+=.-]*(/[\w@+=-][\w@+=.-]*)*"


def now() -> str:
    """Return the time in UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat()


class Pointer(Record):
    """Artifact that a cache key or a ref points to."""

    manifest: RelativePath
    """Path of the manifest in the store."""

    content_digest: str
    artifact_id: str = Field(pattern=r"^[0-9a-f]{16}$")
    stage: str = Field(pattern=r"^[a-z0-9-]+$")
    cache_key: str = Field(pattern=r"^[0-9a-f]{64}$")
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


class Ref(Record):
    """Name that points to an artifact."""

    name: str
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


def key_path(stage: str, cache_key: str) -> str:
    """Return the path of the pointer of a cache key."""
    return f"keys/{stage}/{cache_key[:2]}/{cache_key}.json"


def ref_path(name: str) -> str:
    """Return the path of a ref.

    Raises:
        ConfigError: The name is not valid.
    """
    if not re.fullmatch(REF_NAME, name):
        raise ConfigError(
            f"ref {name!r}: expected letters, digits and _-.@+= in parts separated by /, none of "
            "which starts with a dot"
        )
    return f"refs/{name}.json"


def ref_name(path: str) -> str:
    """Return the name of the ref at a path."""
    return path.removeprefix("refs/").removesuffix(".json")
