"""Read the members of .zip and .tar archives one by one, without unpacking them.

Members are not written to disk, and their names are not used as paths. They are read in the order
of the archive. A `problem` marks members that must not be read: an unsafe name, a link or device,
an encrypted or oversized member, an unknown method. A truncated or damaged archive is an error,
also if `tarfile` would treat the damage as its end.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import lzma
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Literal, NamedTuple

import zstandard

from pipelines.io.raw_files import open_file
from pipelines.io.splits import SourceFile
from pipelines.sources import tar_members
from pipelines.sources.unpacked_tars import decompress_tar, open_unpacked
from schemas.errors import CorruptInputError

TAR_SUFFIXES = (
    *(".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst"),
)
ARCHIVE_SUFFIXES = (".zip", *TAR_SUFFIXES)

Problem = Literal["", "unsafe-name", "not-a-file", "encrypted", "too-large", "unknown-method"]

_DAMAGE = (
    zipfile.BadZipFile,
    tar_members.TarError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zstandard.ZstdError,
    NotImplementedError,  # a directory of an unknown version
    UnicodeDecodeError,  # names that are marked as UTF-8
    struct.error,
    OverflowError,
    OSError,  # raised by bz2
)
_TAR_PLAIN = ".tar"


class Member(NamedTuple):
    """Entry of an archive."""

    name: str
    """Name in Unicode NFC with `/` between parts, without a leading `./`."""

    size: int
    """Unpacked size in bytes."""

    position: int
    """Offset of its header in the stored file (.zip, .tar) or in the unpacked tar (others)."""

    data_start: int
    """Offset of its bytes in a .tar, or of its local header in a .zip if it is not compressed; 0
    otherwise."""

    data_end: int
    """End of these bytes, or the size of the archive file."""

    problem: Problem = ""
    is_folder: bool = False
    name_encoding: str = "utf-8"
    """Encoding of the name."""


class MemberStream:
    """Unpacked bytes of one member. Damage raises an error when it is read.

    Args:
        stream: Unpacked bytes of the member.
        uri: URL of the archive, for errors.
        name: Name of the member, for errors.
    """

    def __init__(self, stream: IO[bytes], *, uri: str, name: str) -> None:
        self._stream, self._uri, self._name = stream, uri, name

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, fewer only at the end.

        Raises:
            CorruptInputError: The member is truncated or damaged.
        """
        try:
            return self._stream.read(size)
        except _DAMAGE as error:
            if _is_system_error(error):
                raise
            raise CorruptInputError(
                f"{self._uri}: the member {self._name!r} is cut off or damaged: "
                f"{error or type(error).__name__}. Expected a whole archive: download it again",
                file=self._uri,
                offset=0,
                last_record=self._name,
            ) from error


def is_archive(name: str) -> bool:
    """Return whether a file with this name is read as an archive."""
    return name.lower().endswith(ARCHIVE_SUFFIXES)


def is_compressed_tar(name: str) -> bool:
    """Return whether a member can only be read after unpacking the members before it."""
    return is_archive(name) and not name.lower().endswith((".zip", _TAR_PLAIN))


def member_name(name: str) -> str:
    """Return the name of a member as it is used in document ids."""
    plain = unicodedata.normalize("NFC", name.replace("\\", "/"))
    while plain.startswith("./"):
        plain = plain[2:]
    return plain


def read_members(
    file: SourceFile, *, max_bytes: int, start: int = 0, end: int | None = None
) -> Iterator[tuple[Member, MemberStream | None]]:
    """Yield the members with a position in [start, end) and a stream of their unpacked bytes.

    The stream is None for a folder or a member with a problem, and is closed when the next member
    is requested. A complete compressed tar is read as a stream; for parts of it one unpacked copy
    is created per machine (`pipelines.sources.unpacked_tars`).

    Args:
        file: The archive. Its suffix decides the format.
        max_bytes: Maximum size of members that are opened.
        start: 0 or the position of a member.
        end: Position of a member; None for the end of the archive.

    Raises:
        CorruptInputError: The archive is truncated or damaged.
    """
    last = ""
    is_part = start > 0 or end is not None
    source = open_file(file.uri)
    with contextlib.closing(source):
        try:
            for member, stream in _members(
                source, file, start=start, end=end, max_bytes=max_bytes, is_part=is_part
            ):
                guarded = MemberStream(stream, uri=file.uri, name=member.name) if stream else None
                yield member, guarded
                last = member.name
        except _DAMAGE as error:
            if _is_system_error(error):
                raise
            raise CorruptInputError(
                f"{file.uri}: the archive is cut off or damaged after the member "
                f"{last or '(none)'!r}: {error or type(error).__name__}. Expected a whole "
                f"{file.name.rpartition('.')[2]} archive of {file.size:,} bytes: download it again",
                file=file.uri,
                offset=_position(source),
                last_record=last,
            ) from error


