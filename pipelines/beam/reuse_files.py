"""The files of finished pieces in a store: records are put whole, shards are linked or copied."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.io.file_systems import file_system, open_stream, protocols_of
from pipelines.io.files import add_path_to_errors, is_physical_name, physical_name
from schemas.errors import ConfigError
from schemas.manifest import FileEntry

_CHUNK = 1 << 20
# A file system without hard links, one with too many to a file, or two of them.
_CANNOT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS})
_log = logging.getLogger(__name__)


@dataclass
class PieceFiles:
    """Where records and the files of pieces are. Sent to workers by value: it holds texts only.

    Raises:
        ConfigError: the folders are not `ROOT/pieces/STAGE/DIGEST` and one below the same ROOT.
    """

    pieces: str
    """URL of the folder of the records."""

    output: str
    """URL of the folder that this job writes to."""

    def __post_init__(self) -> None:
        self._place()

    def _place(self) -> tuple[Any, str, str, str]:
        """The file system, the root in it, the records' folder and the output's."""
        fs, pieces = file_system(self.pieces)
        other, output = file_system(self.output)
        root, name, *_ = pieces.rstrip("/").rsplit("/", 3)
        if name != "pieces" or type(fs) is not type(other) or not output.startswith(f"{root}/"):
            raise ConfigError(
                f"pieces can only be restored within one store: expected ROOT/pieces/STAGE/"
                f"DIGEST and a folder below ROOT, found {self.pieces} and {self.output}"
            )
        return fs, root, pieces.rstrip("/"), output.rstrip("/")

    @property
    def is_remote(self) -> bool:
        """Whether each look is a request."""
        return not {"file", "memory"} & set(protocols_of(self._place()[0]))

    def place_of(self, name: str) -> str:
        """Path of a file of the output folder, relative to the root of the store."""
        _, root, _, output = self._place()
        return f"{output}/{name}".removeprefix(f"{root}/")

    def is_here(self, path: str) -> bool:
        """Whether a path relative to the root of the store is that of a file this job wrote."""
        return path.startswith(self.place_of(""))

    def names(self) -> frozenset[str]:
        """The last parts of the names of all records there are."""
        fs, _, pieces, _ = self._place()
        folder, _, digest = pieces.rpartition("/")
        # By prefix: on S3 a folder that is not there costs one request, not three.
        found = fs.find(folder, prefix=f"{digest}/") if self.is_remote else fs.find(pieces)
        return frozenset(str(name).rpartition("/")[2] for name in found)

    def read(self, name: str, *, sha256: str = "") -> bytes | None:
        """A file beside the records; None if it is gone, or has not the digest asked for."""
        fs, _, pieces, _ = self._place()
        try:
            data = bytes(fs.cat_file(f"{pieces}/{name}"))
        except FileNotFoundError:
            return None
        if sha256 and hashlib.sha256(data).hexdigest() != sha256:
            _log.warning("%s/%s is damaged, so the piece is built again", self.pieces, name)
            return None
        return data

    def write(self, name: str, data: bytes) -> str:
        """Put a file beside the records; readers see it whole or not. Returns its sha256."""
        fs, _, pieces, _ = self._place()
        target = f"{pieces}/{name}"
        if _is_local(fs):
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            written = Path(f"{target}.{uuid.uuid4().hex[:12]}.partial")
            # Not flushed to disk: what a power cut damages is found out, and built again.
            try:
                with add_path_to_errors(target):
                    written.write_bytes(data)
                written.replace(target)
            finally:
                written.unlink(missing_ok=True)
        else:
            fs.pipe_file(target, data)
        return hashlib.sha256(data).hexdigest()

    def delete(self, name: str) -> None:
        """Take a file beside the records away, if it is there."""
        fs, _, pieces, _ = self._place()
        _delete(fs, f"{pieces}/{name}")

    def restore(self, source: str, entry: FileEntry) -> FileEntry | None:
        """Put a file of an earlier artifact into the output folder as well.

        What another worker of this job made of the same piece is taken where it is.

        Args:
            source: its path, relative to the root of the store.
            entry: what it is called and must hold.

        Returns:
            the entry with the file's physical name here; None where it is gone or damaged.
        """
        fs, root, _, output = self._place()
        name = source.rpartition("/")[2]
        is_here = source == self.place_of(name) and is_physical_name(name, entry.path)
        name = name if is_here else physical_name(entry.path)
        target = f"{output}/{name}"
        try:
            if not is_here:
                _link_or_copy(fs, f"{root}/{source}", target)
            # What is checked is what was taken: the other may be deleted at any time.
            problem = _problem(fs, target, entry)
        except FileNotFoundError:
            return None
        if problem:
            _log.warning("%s/%s %s, so the piece is built again", root, source, problem)
            _delete(fs, target)
            return None
        return entry.model_copy(update={"stored_name": name})

    def discard(self, entries: Iterable[FileEntry]) -> None:
        """Take restored files away again."""
        fs, _, _, output = self._place()
        for entry in entries:
            _delete(fs, f"{output}/{entry.stored_name}")


def _is_local(fs: Any) -> bool:
    return "file" in protocols_of(fs)


def _link_or_copy(fs: Any, source: str, target: str) -> None:
    if not _is_local(fs):
        fs.cp_file(source, target)
        return
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        _copy(source, Path(target))


def _copy(source: str, target: Path) -> None:
    written = target.with_name(f"{target.name}.partial")
    try:
        with (
            add_path_to_errors(str(target)),
            Path(source).open("rb") as read,
            written.open("wb") as sink,
        ):
            shutil.copyfileobj(read, sink, _CHUNK)
            sink.flush()
            os.fsync(sink.fileno())
        written.replace(target)
    finally:
        written.unlink(missing_ok=True)


def _problem(fs: Any, path: str, entry: FileEntry) -> str:
    """What of a file is not as it is described; "" for nothing."""
    if _digest(fs, path) != (entry.size_bytes, entry.sha256):
        return "is damaged"
    if entry.rows is None or not _is_local(fs):
        return ""
    import pyarrow.dataset as ds  # start-up: 340 ms

    # Reads the lengths of the record batches alone; of a remote file it would cost more requests.
    rows = ds.dataset(path, format="ipc").count_rows()
    return "" if rows == entry.rows else f"has {rows:,} rows, and not {entry.rows:,}"


def _digest(fs: Any, path: str) -> tuple[int, str]:
    sha256, size = hashlib.sha256(), 0
    with open_stream(fs, path) as stream:
        while data := stream.read(_CHUNK):
            sha256.update(data)
            size += len(data)
    return size, sha256.hexdigest()


def _delete(fs: Any, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        fs.rm_file(path)
