"""Downloads of files into a folder: resumed, verified, and visible under their names together."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from tqdm import tqdm

from flows.fetch.http_client import HttpClient, TransientError, fetch_error
from flows.formatting import format_bytes
from pipelines.io.local_files import file_lock, fsync_dir, write_atomic
from schemas.errors import ChecksumError, FetchError
from schemas.redaction import public_address

FILE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$"
"""Pattern of names that cannot point outside a folder."""

_STAGING = ".partial"
"""Folder for files that are incomplete, or whose group is incomplete."""

_RECORD = ".downloads.json"
_RESERVED_BYTES = 64 << 20
_MIN_PROGRESS_BYTES = 1 << 20
"""Bytes that a series of failed attempts must bring to be followed by another series."""

_MAX_UNANNOUNCED_BYTES = 512 << 20


class RemoteFile(NamedTuple):
    """A file to download."""

    url: str
    name: str
    size: int | None
    """Bytes. None: unknown."""

    algorithm: str
    digest: str | None
    """Hexadecimal digest. None: any content is accepted."""


class Download(NamedTuple):
    """A complete and verified file."""

    path: Path
    digest: str
    bytes_downloaded: int


def download_files(
    label: str, files: Sequence[RemoteFile], folder: Path, *, client: HttpClient, connections: int
) -> list[Download]:
    """Download and verify files. They get their names together, when all are complete.

    Raises:
        FetchError: A file cannot be downloaded. All downloads stop and can be resumed.
        ChecksumError: A file differs from its digest; it is deleted.
    """
    message = f"{folder}: waiting for another `bertloom fetch` to finish"
    with file_lock(folder / ".fetch.lock", before_waiting=lambda: client.log(message)):
        total = sum(file.size or 0 for file in files)
        check_disk_space(folder, total - sum(bytes_present(file, folder) for file in files))
        (folder / _STAGING).mkdir(exist_ok=True)
        seconds = 0.1 if sys.stderr.isatty() else 15.0
        bar = tqdm(
            desc=label, total=total, unit="B", unit_scale=True, leave=False,
            mininterval=seconds, delay=seconds,
        )  # fmt: skip
        with bar, ThreadPoolExecutor(connections) as pool:
            tasks = [_FileDownload(file, folder, client, bar.update) for file in files]
            futures = [pool.submit(task.run) for task in tasks]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                client.cancelled.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        record_origins(folder, {file.name: file.url for file in files})
        for task in tasks:
            task.publish()
        fsync_dir(folder)
        with contextlib.suppress(OSError):  # another group of files has a partial file
            (folder / _STAGING).rmdir()
        return [future.result() for future in futures]


def record_origins(folder: Path, urls: Mapping[str, str]) -> None:
    """Record the URL of each downloaded file in a folder, by name."""
    origins = read_origins(folder) | {name: public_address(url) for name, url in urls.items()}
    write_atomic(folder / _RECORD, json.dumps(origins, indent=2).encode())


def read_origins(folder: Path) -> dict[str, Any]:
    """Return the URL of each downloaded file in a folder, by name."""
    try:
        return dict(json.loads((folder / _RECORD).read_bytes()))
    except (OSError, ValueError):
        return {}


def bytes_present(file: RemoteFile, folder: Path) -> int:
    """Return the unverified size of a file in a folder, complete or partial."""
    paths = [folder / file.name, folder / _STAGING / file.name]
    sizes = [path.stat().st_size for path in paths if path.is_file()]
    return min(sizes[0], file.size or sizes[0]) if sizes else 0


def check_disk_space(folder: Path, size: int) -> None:
    """Raise a FetchError if the disk of a folder has no space for `size` bytes."""
    free = max(0, shutil.disk_usage(folder).free - _RESERVED_BYTES)
    if free < size:
        message = f"not enough disk space: need {format_bytes(size)}, {format_bytes(free)} free"
        raise FetchError(f"{folder}: {message}. Free space, or use another --output-dir")


class _FileDownload:
    """Download of one file into the staging folder."""

    def __init__(
        self, file: RemoteFile, folder: Path, client: HttpClient, advance: Callable[[int], object]
    ) -> None:
        self._file, self._client, self._advance = file, client, advance
        self._path, self._partial = folder / file.name, folder / _STAGING / file.name
        self._total = file.size
        self._received = self._downloaded = 0

    def run(self) -> Download:
        """Complete the file in the staging folder, unless its own folder has it, and verify it."""
        file = self._file
        if self._path.is_file() and self._digest(self._path) == file.digest:
            self._partial.unlink(missing_ok=True)
            self._advance(self._path.stat().st_size)
            return Download(self._path, str(file.digest), 0)
        if self._partial.is_file():
            self._move_to(self._partial.stat().st_size)
        is_resumed = self._received > 0
        while True:
            self._complete()
            digest = self._digest(self._partial)
            if file.digest in (None, digest):
                return Download(self._path, digest, self._downloaded)
            self._restart()
            if not is_resumed:
                url, expected = public_address(file.url), str(file.digest)
                message = f"expected {file.algorithm} {expected}, got {digest}. Use another mirror"
                raise ChecksumError(f"{url}: {message}", file=url, expected=expected, actual=digest)
            is_resumed = False  # the first part may be of another version

    def publish(self) -> None:
        """Move the file to its name, if it was downloaded."""
        if self._partial.is_file():
            self._partial.replace(self._path)

    def _digest(self, path: Path) -> str:
        with path.open("rb") as source:
            return hashlib.file_digest(source, self._file.algorithm).hexdigest()

    def _complete(self) -> None:
        while self._received != self._total or not self._partial.is_file():
            before = self._received
            try:
                self._client.with_retries(self._request)
            except TransientError as error:
                if self._received < before + _MIN_PROGRESS_BYTES:
                    error.add_note("Partial files are kept: run the command again to resume.")
                    raise

    def _request(self) -> None:
        """Request the file, or the rest of it."""
        if self._file.digest is None:  # the first part may be of another version
            self._restart()
        headers = {"Range": f"bytes={self._received}-"} if self._received else {}
        with self._client.open(self._file.url, headers) as response:
            self._prepare(response)
            limit = _MAX_UNANNOUNCED_BYTES if self._total is None else self._total
            with self._partial.open("ab") as sink:
                for chunk in response.iter_raw():
                    if self._client.cancelled.is_set():
                        hint = "Run it again to resume"
                        raise fetch_error(self._file.url, "cancelled", hint=hint)
                    if self._received + len(chunk) > limit:
                        self._restart()
                        message = f"expected at most {limit:,} bytes, got more"
                        raise fetch_error(self._file.url, message)
                    sink.write(chunk)
                    self._downloaded += len(chunk)
                    self._move_to(self._received + len(chunk))
                sink.flush()
                os.fsync(sink.fileno())
        self._total = self._received if self._total is None else self._total

    def _prepare(self, response: httpx.Response) -> None:
        """Check the size, and start over unless the response continues the partial file."""
        content_range = response.headers.get("Content-Range", "")
        size = response.headers.get("Content-Length", "")
        if response.status_code == 206 and content_range.startswith(f"bytes {self._received}-"):
            size = content_range.rpartition("/")[2]
        else:
            self._restart()
            if response.status_code != 200:
                url = public_address(self._file.url)
                raise TransientError(f"{url}: cannot continue with {content_range!r}", url=url)
        if size.isdecimal():
            self._total = self._file.size or int(size)
            if self._total != int(size):
                message = f"expected {self._total:,} bytes, got {int(size):,}"
                raise fetch_error(self._file.url, message)

    def _restart(self) -> None:
        self._partial.unlink(missing_ok=True)
        self._move_to(0)

    def _move_to(self, received: int) -> None:
        self._advance(received - self._received)
        self._received = received
