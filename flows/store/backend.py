"""Files below the root of a store, with put-if-absent and compare-and-swap.

========  =======================  ====================================================
backend   `put_if_absent`          `compare_and_swap`
========  =======================  ====================================================
disk      hard link                `flock` on `.lock`
memory    lock of this process     the same lock
S3        `If-None-Match: *`       `If-Match` with the tag of the compared bytes
GCS       `ifGenerationMatch=0`    `ifGenerationMatch` with the generation of those bytes
========  =======================  ====================================================

fsspec's local `mode="create"` is not used: it checks and then writes, so two callers can succeed.

The clients of S3 and GCS repeat a request whose response was lost. The second request is
then refused because of the first. A refused file that holds the new data counts as written.
"""

from __future__ import annotations

import abc
import contextlib
import errno
import mimetypes
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import fsspec

from pipelines.io.file_systems import file_system, open_stream
from pipelines.io.local_files import HardLinkError, create_atomic, file_lock, write_atomic
from schemas.errors import StoreError
from schemas.manifest import check_relative_path

_MEMORY_LOCK = threading.Lock()


class FileInfo(NamedTuple):
    """Entry of a listing."""

    size: int
    """Number of bytes."""

    modified: float
    """Seconds since the epoch, by the clock of the disk or the server."""

    links: int = 1
    """Number of hard links. More than 1 if artifacts share the file."""


def open_backend(root: str) -> StoreBackend:
    """Return the backend of a local folder or an fsspec URL. A folder is created on first write.

    Raises:
        StoreError: The protocol is unknown, its package is missing, or it has no put-if-absent.
    """
    try:
        fs, path = file_system(root)
        backend = _BACKENDS[fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]]
    except ImportError as error:
        raise StoreError(
            f"store {root}: {error}. Run: pip install 'bertloom[s3]' or 'bertloom[gcs]'"
        ) from error
    except (ValueError, KeyError) as error:
        raise StoreError(
            f"store {root}: expected a folder or a memory://, s3:// or gs:// URL ({error})"
        ) from error
    return backend(fs, path)


