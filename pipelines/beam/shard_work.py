"""Work items of a job and their results, and the files that carry them between processes.

Nothing here loads Beam. A job's plan is a file of JSON lines; an element of the Beam graph is a
range of its bytes, so that the graph does not grow with the plan. Small results are sent through
Beam; large ones are written to files, whose names are sent.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import tempfile
import uuid
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from pydantic import TypeAdapter

from pipelines.counters import Counters
from pipelines.io.file_systems import file_system, read_file
from pipelines.io.files import add_path_to_errors
from pipelines.progress import item_scope
from pipelines.runners.job_context import ErrorFiles
from schemas.manifest import FileEntry, StageInput


class WorkItem(Protocol):
    """A planned part of the input: a named tuple of plain values and named tuples."""

    @property
    def number(self) -> int:
        """Position in the plan, from 0."""

    @property
    def weight(self) -> int:
        """Rough cost, in bytes of input."""


class Blob(NamedTuple):
    """A few bytes for the bucket of a job's grouping."""

    bucket: int
    data: bytes


@dataclass
class WorkResult:
    """Files, counters and blobs of one item, or of one bucket."""

    index: int
    """Number of the item in the plan, or of the bucket."""

    files: list[FileEntry] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    blobs: list[Blob] = field(default_factory=list)
    """Input of the job's grouping. Not part of the JSON text."""

    details: list[Any] = field(default_factory=list)
    """Small JSON values for the launching process."""

    reused: bool = False
    """True if the item was restored from an earlier job (`pipelines.beam.item_cache`)."""

    def to_json(self) -> str:
        return json.dumps(
            {
                "index": self.index,
                "files": [entry.model_dump(mode="json") for entry in self.files],
                "counters": dict(self.counters),
                "details": self.details,
                "reused": self.reused,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> WorkResult:
        raw = json.loads(text)
        files = [FileEntry.model_validate(entry) for entry in raw["files"]]
        counters = Counters(raw["counters"])
        return cls(raw["index"], files, counters, details=raw["details"], reused=raw["reused"])


def sum_counters(results: Iterable[WorkResult]) -> Counters:
    """Return the sums of the counters of all results."""
    total = Counters()
    for result in results:
        total.update(result.counters)
    return total


class ShardFn(Protocol):
    """Work of a job on an item: a `DoFn` without Beam. Workers get a copy, without open
    files."""

    def setup(self) -> None:
        """Open what is read-only and large, once per worker."""

    def process(self, item: Any) -> WorkResult: ...


class BucketReduce(NamedTuple):
    """Work of a job on the blobs of each bucket, which Beam groups. Workers get a copy."""

    reduce: Callable[[int, Iterable[bytes]], WorkResult]
    """Called once per bucket that has blobs, with its number; can write files."""

    combine: Callable[[Sequence[bytes]], bytes] | None = None
    """Combines blobs of a bucket, before and after the shuffle. None: `reduce` gets each blob."""


@dataclass
class ItemProcessor:
    """Calls a job's work on items, set up before the first one, and records its errors."""

    work: ShardFn
    errors: ErrorFiles
    _is_set_up: bool = False

    def __call__(self, item: Any) -> WorkResult:
        with self.errors.recording(item), item_scope(item.number):
            if not self._is_set_up:
                self.work.setup()
                self._is_set_up = True
            return self.work.process(item)


def reduce_bucket(
    bucket_reduce: BucketReduce, folder: str, element: tuple[int, Iterable[bytes]]
) -> str:
    """Return the JSON result of a bucket.

    Args:
        bucket_reduce: Grouping of the job.
        folder: Folder of the spilled blobs; "" if the element has the blobs themselves.
        element: Number of the bucket, and its blobs or their locations in spill files.
    """
    bucket, blobs = element
    return bucket_reduce.reduce(bucket, read_blobs(blobs, folder) if folder else blobs).to_json()


# The plan of a job

ByteRange = tuple[int, int]
"""First byte of some lines and the byte after them."""


class PlanFile(NamedTuple):
    """File of a job's items, one JSON list per line. Workers get a copy."""

    url: str
    item_type: type[Any]
    """Class of the items."""

    def items(self, lines: ByteRange) -> Iterator[Any]:
        """Yield the items of some lines."""
        fs, path = file_system(self.url)
        adapter = TypeAdapter(self.item_type)
        for line in fs.cat_file(path, start=lines[0], end=lines[1]).splitlines():
            yield adapter.validate_json(line)


@contextlib.contextmanager
def write_plan(
    elements: Sequence[Sequence[Any]], *, folder: str
) -> Iterator[tuple[PlanFile, list[ByteRange]]]:
    """Write a hidden plan file into a folder; delete it after the block.

    Yields:
        The plan, and the range of each element that has items.
    """
    item_type = next((type(item) for items in elements for item in items), tuple)
    plan = PlanFile(f"{folder}/.plan-{uuid.uuid4().hex}.ndjson", item_type)
    lines, ranges = io.BytesIO(), list[ByteRange]()
    for items in filter(None, elements):
        start = lines.tell()
        for item in items:
            lines.write(json.dumps(item, separators=(",", ":")).encode() + b"\n")
        ranges.append((start, lines.tell()))
    fs, path = file_system(plan.url)
    fs.pipe_file(path, lines.getvalue())
    with _deleted_after(fs, path):
        yield plan, ranges


class SharedInput:
    """A stage input that workers read from a file of the job, because it lists all its files."""

    def __init__(self, value: StageInput) -> None:
        self._value: StageInput | None = value
        self._url = ""

    def get(self) -> StageInput:
        """Return the input; a worker reads it once."""
        if self._value is None:
            self._value = StageInput.model_validate_json(read_file(self._url))
        return self._value

    @contextlib.contextmanager
    def written(self, url: str) -> Iterator[None]:
        """Write the input to a file while the block runs; copies of this object read it."""
        fs, path = file_system(url)
        fs.pipe_file(path, self.get().model_dump_json().encode())
        self._url = url
        with _deleted_after(fs, path):
            yield
        self._url = ""

    def __getstate__(self) -> dict[str, Any]:
        return {"_value": None, "_url": self._url} if self._url else self.__dict__


@contextlib.contextmanager
def _deleted_after(fs: Any, path: str) -> Iterator[None]:
    """Delete a file after the block, unless the block is interrupted: a detached job reads it."""
    try:
        yield
    except Exception:
        with contextlib.suppress(OSError):  # keep the job's own error
            fs.rm_file(path)
        raise
    fs.rm_file(path)


# Results on their way to the launching process, and in it

MAX_INLINE_BYTES = 8 << 20
"""Bytes of results that are sent through Beam, summed over all elements."""

_FILE_BYTES = 4 << 20


class ResultBatcher:
    """Collects the results of one element, and returns what Beam sends: results or file names."""

    def __init__(self, url: str, *, max_inline_bytes: int) -> None:
        """`url` begins the names of files for more than `max_inline_bytes` of results."""
        self._url, self._max_inline_bytes = url, max_inline_bytes
        self._texts: list[str] = []
        self._size = 0

    def add(self, result: WorkResult) -> Iterator[str]:
        """Add a result; yield what can be sent."""
        text = result.to_json()
        self._texts.append(text)
        self._size += len(text)
        if self._size > max(_FILE_BYTES, self._max_inline_bytes):
            yield self._write_file()

    def flush(self) -> Iterator[str]:
        """Yield the rest."""
        if self._size > self._max_inline_bytes:
            yield self._write_file()
        else:
            yield from self._texts

    def _write_file(self) -> str:
        name = f"{self._url}-{uuid.uuid4().hex}"
        fs, path = file_system(name)
        fs.pipe_file(path, "\n".join(self._texts).encode())
        self._texts, self._size = [], 0
        return name


def read_results(url: str) -> Iterator[str]:
    """Yield the JSON texts of all results listed at `url`; delete the list and its files."""
    fs, path = file_system(url)
    has_files = False
    for line in fs.cat_file(path).decode().split("\n"):
        if not line or line.startswith("{"):
            yield from filter(None, [line])
            continue
        _, file = file_system(line)
        has_files = True
        yield from fs.cat_file(file).decode().split("\n")
    fs.rm_file(path)
    if has_files:  # repeated workers may have left files that are not listed
        for name in fs.ls(path.rpartition("/")[0], detail=False):
            if name.rpartition("/")[2].startswith(f"{path.rpartition('/')[2]}-"):
                fs.rm_file(name)


class ResultList(Iterable[WorkResult]):
    """Results of a job by number, in a temporary file; each is parsed when it is used."""

    def __init__(self, url: str) -> None:
        """Take the results that are listed at `url` (`read_results`)."""
        spool = tempfile.TemporaryFile(prefix="bertloom-results-")  # noqa: SIM115 - see below
        weakref.finalize(self, spool.close)
        self._spool, start = spool, 0
        slots: list[tuple[int, int, int]] = []  # number, offset and size
        files: dict[int, list[FileEntry]] = {}
        reused: list[int] = []
        for text in read_results(url):
            result, data = WorkResult.from_json(text), zlib.compress(text.encode(), 1)
            slots.append((result.index, start, spool.write(data)))
            start += len(data)
            files[result.index] = result.files
            reused += [result.index] if result.reused else []
        spool.flush()
        self._slots = sorted(slots)
        self.numbers = [number for number, *_ in self._slots]
        """Numbers of the items, ascending."""

        self.files = tuple(entry for number in sorted(files) for entry in files[number])
        """All files, in the order of the numbers."""

        self.reused = frozenset(reused)
        """Numbers of the items that were restored."""

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[WorkResult]:
        for _, start, size in self._slots:
            data = os.pread(self._spool.fileno(), size, start)
            yield WorkResult.from_json(zlib.decompress(data).decode())


# Blobs on this machine's disk

_LOCATION = struct.Struct("<16sQI")  # name of the file, offset, number of bytes


class SpillFile:
    """File for the blobs of a local job.

    Beam's local runner keeps in memory what it groups, several times over. So a local job groups
    the locations of blobs in this file. Engines spill to disk themselves.
    """

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
