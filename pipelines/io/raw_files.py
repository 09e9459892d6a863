"""Find raw files, local or remote, and compute their digests.

A path is a file, a folder or a glob pattern, local or any fsspec URL. Digests are cached between
runs in the user's cache, because large dumps take minutes to read (`digest_file`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, Protocol, TypeVar

from fsspec.implementations.local import LocalFileSystem

from pipelines.io.file_systems import READ_AHEAD, file_system, open_stream, read_file
from pipelines.io.local_files import HIDDEN, is_special, skip_reason, walk_folder
from pipelines.io.splits import SourceFile
from pipelines.io.user_cache import digest_cache, is_settled, stat_fingerprint
from schemas.errors import BertloomError, InputError, MissingInputError, NetworkError
from schemas.redaction import public_address

_CHUNK = 1 << 20
_THREADS = 8  # hashing and network requests release the GIL
READ_RETRY_DELAYS: tuple[float, ...] = (1, 4)
"""Seconds to wait before a request to a server is repeated after a network fault."""

# Base classes of network errors that are not an OSError; their packages may not be installed.
_NETWORK_ERRORS = frozenset({"ClientConnectionError", "ClientPayloadError", "HTTPClientError"})
_SERVER_FAULTS = frozenset({429, 500, 502, 503, 504})  # HTTP statuses
_NO_NETWORK_FAULTS = (FileNotFoundError, PermissionError, IsADirectoryError, FileExistsError)
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_VERSION_KEYS = ("ETag", "etag", "generation", "md5Hash", "VersionId", "content_md5", "blob_id")
_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Computes a text from all bytes of a file, as the digests of `hashlib` do."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


Observers = Mapping[str, Callable[[], Observer]]
"""Constructors of observers by the names of their results, which are cached with the digests."""


class FileDigests(NamedTuple):
    """Size of a file in bytes, and hex digests by algorithm."""

    size: int
    digests: dict[str, str]
    """Also the results of observers, by their names."""


class DescribedFile(NamedTuple):
    """A raw file and the results of its observers."""

    file: SourceFile
    facts: Mapping[str, str]


def _no_observers(name: str) -> Observers:
    del name
    return {}


def expand_paths(
    paths: Sequence[str],
    *,
    suffixes: Sequence[str] | None = None,
    selects: Callable[[str], bool] | None = None,
    is_companion: Callable[[str], bool] = lambda _: False,
) -> list[tuple[str, str]]:
    """Return the distinct files of paths as (uri, name), sorted by name.

    One warning counts the other files of folders and patterns by suffix, and the links that lead
    nowhere, in a circle or out of the folder (`skip_reason`). Hidden files are not counted.

    Args:
        paths: Files, folders (searched recursively, without hidden files) and glob patterns, local
            or fsspec URLs.
        suffixes: Suffixes such as `.txt`, in lower case, of the files to take from folders and
            patterns. A file given by its path is always taken.
        selects: Returns whether to take a file by its name. Replaces the test of the suffix.
        is_companion: Returns whether a file belongs to others, such as their checksums. It is not
            counted as passed over.

    Returns:
        uri: Absolute local path or fsspec URL. name: Path relative to the given folder with `/`
        between parts; the base name of a file and of matches of a pattern. Names have no secrets of
        URLs (`schemas.redaction.public_address`).

    Raises:
        MissingInputError: No file exists at a path, or none with one of the suffixes.
        InputError: A path is a named pipe, a device or a socket.
    """
    if selects is None:
        ends = tuple(suffixes or ("",))
        selects = lambda name: name.lower().endswith(ends)  # noqa: E731
    chosen: dict[str, str] = {}
    skipped = Counter[str]()
    for path in paths:
        listed, is_file = _list_files(path, skipped)
        taken = [pair for pair in listed if is_file or selects(pair[1])]
        others = {pair for pair in listed if not is_companion(pair[1])}.difference(taken)
        skipped.update(_suffix(name) for _, name in others)
        if not taken:
            raise _nothing_to_take(path, skipped, suffixes=suffixes)
        for uri, name in taken:
            _check_name(name, path=path)
            chosen[uri] = min(name, chosen.get(uri, name))  # whatever the order of the paths
    if shown := _listed(skipped):
        _warn_skipped(", ".join(paths), sum(skipped.values()) - skipped[HIDDEN], shown)
    return sorted(chosen.items(), key=lambda pair: (pair[1], pair[0]))


def _suffix(name: str) -> str:
    """Return the type of a file for counts, such as `.csv` or `.csv.gz`."""
    parts = [part.lower() for part in PurePosixPath(name).suffixes]
    if not parts:
        return "file without a suffix"
    return "".join(parts[-2:] if parts[-1] in (".gz", ".bz2", ".xz", ".zst") else parts[-1:])


def _listed(skipped: Counter[str]) -> str:
    return ", ".join(f"{what} {n:,}" for what, n in sorted(skipped.items()) if what != HIDDEN and n)


def open_file(uri: str, *, start: int = 0, ahead: int = READ_AHEAD) -> IO[bytes]:
    """Open a file, as stored, at byte `start`. The caller closes it.

    Opening and reading a remote file are repeated after network faults.

    Args:
        uri: Path or fsspec URL.
        start: Byte offset of the first read.
        ahead: Number of bytes to read ahead, see `open_stream`.

    Raises:
        MissingInputError: The file does not exist.
        NetworkError: The server cannot be reached. Reading the stream raises it as well, so that
            no decoder mistakes it for damage.
    """
    fs, path = filesystem(uri)
    try:
        stream = _repeated(lambda: open_stream(fs, path, ahead=ahead), uri, fs)
    except FileNotFoundError as error:
        raise _missing(uri, fs, "no such file") from error
    if not isinstance(fs, LocalFileSystem):
        stream = io.BufferedReader(_RemoteFile(stream, uri, fs))
    if start:
        stream.seek(start)
    return stream


def read_small_file(uri: str) -> bytes:
    """Return all bytes of a small file. Reading a remote file is repeated after network faults.

    Raises:
        FileNotFoundError: The file does not exist.
        SpecialFileError: The file is not a regular file.
        NetworkError: The server cannot be reached.
    """
    fs, _ = filesystem(uri)
    if isinstance(fs, LocalFileSystem):
        return read_file(uri)
    return _repeated(lambda: read_file(uri), uri, fs)


def is_folder(uri: str) -> bool:
    """Return whether a path or URL is a folder.

    Raises:
        NetworkError: The server cannot be reached.
    """
    fs, path = filesystem(uri)
    return bool(_repeated(lambda: fs.isdir(path), uri, fs))


def list_folder_of(uri: str) -> list[tuple[str, str]]:
    """Return (uri, base name) of all files in the folder of a file, sorted."""
    fs, path = filesystem(uri)
    return sorted((_uri(fs, other), _base(other)) for other in _list(fs, _parent(path)))


def parallel_map(look: Callable[[_Item], _Found], items: Iterable[_Item]) -> list[_Found]:
    """Return what a function returns for each item, in their order. Raise the first error.

    The threads are daemons: a signal stops the caller even while one of them hangs in a read.
    """
    listed = list(items)
    if len(listed) < 2:
        return [look(item) for item in listed]
    futures = [Future[_Found]() for _ in listed]
    waiting = deque(zip(futures, listed, strict=True))

    def work() -> None:
        with contextlib.suppress(IndexError):  # nothing is waiting
            while True:
                future, item = waiting.popleft()
                try:
                    future.set_result(look(item))
                except BaseException as error:
                    future.set_exception(error)

    try:
        for number in range(min(_THREADS, len(listed))):
            threading.Thread(target=work, name=f"raw-files-{number}", daemon=True).start()
        return [future.result() for future in futures]
    finally:
        waiting.clear()


def describe_each(
    names: Iterable[tuple[str, str]], observers: Callable[[str], Observers] = _no_observers
) -> list[DescribedFile]:
    """Describe files from `expand_paths` in parallel.

    Args:
        names: Files from `expand_paths`.
        observers: Returns the observers of a file, by its name. They see each file in the pass that
            computes its digest.
    """

    def describe(pair: tuple[str, str]) -> DescribedFile:
        uri, name = pair
        size, digests = digest_file(uri, observers=observers(name))
        return DescribedFile(SourceFile(uri, name, size, digests.pop("sha256")), digests)

    return parallel_map(describe, names)


def describe_files(
    names: Iterable[tuple[str, str]], observers: Callable[[str], Observers] = _no_observers
) -> list[DescribedFile]:
    """Return files with sizes, digests and unique names, from which ids are made.

    Files with equal names and bytes are read once. If the bytes differ, the digest precedes the
    name, so that names do not depend on paths or order.

    Args:
        names: Files from `expand_paths`.
        observers: As in `describe_each`.

    Raises:
        InputError: A file cannot be read (`digest_file`).
    """
    files: dict[tuple[str, str], DescribedFile] = {}
    for described in describe_each(names, observers):
        file = described.file
        same = files.setdefault((file.name, file.sha256), described).file
        if same is not file:
            _log.warning("%s is the same as %s and is read once", file.uri, same.uri)
    times = Counter(name for name, _ in files)
    return [
        described
        if times[name] == 1
        else described._replace(file=described.file._replace(name=f"{sha256[:12]}/{name}"))
        for (name, sha256), described in files.items()
    ]


def digest_file(
    uri: str,
    *,
    algorithms: Iterable[str] = ("sha256",),
    observers: Observers | None = None,
    on_bytes: Callable[[bytes], object] | None = None,
) -> FileDigests:
    """Return digests of a file, and the results of observers, computed in one pass.

    They are cached (`pipelines.io.user_cache`) by the version of the file: size, inode and times of
    a local file, ETag or generation of an object. Files without a version, and local files that
    changed within the last two seconds, are not cached.

    Args:
        uri: Absolute path or fsspec URL.
        algorithms: Names of `hashlib`, such as `sha256`, `sha1`, `md5`.
        observers: Other computations by name. The name changes with everything that can change
            the result.
        on_bytes: Called with all bytes in order, if the file is read.

    Raises:
        InputError: The file is missing, cannot be read, or changes while it is read.
    """
    fs, path = filesystem(uri)
    size, version = _stat(fs, path, uri)
    computed: dict[str, Callable[[], Observer]] = {
        name: functools.partial(hashlib.new, name, usedforsecurity=False) for name in algorithms
    }
    computed |= observers or {}
    cache, cache_name = digest_cache(), _cache_name(uri)
    known = cache.get(cache_name, version) if version else {}
    if missing := {name: make for name, make in computed.items() if name not in known}:
        known |= _compute(uri, missing, size=size, on_bytes=on_bytes)
        if _stat(fs, path, uri) != (size, version):
            raise InputError(f"{uri}: changed while it was read; run again when it is whole")
        # An ETag or generation changes with every write.
        if version and (not isinstance(fs, LocalFileSystem) or is_settled(Path(path).stat())):
            cache.put(cache_name, version, known)
    return FileDigests(size, {name: known[name] for name in computed})


def file_size(uri: str) -> int:
    """Return the size of a file in bytes.

    Raises:
        InputError: The file is missing or cannot be read.
    """
    return _stat(*filesystem(uri), uri)[0]


def filesystem(uri: str) -> tuple[Any, str]:
    """Return the file system of a path or fsspec URL, and the path in it.

    Raises:
        InputError: The protocol is unknown, or its package is not installed.
    """
    try:
        fs, path = file_system(uri)
    except (ValueError, ImportError, OSError) as error:  # some connect at once
        raise InputError(
            f"{uri}: cannot be reached: {error}. Expected a local path or an fsspec URL; a remote "
            "one may need its package, e.g. s3fs, gcsfs or huggingface_hub"
        ) from error
    return fs, str(path)


@contextlib.contextmanager
def _reaching(uri: str, fs: Any) -> Iterator[None]:
    """Raise an InputError for what a file system raises: each client has its own error types."""
    is_local = isinstance(fs, LocalFileSystem)
    try:
        yield
    except BertloomError:
        raise
    except Exception as error:
        reason = str(error).rstrip(".") or type(error).__name__
        if not is_local and _is_network_fault(error):
            raise NetworkError(
                f"{uri}: the server cannot be reached or does not answer: {reason}. Check the "
                "network and the address, then run again",
                file=uri,
            ) from error
        if isinstance(error, (FileNotFoundError, IsADirectoryError)):
            raise  # callers report these themselves
        if is_local and not isinstance(error, OSError):
            raise
        raise InputError(
            f"{uri}: cannot be reached or read: {reason}. Check that it exists and that you have "
            + ("permission" if is_local else "permission, the network and the credentials")
        ) from error


def _is_network_fault(error: BaseException | None) -> bool:
    """Return whether an error that a remote file system raised, or its cause, is the network's."""
    while error is not None:
        names = {kind.__name__ for kind in type(error).__mro__}
        if isinstance(error, (ConnectionError, TimeoutError)) or names & _NETWORK_ERRORS:
            return True
        if getattr(error, "status", None) in _SERVER_FAULTS:
            return True
        # gcsfs reports missing rights as an OSError without a number.
        if isinstance(error, OSError) and error.errno and not isinstance(error, _NO_NETWORK_FAULTS):
            return True
        error = error.__cause__  # fsspec reports a refused connection as FileNotFoundError
    return False


