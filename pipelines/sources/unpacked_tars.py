"""Unpack a compressed tar once per machine, for any number of splits.

A member of a .tar.gz, .bz2, .xz or .zst can only be read after unpacking all members before it. The
first process that needs a part creates a plain copy in the cache folder, other processes wait for
it, and the job deletes it at its end. The name of the copy is the digest of the archive.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import zstandard

from pipelines.io.local_files import file_lock
from pipelines.io.raw_files import open_file
from pipelines.io.splits import SourceFile
from pipelines.io.user_cache import CACHE_VARIABLE, cache_folder

_CHUNK = 1 << 20


@contextlib.contextmanager
def decompress_tar(source: IO[bytes], *, name: str) -> Iterator[IO[bytes]]:
    """Open the unpacked tar as a stream. The suffix of `name` decides the compression."""
    lowered = name.lower()
    opened: Any
    if lowered.endswith((".bz2", ".tbz2")):
        opened = bz2.BZ2File(source)
    elif lowered.endswith((".xz", ".txz")):
        opened = lzma.LZMAFile(source)  # noqa: SIM115 - closed below
    elif lowered.endswith((".zst", ".tzst")):
        frames = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        opened = frames.stream_reader(source, read_across_frames=True)
    else:
        opened = gzip.GzipFile(fileobj=source)
    with opened as stream:
        yield stream


def open_unpacked(file: SourceFile) -> IO[bytes]:
    """Open the unpacked copy of a compressed tar. Create the copy on first use.

    Raises:
        OSError: The copy cannot be written. The message names the setting for another folder.
        EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError: The archive is damaged.
    """
    path = _copy_of(file)
    while True:
        try:
            return path.open("rb")
        except FileNotFoundError:
            _make(file, path)  # again if another job deletes the copy before it is open


def delete_unpacked(files: Iterable[SourceFile]) -> None:
    """Delete the copies of these archives. Open readers are not affected."""
    for file in files:
        path = _copy_of(file)
        for name in (path, _lock_of(path)):
            name.unlink(missing_ok=True)


def _copy_of(file: SourceFile) -> Path:
    return cache_folder() / "unpacked" / f"{file.sha256}.tar"


def _lock_of(path: Path) -> Path:
    return path.with_suffix(".lock")


def _make(file: SourceFile, path: Path) -> None:
    try:
        with file_lock(_lock_of(path)):
            if not path.exists():
                _unpack(file, path)
    except OSError as error:
        if error.errno is None:  # the archive is damaged
            raise
        raise OSError(
            error.errno,
            f"{error.strerror}: cannot unpack {file.uri} here; set ${CACHE_VARIABLE} to "
            "another folder",
            str(path),
        ) from error


def _unpack(file: SourceFile, path: Path) -> None:
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.partial")
    try:
        with (
            open_file(file.uri) as source,
            decompress_tar(source, name=file.name) as stream,
            part.open("wb") as sink,
        ):
            while data := stream.read(_CHUNK):
                sink.write(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
