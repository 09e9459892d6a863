"""Blobs on the disk of a machine whose workers are all on it, instead of in its runner's memory.

Beam's runner of one machine holds what it groups in memory, several times over. So a worker there
appends its blobs to a file of its own, and what Beam groups says where each lies. Other runners
spill to disk themselves, and their workers share none.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from pipelines.beam.work import Blob, Grouping
from pipelines.io.files import naming

_PLACE = struct.Struct("<16sQI")  # the file, where in it, how many bytes


class BlobFile:
    """Takes the blobs of one worker; opened with the first of them, in a folder of the job."""

    def __init__(self, folder: str) -> None:
        self._folder, self._name = Path(folder), uuid.uuid4()
        self._file: IO[bytes] | None = None

    def places(self, blobs: Iterable[Blob]) -> list[Blob]:
        """Keep the blobs; in place of each, one that says where it is."""
        path = _path(self._folder, self._name.bytes)
        found: list[Blob] = []
        with naming(str(path)):
            if self._file is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = path.open("ab")
            start = self._file.tell()
            for blob in blobs:
                place = _PLACE.pack(self._name.bytes, start, len(blob.data))
                found.append(Blob(blob.bucket, place))
                start += self._file.write(blob.data)
            self._file.flush()
        return found

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def blobs_at(places: Iterable[bytes], folder: str) -> Iterator[bytes]:
    """The blobs, file by file in the order that they lie in."""
    path, file = Path(), None
    try:
        for name, start, size in sorted(map(_PLACE.unpack, places)):
            found = _path(Path(folder), name)
            if file is None or found != path:
                if file is not None:
                    file.close()
                path, file = found, found.open("rb")
            file.seek(start)
            yield file.read(size)
    finally:
        if file is not None:
            file.close()


def report_bucket(grouping: Grouping, folder: str, element: tuple[int, Iterable[bytes]]) -> str:
    """Return the JSON report of a bucket.

    Args:
        grouping: Grouping of the job.
        folder: Folder of the spilled blobs; "" if the element has the blobs themselves.
        element: Number of the bucket, and its blobs or their places.
    """
    bucket, blobs = element
    return grouping.report(bucket, blobs_at(blobs, folder) if folder else blobs).to_json()


def _path(folder: Path, name: bytes) -> Path:
    return folder / f"{name.hex()}.blobs"
