"""Checking artifacts: that they are, to the byte, what their manifests say."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from flows.artifacts import ArtifactStore, Pointer
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.fingerprint import cache_key, content_digest, logical_digest
from schemas.manifest import FileEntry, Manifest

_CHUNK = 1 << 20


class Verdict(NamedTuple):
    """What was found about an artifact."""

    artifact_id: str
    stage: str
    problems: tuple[str, ...]
    """One text for each thing that is not as it should be; none for a sound artifact."""

    files: int = 0
    size: int = 0
    """Bytes that the manifest lists."""

    @property
    def is_sound(self) -> bool:
        return not self.problems


def verify(
    store: ArtifactStore, pointers: Sequence[Pointer], *, deep: bool = True
) -> list[Verdict]:
    """Check artifacts.

    Each manifest must fit its pointer and itself: digests over the files, the cache key over its
    specification. Each file must be there with its size and, if `deep`, its sha256. Each input's
    manifest must be there with the content that the key says.
    """
    return [_verify(store, pointer, deep=deep) for pointer in pointers]


def _verify(store: ArtifactStore, pointer: Pointer, *, deep: bool) -> Verdict:
    try:
        manifest = store.read_manifest(pointer.manifest)
    except (ArtifactCorruptError, ArtifactNotFoundError) as error:
        return Verdict(pointer.artifact_id, pointer.stage, (str(error),))
    problems = [
        *_check_pointer(manifest, pointer),
        *check_manifest(manifest),
        *_check_files(store, manifest, deep=deep),
        *_check_inputs(store, manifest),
    ]
    return Verdict(
        manifest.artifact_id, manifest.stage, tuple(problems), len(manifest.files), manifest.size
    )


def _check_pointer(manifest: Manifest, pointer: Pointer) -> list[str]:
    expected = {
        "artifact_id": pointer.artifact_id,
        "cache_key": pointer.cache_key,
        "content": pointer.content,
        "stage": pointer.stage,
        "path": pointer.manifest,
    }
    return [
        f"manifest: {name} is {getattr(manifest, name)}, but the pointer says {value}"
        for name, value in expected.items()
        if getattr(manifest, name) != value
    ]


def check_manifest(manifest: Manifest) -> list[str]:
    """What in a manifest contradicts itself, one text each."""
    computed = {
        "cache_key": cache_key(manifest.key_spec),
        "content": content_digest(manifest.files),
        "logical_content": logical_digest(manifest.files),
    }
    return [
        f"manifest: {name} is {getattr(manifest, name)}, but comes to {value}"
        for name, value in computed.items()
        if getattr(manifest, name) != value
    ]


def _check_files(store: ArtifactStore, manifest: Manifest, *, deep: bool) -> list[str]:
    sizes = store.backend.sizes(manifest.data)
    problems = []
    for entry in manifest.files:
        found = sizes.get(entry.object)
        if found is None:
            problems.append(f"{entry.path}: {entry.object} is missing")
        elif found != entry.size:
            problems.append(f"{entry.path}: expected {entry.size:,} bytes, found {found:,}")
        elif deep and (digest := _sha256(store, manifest, entry)) != entry.sha256:
            problems.append(f"{entry.path}: expected sha256 {entry.sha256}, found {digest}")
    return problems


def _sha256(store: ArtifactStore, manifest: Manifest, entry: FileEntry) -> str:
    digest = hashlib.sha256()
    with store.backend.open(f"{manifest.data}/{entry.object}") as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _check_inputs(store: ArtifactStore, manifest: Manifest) -> list[str]:
    problems = []
    keyed = manifest.key_spec.get("inputs", {})
    for ref in manifest.inputs:
        try:
            found = store.read_manifest(ref.manifest)
        except (ArtifactCorruptError, ArtifactNotFoundError) as error:
            problems.append(f"input {ref.name}: {error}")
            continue
        if found.content != ref.content:
            problems.append(
                f"input {ref.name}: expected {ref.content}, but {ref.manifest} has {found.content}"
            )
        if keyed.get(ref.name, {}).get("content") != ref.content:
            problems.append(f"input {ref.name}: its content is not the one in the cache key")
    return problems
