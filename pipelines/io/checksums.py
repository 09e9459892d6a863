"""Comparing files with the lists of checksums that are published beside them.

Wikimedia puts `enwiki-20250101-sha1sums.txt` and `-md5sums.txt` into the folder of each dump: one
line a file, `hex  name`, as `sha1sum` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from pipelines.io.raw_files import FileDigests, digest_file, list_folder_of, open_file
from schemas.errors import ChecksumError, InputError
from schemas.redaction import public_address

# Where two lists name one file, the stronger digest counts.
_ALGORITHMS = ("sha256", "sha1", "md5")
_LIST = re.compile(r"(?:^|.*[-_.])(sha256|sha1|md5)sums?(?:\.txt|[-_.].*\.txt)?$", re.IGNORECASE)
_LINE = re.compile(r"([0-9A-Fa-f]+) [ *](.+)")
_HEX_DIGITS = {"sha256": 64, "sha1": 40, "md5": 32}
_MOST_BYTES = 64 << 20


class PublishedChecksum(NamedTuple):
    """What a list says of one file."""

    algorithm: str
    hex_digest: str
    uri: str
    """Where the list is."""


def is_checksum_list(name: str) -> bool:
    """Whether a file's name is that of a list, such as `enwiki-20250101-sha1sums.txt`."""
    return _LIST.match(name.rpartition("/")[2]) is not None


def published_checksums(
    uris: Iterable[str], *, algorithms: Sequence[str] = _ALGORITHMS
) -> dict[str, PublishedChecksum]:
    """What the lists in the files' own folders say of them; each list is read once.

    Args:
        uris: of the files.
        algorithms: of the lists that are read.

    Returns:
        file's uri to its checksum; files that no list names are left out.

    Raises:
        InputError: a list has a line that is none.
    """
    lists: dict[str, Mapping[str, PublishedChecksum]] = {}
    found: dict[str, PublishedChecksum] = {}
    for uri in uris:
        folder, _, base = public_address(uri).rpartition("/")
        if folder not in lists:
            lists[folder] = _read_lists(uri, algorithms=algorithms)
        if base in lists[folder]:
            found[uri] = lists[folder][base]
    return found


def verify_file(
    uri: str,
    published: PublishedChecksum | None,
    *,
    beside: Callable[[bytes], object] | None = None,
) -> tuple[FileDigests, str]:
    """Digests the file, and compares it with its published checksum if it has one.

    Args:
        uri: of the file.
        published: what a list says of it.
        beside: given all bytes in turn, where they are read.

    Returns:
        its digests, sha256 among them, and the checksum it was verified against, `sha1:...`; "" if
        none. All are computed in one pass and remembered: see `pipelines.io.raw_files.digest_file`.

    Raises:
        ChecksumError: the file is not the one that the list names.
        InputError: the file cannot be read.
    """
    if published is None:
        return digest_file(uri, beside=beside), ""
    algorithm, expected, where = published
    read = digest_file(uri, algorithms=("sha256", algorithm), beside=beside)
    if read.digests[algorithm] != expected:
        raise ChecksumError(
            f"{uri}: expected {algorithm} {expected}, as {where} says, found "
            f"{read.digests[algorithm]} ({read.size:,} bytes). Download the file again; if it was "
            "changed on purpose, take it out of the list or set verify_checksums to false"
        )
    return read, f"{algorithm}:{expected}"


def _read_lists(beside: str, *, algorithms: Sequence[str]) -> Mapping[str, PublishedChecksum]:
    known: dict[str, PublishedChecksum] = {}
    for uri, name in list_folder_of(beside):
        match = _LIST.match(name)
        algorithm = match[1].lower() if match is not None else ""
        if algorithm not in algorithms:
            continue
        for file_name, digest in _read_list(uri, algorithm=algorithm):
            other = known.get(file_name)
            if other is None or _rank(algorithm) < _rank(other.algorithm):
                known[file_name] = PublishedChecksum(algorithm, digest, uri)
            elif other.algorithm == algorithm and other.hex_digest != digest:
                raise ChecksumError(
                    f"{file_name}: {other.uri} says {algorithm} {other.hex_digest}, but {uri} says "
                    f"{digest}. Take the list away that is out of date"
                )
    return known


def _rank(algorithm: str) -> int:
    return _ALGORITHMS.index(algorithm)


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
