"""Decompress a file in chunks, and report damage with its position.

Functions do not raise on damage: a `Damage` ends the chunks. A truncated file gives all bytes
before its end. bzip2 has a CRC for each block of up to 900 kB: only blocks with a correct CRC are
returned. gzip and zstd have one checksum at the end.
"""

from __future__ import annotations

import bisect
import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

from pipelines.progress import report_fraction
from schemas.errors import InputError

if TYPE_CHECKING:
    import py7zr

Compression = Literal["plain", "bz2", "gz", "zst", "7z"]
DamageKind = Literal["truncated", "damaged", "page"]

_SIGNATURES: tuple[tuple[bytes, Compression], ...] = (
    (b"BZh", "bz2"),
    (b"\x1f\x8b", "gz"),
    (b"\x28\xb5\x2f\xfd", "zst"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
)
_REFUSED = ((b"\xfd7zXZ\x00", "xz"), (b"PK\x03\x04", "zip"))

_READ = 1 << 18
# An error loses the output of its step, so steps are short: an intact block is lost only if it ends
# within this many bytes of the damage.
_BZ2_STEP = 1 << 10
_ZSTD_STEP = 1 << 12  # the size of the output cannot be limited; a block has at most 128 kB
_OUTPUT = 1 << 20
_7Z_DAMAGE = (EOFError, ValueError, LookupError, TypeError, AttributeError, AssertionError)
# A block has at most 46 MB, so only a bomb of many tiny blocks reaches this size.
_MOST_OUTPUT = 1 << 26


class Chunk(NamedTuple):
    """Decompressed bytes."""

    data: bytes
    start: int
    """Offset of `data` in a plain file; otherwise start of its stream."""

    end: int
    """End of `data` in a plain file; otherwise end of its stream or of the range."""

    position: int
    """Number of stored bytes read for it."""

    is_plain: bool = False
    is_behind: bool = False
    """True if `data` is after the range of the caller."""


class Damage(NamedTuple):
    """Missing or wrong bytes. Nothing follows, except after a page."""

    kind: DamageKind
    """`truncated`: the file ends too early. `damaged`: its bytes are wrong. `page`: one page is not
    valid XML."""

    offset: int
    """Number of stored bytes read when it was noticed."""

    reason: str
    is_behind: bool = False
    """True if it is after the range of the caller."""

    cut_page: bool = False
    """True if an incomplete page is lost."""


def compression_of(head: bytes, *, name: str) -> Compression:
    """Return the compression of a file by its first bytes.

    Raises:
        InputError: The file is another type of archive, or does not match its name.
    """
    for signature, other in _REFUSED:
        if head.startswith(signature):
            raise InputError(
                f"{name}: is a {other} archive. Expected plain, .bz2, .gz, .zst or .7z: recompress "
                "it, e.g. into .zst"
            )
    compression: Compression = next(
        (k for sign, k in _SIGNATURES if head.startswith(sign)), "plain"
    )
    ending = name.lower().rpartition(".")[2]
    named = next((kind for _, kind in _SIGNATURES if kind == ending), "plain")
    if compression == "plain" and named != "plain" and head:
        raise InputError(
            f"{name}: expected a .{named} file, found {head[:8]!r} at its start. It may be an "
            "error page that was saved under this name: download it again"
        )
    return compression


def decompressed(
    source: IO[bytes],
    compression: Compression,
    *,
    start: int,
    end: int,
    streams: Sequence[int] = (),
) -> Iterator[Chunk | Damage]:
    """Yield the bytes from byte `start` to the end of the file.

    They continue after `end`, because the caller may need the rest of a record that begins before
    it; no chunk has bytes of both sides. Only plain and bz2 files can be read from the middle.

    Args:
        source: Stored file; must support seeking.
        start: Start of a stream (bz2), or any byte (plain).
        end: End of the range of the caller. In a bzip2 stream: the byte that has the last bit of a
            block.
        streams: Known offsets of bzip2 streams, which are the ends of those before them.
    """
    source.seek(start)
    chunks: Iterator[Chunk | Damage]
    if compression == "plain":
        chunks = _plain_chunks(source, start=start, end=end)
    elif compression == "bz2":
        chunks = _bz2_chunks(source, start=start, end=end, streams=streams)
    elif compression == "gz":
        chunks = _gzip_chunks(source, end=end)
    elif compression == "zst":
        chunks = _zstd_chunks(source, end=end)
    else:
        chunks = _7z_chunks(source, end=end)
    for chunk in chunks:
        report_fraction((source.tell() - start) / max(1, end - start))
        yield chunk


def _plain_chunks(source: IO[bytes], *, start: int, end: int) -> Iterator[Chunk]:
    position = start
    while True:
        wanted = min(_READ, end - position) if position < end else _READ
        data = source.read(wanted)
        if not data:
            return
        following = position + len(data)
        yield Chunk(data, position, following, following, True, position >= end)
        position = following


def _bz2_chunks(
    source: IO[bytes], *, start: int, end: int, streams: Sequence[int]
) -> Iterator[Chunk | Damage]:
    decoder, stream, position, has_begun = bz2.BZ2Decompressor(), start, start, False
    while chunk := source.read(_READ):
        at = 0
        while at < len(chunk):
            if position == end:  # the caller can stop before more is decompressed
                yield Chunk(b"", stream, stream, position, is_behind=True)
            step = chunk[at : at + min(_BZ2_STEP, end - position if position < end else _BZ2_STEP)]
            at, position, has_begun = at + len(step), position + len(step), True
            is_behind = position > end
            try:
                data = whole_blocks(decoder, step)
            except OSError as error:
                reason = f"the bzip2 stream that starts at byte {stream:,} is damaged ({error})"
                yield Damage("damaged", position, reason, is_behind)
                return
            if data:
                following = end_of_stream(stream, end=end, streams=streams)
                yield Chunk(data, stream, following, position, is_behind=is_behind)
            if decoder.eof:
                at, position = at - len(decoder.unused_data), position - len(decoder.unused_data)
                decoder, stream, has_begun = bz2.BZ2Decompressor(), position, False
    if has_begun:
        reason = f"the bzip2 stream that starts at byte {stream:,} has no end"
        yield Damage("truncated", position, reason, position > end)


def end_of_stream(stream: int, *, end: int, streams: Sequence[int]) -> int:
    """Return the start of the next known stream, or `end`."""
    following = bisect.bisect_right(streams, stream)
    return streams[following] if following < len(streams) else end


def whole_blocks(decoder: bz2.BZ2Decompressor, step: bytes) -> bytes:
    """Return decompressed blocks with a correct CRC. Raises OSError if a CRC is wrong."""
    # libbz2 checks the CRC of a block after its last output byte. So the output is verified only if
    # another call, without input, returns nothing and does not fail.
    out = decoder.decompress(step, _MOST_OUTPUT)
    if not out:
        return b""
    parts, total = [out], len(out)
    while not decoder.eof and total < _MOST_OUTPUT:
        out = decoder.decompress(b"", _MOST_OUTPUT)
        if not out:
            break
        parts.append(out)
        total += len(out)
    return b"".join(parts)


def _gzip_chunks(source: IO[bytes], *, end: int) -> Iterator[Chunk | Damage]:
    with gzip.GzipFile(fileobj=source) as stream:
        try:
            while data := stream.read1(_OUTPUT):
                yield Chunk(data, 0, end, source.tell())
        except EOFError:
            yield Damage("truncated", source.tell(), "the gzip file is cut off")
        except (gzip.BadGzipFile, zlib.error) as error:
            yield Damage("damaged", source.tell(), f"the gzip file is damaged ({error})")


def _zstd_chunks(source: IO[bytes], *, end: int) -> Iterator[Chunk | Damage]:
    # `stream_reader` ends a truncated file without an error.
    import zstandard  # lazy: trainings import the readers of tasks, but read no raw files

    # Windows of up to 2 GiB are what `zstd --long=31` makes.
    frames = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    decoder, frame, position, fed = frames.decompressobj(), 0, 0, False
    while chunk := source.read(_READ):
        at = 0
        while at < len(chunk):
            step = chunk[at : at + _ZSTD_STEP]
            at, position, fed = at + len(step), position + len(step), True
            try:
                data = decoder.decompress(step)
            except zstandard.ZstdError as error:
                reason = f"the zstd frame that starts at byte {frame:,} is damaged ({error})"
                yield Damage("damaged", position, reason)
                return
            if data:
                yield Chunk(data, 0, end, position)
            if decoder.eof:
                at, position = at - len(decoder.unused_data), position - len(decoder.unused_data)
                decoder, frame, fed = frames.decompressobj(), position, False
    if fed:
        reason = f"the zstd frame that starts at byte {frame:,} has no end"
        yield Damage("truncated", position, reason)


def _7z_chunks(source: IO[bytes], *, end: int) -> Iterator[Chunk | Damage]:
    """Yield the only file of an archive. Its directory is at the end, so a cut one has no text."""
    try:
        import py7zr  # lazy: an extra
    except ImportError as error:
        raise InputError(
            f"{_name(source)}: expected the package py7zr, got none. Install it: "
            "pip install 'bertloom[7z]'"
        ) from error
    try:
        with py7zr.SevenZipFile(source) as archive:
            yield from _7z_member(archive, source, end=end)
    except (py7zr.exceptions.ArchiveError, lzma.LZMAError, zlib.error, *_7Z_DAMAGE) as error:
        reason = f"the .7z archive is cut off or damaged ({str(error) or type(error).__name__})"
        yield Damage("damaged", source.tell(), reason)


def _7z_member(archive: py7zr.SevenZipFile, source: IO[bytes], *, end: int) -> Iterator[Chunk]:
    files = [file for file in archive.files if not file.is_directory]
    if len(files) != 1 or archive.needs_password():
        content = "a password" if len(files) == 1 else f"{len(files):,}"
        raise InputError(
            f"{_name(source)}: expected an archive of one file without a password, got {content}. "
            "Unpack it"
        )
    (file,) = files
    # The library's own extraction pushes a file to a writer, in blocks as large as memory allows.
    source.seek(archive.worker.src_start)
    decoder = file.folder.get_decompressor(file.compressed or 0)
    left, crc = file.uncompressed, 0
    while left:
        before = source.tell()
        data = decoder.decompress(source, min(left, _OUTPUT))
        if not data and source.tell() == before:
            raise EOFError("it ends within the file")
        left -= len(data)
        crc = zlib.crc32(data, crc)
        if data:
            yield Chunk(bytes(data), 0, end, source.tell())
    if file.crc32 is not None and crc != file.crc32:
        raise EOFError("the checksum is wrong")


def _name(source: IO[bytes]) -> str:
    return str(getattr(source, "name", ".7z file"))
