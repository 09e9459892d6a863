"""Small files below one root, with put-if-absent and compare-and-swap on every backend.

========  ===========================  =====================================================
backend   `put_if_absent`              `compare_and_swap`, `remove`
========  ===========================  =====================================================
disk      hard link of a written file  under `flock` of a file in `.locks/`
memory    a lock of this process       the same lock
S3        `If-None-Match: *`           `If-Match` with the tag of the bytes that were compared
GCS       `ifGenerationMatch=0`        `ifGenerationMatch` with the generation of those bytes
========  ===========================  =====================================================

fsspec's own local `mode="create"` looks first and writes afterwards, so that two may win; it is not
used. Backends without such a promise are refused (`open_backend`), and servers that claim it and do
not keep it are found out (`StoreBackend.check_capabilities`).

The clients of S3 and GCS repeat a request whose answer got lost, and may then meet their own write:
a file that is refused but holds what was to be written counts as written.
"""

from __future__ import annotations

import abc
import contextlib
import errno
import hashlib
import os
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import fsspec

from pipelines.io.file_systems import file_system, open_stream
from pipelines.io.local_files import file_lock, sync_folder, write_whole, written_beside
from schemas.errors import StoreError
from schemas.paths import check_relative_path

_LOCKS = 64
_MEMORY_LOCK = threading.Lock()
_READ_ONLY = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class FileInfo(NamedTuple):
    """What a listing tells of a file."""

    size: int
    """Bytes."""

    modified: float
    """Seconds since the epoch, by the clock of the disk or the server."""

    links: int = 1
    """Names of these bytes on disk: more than one where artifacts share a file."""


_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}
"""The package of a protocol; the extras are named as the packages, less `fs`."""


def open_backend(root: str) -> StoreBackend:
    """The backend of a local folder, made when it is first written to, or of an fsspec URL.

    Raises:
        StoreError: it cannot be reached, or is on a backend without put-if-absent.
    """
    try:
        fs, path = file_system(root)
    except ImportError as error:
        if package := _PACKAGES.get(root.partition("://")[0]):
            how = (
                f"{package} is not installed: pip install 'bertloom[{package.removesuffix('fs')}]'"
            )
        else:
            how = f"{error}: install its package"
        raise StoreError(f"store {root}: {how}") from error
    except ValueError as error:
        raise StoreError(
            f"store {root}: {error}. Expected a folder or a memory://, s3:// or gs:// URL"
        ) from error
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    for protocol, backend in _BACKENDS.items():
        if protocol in protocols:
            return backend(fs, path)
    raise StoreError(
        f"store {root}: {'/'.join(sorted(protocols))} cannot create a file only where "
        "there is none. Use a local folder, memory://, s3:// or gs://"
    )


