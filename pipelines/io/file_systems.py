"""Open files by path or URL with fsspec.

Listings are not cached, because a cached one hides files of other processes. An object of S3 or GCS
is copied with one request, which resumes after a lost connection: s3fs does not retry parts of
large objects. The clients retry transient errors (on S3: `AWS_MAX_ATTEMPTS`, `AWS_RETRY_MODE`).
"""

from __future__ import annotations

import logging
import re
from typing import IO, Any, cast

import fsspec

from pipelines.io.local_files import check_regular

# gcsfs logs each error with a traceback before it raises it. $GCSFS_DEBUG sets another level.
logging.getLogger("gcsfs").setLevel(logging.CRITICAL)

_OWN = frozenset({"file", "local", "memory"})
_S3, _GCS = frozenset({"s3", "s3a"}), frozenset({"gs", "gcs"})
# Names of buckets have no @ and no colon. Names of access points (arn:...) have colons.
_KEY_IN_BUCKET = re.compile(r"(?:s3a?|gs|gcs)://(?!arn:)[^/@:]*[@:]")
READ_AHEAD = 8 << 20
SMALL_READ_AHEAD = 1 << 20
"""Bytes that are requested ahead of a read from an object store: of a file that is read to its end,
and for single reads."""


def file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a local path or fsspec URL, and the path in it.

    Raises:
        ValueError: The protocol is unknown, or the URL of a bucket contains a key.
        ImportError: The package of the protocol is not installed.
    """
    protocol = fsspec.utils.get_protocol(url)
    if _KEY_IN_BUCKET.search(url):
        # The clients would treat the key as part of the bucket's name, and print it in errors.
        raise ValueError(
            "expected the bucket's name after ://, got a key. Pass keys by the "
            "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS)"
        )
    options: dict[str, Any] = {}
    if protocol not in _OWN:
        options["use_listings_cache"] = False
    if protocol in _S3:
        options["max_concurrency"] = 1
    fs, path = fsspec.core.url_to_fs(url, **options)
    return fs, str(path)


def open_stream(fs: Any, path: str, *, ahead: int = READ_AHEAD) -> IO[bytes]:
    """Open a file for reading. The caller closes it.

    Args:
        fs: File system from `file_system`.
        path: Path in it.
        ahead: Bytes that an object store sends ahead of each read. By default s3fs requests 50 MB,
            and gcsfs sends one request per read.

    Raises:
        SpecialFileError: The file is not a regular file.
    """
    if "file" in protocols_of(fs):
        check_regular(path)
    more: dict[str, Any] = {}
    if not (_S3 | _GCS).isdisjoint(protocols_of(fs)):
        more = {"cache_type": "readahead", "block_size": ahead}
    return cast("IO[bytes]", fs.open(path, "rb", **more))


def fetch_file(fs: Any, path: str, local: str) -> None:
    """Copy a file to this machine.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    fs.get_file(path, local, **({"concurrency": 1} if is_gcs(fs) else {}))


def is_gcs(fs: Any) -> bool:
    """Return whether a file system is Google Cloud Storage."""
    return not _GCS.isdisjoint(protocols_of(fs))


def read_file(url: str) -> bytes:
    """Return all bytes of a small file.

    Raises:
        FileNotFoundError: The file does not exist.
        SpecialFileError: The file is not a regular file.
    """
    fs, path = file_system(url)
    if "file" in protocols_of(fs):
        check_regular(path)
    return bytes(fs.cat_file(path))


def is_local(url: str) -> bool:
    """Return whether a URL is a local file."""
    return "file" in protocols_of(file_system(url)[0])


def protocols_of(fs: Any) -> tuple[str, ...]:
    """Return the protocols of a file system, such as ("file", "local")."""
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
