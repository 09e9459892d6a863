"""Small files in a folder, local or remote, with the one promise a store needs: put-if-absent.

How a file is created only if it is not there yet, by backend:

* local: written beside, flushed to disk, then `link`ed to its name, which fails if that exists;
* S3: `If-None-Match: *`; GCS: `ifGenerationMatch=0` (fsspec's `mode="create"`);
* memory: a lock, as it lives in one process.

fsspec's own local `mode="create"` looks first and writes afterwards, so that two may win; it is not
used. Backends without such a promise are refused.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import fsspec

from schemas.errors import StoreError

_CONDITIONAL_PUT = frozenset({"s3", "s3a", "gs", "gcs"})
_MEMORY_LOCK = threading.Lock()


class StoreBackend:
    """Files below one root, named by paths relative to it with `/` between parts."""

    def __init__(self, root: str) -> None:
        """`root` is a local folder, made when it is first written to, or an fsspec URL.

        Raises:
            StoreError: it cannot be reached, or is on a backend without put-if-absent.
        """
        options: dict[str, Any] = {}
        if "://" in root and not root.startswith(("file:", "local:", "memory:")):
            # A listing that is remembered would hide what other processes published.
            options["use_listings_cache"] = False
        try:
            self.fs, path = fsspec.core.url_to_fs(root, **options)
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

    def open(self, path: str) -> IO[bytes]:
        """A file's bytes as a stream, which the caller closes."""
        return cast("IO[bytes]", self.fs.open(self._full(path), "rb"))

    def create(self, path: str, data: bytes) -> bool:
        """Put-if-absent: whether this call wrote the file. Of any number of callers one wins.

        A loser finds the winner's file whole.
        """
        full = self._full(path)
        if self.is_local:
            return self._create_local(Path(full), data)
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

    def _create_local(self, target: Path, data: bytes) -> bool:
        with self._written_beside(target, data) as written:
            try:
                os.link(written, target)
            except FileExistsError:
                return False
            except OSError as error:
                raise StoreError(
                    f"{target}: no hard link can be made here ({error}), which the store needs to "
                    "publish safely. Put the store on another disk, or on s3:// or gs://"
                ) from error
        _sync_folder(target.parent)
        return True

    def replace(self, path: str, data: bytes) -> None:
        """Write a file whether or not it is there; readers see the old or the new one."""
        full = self._full(path)
        if self.is_local:
            target = Path(full)
            with self._written_beside(target, data) as written:
                written.replace(target)
            _sync_folder(target.parent)
        else:
            self.fs.pipe_file(full, data)

    @contextlib.contextmanager
    def _written_beside(self, target: Path, data: bytes) -> Iterator[Path]:
        target.parent.mkdir(parents=True, exist_ok=True)
        written = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            with written.open("xb") as sink:
                sink.write(data)
                sink.flush()
                os.fsync(sink.fileno())
            yield written
        finally:
            written.unlink(missing_ok=True)

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
        full = self._full(folder)
        try:
            found = self.fs.find(full, detail=True)
        except FileNotFoundError:
            return {}
        start = len(full) + 1
        return {str(name)[start:]: int(info["size"]) for name, info in found.items()}

    def names(self, folder: str) -> list[str]:
        """Paths of the files below a folder, relative to the root, sorted; hidden ones left out."""
        found = (f"{folder}/{name}" for name in self.sizes(folder))
        return sorted(name for name in found if not name.rpartition("/")[2].startswith("."))

    def probe(self) -> None:
        """Try put-if-absent out: some servers that speak S3 or GCS ignore the condition.

        Raises:
            StoreError: a file was created twice.
        """
        path = f"probe/{uuid.uuid4().hex}"
        try:
            first, second = self.create(path, b"first"), self.create(path, b"second")
        finally:
            self.delete(path)
        if not first or second:
            raise StoreError(
                f"store {self.root}: the server lets a file be created twice, so two runs could "
                "publish under one key. Use a server that honours If-None-Match (S3) or "
                "ifGenerationMatch (GCS)"
            )

    def _is_there(self, path: str) -> bool:
        return bool(self.fs.exists(self._full(path)))

    def _full(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}"


def _sync_folder(folder: Path) -> None:
    # Without it a name can be lost in a power cut though its file is on disk.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
