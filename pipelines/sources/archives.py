"""Reading the members of .zip and .tar archives one by one, without unpacking them.

Nothing is ever written to disk, and a member's name is only ever used as a name. Members are told
in the archive's order with a `problem` where they must not be read: a name that leads out of the
archive, a link or device, an encrypted or an oversized one.
"""

from __future__ import annotations

import contextlib
import lzma
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Literal, NamedTuple, cast

from pipelines.inputs import open_file
from schemas.errors import CorruptInputError

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
ARCHIVE_SUFFIXES = (".zip", *TAR_SUFFIXES)

Problem = Literal["", "unsafe-name", "not-a-file", "encrypted", "too-large"]

_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    OSError,  # what bz2 raises
)
_TAR_PLAIN = ".tar"


class Member(NamedTuple):
    """One entry of an archive."""

    name: str
    """In Unicode's NFC form, `/` between parts, without a leading `./`."""

    size: int
    """Bytes when unpacked."""

    position: int
    """Of its header: in the file as stored (.zip, .tar), in the unpacked tar (.tar.gz, ...)."""

    data_start: int
    """Of its bytes, where they lie openly in the file as stored (.tar, stored in .zip: of its
    local header); else 0."""

    data_end: int
    """End of them; else the size of the whole archive file."""

    problem: Problem = ""
    is_folder: bool = False


class MemberStream:
    """The unpacked bytes of one member; damage is told as such where it is met.

    Args:
        stream: the bytes.
        uri: the archive.
        name: the member.
    """

    def __init__(self, stream: IO[bytes], *, uri: str, name: str) -> None:
        self._stream, self._uri, self._name = stream, uri, name

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes, fewer only at the end.

        Raises:
            CorruptInputError: the member is cut off or damaged.
        """
        try:
            return self._stream.read(size)
        except _DAMAGE as error:
            raise CorruptInputError(
                f"{self._uri}: the member {self._name!r} is cut off or damaged: {error}. Expected "
                "a whole archive: download it again",
                file=self._uri,
                offset=0,
                last_record=self._name,
            ) from error


def is_archive(name: str) -> bool:
    """Whether a file of that name is read as an archive."""
    return name.lower().endswith(ARCHIVE_SUFFIXES)


def is_seekable(name: str) -> bool:
    """Whether a member can be reached without reading those before it."""
    return name.lower().endswith((".zip", _TAR_PLAIN))


def member_name(name: str) -> str:
    """A member's name in the form that document ids are made of."""
    plain = unicodedata.normalize("NFC", name.replace("\\", "/"))
    while plain.startswith("./"):
        plain = plain[2:]
    return plain


def read_members(
    uri: str,
    *,
    name: str,
    size: int,
    max_bytes: int,
    start: int = 0,
    end: int | None = None,
) -> Iterator[tuple[Member, MemberStream | None]]:
    """The members whose position is in [start, end), each with its unpacked bytes to read.

    The stream is None where the member is a folder or has a problem, and is closed when the next
    member is asked for.

    Args:
        uri: the archive.
        name: its name; its end says which kind it is.
        size: bytes of the archive as stored.
        max_bytes: larger members are not opened.
        start: 0 or a position as an earlier call gave it.
        end: as `start`; None for the end of the archive.

    Raises:
        CorruptInputError: the archive is cut off or damaged.
    """
    last = ""
    source = open_file(uri)
    with contextlib.closing(source):
        try:
            members = (
                _zip_members(source, start=start, end=end, max_bytes=max_bytes)
                if name.lower().endswith(".zip")
                else _tar_members(
                    source, name=name, size=size, start=start, end=end, max_bytes=max_bytes
                )
            )
            for member, stream in members:
                guarded = MemberStream(stream, uri=uri, name=member.name) if stream else None
                yield member, guarded
                last = member.name
        except _DAMAGE as error:
            raise CorruptInputError(
                f"{uri}: the archive is cut off or damaged after the member {last or '(none)'!r}: "
                f"{error or type(error).__name__}. Expected a whole {name.rpartition('.')[2]} "
                f"archive of {size:,} bytes: download it again",
                file=uri,
                offset=_position(source),
                last_record=last,
            ) from error


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
    source: IO[bytes], *, start: int, end: int | None, max_bytes: int
) -> Iterator[tuple[Member, IO[bytes] | None]]:
    with zipfile.ZipFile(source) as archive:
        entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
        for entry, following in zip(entries, [*entries[1:], None], strict=True):
            if entry.header_offset < start or (end is not None and entry.header_offset >= end):
                continue
            member = _zip_member(entry, following, archive, max_bytes=max_bytes)
            if member.is_folder or member.problem:
                yield member, None
                continue
            with archive.open(entry) as stream:
                yield member, stream


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


def _tar_members(
    source: IO[bytes], *, name: str, size: int, start: int, end: int | None, max_bytes: int
) -> Iterator[tuple[Member, IO[bytes] | None]]:
    plain = name.lower().endswith(_TAR_PLAIN)
    mode = "r:" if plain else f"r|{_tar_compression(name)}"
    if plain:
        source.seek(start)
    # A compressed one is a stream: members before `start` are unpacked and passed over, not kept.
    with tarfile.open(fileobj=source, mode=mode) as archive:  # type: ignore[call-overload]
        while (entry := archive.next()) is not None:
            archive.members = []  # it would remember every member
            if end is not None and entry.offset >= end:
                return
            if entry.offset < start:
                continue
            member = _tar_member(entry, size=size, plain=plain, max_bytes=max_bytes)
            stream = None
            if not member.is_folder and not member.problem:
                stream = cast("IO[bytes]", archive.extractfile(entry))
            yield member, stream


def _tar_compression(name: str) -> str:
    lowered = name.lower()
    if lowered.endswith((".tar.bz2", ".tbz2")):
        return "bz2"
    return "xz" if lowered.endswith((".tar.xz", ".txz")) else "gz"


def _tar_member(entry: tarfile.TarInfo, *, size: int, plain: bool, max_bytes: int) -> Member:
    name = member_name(entry.name)
    return Member(
        name=name,
        size=entry.size,
        position=entry.offset,
        data_start=entry.offset_data if plain else 0,
        data_end=entry.offset_data + entry.size if plain else size,
        problem=_problem(name, regular=entry.isreg(), size=entry.size, max_bytes=max_bytes),
        is_folder=entry.isdir(),
    )
