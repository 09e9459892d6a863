"""Work items of a job and their results, and the files that carry them between processes.

Nothing here loads Beam. A job's plan is a file of JSON lines, so that the graph does not grow with
it. Results are JSON texts, which Beam collects in a few files.
"""

from __future__ import annotations

import contextlib
import json
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from pipelines.counters import Counters
from pipelines.io.file_systems import file_system
from pipelines.io.files import add_path_to_errors
from pipelines.progress import item_scope
from pipelines.runners.job_context import ErrorFiles
from schemas.manifest import FileEntry


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

    statistics: Any = None
    """Statistics of the job for the launching process, as JSON values."""

    reused: bool = False
    """True if the item was restored from an earlier job (`pipelines.shard_job.item_cache`)."""

    def to_json(self) -> str:
        return json.dumps(
            {
                "index": self.index,
                "files": [entry.model_dump(mode="json") for entry in self.files],
                "counters": dict(self.counters),
                "statistics": self.statistics,
                "reused": self.reused,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> WorkResult:
        raw = json.loads(text)
        raw["files"] = [FileEntry.model_validate(entry) for entry in raw["files"]]
        raw["counters"] = Counters(raw["counters"])
        return cls(**raw)


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


@contextlib.contextmanager
def written_plan(elements: Iterable[Sequence[Any]], *, folder: str) -> Iterator[str]:
    """Write a hidden plan file into a folder; delete it after the block.

    Args:
        elements: Items that one worker gets together. Each is a line of the file.
        folder: URL of the folder.

    Yields:
        URL of the plan.
    """
    url = f"{folder}/.plan-{uuid.uuid4().hex}.ndjson"
    lines = (json.dumps(items, separators=(",", ":")) for items in elements)
    fs, path = file_system(url)
    fs.pipe_file(path, "\n".join(lines).encode())
    with _deleted_after(fs, path):
        yield url


def read_plan(url: str) -> list[str]:
    """Return the elements of a plan, a JSON list of items each."""
    fs, path = file_system(url)
    return bytes(fs.cat_file(path)).decode().splitlines()


@contextlib.contextmanager
def _deleted_after(fs: Any, path: str) -> Iterator[None]:
    """Delete a file after the block, also if it is interrupted: its job is then canceled."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # keep the job's own error
            fs.rm_file(path)
        raise
    fs.rm_file(path)


# Results in the launching process

RESULTS_PER_FILE = 1_000
"""Maximum number of results in a file, some megabytes."""


class ResultList(Iterable[WorkResult]):
    """Results of a job by number, held as JSON texts; each is parsed when it is used."""

    def __init__(self, url: str) -> None:
        """Take the results from the files `URL-0`, `URL-1`, ..., and delete these."""
        results: list[tuple[int, list[FileEntry], bool, str]] = []
        for text in _take_lines(url):
            result = WorkResult.from_json(text)
            results.append((result.index, result.files, result.reused, text))
        results.sort(key=lambda result: result[0])
        self._texts = [text for *_, text in results]
        self.numbers = [number for number, *_ in results]
        """Numbers of the items, ascending."""

        self.files = tuple(entry for _, entries, *_ in results for entry in entries)
        """All files, in the order of the numbers."""

        self.reused = frozenset(number for number, _, is_reused, _ in results if is_reused)
        """Numbers of the items that were restored."""

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[WorkResult]:
        return map(WorkResult.from_json, self._texts)


def _take_lines(url: str) -> Iterator[str]:
    """Yield the lines of the files whose URLs begin with `url`; delete each file after it."""
    fs, path = file_system(url)
    for name in fs.glob(f"{path}-*"):
        yield from bytes(fs.cat_file(name)).decode().splitlines()
        fs.rm_file(name)


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
