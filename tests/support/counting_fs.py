"""A file system that is not this machine's disk as far as bertloom can tell, and counts reads."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

PROTOCOL = "counted"


class CountedFiles(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """`counted:///path`: files of the disk, to be read."""

    protocol = PROTOCOL
    root_marker = "/"
    fetched: ClassVar[Counter[str]] = Counter()
    """Number of full copies by file name."""

    bytes_read: ClassVar[Counter[str]] = Counter()
    """Bytes read of each file that was opened, by its name."""

    faults: ClassVar[list[Exception]] = []
    """Errors of the next reads."""

    lock = threading.Lock()
    _disk = LocalFileSystem()

    def get_file(self, path1: str, path2: str, **options: Any) -> None:
        with self.lock:
            self.fetched[path1.rpartition("/")[2]] += 1
        self._disk.get_file(self._strip_protocol(path1), path2)

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        entries = [self._told(entry) for entry in self._disk.ls(self._strip_protocol(path), True)]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        return self._told(self._disk.info(self._strip_protocol(path)))

    def _told(self, entry: dict[str, Any]) -> dict[str, Any]:
        return {**entry, "ETag": f"{entry['mtime']}/{entry['ino']}"}

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return _Counted(self._disk.open(path, mode), path.rpartition("/")[2])


class _Counted:
    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name = stream, name

    def read(self, size: int = -1) -> bytes:
        if CountedFiles.faults:
            raise CountedFiles.faults.pop(0)
        data: bytes = self._stream.read(size)
        with CountedFiles.lock:
            CountedFiles.bytes_read[self._name] += len(data)
        return data

    def __enter__(self) -> _Counted:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def counted_reads() -> Iterator[Counter[str]]:
    """Count how often the block reads each file of the disk as a whole through fsspec, by path."""
    reads, read_file, lock = Counter[str](), LocalFileSystem.cat_file, threading.Lock()

    def count(files: LocalFileSystem, path: str, *args: Any, **options: Any) -> Any:
        with lock:
            reads[path] += 1
        return read_file(files, path, *args, **options)

    patch = pytest.MonkeyPatch()
    patch.setattr(LocalFileSystem, "cat_file", count)
    try:
        yield reads
    finally:
        patch.undo()
