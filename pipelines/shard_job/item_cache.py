"""Cache of finished work items, from which later jobs restore them.

The cache of a stage is a folder `ROOT/pieces/STAGE/DIGEST`, where DIGEST covers configuration, code
and environment of the stage. `AA/KEY.json` is the record of an item: its counters, its files and
their locations. The blobs of a restored item are computed from its files.

KEY is a digest of everything that determines the item's output; names and numbers of shards are not
part of it. If one dump of ten changed, or a job was killed, the files of the other items are linked
into the new artifact under their new names. Files are hashed before use: an item with a missing or
corrupt file or record is processed again, and so is an unfinished item as a whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

from pydantic import BaseModel, ConfigDict

from pipelines.counters import Counters
from pipelines.io.file_systems import file_system, open_stream, protocols_of
from pipelines.io.files import add_path_to_errors, is_physical_name, physical_name
from pipelines.io.local_files import CANNOT_LINK
from pipelines.shard_job.work import Blob, ShardFn, WorkItem, WorkResult
from schemas.json_files import dump_json
from schemas.manifest import FileEntry, RelativePath, Reuse

MAX_LOCATIONS = 3
"""Artifacts that a record names for its files, the newest first; garbage collection deletes old
ones."""

_log = logging.getLogger(__name__)


class CacheableShardFn(ShardFn, Protocol):
    """Work whose items can be restored. By default, each has one shard."""

    shard_folder: ClassVar[str] = ""
    """Folder of the shards in the output, with a slash at its end. "": the output itself."""

    def shard_path(self, item: Any) -> str:
        """Return the logical name of the shard of an item."""
        return f"{self.shard_folder}part-{item.number:05d}.arrow"

    def setup(self) -> None:
        """Open what is read-only and large, once per worker. Default: nothing."""
        return

    def identity(self, item: Any) -> Any:
        """Return everything that determines the item's output, as JSON values.

        Not part of it: configuration, code and environment of the stage, and names and numbers that
        only locate the item in this job. Default: the identity of the item.
        """
        return item.identity()

    def rename_files(self, files: Sequence[FileEntry], item: Any) -> list[FileEntry]:
        """Return an earlier item's files with the names and numbers that they have in this job."""
        return [entry.model_copy(update={"path": self.shard_path(item)}) for entry in files]

    def load_blobs(self, files: Sequence[FileEntry]) -> list[Blob]:
        """Return the blobs of a restored item, whose files are in the output folder."""
        del files
        return []


