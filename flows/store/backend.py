"""Small files in a folder, local or remote, with what a store needs: put-if-absent, and swaps.

How a file is created only if it is not there yet, by backend:

* local: `flows.store.local_files`, by a hard link;
* S3: `If-None-Match: *`; GCS: `ifGenerationMatch=0` (fsspec's `mode="create"`);
* memory: a lock, as it lives in one process.

fsspec's own local `mode="create"` looks first and writes afterwards, so that two may win; it is not
used. Backends without such a promise are refused. How a file is changed or taken away only if it is
what the caller thinks: there, and in `flows.store.conditional_writes`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from flows.store.conditional_writes import (
    delete_stale,
    remove_remote,
    swap_remote,
    write_over_stale,
)
from flows.store.local_files import create_local, locked, remove_local, replace_local
from pipelines.io.file_systems import file_system
from schemas.errors import StoreError

_CONDITIONAL_PUT = frozenset({"s3", "s3a", "gs", "gcs"})
_MEMORY_LOCK = threading.Lock()


class FileFacts(NamedTuple):
    """What a listing tells of a file."""

    size: int
    """Bytes."""

    modified: float
    """Seconds since the epoch, by the clock of the disk or the server."""

    links: int = 1
    """Names of these bytes on disk: more than one where artifacts share a file."""


class StoreBackend:
    """Files below one root, named by paths relative to it with `/` between parts."""

    def __init__(self, root: str) -> None:
        """`root` is a local folder, made when it is first written to, or an fsspec URL.

        Raises:
            StoreError: it cannot be reached, or is on a backend without put-if-absent.
        """
        try:
            self.fs, path = file_system(root)
        except (ValueError, ImportError) as error:
            raise StoreError(
                f"store {root}: {error}. Expected a folder or a memory://, s3:// or gs:// URL "
                "(s3:// needs the package s3fs, gs:// needs gcsfs)"
            ) from error
        protocols = self.fs.protocol
        self.protocols = {protocols} if isinstance(protocols, str) else set(protocols)
        self.is_local = "file" in self.protocols
        self.is_memory = "memory" in self.protocols
        if not (self.is_local or self.is_memory or self.protocols & _CONDITIONAL_PUT):
            raise StoreError(
                f"store {root}: {'/'.join(sorted(self.protocols))} cannot create a file only where "
                "there is none. Use a local folder, memory://, s3:// or gs://"
            )
        self._root = str(path).rstrip("/") or "/"

    @property
    def is_remote(self) -> bool:
        return not (self.is_local or self.is_memory)

    @property
    def root(self) -> str:
        """The root as an absolute local path or a URL."""
        return self._root if self.is_local else str(self.fs.unstrip_protocol(self._root))

    def url(self, path: str) -> str:
        """Of a file or folder: an absolute local path, or a URL."""
        return f"{self.root.rstrip('/')}/{path}"

    def read(self, path: str) -> bytes:
        """Raises FileNotFoundError where there is none."""
        return bytes(self.fs.cat_file(self._full(path)))

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The bytes of those of some small files that are there, by path; fetched side by side.

        One that is not there is left out.
        """
        wanted = {self._full(path): path for path in paths}
        if self.is_local or self.is_memory:
            pairs = ((path, self._read_if_there(path)) for path in wanted.values())
            return {path: data for path, data in pairs if data is not None}
        found = self.fs.cat(list(wanted), on_error="return") if wanted else {}
        for data in found.values():
            if isinstance(data, BaseException) and not isinstance(data, FileNotFoundError):
                raise data
        read = {wanted[full]: data for full, data in found.items()}
        return {path: bytes(data) for path, data in read.items() if not isinstance(data, OSError)}

    def _read_if_there(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except FileNotFoundError:
            return None

    def open(self, path: str) -> IO[bytes]:
        """A file's bytes as a stream, which the caller closes."""
        return cast("IO[bytes]", self.fs.open(self._full(path), "rb"))

    def create(self, path: str, data: bytes) -> bool:
        """Put-if-absent: whether this call wrote the file. Of any number of callers one wins.

        A loser finds the winner's file whole.
        """
        full = self._full(path)
        if self.is_local:
            return create_local(Path(full), data)
        if self.is_memory:
            with _MEMORY_LOCK:
                if self.fs.exists(full):
                    return False
                self.fs.pipe_file(full, data)
                return True
        try:
            self.fs.pipe_file(full, data, mode="create")
        except OSError as error:
            # The client repeats a request whose answer got lost, and may then meet its own file.
            if self._is_there(path):
                return self.read(path) == data
            if isinstance(error, FileExistsError):
                return False
            raise
        return True

    def replace(self, path: str, data: bytes) -> None:
        """Write a file whether or not it is there; readers see the old or the new one."""
        full = self._full(path)
        if self.is_local:
            replace_local(Path(full), data)
        else:
            self.fs.pipe_file(full, data)

    def swap(self, path: str, data: bytes, *, expected: bytes | None) -> bool:
        """Compare-and-swap: write a file if it holds `expected`; None: if there is none.

        Returns:
            Whether the file holds `data` now. If not, another caller was faster.
        """
        if expected is None:
            return self.create(path, data)
        if self.is_remote:
            return swap_remote(self.fs, self._full(path), data, expected=expected)
        with self._locked(path):
            try:
                found = self.read(path)
            except FileNotFoundError:
                return False
            if found != expected:
                return found == data
            self.replace(path, data)
            return True

    def remove(self, path: str, *, expected: bytes) -> float | None:
        """Take a file away if it holds `expected`.

        Returns:
            When it was last written or `touch`ed (seconds since the epoch; 0 on S3 and GCS); None
            where it is not there or holds something else.
        """
        full = self._full(path)
        if self.is_remote:
            return 0.0 if remove_remote(self.fs, full, expected=expected) else None
        with self._locked(path):
            if self.is_local:
                return remove_local(Path(full), expected=expected)
            try:
                if self.read(path) != expected:
                    return None
                modified = float(self.fs.modified(full).timestamp())
                self.delete(path)
            except FileNotFoundError:
                return None
            return modified

    @contextlib.contextmanager
    def _locked(self, path: str) -> Iterator[None]:
        if self.is_memory:
            with _MEMORY_LOCK:
                yield
            return
        with locked(Path(self._root), path):
            yield

    def touch(self, path: str) -> None:
        """Note on a file that it was used just now; object stores cannot.

        Nothing is noted by who may only read: what they use is not protected from a collection.

        Raises:
            FileNotFoundError: it is not there.
        """
        if self.is_local:
            try:
                os.utime(self._full(path))
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
        elif self.is_memory:
            with _MEMORY_LOCK:
                if not self.fs.exists(self._full(path)):
                    raise FileNotFoundError(path)
                self.fs.store[self._full(path)].modified = datetime.now(UTC)

    def delete(self, path: str) -> None:
        """Take a file away; it may be gone already."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm_file(self._full(path))

    def delete_folder(self, path: str) -> None:
        """Take a folder with everything in it away; it may be gone already."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm(self._full(path), recursive=True)

    def make_folder(self, path: str) -> None:
        """Object stores have no folders; elsewhere it is made with those above it."""
        if not self.is_remote:
            self.fs.makedirs(self._full(path), exist_ok=True)

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of each file below a folder, by its path relative to that folder."""
        start = len(self._full(folder)) + 1
        found = self._listed(folder)
        return {str(name)[start:]: int(info["size"]) for name, info in found.items()}

    def _listed(self, folder: str) -> dict[str, Any]:
        """What the file system says of each file below a folder, by its full path."""
        full = self._full(folder)
        try:
            if not (self.is_local or self.is_memory):
                # By prefix: a folder that is not there costs one request, not three.
                parent, _, name = full.rpartition("/")
                return dict(self.fs.find(parent, prefix=f"{name}/", detail=True))
            return dict(self.fs.find(full, detail=True))
        except FileNotFoundError:
            return {}

    def facts(self, folder: str) -> dict[str, FileFacts]:
        """What is known of each file below a folder, hidden ones too, by path from the root."""
        found = self._listed(folder)
        if self.is_memory:
            found = {
                name: {**info, "mtime": self.fs.modified(name)} for name, info in found.items()
            }
        start = len(self._root.rstrip("/")) + 1
        return {str(name)[start:]: _facts(info) for name, info in found.items()}

    def identity(self, path: str) -> tuple[int, int, int] | None:
        """Tells a file on disk from others, whatever it is called: disk, number and time of change.

        None elsewhere.
        """
        if not self.is_local:
            return None
        found = Path(self._full(path)).stat()
        return found.st_dev, found.st_ino, found.st_mtime_ns

    def folders(self, folder: str) -> dict[str, float]:
        """When each folder in a folder on disk was last modified, by path from the root.

        Object stores have none, and memory does not say when.
        """
        if not self.is_local:
            return {}
        start = len(self._root.rstrip("/")) + 1
        try:
            with os.scandir(self._full(folder)) as found:
                return {item.path[start:]: item.stat().st_mtime for item in found if item.is_dir()}
        except FileNotFoundError:
            return {}

    def names(self, folder: str) -> list[str]:
        """Paths of the files below a folder, relative to the root, sorted; hidden ones left out."""
        found = (f"{folder}/{name}" for name in self.sizes(folder))
        return sorted(name for name in found if not name.rpartition("/")[2].startswith("."))

    def probe(self) -> None:
        """Try put-if-absent and swaps out: some servers that speak S3 or GCS ignore conditions.

        Raises:
            StoreError: a file was created twice, or changed though it was not what was expected.
        """
        from flows.store.probe import probe

        probe(self)

    def ignores_conditions(self, path: str) -> bool:
        """Whether the server writes a file, which is there, under a condition that fails."""
        return self.is_remote and write_over_stale(self.fs, self._full(path))

    def ignores_conditions_on_delete(self) -> bool:
        """Whether the server deletes files under conditions that fail.

        Raises:
            StoreError: it refuses to delete under one that holds.
        """
        from flows.store.probe import probe_delete

        return probe_delete(self)

    def deletes_stale(self, path: str) -> bool:
        """Whether the server deletes a file, which is there, under a condition that fails."""
        return self.is_remote and delete_stale(self.fs, self._full(path))

    def _is_there(self, path: str) -> bool:
        return bool(self.fs.exists(self._full(path)))

    def _full(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}"


def _facts(info: Mapping[str, Any]) -> FileFacts:
    moment = info.get("mtime", info.get("LastModified", 0.0))
    modified = moment.timestamp() if isinstance(moment, datetime) else float(moment)
    return FileFacts(int(info["size"]), modified, int(info.get("nlink", 1)))
