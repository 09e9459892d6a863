"""Opening files by path or URL: the one place that finds a file system.

A listing that is remembered hides what other processes write, so none is. On S3 an object is read
by one request that also tells its size, and goes on after a cut: s3fs else asks for the size first,
and fetches large objects in parts that it does not try again. Requests that fail in passing are
repeated by the clients themselves, as `AWS_MAX_ATTEMPTS` and `AWS_RETRY_MODE` say.
"""

from __future__ import annotations

from typing import Any

import fsspec

_OWN = frozenset({"file", "local", "memory"})
_S3 = frozenset({"s3", "s3a"})


def file_system(url: str) -> tuple[Any, str]:
    """The file system of a local path or fsspec URL, and the path in it.

    Raises:
        ValueError: its protocol is not known.
        ImportError: its package is not installed.
    """
    protocol = fsspec.utils.get_protocol(url)
    options: dict[str, Any] = {}
    if protocol not in _OWN:
        options["use_listings_cache"] = False
    if protocol in _S3:
        options["max_concurrency"] = 1
    fs, path = fsspec.core.url_to_fs(url, **options)
    return fs, str(path)


def read_file(url: str) -> bytes:
    """All bytes of a small file.

    Raises:
        FileNotFoundError: there is none.
    """
    fs, path = file_system(url)
    return bytes(fs.cat_file(path))


def is_local(url: str) -> bool:
    """Whether a file is read where it lies, not copied first."""
    return "file" in protocols_of(file_system(url)[0])


def protocols_of(fs: Any) -> tuple[str, ...]:
    """Names of a file system's protocols, such as ("file", "local")."""
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