def _repeated(request: Callable[[], _Found], uri: str, fs: Any) -> _Found:
    """Return what a request returns. Repeat it after network faults."""
    for delay in READ_RETRY_DELAYS:
        with contextlib.suppress(NetworkError), _reaching(uri, fs):
            return request()
        time.sleep(delay)
    with _reaching(uri, fs):
        return request()


class _RemoteFile(io.RawIOBase):
    """A remote file whose reads are repeated after network faults."""

    def __init__(self, stream: IO[bytes], uri: str, fs: Any) -> None:
        self._stream, self._uri, self._fs = stream, uri, fs

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._stream.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def readinto(self, buffer: Any, /) -> int:
        data = _repeated(lambda: self._stream.read(len(buffer)), self._uri, self._fs)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _uri(fs: Any, path: str) -> str:
    return path if isinstance(fs, LocalFileSystem) else str(fs.unstrip_protocol(path))


def _base(path: str) -> str:
    return public_address(path).rstrip("/").rpartition("/")[2]


def _cache_name(uri: str) -> str:
    """Return the name of a file in the cache of digests, which holds no secret of its URL."""
    public = public_address(uri)
    return uri if public == uri else f"{public} {hashlib.sha256(uri.encode()).hexdigest()}"


def _parent(path: str) -> str:
    head, slash, _ = path.rstrip("/").rpartition("/")
    return head or slash


