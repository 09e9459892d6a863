"""Read the members of .zip and .tar archives one by one, without unpacking them.

Names of members are not used as paths, so none is unsafe. Members are read in the order of the
archive. A `problem` marks members that must not be read: a link or device, an encrypted or
oversized member, an unknown method. Concatenated tars (`cat a.tar b.tar`) are read completely, as
with `tar --ignore-zeros`. A truncated or damaged archive is an error, also if `tarfile` would treat
the damage as its end.

A .tar.gz, .bz2, .xz or .zst is one stream, which only one worker can read.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import functools
import gzip
import io
import itertools
import logging
import lzma
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, Literal, NamedTuple

import zstandard

from pipelines.io.raw_files import open_file
from pipelines.io.splits import SourceFile
from pipelines.io.user_cache import cache_value, cached_value
from schemas.errors import CorruptInputError

TAR_SUFFIXES = (
    *(".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst"),
)
ARCHIVE_SUFFIXES = (".zip", *TAR_SUFFIXES)

Problem = Literal["", "not-a-file", "encrypted", "too-large", "unknown-method"]

_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
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
_log = logging.getLogger(__name__)


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
    """Unpacked bytes of one member. Damage raises an error when it is read."""

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
                f"{str(error) or type(error).__name__}. Expected a whole archive: download it "
                "again",
                file=self._uri,
                offset=0,
                last_record=self._name,
            ) from error


def is_archive(name: str) -> bool:
    """Return whether a file with this name is read as an archive."""
    return name.lower().endswith(ARCHIVE_SUFFIXES)


def is_compressed_tar(name: str) -> bool:
    """Return whether a member can only be read after decompressing the members before it."""
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
    is requested.

    Args:
        file: The archive. Its suffix decides the format.
        max_bytes: Maximum size of members that are opened.
        start: 0 or the position of a member. Must be 0 in a compressed tar.
        end: Position of a member; None for the end of the archive, also of a compressed tar.

    Raises:
        CorruptInputError: The archive is truncated or damaged.
    """
    last = ""
    source = open_file(file.uri)
    with contextlib.closing(source):
        try:
            members = _zip_members if file.name.lower().endswith(".zip") else _tar_members
            for member, stream in members(source, file, start=start, end=end, max_bytes=max_bytes):
                guarded = MemberStream(stream, uri=file.uri, name=member.name) if stream else None
                yield member, guarded
                last = member.name
        except _DAMAGE as error:
            if _is_system_error(error):
                raise
            raise CorruptInputError(
                f"{file.uri}: the archive is cut off or damaged after the member "
                f"{last or '(none)'!r}: {str(error) or type(error).__name__}. Expected a whole "
                f"{file.name.rpartition('.')[2]} archive of {file.size:,} bytes: download it again",
                file=file.uri,
                offset=_position(source),
                last_record=last,
            ) from error


class PlannedMember(NamedTuple):
    """Entry of an archive before it is read."""

    name: str
    size: int
    position: int


@functools.lru_cache(maxsize=64)
def list_members(file: SourceFile) -> tuple[PlannedMember, ...]:
    """Return the files of an archive in order. Those of a compressed tar are cached, because it
    must be decompressed to list them.

    Raises:
        CorruptInputError: The archive is truncated or damaged.
    """
    is_cached = is_compressed_tar(file.name)
    known = cached_value("members", file.sha256) if is_cached else None
    if known is None:
        known = [
            (member.name, member.size, member.position)
            for member, _ in read_members(file, max_bytes=0)
            if not member.is_folder
        ]
        if is_cached:
            cache_value("members", file.sha256, known)
    return tuple(PlannedMember(*member) for member in known)


@functools.cache
def warn_of_one_worker(uri: str) -> None:
    """Warn that a large compressed tar is read by one worker."""
    _log.warning("%s is read by one worker. Unpack it to read it in parallel", uri)


