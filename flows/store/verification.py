"""Checking artifacts: that they are, to the byte, what their manifests say."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from flows.store.artifacts import ArtifactStore, Pointer
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.fingerprint import cache_key, content_digest, logical_digest
from schemas.manifest import FileEntry, Manifest

if TYPE_CHECKING:
    from flows.store.row_checks import RowsFound

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

    damaged_files: tuple[str, ...] = ()
    """Physical names of those whose bytes are not the ones that were written."""

    is_wrong: bool = False
    """Whether the artifact was sound in its bytes, and said of them what is not so: then what it
    came from, such as the records of its pieces, may say so too."""

    @property
    def is_sound(self) -> bool:
        return not self.problems


class _Reading(NamedTuple):
    """What reading a file came to."""

    sha256: str
    rows: RowsFound | None = None


class _Reader:
    """Reads files, and each that several artifacts share only once."""

    def __init__(self, store: ArtifactStore, *, rows: bool) -> None:
        self._backend = store.backend
        self._rows = rows
        self._known: dict[tuple[int, int, int], _Reading] = {}

    def read(self, path: str, entry: FileEntry) -> _Reading:
        known = self._backend.identity(path)
        if known is not None and known in self._known:
            return self._known[known]
        reading = self._read(path, entry)
        if known is not None:
            self._known[known] = reading
        return reading

    def _read(self, path: str, entry: FileEntry) -> _Reading:
        digest = hashlib.sha256()
        with self._backend.open(path) as source:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
            if digest.hexdigest() != entry.sha256 or entry.rows is None or not self._rows:
                return _Reading(digest.hexdigest())
            from flows.store.row_checks import read_rows

            source.seek(0)
            return _Reading(entry.sha256, read_rows(source))


def verify(
    store: ArtifactStore, pointers: Sequence[Pointer], *, deep: bool = True, rows: bool = False
) -> list[Verdict]:
    """Check artifacts.

    Each manifest must fit its pointer and itself: digests over the files, the cache key over its
    specification. Each file must be there with its size and, if `deep`, its sha256; with `rows`,
    tables are also read: their schema must be that of the manifest's table, and the digest of
    their rows the one that is recorded. Each input's manifest must be there with the content that
    the key says. A file that several artifacts share is read once.
    """
    reader = _Reader(store, rows=rows) if deep or rows else None
    return [_verify(store, pointer, reader=reader) for pointer in pointers]


def _verify(store: ArtifactStore, pointer: Pointer, *, reader: _Reader | None) -> Verdict:
    try:
        manifest = store.read_manifest(pointer.manifest)
    except (ArtifactCorruptError, ArtifactNotFoundError) as error:
        return Verdict(pointer.artifact_id, pointer.stage, (str(error),))
    files = _check_files(store, manifest, reader=reader)
    wrong = [*check_manifest(manifest), *files.wrong]
    problems = [
        *_check_pointer(manifest, pointer),
        *wrong,
        *files.damaged.values(),
        *_check_inputs(store, manifest),
    ]
    return Verdict(
        manifest.artifact_id,
        manifest.stage,
        tuple(problems),
        len(manifest.files),
        manifest.size,
        damaged_files=tuple(files.damaged),
        is_wrong=bool(wrong),
    )


def withdraw(store: ArtifactStore, verdicts: Sequence[Verdict]) -> None:
    """Take the artifacts that are not sound back, so that the next run builds them again."""
    damaged = [verdict for verdict in verdicts if not verdict.is_sound]
    store.withdraw_artifacts(
        {verdict.artifact_id: "; ".join(verdict.problems) for verdict in damaged},
        files={v.artifact_id: v.damaged_files for v in damaged if not v.is_wrong},
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


class _FilesFound(NamedTuple):
    damaged: dict[str, str]
    """What is wrong with a file's bytes, by its physical name."""

    wrong: list[str]
    """What is said of sound bytes and is not so."""


def _check_files(
    store: ArtifactStore, manifest: Manifest, *, reader: _Reader | None
) -> _FilesFound:
    sizes = store.backend.sizes(manifest.data)
    damaged: dict[str, str] = {}
    wrong: list[str] = []
    for entry in manifest.files:
        found = sizes.get(entry.object)
        if found is None:
            damaged[entry.object] = f"{entry.path}: {entry.object} is missing"
        elif found != entry.size:
            problem = f"{entry.path}: expected {entry.size:,} bytes, found {found:,}"
            damaged[entry.object] = problem
        elif reader is not None:
            reading = reader.read(f"{manifest.data}/{entry.object}", entry)
            if reading.sha256 != entry.sha256:
                problem = f"{entry.path}: expected sha256 {entry.sha256}, found {reading.sha256}"
                damaged[entry.object] = problem
            elif reading.rows is not None:
                wrong += _check_rows(reading.rows, entry, manifest)
    return _FilesFound(damaged, wrong)


def _check_rows(found: RowsFound, entry: FileEntry, manifest: Manifest) -> list[str]:
    from flows.store.row_checks import check_rows

    return [f"{entry.path}: {text}" for text in check_rows(found, entry, manifest=manifest)]


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