def _list_files(uri: str, skipped: Counter[str]) -> tuple[list[tuple[str, str]], bool]:
    """Return the (uri, name) of all files at a path, and whether the path is one file."""
    fs, path = filesystem(uri)
    with _reaching(uri, fs):
        if fs.isfile(path):  # before the pattern: a name may hold "[" itself
            return [(_uri(fs, path), _base(path))], True
        if fs.isdir(path):
            return _walk(fs, path, root=path, skipped=skipped), False
        if any(sign in path for sign in "*?["):
            return _match(fs, path, skipped), False
        if isinstance(fs, LocalFileSystem) and is_special(path):
            raise InputError(
                f"{uri}: expected a regular file, got a named pipe, device or socket. Save what "
                "it gives as a file"
            )
        raise _missing(uri, fs, "no such file or folder")


def _nothing_to_take(
    path: str, skipped: Counter[str], *, suffixes: Sequence[str] | None
) -> MissingInputError:
    wanted = f" ending in {' or '.join(suffixes)}" if suffixes else ""
    shown = _listed(skipped)
    what = f"expected a file{wanted}, got {shown}" if shown else "no file there"
    return _missing(path, filesystem(path)[0], what)


@functools.cache  # a folder is listed several times in a run
def _warn_skipped(paths: str, number: int, shown: str) -> None:
    _log.warning("%s: passed over %d: %s", paths, number, shown)