class StoreBackend(abc.ABC):
    """Files below one root, named by paths relative to it with `/` between parts."""

    is_local = False
    is_remote = False
    """Whether each look is a request: S3 and GCS."""

    def __init__(self, fs: Any, folder: str) -> None:
        """See `open_backend`."""
        self.fs = fs
        self._root = folder.rstrip("/") or "/"

    @property
    def root(self) -> str:
        """The root as an absolute local path or a URL."""
        return str(self.fs.unstrip_protocol(self._root))

    def url(self, path: str) -> str:
        """A file or folder as an absolute local path or a URL."""
        return f"{self.root.rstrip('/')}/{self._inside(path)}"

    def _full(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{self._inside(path)}"

    def _inside(self, path: str) -> str:
        """Return a path below the root; "" is the root itself.

        Raises:
            StoreError: The path leads out of the store.
        """
        try:
            return path and check_relative_path(path)
        except ValueError as error:
            raise StoreError(
                f"store {self.root}: {error}. A record of the store is damaged or was changed: "
                "run `bertloom verify`"
            ) from error

    def open_error(self, error: Exception) -> str:
        """What is said of a store, whatever error its client raised, and what to do."""
        return f"store {self.root}: cannot be opened: {type(error).__name__}: {error}"

    # Reading

    def read(self, path: str) -> bytes:
        """Raises FileNotFoundError where there is none."""
        return bytes(self.fs.cat_file(self._full(path)))

    def read_if_exists(self, path: str) -> bytes | None:
        """A file's bytes; None where there is none."""
        try:
            return self.read(path)
        except FileNotFoundError:
            return None

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The bytes of those of some small files that are there, by path."""
        found = {path: self.read_if_exists(path) for path in paths}
        return {path: data for path, data in found.items() if data is not None}

    def open(self, path: str) -> IO[bytes]:
        """A file's bytes as a stream, which the caller closes."""
        return open_stream(self.fs, self._full(path))

    def stat(self, folder: str) -> dict[str, FileInfo]:
        """What is known of each file below a folder, hidden ones too, by path from the root."""
        start = len(self._full(""))
        return {
            name[start:]: FileInfo(
                int(info["size"]), self._modified(info), int(info.get("nlink", 1))
            )
            for name, info in self._listed(folder).items()
        }

    def _listed(self, folder: str) -> dict[str, Any]:
        """What the file system says of each file below a folder, by its full path."""
        try:
            return dict(self.fs.find(self._full(folder), detail=True))
        except FileNotFoundError:
            return {}

    def _modified(self, info: Mapping[str, Any]) -> float:
        moment = info.get("mtime", info.get("LastModified", 0.0))
        return moment.timestamp() if isinstance(moment, datetime) else float(moment)

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of each file below a folder, by its path relative to that folder."""
        found = self.stat(folder).items()
        return {path.removeprefix(f"{folder}/"): facts.size for path, facts in found}

    def names(self, folder: str) -> list[str]:
        """Paths of the files below a folder, relative to the root, sorted; hidden ones left out."""
        found = self.stat(folder)
        return sorted(path for path in found if not path.rpartition("/")[2].startswith("."))

    def folders(self, folder: str) -> dict[str, float]:
        """When each folder in a folder on disk was last modified, by path from the root.

        Object stores have none, and memory does not say when.
        """
        del folder
        return {}

    def identity(self, path: str) -> tuple[int, int, int] | None:
        """Disk, number and time of change of a file on disk, whatever it is called; else None."""
        del path
        return None

    # Writing

    @abc.abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Put-if-absent: whether this call wrote the file. Of any number of callers one wins.

        A loser finds the winner's file whole.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Write a file whether or not it is there; readers see the old or the new one."""
        self.fs.pipe_file(self._full(path), data)

    def compare_and_swap(self, path: str, data: bytes, *, expected: bytes | None) -> bool:
        """Compare-and-swap: write a file if it holds `expected`; None: if there is none.

        Returns:
            Whether the file holds `data` now. If not, another caller was faster.
        """
        return (
            self.put_if_absent(path, data) if expected is None else self._swap(path, data, expected)
        )

    @abc.abstractmethod
    def _swap(self, path: str, data: bytes, expected: bytes) -> bool: ...

    @abc.abstractmethod
    def remove(self, path: str, *, expected: bytes) -> float | None:
        """Compare-and-delete: take a file away if it holds `expected`.

        Returns:
            When it was last written or `touch`ed (seconds since the epoch; 0 on S3 and GCS); None
            where it is not there or holds something else.
        """

    def touch(self, path: str) -> None:
        """Note on a file that it was used just now; object stores cannot.

        Nothing is noted by who may only read: what they use is not protected from a collection.

        Raises:
            FileNotFoundError: it is not there.
        """
        del path

    def delete(self, path: str) -> None:
        """Take a file away; it may be gone already."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm_file(self._full(path))

    def delete_folder(self, path: str) -> None:
        """Take a folder with everything in it away; it may be gone already."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm(self._full(path), recursive=True)

    def make_folder(self, path: str) -> str:
        """The URL of a folder, made with those above it; object stores have none to make."""
        if not self.is_remote:
            self.fs.makedirs(self._full(path), exist_ok=True)
        return self.url(path)

    # Trying the promises out

    def check_capabilities(self) -> None:
        """Try put-if-absent and swaps: some servers that speak S3 or GCS ignore conditions.

        Raises:
            StoreError: a file was created twice, or changed though it was not what was expected.
        """
        with self._probing() as path:
            if not self.put_if_absent(path, b"first") or self.put_if_absent(path, b"second"):
                raise StoreError(
                    f"store {self.root}: the server lets a file be created twice, so two runs "
                    "could publish under one key. Use a server that honours If-None-Match (S3) or "
                    "ifGenerationMatch (GCS)"
                )
            if (
                not self.compare_and_swap(path, b"third", expected=b"first")
                or self.compare_and_swap(path, b"fourth", expected=b"first")
                or self._ignores_condition(path, deleting=False)
            ):
                raise StoreError(
                    f"store {self.root}: a file can be changed though it is not what the request "
                    "says it should be, so two runs could overwrite each other's refs. Use a "
                    "server that honours If-Match (S3) or ifGenerationMatch (GCS)"
                )

    def ignores_conditional_delete(self) -> bool:
        """Whether the server deletes files under conditions that fail.

        Raises:
            StoreError: it refuses to delete under one that holds.
        """
        with self._probing() as path:
            self.put_if_absent(path, b"first")
            if self._ignores_condition(path, deleting=True):
                return True
            self.replace(path, b"second")
            # Where the answer got lost and the client asked again, it is gone all the same.
            if self.remove(path, expected=b"second") is None and self.read_many([path]):
                raise StoreError(
                    f"store {self.root}: a file is not deleted though it is what the request says, "
                    "so leases stay until they expire. Use a server that deletes under If-Match "
                    "(S3) or ifGenerationMatch (GCS)"
                )
            return False

    @contextlib.contextmanager
    def _probing(self) -> Iterator[str]:
        """The path of a file that is deleted in the end."""
        path = f"probe/{uuid.uuid4().hex}"
        try:
            yield path
        finally:
            self.delete(path)

    def _ignores_condition(self, path: str, *, deleting: bool) -> bool:
        """Whether the server changes a file, which is there, under a condition that fails."""
        del path, deleting
        return False


class _Locking(StoreBackend):
    """Compares and writes in two steps, under a lock."""

    @abc.abstractmethod
    def _lock(self, path: str) -> contextlib.AbstractContextManager[object]: ...

    def _swap(self, path: str, data: bytes, expected: bytes) -> bool:
        with self._lock(path):
            found = self.read_if_exists(path)
            if found == expected:
                self.replace(path, data)
        return found in (expected, data)


class _Disk(_Locking):
    """A local folder. A file is written beside its name and flushed, then linked or renamed."""

    is_local = True

    @property
    def root(self) -> str:
        return self._root

    def put_if_absent(self, path: str, data: bytes) -> bool:
        target = Path(self._full(path))
        with written_beside(target, data) as written:
            try:
                os.link(written, target)
            except FileExistsError:
                return False
            except OSError as error:
                raise StoreError(
                    f"{target}: no hard link can be made here ({error}), which the store needs to "
                    "publish safely. Put the store on another disk, or on s3:// or gs://"
                ) from error
        sync_folder(target.parent)
        return True

    def replace(self, path: str, data: bytes) -> None:
        write_whole(Path(self._full(path)), data)

    def _lock(self, path: str) -> contextlib.AbstractContextManager[object]:
        """One of a few files in `.locks/`, which other files share."""
        number = int.from_bytes(hashlib.sha256(path.encode()).digest()[:4], "big") % _LOCKS
        return file_lock(Path(self._root) / ".locks" / f"{number:02d}")

    def remove(self, path: str, *, expected: bytes) -> float | None:
        # The time is read after the name is gone: whoever touched the file before shows in it,
        # whoever wants to touch it afterwards finds no file.
        target = Path(self._full(path))
        try:
            with self._lock(path), target.open("rb") as source:
                if source.read() != expected:
                    return None
                target.unlink()
                return os.fstat(source.fileno()).st_mtime
        except FileNotFoundError:
            return None

    def touch(self, path: str) -> None:
        try:
            os.utime(self._full(path))
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise

    def folders(self, folder: str) -> dict[str, float]:
        start = len(self._full(""))
        try:
            with os.scandir(self._full(folder)) as found:
                return {item.path[start:]: item.stat().st_mtime for item in found if item.is_dir()}
        except FileNotFoundError:
            return {}

    def identity(self, path: str) -> tuple[int, int, int] | None:
        found = Path(self._full(path)).stat()
        return found.st_dev, found.st_ino, found.st_mtime_ns


class _Memory(_Locking):
    """fsspec's memory, which lives in one process."""

    def _lock(self, path: str) -> contextlib.AbstractContextManager[object]:
        del path
        return _MEMORY_LOCK

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with _MEMORY_LOCK:
            if self.fs.exists(self._full(path)):
                return False
            self.replace(path, data)
            return True

    def remove(self, path: str, *, expected: bytes) -> float | None:
        with _MEMORY_LOCK:
            if self.read_if_exists(path) != expected:
                return None
            return float(self.fs.store.pop(self._full(path)).modified.timestamp())

    def touch(self, path: str) -> None:
        with _MEMORY_LOCK:
            if not self.fs.exists(self._full(path)):
                raise FileNotFoundError(path)
            self.fs.store[self._full(path)].modified = datetime.now(UTC)

    def _modified(self, info: Mapping[str, Any]) -> float:
        return float(self.fs.modified(info["name"]).timestamp())


class _Bucket(StoreBackend):
    """An object store that writes and deletes under conditions on an object's version."""

    is_remote = True
    _settings = ""
    """What tells the client where the server is, and who asks."""

    def open_error(self, error: Exception) -> str:
        bucket = self.fs.split_path(self._root)[0]
        if isinstance(error, FileNotFoundError):  # of writing: what is read may be missing
            return (
                f"store {self.root}: expected a bucket {bucket}, found none, or none that these "
                "credentials may see. Make it first, or correct the URL"
            )
        return (
            f"{super().open_error(error)}. Expected a bucket {bucket} that may be listed, "
            f"read and written: check the network and the credentials ({self._settings})"
        )

    @abc.abstractmethod
    def _read_version(self, path: str) -> tuple[bytes, str]:
        """A file's bytes, and the tag or generation of just those bytes."""

    @abc.abstractmethod
    def _put(self, path: str, data: bytes, *, version: str) -> None:
        """Write it if it still has that version, else raise an OSError."""

    @abc.abstractmethod
    def _delete(self, path: str, *, version: str) -> None:
        """Delete it if it still has that version, else raise an OSError."""

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Fetched side by side."""
        wanted = {self._full(path): path for path in paths}
        found = self.fs.cat(list(wanted), on_error="return") if wanted else {}
        there = {}
        for full, path in wanted.items():  # in the order that was asked for: fsspec sorts them
            data = found.get(full)
            if isinstance(data, BaseException) and not isinstance(data, FileNotFoundError):
                raise data
            if data is not None and not isinstance(data, BaseException):
                there[path] = bytes(data)
        return there

    def _listed(self, folder: str) -> dict[str, Any]:
        # By prefix: a folder that is not there costs one request, not three.
        parent, _, name = self._full(folder).rpartition("/")
        try:
            return dict(self.fs.find(parent, prefix=f"{name}/", detail=True))
        except FileNotFoundError:
            return {}

    def put_if_absent(self, path: str, data: bytes) -> bool:
        try:
            self.fs.pipe_file(self._full(path), data, mode="create")
        except OSError as error:
            if (found := self.read_if_exists(path)) is not None:
                return found == data
            if isinstance(error, FileExistsError):
                return False
            raise
        return True

    def _version(self, path: str) -> tuple[bytes | None, str]:
        """Like `_read_version`; None and "" where there is no file."""
        try:
            return self._read_version(path)
        except FileNotFoundError:
            return None, ""

    def _swap(self, path: str, data: bytes, expected: bytes) -> bool:
        found, version = self._version(path)
        return self._write(path, data, version=version) if found == expected else found == data

    def _write(self, path: str, data: bytes, *, version: str) -> bool:
        """Write under a condition; whether the file holds the data now."""
        try:
            self._put(path, data, version=version)
        except OSError as error:
            found, other = self._version(path)
            if other == version and error.errno != errno.EBUSY:
                raise  # nobody else wrote, so that the refusal has another cause
            return found == data
        return True

    def remove(self, path: str, *, expected: bytes) -> float | None:
        found, version = self._version(path)
        if found != expected:
            return None
        try:
            self._delete(path, version=version)
        except OSError:
            if self._version(path)[1] == version:
                raise  # nobody else wrote, so that the refusal has another cause
            return None
        self.fs.invalidate_cache(self._full(path))
        return 0.0

    def _ignores_condition(self, path: str, *, deleting: bool) -> bool:
        _, version = self._read_version(path)
        self._write(path, b"changed since", version=version)
        with contextlib.suppress(OSError):  # which is what is hoped for
            if deleting:
                self._delete(path, version=version)
            else:
                self._put(path, b"overwritten", version=version)
        return self.read_if_exists(path) != b"changed since"


class _S3(_Bucket):
    _settings = "AWS_ENDPOINT_URL; AWS_PROFILE, or AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY"
    _bare_tags = False
    """Whether this server was found to want tags without quotes in `If-Match`."""

    def _read_version(self, path: str) -> tuple[bytes, str]:
        async def get() -> tuple[bytes, str]:
            bucket, key, _ = self.fs.split_path(self._full(path))
            answer = await self.fs._call_s3("get_object", Bucket=bucket, Key=key)
            async with answer["Body"] as body:
                return await body.read(), str(answer["ETag"])

        return cast("tuple[bytes, str]", fsspec.asyn.sync(self.fs.loop, get))

    def _put(self, path: str, data: bytes, *, version: str) -> None:
        # Ceph's gateway compares the tag with its quotes to the tag without them: always refused.
        bare = version.strip('"')
        try:
            tag = bare if self._bare_tags else version
            self.fs.pipe_file(self._full(path), data, IfMatch=tag)
        except OSError as error:
            may_be_quotes = not self._bare_tags and error.errno == errno.EINVAL
            if not may_be_quotes or self._version(path)[1] != version:
                raise
            self.fs.pipe_file(self._full(path), data, IfMatch=bare)
            self._bare_tags = True

    def _delete(self, path: str, *, version: str) -> None:
        bucket, key, _ = self.fs.split_path(self._full(path))
        self.fs.call_s3("delete_object", Bucket=bucket, Key=key, IfMatch=version)


class _Gcs(_Bucket):
    _settings = "`gcloud auth application-default login`, or GOOGLE_APPLICATION_CREDENTIALS"

    def _read_version(self, path: str) -> tuple[bytes, str]:
        headers, found = self.fs.call("GET", self.fs.url(self._full(path)))
        return bytes(found), str(headers["X-Goog-Generation"])

    def _put(self, path: str, data: bytes, *, version: str) -> None:
        # gcsfs itself can only ask for generation 0, that is: for no file.
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

    def _delete(self, path: str, *, version: str) -> None:
        bucket, key, _ = self.fs.split_path(self._full(path))
        self.fs.call("DELETE", "b/{}/o/{}", bucket, key, ifGenerationMatch=version)


_BACKENDS: dict[str, type[StoreBackend]] = {
    "file": _Disk,
    "memory": _Memory,
    "s3": _S3,
    "s3a": _S3,
    "gs": _Gcs,
    "gcs": _Gcs,
}