def _members(
    source: IO[bytes],
    file: SourceFile,
    *,
    start: int,
    end: int | None,
    max_bytes: int,
    is_part: bool,
) -> Iterator[tuple[Member, IO[bytes] | None]]:
    if file.name.lower().endswith(".zip"):
        yield from _zip_members(source, file, start=start, end=end, max_bytes=max_bytes)
        return
    plain = not is_compressed_tar(file.name)
    with contextlib.ExitStack() as stack:
        stored = source
        if not plain:
            stored = stack.enter_context(
                open_unpacked(file) if is_part else decompress_tar(source, name=file.name)
            )
        stream = not plain and not is_part
        entries = tar_members.read_entries(stored, start=start, end=end, is_stream=stream)
        for entry, data in entries:
            name, encoding = tar_members.decoded_name(entry.name)
            member = Member(
                name=member_name(name),
                size=entry.size,
                position=entry.offset,
                data_start=entry.offset_data if plain else 0,
                data_end=entry.offset_data + entry.size if plain else file.size,
                is_folder=entry.isdir(),
                name_encoding=encoding,
            )
            # A sparse file is not text, and its map can be invalid.
            regular = entry.isreg() and not entry.issparse()
            problem = _problem(member.name, regular=regular, size=entry.size, max_bytes=max_bytes)
            readable = not member.is_folder and not problem
            yield member._replace(problem=problem), data() if readable else None


def _is_system_error(error: Exception) -> bool:
    """Return whether an error comes from this machine, such as a full disk, and not from damage."""
    # A damaged archive may make its reader seek to a negative offset: EINVAL.
    return isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)


def _position(source: IO[bytes]) -> int:
    try:
        return source.tell()
    except (OSError, ValueError):
        return 0


def _problem(name: str, *, regular: bool, size: int, max_bytes: int) -> Problem:
    parts = name.split("/")
    drive = len(name) > 1 and name[1] == ":"
    if not name or name.startswith("/") or drive or ".." in parts or "\0" in name:
        return "unsafe-name"
    if not regular:
        return "not-a-file"
    return "too-large" if size > max_bytes else ""


def _zip_members(
    source: IO[bytes], file: SourceFile, *, start: int, end: int | None, max_bytes: int
) -> Iterator[tuple[Member, IO[bytes] | None]]:
    with zipfile.ZipFile(source) as archive:
        entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
        first = entries[0].header_offset if entries else archive.start_dir
        _refuse_hidden_zip(source, file, first=first)
        for entry, following in itertools.zip_longest(entries, entries[1:]):
            if entry.header_offset < start or (end is not None and entry.header_offset >= end):
                continue
            member = _zip_member(entry, following, archive, max_bytes=max_bytes)
            if member.is_folder or member.problem:
                yield member, None
                continue
            try:
                stream = archive.open(entry)
            except NotImplementedError:  # an unsupported compression or encryption
                yield member._replace(problem="unknown-method"), None
                continue
            with stream:
                yield member, stream


def _refuse_hidden_zip(source: IO[bytes], file: SourceFile, *, first: int) -> None:
    """Refuse a zip before the first member, as `cat a.zip b.zip` makes: no directory lists it."""
    source.seek(0)
    if first > 0 and source.read(4) == b"PK\x03\x04":
        raise CorruptInputError(
            f"{file.uri}: expected one zip archive, got two: the second begins at byte {first:,}. "
            "Separate them",
            file=file.uri,
            offset=first,
        )


def _zip_member(
    entry: zipfile.ZipInfo,
    following: zipfile.ZipInfo | None,
    archive: zipfile.ZipFile,
    *,
    max_bytes: int,
) -> Member:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    name = member_name(entry.orig_filename)
    problem = _problem(
        name, regular=kind in (0, stat.S_IFREG), size=entry.file_size, max_bytes=max_bytes
    )
    if not problem and entry.flag_bits & 0x1:
        problem = "encrypted"
    return Member(
        name=name,
        size=entry.file_size,
        position=entry.header_offset,
        data_start=entry.header_offset,
        data_end=following.header_offset if following is not None else archive.start_dir,
        problem=problem,
        is_folder=entry.is_dir(),
    )
