"""Compare files with the checksum lists published in their folder.

Wikimedia publishes `enwiki-20250101-sha1sums.txt` and `-md5sums.txt` with each dump: one line per
file, `hex  name`, as `sha1sum` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pipelines.io.raw_files import FileDigests, digest_file, list_folder_of, open_file
from schemas.errors import ChecksumError, InputError
from schemas.redaction import public_address

_LIST = re.compile(r"(?:^|.*[-_.])(sha256|sha1|md5)sums?(?:\.txt|[-_.].*\.txt)?$", re.IGNORECASE)
_LINE = re.compile(r"([0-9A-Fa-f]+) [ *](.+)")
_HEX_DIGITS = {"md5": 32, "sha1": 40, "sha256": 64}
"""Number of hex digits by algorithm, the strongest last."""

_MOST_BYTES = 64 << 20


class PublishedChecksum(NamedTuple):
    """Checksum of one file in a list."""

    algorithm: str
    hex_digest: str
    uri: str
    """Path or URL of the list."""


def is_checksum_list(name: str) -> bool:
    """Return whether a name is that of a list, such as `enwiki-20250101-sha1sums.txt`."""
    return _LIST.match(name.rpartition("/")[2]) is not None


def published_checksums(uris: Iterable[str]) -> dict[str, PublishedChecksum]:
    """Return the published checksums of files that have one. Each list is read once.

    Raises:
        InputError: A list has an invalid line.
    """
    lists: dict[str, Mapping[str, PublishedChecksum]] = {}
    checksums: dict[str, PublishedChecksum] = {}
    for uri in uris:
        folder, _, base = public_address(uri).rpartition("/")
        if folder not in lists:
            lists[folder] = _read_lists(uri)
        if base in lists[folder]:
            checksums[uri] = lists[folder][base]
    return checksums


def verify_file(
    uri: str,
    published: PublishedChecksum | None,
    *,
    on_bytes: Callable[[bytes], object] | None = None,
) -> tuple[FileDigests, str]:
    """Digest a file and compare it with its published checksum, if it has one.

    Args:
        uri: Path or URL of the file.
        published: Published checksum of the file.
        on_bytes: Called with all bytes in order, if the file is read.

    Returns:
        Digests including sha256, and the verified checksum `sha1:...` or "". They are computed in
        one pass and cached (`pipelines.io.raw_files.digest_file`).

    Raises:
        ChecksumError: The file has another checksum than the list.
        InputError: The file cannot be read.
    """
    if published is None:
        return digest_file(uri, on_bytes=on_bytes), ""
    algorithm, expected, where = published
    read = digest_file(uri, algorithms=("sha256", algorithm), on_bytes=on_bytes)
    if read.digests[algorithm] != expected:
        raise ChecksumError(
            f"{uri}: expected {algorithm} {expected}, as {where} says, found "
            f"{read.digests[algorithm]} ({read.size:,} bytes). Download the file again; if it was "
            "changed on purpose, take it out of the list or set verify_checksums to false"
        )
    return read, f"{algorithm}:{expected}"


def _read_lists(file_uri: str) -> Mapping[str, PublishedChecksum]:
    """Return the checksums in the folder of a file by name, of two lists those of the stronger."""
    lists = [
        (match[1].lower(), uri)
        for uri, name in list_folder_of(file_uri)
        if (match := _LIST.match(name)) is not None
    ]
    lists.sort(key=lambda entry: _HEX_DIGITS[entry[0]])
    return {
        file_name: PublishedChecksum(algorithm, digest, uri)
        for algorithm, uri in lists
        for file_name, digest in _read_list(uri, algorithm=algorithm)
    }


def _read_list(uri: str, *, algorithm: str) -> list[tuple[str, str]]:
    with open_file(uri) as source:
        stored = source.read(_MOST_BYTES)
    entries = []
    for number, line in enumerate(stored.decode("utf-8", "replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.rstrip())
        if match is None or len(match[1]) != _HEX_DIGITS[algorithm]:
            raise InputError(
                f"{uri}, line {number}: expected {_HEX_DIGITS[algorithm]} hex digits, two spaces "
                f"and a file name, found {line[:80]!r}. Download the list again, or take it away"
            )
        entries.append((match[2].rpartition("/")[2], match[1].lower()))
    return entries
