"""Read the blocks of a bzip2 file from any block, so that one long stream can be split.

A block begins with a mark of 48 bits at any bit of a byte. These bits also occur within blocks, by
chance (once in 2**48 positions) or on purpose. Such a false mark is harmless: blocks end where the
decoder says, and `block_at_or_after` decompresses a block before a range starts there.

The CRC of a block is checked before its bytes are returned. The CRC of a stream combines those of
its blocks: each range reports its part (`StreamCrcPart`), and `verify_stream_crcs` combines them.

After damage the reader resumes at the next mark whose block decompresses. Only the damaged block is
lost, unless the mark after it is damaged too.

`indexed_bzip2` and `rapidgzip` are not used: they report damage without its position, and cannot
continue after it.

Format: https://github.com/dsnet/compress/blob/master/doc/bzip2-format.pdf
"""

from __future__ import annotations

import bisect
import bz2
import functools
import hashlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from pipelines.io.compression import Chunk, Damage, whole_blocks
from pipelines.io.file_systems import SMALL_READ_AHEAD
from pipelines.io.raw_files import open_file, parallel_map
from pipelines.io.splits import SourceFile
from pipelines.io.user_cache import cache_value, cached_value

_BLOCK, _END = 0x314159265359, 0x177245385090
_MARK_BITS, _CRC_BITS = 48, 32
_HEADER_BITS = 32  # "BZh" and the block size
_READ = 1 << 18
_LONGEST = 8  # bytes that a mark touches, and one more
# A false mark fails within a few hundred bytes, except in malicious files.
_MOST_TRIES = 16
# Bytes decompressed without result before damage is skipped faster: 20 blocks.
_PATIENCE = 32 << 20
_CUTS_VERSION = "1"


class StreamCrcPart(NamedTuple):
    """Part of a stream's CRC from the blocks of a range."""

    begins: bool
    """The stream begins in the range."""

    blocks: int | None
    """Number of blocks; None if one of them is damaged."""

    crc: int
    """CRC of a stream that consists of these blocks."""

    stored: int | None
    """CRC stored at the end of the stream; None if the stream ends after the range."""

    offset: int
    """Byte where the stream ends, or the range."""


class _Mark(NamedTuple):
    bit: int
    """From the start of the file."""

    is_end: bool
    """True: the stream ends here, with its CRC. False: a block begins."""


def _words() -> dict[int, list[tuple[int, int, bool]]]:
    """Return the possible pairs of bytes of a mark: (bytes before them, shift, is an end)."""
    found: dict[int, list[tuple[int, int, bool]]] = {}
    for pattern in (_BLOCK, _END):
        for shift in range(8):
            stored = (pattern << (8 - shift)).to_bytes(7, "big")
            for before in (1, 2):
                word = int.from_bytes(stored[before : before + 2], "little")
                found.setdefault(word, []).append((before, shift, pattern == _END))
    return found


_WORDS = _words()


@functools.cache
def _is_word() -> Any:
    import numpy as np  # lazy: `plan` does not need it

    known = np.zeros(1 << 16, dtype=np.bool_)
    known[list(_WORDS)] = True
    return known