def _tar_members(
    source: IO[bytes], file: SourceFile, *, start: int, end: int | None, max_bytes: int
) -> Iterator[tuple[Member, IO[bytes] | None]]:
    is_stream = is_compressed_tar(file.name)
    with (
        decompress_tar(source, name=file.name) if is_stream else contextlib.nullcontext(source)
    ) as stored:
        for entry, data in read_entries(stored, start=start, end=end, is_stream=is_stream):
            name, encoding = decoded_name(entry.name)
            # A sparse file is not text, and its map can be invalid.
            is_file = entry.isreg() and not entry.issparse()
            member = Member(
                name=member_name(name),
                size=entry.size,
                position=entry.offset,
                data_start=0 if is_stream else entry.offset_data,
                data_end=file.size if is_stream else entry.offset_data + entry.size,
                problem=_problem(is_file=is_file, size=entry.size, max_bytes=max_bytes),
                is_folder=entry.isdir(),
                name_encoding=encoding,
            )
            yield member, None if member.is_folder or member.problem else data()


def _is_system_error(error: Exception) -> bool:
    """Return whether an error comes from this machine, such as a full disk, and not from damage."""
    # A damaged archive may make its reader seek to a negative offset: EINVAL.
    return isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)


def _position(source: IO[bytes]) -> int:
    try:
        return source.tell()
    except (OSError, ValueError):
        return 0


def _problem(*, is_file: bool, size: int, max_bytes: int) -> Problem:
    if not is_file:
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
    is_file = kind in (0, stat.S_IFREG)
    problem = _problem(is_file=is_file, size=entry.file_size, max_bytes=max_bytes)
    if not problem and entry.flag_bits & 0x1:
        problem = "encrypted"
    return Member(
        name=member_name(entry.orig_filename),
        size=entry.file_size,
        position=entry.header_offset,
        data_start=entry.header_offset,
        data_end=following.header_offset if following is not None else archive.start_dir,
        problem=problem,
        is_folder=entry.is_dir(),
    )


_LARGEST_EXTENSION = 1 << 20
"""Maximum size of an extended header or a long name in bytes. It limits memory."""

_LARGEST_FILE = 1 << 40
"""Maximum size of a file in bytes."""

_STREAM_BUFFER = 1 << 20
"""Bytes per read of a stream. tarfile skips a file in such steps, also behind the end of a damaged
archive: with this size and `_LARGEST_FILE` in some seconds."""

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

    Raises:
        tarfile.TarError: The tar is truncated or damaged.
    """
    if not is_stream:
        stored.seek(start)
    # Explicit encoding: names must not depend on the encoding of the machine.
    with _Archive.open(
        fileobj=stored,
        mode="r|" if is_stream else "r:",
        bufsize=_STREAM_BUFFER,
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
            words = f"no valid header at byte {at:,} ({error})"
            raise tarfile.ReadError(words) from error
        if not 0 <= entry.size < _LARGEST_FILE:
            raise tarfile.ReadError(f"the header at byte {at:,} gives {entry.size:,} bytes")
        archive.has_ended = False
        return entry

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.size < 0 or (self.type in _EXTENSIONS and self.size > _LARGEST_EXTENSION):
            raise tarfile.ReadError(f"a header before byte {archive.offset:,} gives {self.size:,}")
        return super()._proc_member(archive)  # type: ignore[misc]


@contextlib.contextmanager
def decompress_tar(source: IO[bytes], *, name: str) -> Iterator[IO[bytes]]:
    """Open the unpacked tar as a stream. The suffix of `name` decides the compression."""
    lowered = name.lower()
    opened: Any
    if lowered.endswith((".bz2", ".tbz2")):
        opened = bz2.BZ2File(source)
    elif lowered.endswith((".xz", ".txz")):
        opened = lzma.LZMAFile(source)  # noqa: SIM115 - closed below
    elif lowered.endswith((".zst", ".tzst")):
        frames = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        opened = frames.stream_reader(source, read_across_frames=True)
    else:
        opened = gzip.GzipFile(fileobj=source)
    with opened as stream:
        yield stream