class CacheRecord(BaseModel):
    """A finished item."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    """`STAGE/DIGEST/KEY`, where the record belongs: a misplaced copy is not used."""

    files: tuple[FileEntry, ...]
    """Files with the names of the job that wrote them; `stored_name` has no meaning here."""

    locations: tuple[tuple[RelativePath, ...], ...]
    """Paths of all files relative to the root of the store, one tuple per artifact."""

    created_in: RelativePath
    """Output folder of the job that processed the item, relative to the root of the store."""

    counters: dict[str, int]
    statistics: Any


def item_key(identity: Any) -> str:
    """Return the 64 hex digits that name an item, from JSON values."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class ItemCache:
    """Cache of a stage, and the folder of a job's output in the same store. Workers get a copy."""

    folder: str
    """URL of the folder of the cache, `ROOT/pieces/STAGE/DIGEST`."""

    output: str
    """URL of the folder that this job writes to, below `ROOT`."""

    def __post_init__(self) -> None:
        self._fs, folder = file_system(self.folder)
        _, output = file_system(self.output)
        self._folder, self._output = folder.rstrip("/"), output.rstrip("/")
        self._root = self._folder.rsplit("/", 3)[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return ItemCache, (self.folder, self.output)  # each worker has other credentials

    def location(self, name: str) -> str:
        """Return the path of a file of the output folder, relative to the root of the store."""
        return f"{self._output}/{name}".removeprefix(f"{self._root}/")

    @property
    def created_in(self) -> str:
        """Output folder, relative to the root of the store."""
        return self.location("").rstrip("/")

    def read(self, key: str) -> CacheRecord | None:
        """Return the record of an item; None if it does not exist, is corrupt or misplaced."""
        try:
            data = bytes(self._fs.cat_file(self._record_path(key)))
        except FileNotFoundError:
            return None
        try:
            record = CacheRecord.model_validate_json(data)
            if record.name != self._record_name(key):
                raise ValueError(f"it is the record of {record.name}")
            if any(len(paths) != len(record.files) for paths in record.locations):
                raise ValueError("numbers of files and locations differ")
        except ValueError as error:  # pydantic's errors too
            _log.warning("item %s: corrupt record, processing it again: %s", key, error)
            return None
        return record

    def _record_path(self, key: str) -> str:
        return f"{self._folder}/{key[:2]}/{key}.json"

    def _record_name(self, key: str) -> str:
        stage, digest = self._folder.rsplit("/", 2)[1:]
        return f"{stage}/{digest}/{key}"

    def new_record(self, result: WorkResult) -> CacheRecord:
        """Return the record of a result of this job."""
        return CacheRecord(
            files=tuple(result.files),
            locations=(),
            created_in=self.created_in,
            counters=dict(result.counters),
            statistics=result.statistics,
        )

    def write(self, key: str, record: CacheRecord, files: list[FileEntry]) -> None:
        """Write the record of an item, with the locations of its files in this job's output."""
        own = tuple(self.location(entry.stored_name) for entry in files)
        locations = tuple(dict.fromkeys([own, *record.locations]))[:MAX_LOCATIONS]
        update = {"locations": locations, "name": self._record_name(key)}
        stored = record.model_copy(update=update)
        data = dump_json(stored.model_dump(mode="json"))
        if _is_local(self._fs):
            # Not synced: a record that a power cut damages is only processed again.
            with _partial_file(self._record_path(key)) as partial:
                partial.write_bytes(data)
        else:
            self._fs.pipe_file(self._record_path(key), data)

    def restore(self, source: str, entry: FileEntry) -> FileEntry | None:
        """Link or copy a file of an earlier artifact into the output folder.

        A file that another worker of this job wrote for the same item stays where it is.

        Args:
            source: Path of the file, relative to the root of the store.
            entry: Logical name and expected content.

        Returns:
            The entry with the file's physical name; None if the file is missing or corrupt.
        """
        name = source.rpartition("/")[2]
        is_own = source == self.location(name) and is_physical_name(name, entry.path)
        name = name if is_own else physical_name(entry.path)
        target = f"{self._output}/{name}"
        try:
            if not is_own:
                _link_or_copy(self._fs, f"{self._root}/{source}", target)
            # The copy is checked, as the source can be deleted at any time.
            is_intact = _is_intact(self._fs, target, entry)
        except FileNotFoundError:
            return None
        if not is_intact:
            _log.warning("%s/%s is corrupt: processing the item again", self._root, source)
            _delete(self._fs, target)
            return None
        return entry.model_copy(update={"stored_name": name})

    def discard(self, entries: Iterable[FileEntry]) -> None:
        """Delete restored files."""
        for entry in entries:
            _delete(self._fs, f"{self._output}/{entry.stored_name}")


def _is_local(fs: Any) -> bool:
    return "file" in protocols_of(fs)


@contextlib.contextmanager
def _partial_file(target: str) -> Iterator[Path]:
    """Yield the path of a file that replaces `target` after the block."""
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    partial = Path(f"{target}.{uuid.uuid4().hex[:12]}.partial")
    try:
        with add_path_to_errors(target):
            yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _link_or_copy(fs: Any, source: str, target: str) -> None:
    if not _is_local(fs):
        fs.cp_file(source, target)
        return
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in CANNOT_LINK:
            raise
        with _partial_file(target) as partial:
            shutil.copyfile(source, partial)
            with partial.open("rb") as copied:
                os.fsync(copied.fileno())


def _is_intact(fs: Any, path: str, entry: FileEntry) -> bool:
    with open_stream(fs, path) as stream:
        sha256 = hashlib.file_digest(cast("Any", stream), "sha256").hexdigest()
        size = stream.seek(0, os.SEEK_END)
    return (size, sha256) == (entry.size_bytes, entry.sha256)


def _delete(fs: Any, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        fs.rm_file(path)


@dataclass
class CachingShardFn:
    """Restores the items that an earlier job finished, and processes the others."""

    work: CacheableShardFn
    cache: ItemCache
    min_seconds: float = 0.0
    """CPU seconds; an item that took less is not recorded: a bucket bills each request."""

    def setup(self) -> None:
        self.work.setup()

    def process(self, item: Any) -> WorkResult:
        key = item_key(self.work.identity(item))
        restored = self._restore(key, item)
        if restored is not None:
            result, record = restored
        else:
            start = time.process_time()
            result = self.work.process(item)
            if time.process_time() - start < self.min_seconds:
                return result
            record = self.cache.new_record(result)
        self.cache.write(key, record, result.files)
        return result

    def _restore(self, key: str, item: WorkItem) -> tuple[WorkResult, CacheRecord] | None:
        """Return the result and the record of an item that can be restored."""
        record = self.cache.read(key)
        if record is None:
            return None
        for paths in record.locations:
            files = self._restore_files(record, paths, item)
            if files is not None:
                result = WorkResult(
                    item.number,
                    files,
                    Counters(record.counters),
                    self.work.load_blobs(files),
                    record.statistics,
                    # An item that equals another item of the same job is not reused.
                    reused=record.created_in != self.cache.created_in,
                )
                return result, record
        return None

    def _restore_files(
        self, record: CacheRecord, paths: Sequence[str], item: WorkItem
    ) -> list[FileEntry] | None:
        restored: list[FileEntry] = []
        for entry, path in zip(self.work.rename_files(record.files, item), paths, strict=True):
            file = self.cache.restore(path, entry)
            if file is None:
                self.cache.discard(restored)
                return None
            restored.append(file)
        return restored


def measure_reuse(items: Iterable[WorkItem], restored: Iterable[int]) -> Reuse:
    """Return how much of the planned work was restored, by the numbers of the restored items."""
    weights = {item.number: item.weight for item in items}
    reused = [weights[number] for number in restored]
    return Reuse(
        items=len(weights),
        items_reused=len(reused),
        weight=sum(weights.values()),
        weight_reused=sum(reused),
    )
