"""Artifact: the object that everything reads a published artifact through."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, cast

from pipelines.io.file_systems import file_system, is_local
from pipelines.io.local_files import write_atomic
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.manifest import FileEntry, InputRef, Manifest

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from flows.store.artifacts import ArtifactStore

_CHECKED: set[tuple[object, ...]] = set()
"""Root of the store, version and digest of each file that this process has checked."""

_MAX_COPIED_BYTES = 16 << 20
"""Size up to which rows of a remote shard are read from a copy. Each look at a part of it takes
several requests otherwise."""


@functools.cache
def _copies() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="bertloom-shards-")


@functools.cache
def _copy(url: str, sha256: str) -> str:
    """Return the path of a copy of a remote file; it is kept until this process ends."""
    fs, path = file_system(url)
    copy = Path(_copies().name, f"{sha256}.arrow")
    write_atomic(copy, fs.cat_file(path))  # two threads may copy it at once
    return str(copy)


def upstream_artifacts(
    artifacts: Iterable[StoredArtifact], *, excluded_input: str = ""
) -> dict[str, StoredArtifact]:
    """Return artifacts with everything that they were built from, by id, each after its inputs.

    Deleted artifacts are omitted, and inputs named `excluded_input` are not followed.
    """
    known: dict[str, StoredArtifact] = {}

    def add(artifact: StoredArtifact) -> None:
        for ref in artifact.manifest.inputs:
            if ref.artifact_id not in known and ref.name != excluded_input:
                with contextlib.suppress(ArtifactNotFoundError):
                    add(artifact.store.input(ref))
        known[artifact.manifest.artifact_id] = artifact

    for artifact in artifacts:
        if artifact.manifest.artifact_id not in known:
            add(artifact)
    return known


@dataclass(frozen=True)
class StoredArtifact:
    """Published artifact of a store.

    The first use of a file in a process compares its size and digest with the manifest. Later uses
    compare only its version: inode, size and modification time, or the tag of an object.
    """

    manifest: Manifest
    store: ArtifactStore
    checks_digests: bool = True
    """False: compare only sizes, for a look at a few rows of large files."""

    @property
    def files(self) -> tuple[str, ...]:
        """Logical names of its files."""
        return tuple(entry.path for entry in self.manifest.files)

    def entry(self, path: str) -> FileEntry:
        """Return a file's entry in the manifest.

        Raises:
            ArtifactNotFoundError: The artifact has no such file.
        """
        entry = self.manifest.file(path)
        if entry is None:
            raise ArtifactNotFoundError(
                f"{self}: expected one of the files {', '.join(self.files)}, got {path!r}"
            )
        return entry

    def url(self, path: str) -> str:
        """Return the local path or URL of a file after a check.

        Raises:
            ArtifactNotFoundError: The artifact has no such file.
            ArtifactCorruptError: The file is missing or not what was written.
        """
        entry = self.entry(path)
        self._check(entry)
        return self.store.url(self._path(entry))

    def open(self, path: str) -> IO[bytes]:
        """Open a file for reading after a check, with the errors of `url`."""
        self.url(path)
        return self.store.backend.open(self._path(self.entry(path)))

    def folder(self, *, exclude: Collection[str] = ()) -> str:
        """Return the local path or URL of the data folder after a check of its files.

        Args:
            exclude: Files that the caller does not read.

        Raises:
            ArtifactCorruptError: A file is missing or not what was written.
        """
        for entry in self.manifest.files:
            if entry.path not in exclude and not entry.excluded_from_digest:
                self._check(entry)
        return self.store.url(self.manifest.data_path)

    def table(self, paths: Iterable[str] | None = None) -> ds.Dataset:
        """Return the rows of shards as a PyArrow dataset, after a check.

        Args:
            paths: Logical names of the shards. None: all shards of the artifact's own table.

        Raises:
            ArtifactNotFoundError: There is no such shard.
            ArtifactCorruptError: A file is missing or not what was written.
        """
        import pyarrow.dataset as ds  # commands that read no rows do not load it

        names = [entry.path for entry in self.manifest.shards] if paths is None else list(paths)
        if not names:
            raise ArtifactNotFoundError(f"{self}: expected shards, got {', '.join(self.files)}")
        urls = [self.url(name) for name in names]
        entries = [self.entry(name) for name in names]
        if not is_local(urls[0]) and sum(e.size_bytes for e in entries) <= _MAX_COPIED_BYTES:
            pairs = zip(urls, entries, strict=True)
            return ds.dataset([_copy(url, entry.sha256) for url, entry in pairs], format="ipc")
        fs = None if is_local(urls[0]) else file_system(urls[0])[0]
        return ds.dataset([file_system(url)[1] for url in urls], format="ipc", filesystem=fs)

    def upstream(self) -> dict[str, StoredArtifact]:
        """Return the artifacts that it was built from, by input name.

        Raises:
            ArtifactNotFoundError: One was deleted.
        """
        return {ref.name: self._input(ref) for ref in self.manifest.inputs}

    def input(self, name: str) -> StoredArtifact | None:
        """Return the artifact of one input, None if it has no such input."""
        ref = self.manifest.input(name)
        return self._input(ref) if ref else None

    def _input(self, ref: InputRef) -> StoredArtifact:
        return dataclasses.replace(self.store.input(ref), checks_digests=self.checks_digests)

    def __str__(self) -> str:
        return f"{self.manifest.stage} {self.manifest.artifact_id}"

    def _path(self, entry: FileEntry) -> str:
        return f"{self.manifest.data_path}/{entry.stored_name}"

    def _check(self, entry: FileEntry) -> None:
        if not self.checks_digests:
            self._check_size(entry)
            return
        path, backend, sha256 = self._path(entry), self.store.backend, "no file"
        with contextlib.suppress(FileNotFoundError):
            checked = (backend.root, *backend.version(path), entry.sha256)
            if checked in _CHECKED:
                return
            with backend.open(path) as source:
                sha256 = hashlib.file_digest(cast("Any", source), "sha256").hexdigest()
        if sha256 != entry.sha256:
            raise self._corrupt(path, f"expected sha256 {entry.sha256}, got {sha256}")
        _CHECKED.add(checked)

    def _check_size(self, entry: FileEntry) -> None:
        path, backend, size = self._path(entry), self.store.backend, "no file"
        if (checked := (backend.root, path)) in _CHECKED:
            return
        with contextlib.suppress(FileNotFoundError):
            size = f"{backend.size(path)} bytes"
        if size != f"{entry.size_bytes} bytes":
            raise self._corrupt(path, f"expected {entry.size_bytes} bytes, got {size}")
        _CHECKED.add(checked)

    def _corrupt(self, path: str, problem: str) -> ArtifactCorruptError:
        return ArtifactCorruptError(
            f"{self}: {self.store.url(path)}: {problem}. Run `bertloom verify`, which quarantines "
            "the artifact, then the recipe again"
        )