def find_marks(data: bytes) -> list[tuple[int, bool]]:
    """Return the bit offsets of the marks in the data, ascending, and whether they are ends."""
    import numpy as np  # lazy: `plan` does not need it

    found = []
    halves = np.frombuffer(data, "<u2", count=len(data) // 2)
    for half in np.flatnonzero(_is_word()[halves]).tolist():
        for before, shift, is_end in _WORDS[int(halves[half])]:
            start = 2 * half - before
            stored = data[start : start + 7] if start >= 0 else b""
            bits = int.from_bytes(stored, "big") << 8 * (7 - len(stored)) >> 8 - shift
            is_whole = 8 * len(stored) >= _MARK_BITS + shift
            if is_whole and bits & ((1 << _MARK_BITS) - 1) == (_END if is_end else _BLOCK):
                found.append((8 * start + shift, is_end))
    return sorted(found)


class _Window:
    """Buffered part of a file with its marks."""

    def __init__(self, source: IO[bytes], *, start: int) -> None:
        source.seek(start)
        self._marks: list[_Mark] = []
        self.at_end = False
        self._source = source
        self._data = b""
        self._origin = self._searched = start

    @property
    def end(self) -> int:
        """Offset after the last byte that was read."""
        return self._origin + len(self._data)

    def mark_behind(self, bit: int) -> _Mark | None:
        """Return the first possible mark after a bit, or None."""
        number = bisect.bisect_left(self._marks, (bit + 1,))
        return self._marks[number] if number < len(self._marks) else None

    def more(self, *, keep: int) -> bool:
        """Read more, and forget bytes before `keep`. Return False at the end of the file."""
        chunk = self._source.read(_READ)
        self.at_end = not chunk
        cut = max(0, min(keep, self._searched) - self._origin)
        self._data = self._data[cut:] + chunk
        self._origin += cut
        del self._marks[: bisect.bisect_left(self._marks, (8 * keep,))]
        begin = self._searched - self._origin
        for bit, is_end in find_marks(self._data[begin:]):
            mark = _Mark(8 * self._searched + bit, is_end)
            if not self._marks or mark.bit > self._marks[-1].bit:
                self._marks.append(mark)
        self._searched = max(self._searched, self.end - _LONGEST + 1)
        return bool(chunk)

    def bits(self, start: int, end: int) -> bytes:
        """Return the bits of a range. Zeros fill the last byte."""
        end = min(end, 8 * self.end)
        if end <= start:
            return b""
        first, last = start // 8 - self._origin, -(-end // 8) - self._origin
        number = int.from_bytes(self._data[first:last], "big") >> -end % 8
        number &= (1 << end - start) - 1
        return (number << -(end - start) % 8).to_bytes(-(-(end - start) // 8), "big")

    def number(self, start: int, bits: int) -> int | None:
        """Return bits as a number, or None if the file ends before."""
        while 8 * self.end < start + bits:
            if not self.more(keep=start // 8):
                return None
        return int.from_bytes(self.bits(start, start + bits), "big") >> -bits % 8


class _Block(NamedTuple):
    """Result of decoding a block."""

    data: bytes
    """b"" if it is damaged or truncated."""

    next: _Mark | None
    """Mark after the block, if it is known."""

    noticed: int
    """Number of bytes of the file read when the result was known."""

    reason: str = ""


def _decode(window: _Window, start: int) -> _Block:
    """Decode the block at bit `start`. It ends at the first mark that completes it."""
    decoder, fed, seen = bz2.BZ2Decompressor(), start, start
    decoder.decompress(b"BZh9")  # a smaller block size only limits the block
    while True:
        mark = window.mark_behind(seen)
        seen = mark.bit if mark else seen
        # Whole bytes of the block: up to the byte of the next mark, or to the searched bytes.
        limit = mark.bit if mark else 8 * (window.end - (0 if window.at_end else _LONGEST))
        fill = (start - limit) % 8 if mark or window.at_end else -((limit - start) % 8)
        try:
            data = whole_blocks(decoder, window.bits(fed, limit + fill)) if limit > fed else b""
        except OSError as error:
            return _Block(b"", None, limit // 8, str(error))
        fed = max(fed, limit + fill)
        if data and (mark or window.at_end):
            return _Block(data, mark, limit // 8)
        if data:
            return _Block(b"", None, limit // 8, "nothing begins where it ends")
        if mark is None:
            if window.at_end:
                return _Block(b"", None, window.end)
            window.more(keep=start // 8)


class BlockReader:
    """Reader of the blocks of a file, from one of them."""

    def __init__(
        self,
        source: IO[bytes],
        *,
        start: int,
        shift: int | None,
        end: int,
        size: int,
        streams: Sequence[int] = (0,),
    ) -> None:
        """Prepare to read a range.

        Args:
            source: Stored file; must support seeking.
            start: Byte in which the first block or a stream begins.
            shift: Bit of that byte in which a block begins; None for a stream.
            end: End of the range in the stored file: a block begins in this byte, or the file ends.
            size: Size of the file in bytes.
            streams: Known offsets of streams in the file.
        """
        self.parts: list[StreamCrcPart] = []
        """Parts of the CRCs of streams that continue in other ranges, in order."""

        self._window = _Window(source, start=start)
        self._streams, self._end, self._size = streams, end, size
        self._first = _Mark(8 * start + (shift or 0), is_end=False)
        self._begins = shift is None
        self._at = start
        self._blocks: int | None = 0
        self._crc = 0
        self._lost = False  # since the last whole block
        self._was_lost = False
        self._in_vain = 0
        self._is_behind = False

    def chunks(self) -> Iterator[Chunk | Damage]:
        """Yield the contents of the blocks, also of those after the range.

        `start` and `end` of a chunk are those of its block. An empty chunk precedes the first block
        after the range, so that the caller can stop before it is decompressed.
        """
        mark: _Mark | None = self._first
        if self._begins:
            mark = yield from self._head(self._at)
        while mark is not None:
            self._at = mark.bit // 8
            if mark.is_end:
                mark = yield from self._finish(mark)
                continue
            byte = self._at
            if byte >= self._end and not self._is_behind:
                self._report(None, byte)
                self._is_behind = True
                if byte > self._end and not self._was_lost:
                    yield self._astray(byte)
                    return
                yield self._chunk(b"", byte)
            mark = yield from self._block(mark)
        self._report(None, self._window.end)

    def _block(self, mark: _Mark) -> Generator[Chunk | Damage, None, _Mark | None]:
        byte, found = mark.bit // 8, _decode(self._window, mark.bit)
        if found.data:
            crc = self._window.number(mark.bit + _MARK_BITS, _CRC_BITS) or 0
            self._lost = False
            if self._blocks is not None:
                self._blocks, self._crc = self._blocks + 1, _rotated(self._crc, 1) ^ crc
            following = found.next.bit // 8 if found.next else self._window.end
            yield self._chunk(found.data, following)
            if found.next is None:
                yield self._cut_off()
            return found.next
        if not found.reason and not self._lost:
            self._blocks = None
            yield self._cut_off()
            return None
        self._in_vain += found.noticed - byte
        reason = f"the bzip2 block that starts at byte {byte:,} is damaged ({found.reason})"
        yield from self._lose(found.noticed, reason, byte)
        hurry = self._in_vain > _PATIENCE
        return self._following(8 * found.noticed if hurry else mark.bit)

    def _finish(self, mark: _Mark) -> Generator[Damage, None, _Mark | None]:
        """Check the end of a stream. Return the mark after it, or None."""
        stored = self._window.number(mark.bit + _MARK_BITS, _CRC_BITS)
        behind = -(-(mark.bit + _MARK_BITS + _CRC_BITS) // 8)
        if stored is None:
            yield self._cut_off()
            return None
        if self._lost and not self._window_ends_at(behind) and not self._is_head(behind):
            return self._following(mark.bit)  # a false mark
        if self._begins and self._blocks is not None and self._crc != stored:
            yield _wrong_checksum(behind, start=self._at)
        self._report(stored, behind)
        self._begins, self._blocks, self._crc = True, 0, 0
        if self._window_ends_at(behind):
            return None
        return (yield from self._head(behind))

    def _head(self, byte: int) -> Generator[Damage, None, _Mark | None]:
        """Return the mark after the header of a stream, or None."""
        head = self._bytes(byte, 10)
        if self._is_head(byte):
            return _Mark(8 * byte + _HEADER_BITS, is_end=head[4:] == _END.to_bytes(6, "big"))
        if len(head) < 10 and b"BZh"[: len(head)] == head[:3] and not head[3:4].strip(b"123456789"):
            yield self._cut_off()
            return None
        reason = f"the bzip2 stream that starts at byte {byte:,} is damaged (it has no header)"
        yield from self._lose(byte, reason, byte)
        return self._following(8 * byte)

    def _is_head(self, byte: int) -> bool:
        head = self._bytes(byte, 10)
        marks = [pattern.to_bytes(6, "big") for pattern in (_BLOCK, _END)]
        return head[:3] == b"BZh" and b"1" <= head[3:4] <= b"9" and head[4:] in marks

    def _bytes(self, byte: int, length: int) -> bytes:
        self._window.number(8 * byte, 8 * length)
        return self._window.bits(8 * byte, 8 * (byte + length))

    def _window_ends_at(self, byte: int) -> bool:
        return not self._bytes(byte, 1)

    def _following(self, bit: int) -> _Mark | None:
        """Return the first possible mark after a bit, or None."""
        window = self._window
        mark = window.mark_behind(bit)
        while mark is None:
            bit = max(bit, 8 * (window.end - _LONGEST))
            if not window.more(keep=bit // 8):
                return None
            mark = window.mark_behind(bit)
        return mark

    def _lose(self, offset: int, reason: str, start: int) -> Iterator[Damage]:
        if not self._lost:
            yield Damage("stream", offset, reason, start)
        self._lost = self._was_lost = True
        self._blocks = None

    def _cut_off(self) -> Damage:
        reason = f"the bzip2 stream that starts at byte {self._place()[0]:,} has no end"
        return Damage("truncated", self._window.end, reason, self._at)

    def _place(self) -> tuple[int, int]:
        """Return the known starts of the current and the next stream."""
        number = bisect.bisect_right(self._streams, self._at)
        following = self._streams[number] if number < len(self._streams) else self._size
        return self._streams[number - 1] if number else 0, following

    def _chunk(self, data: bytes, position: int) -> Chunk:
        return Chunk(data, self._at, position, position, stream=self._place())

    def _report(self, stored: int | None, offset: int) -> None:
        is_all, is_none = self._begins and stored is not None, stored is None and self._blocks == 0
        if not (is_all or is_none or self._is_behind):
            self.parts.append(StreamCrcPart(self._begins, self._blocks, self._crc, stored, offset))

    def _astray(self, byte: int) -> Damage:
        reason = (
            f"a bzip2 block crosses the planned split at byte {self._end:,} and ends at byte "
            f"{byte:,}: malformed file. To read it in one split, set target_split_bytes to more "
            "than its size"
        )
        return Damage("untrusted", byte, reason, self._end - 1)


def verify_stream_crcs(parts: Iterable[StreamCrcPart]) -> list[Damage]:
    """Return the streams whose CRC does not match their blocks.

    Args:
        parts: Parts of all ranges of the file, in order.
    """
    found: list[Damage] = []
    blocks: int | None = 0
    crc = 0
    for part in parts:
        if part.begins:
            blocks, crc = 0, 0
        both = None if blocks is None or part.blocks is None else blocks + part.blocks
        crc, blocks = _rotated(crc, part.blocks or 0) ^ part.crc, both
        if part.stored is not None and blocks is not None and part.stored != crc:
            found.append(_wrong_checksum(part.offset, start=part.offset - 1))
        if part.stored is not None:
            blocks, crc = 0, 0
    return found


def _wrong_checksum(offset: int, *, start: int) -> Damage:
    reason = (
        f"the CRC of the bzip2 stream that ends at byte {offset:,} does not match its blocks: "
        "some are missing or reordered"
    )
    return Damage("stream", offset, reason, start)


def _rotated(crc: int, times: int) -> int:
    times %= _CRC_BITS
    return (crc << times | crc >> _CRC_BITS - times) & 0xFFFFFFFF


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
    with open_file(uri, ahead=SMALL_READ_AHEAD) as source:
        window, at, tries = _Window(source, start=start), 8 * start - 1, 0
        while tries < _MOST_TRIES and at < 8 * before:
            mark = window.mark_behind(at)
            if mark is None:
                at = max(at, 8 * (window.end - _LONGEST))
                if not window.more(keep=at // 8):
                    break
            elif mark.bit >= 8 * before:
                break
            else:
                at = mark.bit
                found = None if mark.is_end else _decode(window, mark.bit)
                if found is not None and found.data and found.next is not None:
                    return mark.bit
                tries += found is not None
    return None
