"""Read the entries of a tar, and report any damage.

Concatenated tars (`cat a.tar b.tar`) are read completely, as with `tar --ignore-zeros`.

`tarfile` stops without an error at a header with a wrong checksum and at a truncation between two
members. Negative sizes cause an endless loop, and invalid extended headers various errors. All of
these raise `TarError` with the offset.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from typing import IO, Any

TarError = tarfile.TarError

_LARGEST_EXTENSION = 1 << 20
"""Maximum size of an extended header or a long name in bytes. It limits memory."""

_LARGEST_FILE = 1 << 62
"""Maximum size of a file in bytes."""

_EXTENSIONS = frozenset(
    {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE}
    | {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
)
_INVALID_HEADER_ERRORS = (
    ValueError,
    OverflowError,
    IndexError,
    KeyError,
    RecursionError,
    MemoryError,
)


def read_entries(
    stored: IO[bytes], *, start: int, end: int | None, is_stream: bool
) -> Iterator[tuple[tarfile.TarInfo, Callable[[], IO[bytes]]]]:
    """Yield the entries in [start, end), each with a function that opens it until the next is read.

    Args:
        stored: The unpacked tar.
        start: 0 or the position of an entry.
        end: Position of an entry; None for the end.
        is_stream: `stored` does not support seeking.

    Raises:
        TarError: The tar is truncated or damaged.
    """
    if not is_stream:
        stored.seek(start)
    # Explicit encoding: names must not depend on the encoding of the machine.
    with _Archive.open(
        fileobj=stored,
        mode="r|" if is_stream else "r:",
        tarinfo=_StrictEntry,
        ignore_zeros=True,
        encoding="utf-8",
        errors="surrogateescape",
    ) as archive:
        while (entry := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined] # it would remember every member
            if end is not None and entry.offset >= end:
                return
            if entry.offset >= start:
                yield entry, lambda entry=entry: _opened(archive, entry)  # type: ignore[misc]


def _opened(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    return archive.extractfile(entry) or io.BytesIO()


def decoded_name(name: str) -> tuple[str, str]:
    """Return the name of a member and its encoding: UTF-8, or that of Western tools."""
    stored = name.encode("utf-8", "surrogateescape")
    for encoding in ("utf-8", "windows-1252"):
        try:
            return stored.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    return stored.decode("iso-8859-1"), "iso-8859-1"


class _Archive(tarfile.TarFile):
    has_ended = False
    """True after the zeros that end a tar, until the next entry."""


class _StrictEntry(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _StrictEntry:
        if buf and not buf.strip(b"\0"):  # the last block may be shorter than the others
            raise tarfile.EOFHeaderError("end of file header")  # type: ignore[attr-defined]
        return super().frombuf(buf, encoding, errors)

    @classmethod
    def fromtarfile(cls, archive: _Archive) -> _StrictEntry:  # type: ignore[override]
        at = archive.offset
        try:
            entry = super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            archive.has_ended = True
            archive.pax_headers = {}  # global headers apply only to their tar
            raise  # tarfile continues with the next block
        except tarfile.EmptyHeaderError as error:  # type: ignore[attr-defined]
            if archive.has_ended:
                raise
            words = f"it ends at byte {at:,} without the empty blocks that end a tar"
            raise tarfile.ReadError(words) from error
        except (tarfile.HeaderError, *_INVALID_HEADER_ERRORS) as error:
            words = f"no valid header at byte {at:,} ({error or type(error).__name__})"
            raise tarfile.ReadError(words) from error
        if not 0 <= entry.size < _LARGEST_FILE:
            raise tarfile.ReadError(f"the header at byte {at:,} gives {entry.size:,} bytes")
        archive.has_ended = False
        return entry

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.size < 0 or (self.type in _EXTENSIONS and self.size > _LARGEST_EXTENSION):
            raise tarfile.ReadError(f"a header before byte {archive.offset:,} gives {self.size:,}")
        return super()._proc_member(archive)  # type: ignore[misc]
