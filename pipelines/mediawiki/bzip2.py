"""Split a long bzip2 stream at its blocks, and read it from one of them.

A block begins with a mark of 48 bits at any bit of a byte. These bits also occur within blocks, by
chance (once in 2**48 positions) or on purpose, so `block_at_or_after` decompresses a block before a
split starts there. A reader does not search for blocks: it gives the decoder the bits from one
planned block to the next, and the decoder checks the CRC of each block. The CRC of a stream is
checked where one split has the whole stream.

`indexed_bzip2` and `rapidgzip` are not used: on one core they are not faster than `bz2`, and they
report damage without its position.

Format: https://github.com/dsnet/compress/blob/master/doc/bzip2-format.pdf
"""

from __future__ import annotations

import bz2
import hashlib
import io
import re
from collections.abc import Generator, Iterator, Sequence
from typing import IO, NamedTuple

from pipelines.io.compression import Chunk, Damage, decompressed, end_of_stream, whole_blocks
from pipelines.io.file_systems import SMALL_READ_AHEAD
from pipelines.io.raw_files import open_file, parallel_map
from pipelines.io.splits import SourceFile
from pipelines.io.user_cache import cache_value, cached_value
from pipelines.progress import report_fraction

_BLOCK, _END = 0x314159265359, 0x177245385090
_MARK = (1 << 48) - 1
_MARK_BYTES = 7  # bytes that a mark touches
_END_BITS, _CRC_BITS = 80, 32  # a stream ends with a mark and its CRC
_STREAM_HEADER = b"BZh9"  # a smaller block size only limits the blocks
_READ = 1 << 18
_STEP = 1 << 10  # an error loses the output of its step
_SHORT_STEP = 8  # less than the end of a stream
_END_OF_FILE = 1 << 62
# A false mark fails within a few hundred bytes, except in malicious files.
_MOST_TRIES = 16
_CUTS_VERSION = "2"


class BlockRange(NamedTuple):
    """Part of a bzip2 file from a stream or a block to another one, or to the end of the file."""

    start: int
    """Byte in which the range begins."""

    end: int
    """Byte in which the next range begins, or the size of the file."""

    shift: int | None
    """Bit of the first byte in which a block begins; None for the start of a stream."""

    end_shift: int
    """Bit of the byte `end` in which the next range begins."""


def read_range(
    source: IO[bytes], part: BlockRange, *, streams: Sequence[int]
) -> Iterator[Chunk | Damage]:
    """Yield the contents of a range and of what follows it.

    Args:
        source: Stored file; must support seeking.
        part: Range to read.
        streams: Known offsets of streams, from the last one before the range to the first one
            behind it, or the size of the file.
    """
    start: int | None = part.start
    if part.shift is not None:
        start = yield from _finish_stream(source, part, streams)
    if start is not None:
        # The decoder needs the whole byte that has the last bit of the range.
        end = part.end + (part.end_shift > 0)
        yield from decompressed(source, "bz2", start=start, end=end, streams=streams)