def _check_name(name: str, *, path: str) -> None:
    """Refuse names that are not valid Unicode: they become ids and are in manifests."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{path!a}: the name of the file {name!a} is not UTF-8. Rename it, e.g. with "
            "`convmv -f latin1 -t utf8 --notest`, or leave it out of the paths"
        ) from error


def _walk(fs: Any, folder: str, *, root: str, skipped: Counter[str]) -> list[tuple[str, str]]:
    stem = public_address(root).rstrip("/") + "/"
    is_local = isinstance(fs, LocalFileSystem)
    paths = walk_folder(folder, skipped) if is_local else map(str, fs.find(folder))
    names = ((path, public_address(path).removeprefix(stem)) for path in paths)
    return [
        (_uri(fs, path), name)
        for path, name in names
        if not any(part.startswith(".") for part in name.split("/"))
    ]


def _match(fs: Any, pattern: str, skipped: Counter[str]) -> list[tuple[str, str]]:
    fixed = pattern[: min(pattern.find(sign) for sign in "*?[" if sign in pattern)]
    takes_hidden = "/." in pattern[fixed.rfind("/") :]
    is_local = isinstance(fs, LocalFileSystem)
    root = os.path.realpath(_parent(fixed + "*")) if is_local else ""
    files: list[tuple[str, str]] = []
    try:
        matches = fs.glob(pattern, detail=True)
    except FileNotFoundError:  # GCS has no such bucket
        matches = {}
    for path, info in sorted(matches.items()):
        if "/." in path[fixed.rfind("/") :] and not takes_hidden:
            continue
        if reason := skip_reason(path, root=root) if is_local else "":
            skipped[reason] += 1
        elif info["type"] == "directory":
            files += _walk(fs, path, root=_parent(path), skipped=skipped)
        else:
            files.append((_uri(fs, path), _base(path)))
    return files


def _list(fs: Any, folder: str) -> list[str]:
    try:
        entries = _repeated(lambda: fs.ls(folder, detail=True), folder, fs)
    except FileNotFoundError:
        return []
    except InputError as error:
        if isinstance(error, NetworkError) or isinstance(fs, LocalFileSystem):
            raise
        # Many servers serve files but do not list their folders.
        _log.warning("Files next to the input, such as checksums, are not used: %s", error)
        return []
    return [str(entry["name"]) for entry in entries if entry["type"] not in ("directory", "other")]


def _missing(uri: str, fs: Any, what: str) -> MissingInputError:
    is_local = isinstance(fs, LocalFileSystem)
    advice = "" if is_local else ", or the credentials if you may not read it"
    return MissingInputError(f"{uri}: {what}. Correct the path{advice}")


def _stat(fs: Any, path: str, uri: str) -> tuple[int, str]:
    """Return the size and the version of a file, "" without a version."""
    try:
        if isinstance(fs, LocalFileSystem):
            stat = Path(path).stat()
            return stat.st_size, stat_fingerprint(stat)
        fs.invalidate_cache(_parent(path))
        info = _repeated(lambda: fs.info(path), uri, fs)
    except FileNotFoundError as error:
        raise _missing(uri, fs, "no such file") from error
    except OSError as error:
        raise InputError(f"{uri}: cannot be read: {error}") from error
    size = int(info["size"])
    version = next((f"{size}/{info[key]}" for key in _VERSION_KEYS if info.get(key)), "")
    return size, version


def _compute(
    uri: str,
    observers: Observers,
    *,
    size: int,
    on_bytes: Callable[[bytes], object] | None,
) -> dict[str, str]:
    digests = {name: make() for name, make in observers.items()}
    read = 0
    try:
        with open_file(uri) as stream:
            while chunk := stream.read(_CHUNK):
                read += len(chunk)
                for digest in digests.values():
                    digest.update(chunk)
                if on_bytes is not None:
                    on_bytes(chunk)
    except OSError as error:
        raise InputError(f"{uri}: cannot be read after byte {read:,}: {error}") from error
    if read != size:
        raise InputError(
            f"{uri}: expected {size:,} bytes, read {read:,}; run again when the file is whole"
        )
    return {name: digest.hexdigest() for name, digest in digests.items()}