class StoreBackend(abc.ABC):
    """Files below one root. Paths are relative to it, with `/` between parts."""

    is_local = False
    is_remote = False
    """True if each call is a request to a server (S3 and GCS)."""

    _hint = "Check the path and its permissions"
    """Remedy if the client cannot open the store."""

    def __init__(self, fs: Any, folder: str) -> None:
        self.fs = fs
        self._root = folder.rstrip("/") or "/"

    @property
    def root(self) -> str:
        """Absolute local path or URL of the root."""
        return str(self.fs.unstrip_protocol(self._root))

    def url(self, path: str) -> str:
        """Return the absolute local path or URL of a file or folder."""
        return f"{self.root.rstrip('/')}/{self._check(path)}"

    def _full(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{self._check(path)}"

    def _check(self, path: str) -> str:
        """Return a path; "" is the root.

        Raises:
            StoreError: The path leads out of the store.
        """
        try:
            return path and check_relative_path(path)
        except ValueError as error:
            raise StoreError(
                f"store {self.root}: {error}. A record of the store is corrupt: run "
                "`bertloom verify`"
            ) from error

    def open_error(self, error: Exception) -> StoreError:
        """Return the error of a store that its client cannot open."""
        return StoreError(
            f"store {self.root}: cannot be opened: {type(error).__name__}: {error}. {self._hint}"
        )

    def check_reachable(self) -> None:  # noqa: B027 - only buckets have something to check
        """Raise the client's error if the bucket does not exist."""

    # Reading

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: There is no such file.
        """
        return bytes(self.fs.cat_file(self._full(path)))

    def read_if_exists(self, path: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        try:
            return self.read(path)
        except FileNotFoundError:
            return None

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the contents of the small files that exist, by path."""
        contents = {path: self.read_if_exists(path) for path in paths}
        return {path: data for path, data in contents.items() if data is not None}

    def open(self, path: str) -> IO[bytes]:
        """Open a file for reading."""
        return open_stream(self.fs, self._full(path))

    def stat(self, folder: str) -> dict[str, FileInfo]:
        """Return every file below a folder, hidden ones included, by path."""
        start = len(self._full(""))
        return {
            name[start:]: FileInfo(
                int(info["size"]), self._modified(info), int(info.get("nlink", 1))
            )
            for name, info in self._find(folder).items()
        }

    def _find(self, folder: str) -> dict[str, Any]:
        try:
            return dict(self.fs.find(self._full(folder), detail=True))
        except FileNotFoundError:
            return {}

    def _modified(self, info: Mapping[str, Any]) -> float:
        time = info.get("mtime", info.get("LastModified", 0.0))
        return time.timestamp() if isinstance(time, datetime) else float(time)

    def size(self, path: str) -> int:
        """Return the number of bytes of a file.

        Raises:
            FileNotFoundError: There is no such file.
        """
        return int(self.fs.info(self._full(path))["size"])

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size of each file below a folder, by path relative to that folder."""
        files = self.stat(folder).items()
        return {path.removeprefix(f"{folder}/"): info.size for path, info in files}

    def names(self, folder: str) -> list[str]:
        """Return the sorted paths of the files below a folder, without hidden ones."""
        return sorted(
            path for path in self.stat(folder) if not path.rpartition("/")[2].startswith(".")
        )

    def version(self, path: str) -> tuple[object, ...]:
        """Return values that change when a file is written.

        Raises:
            FileNotFoundError: There is no such file.
        """
        return path, self.fs.ukey(self._full(path))

    # Writing

    @abc.abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a file if it does not exist, and return whether this call wrote it.

        Exactly one of several callers succeeds. The others see its complete file.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Write a file. Readers see the old content or the new one."""
        self.fs.pipe_file(self._full(path), data)

    @abc.abstractmethod
    def compare_and_swap(self, path: str, data: bytes, *, expected: bytes | None) -> bool:
        """Write a file if it holds `expected`, or, for None, if it does not exist.

        Returns:
            Whether the file holds `data` now. False if another caller changed it first.
        """

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm_file(self._full(path))

    def delete_folder(self, path: str) -> None:
        """Delete a folder and its content if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm(self._full(path), recursive=True)

    def make_folder(self, path: str) -> str:
        """Create a folder, where the file system has folders, and return its URL."""
        if not self.is_remote:
            self.fs.makedirs(self._full(path), exist_ok=True)
        return self.url(path)

    # Capabilities: some servers that speak S3 or GCS ignore conditions

    def check_capabilities(self) -> None:
        """Try put-if-absent and compare-and-swap.

        Raises:
            StoreError: The server ignores a condition.
        """
        with self._probe_file() as path:
            if not self.put_if_absent(path, b"first") or self.put_if_absent(path, b"second"):
                raise self._capability_error("put-if-absent to fail for an existing file")
            is_swapped = self.compare_and_swap(path, b"third", expected=b"first")
            if not is_swapped or self._ignores_condition(path):
                raise self._capability_error("compare-and-swap to fail for a changed file")

    def _capability_error(self, expected: str) -> StoreError:
        return StoreError(
            f"store {self.root}: expected {expected}. Use a server that supports If-None-Match and "
            "If-Match (S3) or ifGenerationMatch (GCS)"
        )

    @contextlib.contextmanager
    def _probe_file(self) -> Iterator[str]:
        path = f"probe/{uuid.uuid4().hex}"
        try:
            yield path
        finally:
            self.delete(path)

    def _ignores_condition(self, path: str) -> bool:
        """Return whether the server changes an existing file although the condition fails."""
        del path
        return False


class _LockingBackend(StoreBackend):
    """Backend that compares and writes under a lock."""

    @abc.abstractmethod
    def _lock(self) -> contextlib.AbstractContextManager[object]:
        """Lock the store."""

    def compare_and_swap(self, path: str, data: bytes, *, expected: bytes | None) -> bool:
        if expected is None:
            return self.put_if_absent(path, data)
        with self._lock():
            current = self.read_if_exists(path)
            if current == expected:
                self.replace(path, data)
        return current in (expected, data)


class _Disk(_LockingBackend):
    """Local folder. A file is written under a temporary name, synced, then linked or renamed."""

    is_local = True

    @property
    def root(self) -> str:
        return self._root

    def put_if_absent(self, path: str, data: bytes) -> bool:
        target = Path(self._full(path))
        try:
            create_atomic(target, data)
        except FileExistsError:
            return False
        except HardLinkError as error:
            raise StoreError(
                f"{target}: expected a disk with hard links, got {error}. Put the store on "
                "another disk, or on s3:// or gs://"
            ) from error
        return True

    def replace(self, path: str, data: bytes) -> None:
        write_atomic(Path(self._full(path)), data)

    def _lock(self) -> contextlib.AbstractContextManager[object]:
        return file_lock(Path(self._root) / ".lock")

    def version(self, path: str) -> tuple[object, ...]:
        stat = Path(self._full(path)).stat()
        return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


class _Memory(_LockingBackend):
    """fsspec's memory file system of this process."""

    def _lock(self) -> contextlib.AbstractContextManager[object]:
        return _MEMORY_LOCK

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with _MEMORY_LOCK:
            if self.fs.exists(self._full(path)):
                return False
            self.replace(path, data)
            return True

    def _modified(self, info: Mapping[str, Any]) -> float:
        return float(self.fs.modified(info["name"]).timestamp())


class _Bucket(StoreBackend):
    """Object store that writes under conditions on an object's version."""

    is_remote = True
    _type_option: str
    """Option of `pipe_file` with the content type, by which a browser shows a page."""

    def replace(self, path: str, data: bytes) -> None:
        content_type, _ = mimetypes.guess_type(path)
        options = {self._type_option: content_type} if content_type else {}
        self.fs.pipe_file(self._full(path), data, **options)

    def check_reachable(self) -> None:
        self.fs.ls(self.fs.split_path(self._root)[0])

    @abc.abstractmethod
    def _read_version(self, path: str) -> tuple[bytes, str]:
        """Return the content of a file and the tag or generation of this content."""

    @abc.abstractmethod
    def _put(self, path: str, data: bytes, *, version: str) -> None:
        """Write a file that still has the version, or raise an OSError."""

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Fetch concurrently."""
        requested = {self._full(path): path for path in paths}
        results = self.fs.cat(list(requested), on_error="return") if requested else {}
        for error in results.values():
            if isinstance(error, Exception) and not isinstance(error, FileNotFoundError):
                raise error
        # In the caller's order, which fsspec does not keep.
        contents = {path: results.get(full) for full, path in requested.items()}
        return {path: data for path, data in contents.items() if isinstance(data, bytes)}

    def _find(self, folder: str) -> dict[str, Any]:
        # By prefix: a missing folder costs one request instead of three.
        parent, _, name = self._full(folder).rpartition("/")
        try:
            return dict(self.fs.find(parent, prefix=f"{name}/", detail=True))
        except FileNotFoundError:
            return {}

    def _try_read_version(self, path: str) -> tuple[bytes | None, str]:
        try:
            return self._read_version(path)
        except FileNotFoundError:
            return None, ""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._write(path, data, version="")

    def compare_and_swap(self, path: str, data: bytes, *, expected: bytes | None) -> bool:
        if expected is None:
            return self.put_if_absent(path, data)
        current, version = self._try_read_version(path)
        if current != expected:
            return current == data
        return self._write(path, data, version=version)

    def _write(self, path: str, data: bytes, *, version: str) -> bool:
        """Write a file that still has the version, "" for none. Return whether it holds the data.

        Raises:
            OSError: The server failed. The file still has the version.
        """
        try:
            if version:
                self._put(path, data, version=version)
            else:
                self.fs.pipe_file(self._full(path), data, mode="create")
        except OSError as error:
            current, new_version = self._try_read_version(path)
            is_conflict = isinstance(error, FileExistsError) or error.errno == errno.EBUSY
            if new_version == version and not is_conflict:
                raise
            return current == data
        return True

    def _ignores_condition(self, path: str) -> bool:
        _, version = self._read_version(path)
        self._write(path, b"changed since", version=version)
        with contextlib.suppress(OSError):
            self._put(path, b"overwritten", version=version)
        return self.read_if_exists(path) != b"changed since"


class _S3(_Bucket):
    _hint = (
        "Check that the bucket exists, the network (AWS_ENDPOINT_URL) and the credentials "
        "(AWS_PROFILE, or AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY)"
    )
    _type_option = "ContentType"
    _needs_bare_tags = False
    """True if the server expects tags without quotes in `If-Match`, as Ceph's gateway does."""

    def _read_version(self, path: str) -> tuple[bytes, str]:
        from s3fs.core import _error_wrapper  # repeats failed requests

        async def get() -> tuple[bytes, str]:
            bucket, key, _ = self.fs.split_path(self._full(path))
            response = await self.fs._call_s3("get_object", Bucket=bucket, Key=key)
            async with response["Body"] as body:
                return await body.read(), str(response["ETag"])

        retried = fsspec.asyn.sync(self.fs.loop, _error_wrapper, get, retries=self.fs.retries)
        return cast("tuple[bytes, str]", retried)

    def _put(self, path: str, data: bytes, *, version: str) -> None:
        bare = version.strip('"')
        try:
            tag = bare if self._needs_bare_tags else version
            self.fs.pipe_file(self._full(path), data, IfMatch=tag)
        except OSError as error:
            can_be_quotes = not self._needs_bare_tags and error.errno == errno.EINVAL
            if not can_be_quotes or self._try_read_version(path)[1] != version:
                raise
            self.fs.pipe_file(self._full(path), data, IfMatch=bare)
            self._needs_bare_tags = True


class _Gcs(_Bucket):
    _hint = (
        "Check that the bucket exists, the network and the credentials "
        "(`gcloud auth application-default login`, or GOOGLE_APPLICATION_CREDENTIALS)"
    )
    _type_option = "content_type"

    def _read_version(self, path: str) -> tuple[bytes, str]:
        headers, content = self.fs.call("GET", self.fs.url(self._full(path)))
        return bytes(content), str(headers["X-Goog-Generation"])

    def _put(self, path: str, data: bytes, *, version: str) -> None:
        # gcsfs supports only generation 0, which means "no such file".
        bucket, key, _ = self.fs.split_path(self._full(path))
        self.fs.call(
            "POST",
            f"{self.fs._location}/upload/storage/v1/b/{{}}/o",
            bucket,
            uploadType="media",
            name=key,
            ifGenerationMatch=version,
            headers={"Content-Type": "application/octet-stream"},
            data=data,
        )
        self.fs.invalidate_cache(self._full(path))


_BACKENDS: dict[str, type[StoreBackend]] = {
    "file": _Disk,
    "memory": _Memory,
    "s3": _S3,
    "gs": _Gcs,
}
