"""Blobs of a local job on this machine's disk.

Beam's local runner keeps in memory what it groups, several times over. So a local job groups the
locations of blobs in files. Engines spill to disk themselves.
"""

from __future__ import annotations

import contextlib
import struct
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from pipelines.io.files import add_path_to_errors
from pipelines.shard_job.work import Blob

_LOCATION = struct.Struct("<16sQI")  # name of the file, offset, number of bytes


class SpillFile:
    """File for the blobs of a local job."""

    def __init__(self, folder: str) -> None:
        """Create the file in a folder of the job with the first blobs."""
        self._folder, self._name = Path(folder), uuid.uuid4()
        self._file: IO[bytes] | None = None

    def write(self, blobs: Iterable[Blob]) -> list[Blob]:
        """Write blobs, and return a blob with the location of each."""
        path = _spill_path(self._folder, self._name.bytes)
        located: list[Blob] = []
        with add_path_to_errors(str(path)):
            if self._file is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = path.open("ab")
            start = self._file.tell()
            for blob in blobs:
                location = _LOCATION.pack(self._name.bytes, start, len(blob.data))
                located.append(Blob(blob.bucket, location))
                start += self._file.write(blob.data)
            self._file.flush()
        return located

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_blobs(locations: Iterable[bytes], folder: str) -> Iterator[bytes]:
    """Yield blobs, file by file in the order of their offsets."""
    with contextlib.ExitStack() as stack:
        current, file = Path(), None
        for name, start, size in sorted(map(_LOCATION.unpack, locations)):
            path = _spill_path(Path(folder), name)
            if file is None or path != current:
                stack.close()
                current, file = path, stack.enter_context(path.open("rb"))
            file.seek(start)
            yield file.read(size)


def _spill_path(folder: Path, name: bytes) -> Path:
    return folder / f"{name.hex()}.blobs"