def _finish_stream(
    source: IO[bytes], part: BlockRange, streams: Sequence[int]
) -> Generator[Chunk | Damage, None, int | None]:
    """Yield the blocks from the start of a range to the end of the stream.

    Returns:
        Start of the next stream; None after the last stream or after damage.
    """
    first, last = 8 * part.start + (part.shift or 0), 8 * part.end + part.end_shift
    size = source.seek(0, io.SEEK_END)
    following = end_of_stream(part.start, end=size, streams=streams)
    stop = _end_mark_before(source, following)
    stream = streams[0] if streams else 0
    decoder, is_behind = _new_decoder(), False
    for data, bit in _steps(source, first, cut=last, stop=stop or 8 * size):
        position = min(size, -(-bit // 8))
        report_fraction((position - part.start) / max(1, part.end - part.start))
        try:
            content = whole_blocks(decoder, data)
        except OSError as error:
            yield Damage("damaged", position, _damage_near(position, error), is_behind)
            return None
        if content:
            yield Chunk(content, stream, following, position, is_behind=is_behind)
        if bit == last:
            is_behind = True
            yield Chunk(b"", stream, following, position, is_behind=True)
    if stop is None:
        reason = f"the bzip2 stream that starts at byte {stream:,} has no end"
        yield Damage("truncated", size, reason, is_behind)
        return None
    if not _is_between_blocks(decoder):
        yield Damage("damaged", following, _damage_near(following, "a block has no end"), is_behind)
        return None
    return following if following < size else None


def _damage_near(position: int, error: object) -> str:
    return f"the bzip2 block near byte {position:,} is damaged ({error})"


def _new_decoder() -> bz2.BZ2Decompressor:
    """Return a decoder to which the bits of a block can be fed."""
    decoder = bz2.BZ2Decompressor()
    decoder.decompress(_STREAM_HEADER)
    return decoder


def _is_between_blocks(decoder: bz2.BZ2Decompressor) -> bool:
    """Return whether a decoder expects a mark: it refuses other bits."""
    try:
        decoder.decompress(bytes(_MARK_BYTES))
    except OSError:
        return True
    return False


def _end_mark_before(source: IO[bytes], following: int) -> int | None:
    """Return the bit at which the end of the stream before a byte begins; None if it has no end."""
    length = min(following, _MARK_BYTES + _CRC_BITS // 8 + 1)
    source.seek(following - length)
    tail = int.from_bytes(source.read(length), "big")
    for padding in range(8):
        if tail >> padding + _CRC_BITS & _MARK == _END:
            return 8 * following - padding - _END_BITS
    return None


def _steps(
    source: IO[bytes], first: int, *, cut: int, stop: int, step: int = _STEP
) -> Iterator[tuple[bytes, int]]:
    """Yield the bits of a file as short pieces of whole bytes, with the bit after each piece.

    Args:
        source: Stored file.
        first: First bit.
        cut: Bit at which a piece must end. Its last byte can have bits of the next piece, too.
        stop: Bit at which the last piece ends, likewise.
        step: Maximum length of a piece in bytes.
    """
    at = 0  # bytes that were yielded
    ends = [(-(-(bit - first) // 8), bit) for bit in (cut, stop) if bit <= stop]
    for data in _shifted(source, first):
        begin = 0
        while begin < len(data) and ends:
            (end, bit), *others = ends
            piece = data[begin : begin + min(step, end - at)]
            begin, at = begin + len(piece), at + len(piece)
            yield piece, bit if at == end else first + 8 * at
            ends = others if at == end else ends
        if not ends:
            return


def _shifted(source: IO[bytes], first: int) -> Iterator[bytes]:
    """Yield the bits of a file from one of them as bytes. Zeros fill the last byte."""
    start, shift = divmod(first, 8)
    source.seek(start)
    rest = b""
    while chunk := source.read(_READ):
        data = rest + chunk
        rest = data[-1:]
        number = int.from_bytes(data, "big") >> 8 - shift
        length = len(data) - 1
        yield (number & (1 << 8 * length) - 1).to_bytes(length, "big")
    if rest:
        yield bytes([rest[0] << shift & 0xFF])


def split_at_blocks(
    file: SourceFile, *, start: int, end: int, target_split_bytes: int
) -> list[tuple[int, int]]:
    """Return blocks at which to split a range of a file, about every `target_split_bytes`.

    Several threads read only the bytes around these offsets. The result is cached by the digest of
    the file (`pipelines.io.user_cache`).

    Args:
        file: A .bz2 file.
        start: Start of the range in the stored file.
        end: End of the range.
        target_split_bytes: Target length of a split. The last one can be half as long again.

    Returns:
        (byte, bit) of the starts of blocks, ascending.
    """
    targets = range(start + target_split_bytes, end - target_split_bytes // 2, target_split_bytes)
    if not targets:
        return []
    asked = f"{_CUTS_VERSION} {file.sha256} {start} {end} {target_split_bytes}"
    digest = hashlib.sha256(asked.encode()).hexdigest()
    bits = cached_value("cuts", digest) if file.sha256 else None
    if bits is None:

        def find(target: int) -> int | None:
            return block_at_or_after(file.uri, target, before=min(target + target_split_bytes, end))

        bits = [bit for bit in parallel_map(find, targets) if bit is not None]
        if file.sha256:
            cache_value("cuts", digest, bits)
    return [divmod(bit, 8) for bit in bits]


def block_at_or_after(uri: str, start: int, *, before: int) -> int | None:
    """Return the bit at which the first block at or after a byte begins, or None.

    A mark is accepted if a block with a correct CRC follows it.
    """
    position, rest, tries = start, b"", 0
    with open_file(uri, ahead=SMALL_READ_AHEAD) as source:
        while position < before:
            source.seek(position)
            data = rest + source.read(_READ)
            if len(data) == len(rest):
                return None
            for bit in find_marks(data):
                mark = 8 * (position - len(rest)) + bit
                if mark >= 8 * before or tries == _MOST_TRIES:
                    return None
                if _is_block(source, mark):
                    return mark
                tries += 1
            position += len(data) - len(rest)
            rest = data[1 - _MARK_BYTES :]
    return None


def _is_block(source: IO[bytes], mark: int) -> bool:
    """Return whether a whole block with a correct CRC begins at a bit."""
    # The last block of a stream is lost with the end of the stream, unless they are in two steps.
    return any(_has_content(source, mark, step) for step in (_STEP, _SHORT_STEP))


def _has_content(source: IO[bytes], mark: int, step: int) -> bool:
    decoder, end = _new_decoder(), _END_OF_FILE
    try:
        steps = _steps(source, mark, cut=end, stop=end, step=step)
        return any(whole_blocks(decoder, data) for data, _ in steps)
    except (OSError, EOFError):
        return False


def _patterns() -> dict[bytes, int]:
    """Return the five whole bytes that a mark of a block has at each bit, and the bit."""
    return {(_BLOCK << 8 - shift).to_bytes(7, "big")[1:6]: shift for shift in range(8)}


_PATTERNS = _patterns()
# Marks can overlap, so matches are empty.
_WHOLE_BYTES = re.compile(b"(?=(%s))" % b"|".join(map(re.escape, _PATTERNS)))


def find_marks(data: bytes) -> list[int]:
    """Return the bit offsets of the marks of blocks in the data, ascending."""
    marks = []
    for match in _WHOLE_BYTES.finditer(data):
        shift, start = _PATTERNS[match[1]], match.start() - 1
        stored = data[max(0, start) : start + _MARK_BYTES].ljust(_MARK_BYTES, b"\0")
        if start >= 0 and int.from_bytes(stored, "big") >> 8 - shift & _MARK == _BLOCK:
            marks.append(8 * start + shift)
    return marks
