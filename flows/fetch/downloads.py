"""Downloads of files into a folder: resumed, verified, and visible under their names together."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from flows.fetch.http_client import HttpClient, fetch_error
from pipelines.io.local_files import file_lock
from schemas.errors import ChecksumError

FILE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$"
"""Pattern of names that cannot point outside a folder."""

_CONNECTIONS = 2
"""Number of concurrent downloads: Wikimedia allows two."""


class RemoteFile(NamedTuple):
    """A file to download."""

    url: str
    name: str
    size: int
    """Bytes."""

    algorithm: str
    """Algorithm of the digest: sha1 or sha256."""

    digest: str
    """Hexadecimal digest."""


def download_files(
    label: str, files: Sequence[RemoteFile], folder: Path, *, client: HttpClient
) -> None:
    """Download the files that a folder lacks. They get their names together, when all are complete.

    Raises:
        FetchError: A file cannot be downloaded. All downloads stop and can be resumed.
        ChecksumError: A file differs from its digest; it is deleted.
    """
    message = f"{folder}: waiting for another `bertloom fetch` to finish"
    with file_lock(folder / ".fetch.lock", before_waiting=lambda: client.log(message)):
        missing = [file for file in files if not _is_complete(file, folder / file.name)]
        partial_files = [folder / f".{file.name}.partial" for file in missing]
        bar = tqdm(
            desc=label,
            total=sum(file.size for file in missing),
            initial=sum(path.stat().st_size for path in partial_files if path.exists()),
            unit="B",
            unit_scale=True,
            leave=False,
            disable=None,  # no bar unless stderr is a terminal
        )
        with bar, ThreadPoolExecutor(_CONNECTIONS) as pool:
            futures = [
                pool.submit(download, file, path, client=client, on_bytes=bar.update)
                for file, path in zip(missing, partial_files, strict=True)
            ]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                client.stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        for file, path in zip(missing, partial_files, strict=True):
            path.replace(folder / file.name)


def download(
    file: RemoteFile, path: Path, *, client: HttpClient, on_bytes: Callable[[int], object]
) -> None:
    """Download a file to `path`, after the bytes that `path` has already, and verify it.

    Raises:
        FetchError: The file cannot be downloaded. The next call resumes.
        ChecksumError: The file differs from its digest; it is deleted.
    """
    is_resumed = path.exists()
    client.with_retries(_receive, file, path, client=client, on_bytes=on_bytes)
    if _is_complete(file, path):
        return
    size, digest = path.stat().st_size, _digest(path, file.algorithm)
    path.unlink()
    if is_resumed:  # the first part may be of another version of the file
        download(file, path, client=client, on_bytes=on_bytes)
        return
    expected = f"{file.size:,} bytes with {file.algorithm} {file.digest}"
    message = f"{file.url}: expected {expected}, got {size:,} with {digest}. Use another mirror"
    raise ChecksumError(message, file=file.url, expected=file.digest, actual=digest)


def _receive(
    file: RemoteFile, path: Path, *, client: HttpClient, on_bytes: Callable[[int], object]
) -> None:
    """Append the bytes that a file lacks. A server without ranges sends the whole file again."""
    size = path.stat().st_size if path.exists() else 0
    if 0 < size >= file.size:
        return
    with (
        client.open(file.url, {"Range": f"bytes={size}-"} if size else {}) as response,
        path.open("ab" if response.status_code == 206 else "wb") as sink,
    ):
        for chunk in response.iter_raw():
            if client.stopped.is_set():
                raise fetch_error(file.url, "cancelled", hint="Run it again to resume")
            sink.write(chunk)
            on_bytes(len(chunk))
            if sink.tell() > file.size:
                return
        sink.flush()
        os.fsync(sink.fileno())


def _is_complete(file: RemoteFile, path: Path) -> bool:
    return path.is_file() and _digest(path, file.algorithm) == file.digest


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, algorithm).hexdigest()
