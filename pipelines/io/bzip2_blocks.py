"""The blocks of a bzip2 file, each decompressed by itself, from any block on.

A block begins with 48 bits, at whatever bit the one before it ended, so one long stream can be cut
there. Within a block these bits stand by chance once in 2**48 places, or because somebody meant it;
such a false mark does no harm: from a true one on, blocks end where the decoder says, and whoever
cuts a file asks `block_at_or_after`, which decompresses the block first.

Every block's CRC is checked before a byte of it is given. The checksum of a stream is made of those
of its blocks: whoever reads a range says what his blocks add to it (`StreamCrcPart`), and
`verify_stream_crcs` puts the parts together.

After damage the next mark is tried at which a block decompresses, so what is lost is the damaged
block, wherever a range begins. One that was never damaged is lost with it only if the mark behind
it is.

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
# A true block is told from a false mark within a few hundred bytes, if nobody meant to deceive.
_MOST_TRIES = 16
# Bytes that may be decompressed in vain before damage is passed over faster: 20 true blocks.
_PATIENCE = 32 << 20
_CUTS_VERSION = "1"


class StreamCrcPart(NamedTuple):
    """What the blocks of a range add to the checksum of the stream that they belong to."""

    begins: bool
    """The stream begins in the range."""

    blocks: int | None
    """How many they are; None where one of them is damaged."""

    crc: int
    """Their checksum, as if the stream began with them."""

    stored: int | None
    """The stream's checksum as its end says; None where the end lies behind the range."""

    offset: int
    """Byte where the stream ends, or the range."""


class _Mark(NamedTuple):
    bit: int
    """From the start of the file."""

    is_end: bool
    """The stream ends here, with its checksum; else a block begins."""


def _words() -> dict[int, list[tuple[int, int, bool]]]:
    """Two bytes of a mark at an even offset: (bytes before them, shift, whether it is an end)."""
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
    import numpy as np  # start-up: 80 ms

    known = np.zeros(1 << 16, dtype=np.bool_)
    known[list(_WORDS)] = True
    return known


def find_marks(data: bytes) -> list[tuple[int, bool]]:
    """The bits at which marks begin that lie in the data, ascending, and whether they are ends."""
    import numpy as np  # start-up: 80 ms

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
    """The part of a file that is being looked at, with its marks."""

    def __init__(self, source: IO[bytes], *, start: int) -> None:
        source.seek(start)
        self._marks: list[_Mark] = []
        self.at_end = False
        self._source = source
        self._data = b""
        self._origin = self._searched = start

    @property
    def end(self) -> int:
        """Byte behind the last one that was read."""
        return self._origin + len(self._data)

    def mark_behind(self, bit: int) -> _Mark | None:
        """The first mark behind a bit in what was read, whether it is one or only looks like it."""
        number = bisect.bisect_left(self._marks, (bit + 1,))
        return self._marks[number] if number < len(self._marks) else None

    def more(self, *, keep: int) -> bool:
        """Read on, and forget what comes before byte `keep`; False at the end of the file."""
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
        """The bits of a range, the first of them first; noughts fill the last byte up."""
        end = min(end, 8 * self.end)
        if end <= start:
            return b""
        first, last = start // 8 - self._origin, -(-end // 8) - self._origin
        number = int.from_bytes(self._data[first:last], "big") >> -end % 8
        number &= (1 << end - start) - 1
        return (number << -(end - start) % 8).to_bytes(-(-(end - start) // 8), "big")

    def number(self, start: int, bits: int) -> int | None:
        """So many bits as a number; None where the file ends before."""
        while 8 * self.end < start + bits:
            if not self.more(keep=start // 8):
                return None
        return int.from_bytes(self.bits(start, start + bits), "big") >> -bits % 8


class _Block(NamedTuple):
    """What became of a block."""

    data: bytes
    """b"" where it is damaged or cut off."""

    next: _Mark | None
    """What follows it, where that is known."""

    noticed: int
    """Byte that had been read when it was whole, or found not to be."""

    reason: str = ""


def _decode(window: _Window, start: int) -> _Block:
    """The block whose mark is at bit `start`; it ends at a mark, the first that makes it whole."""
    decoder, fed, seen = bz2.BZ2Decompressor(), start, start
    decoder.decompress(b"BZh9")  # a smaller block size than 9 says nothing but how small
    while True:
        mark = window.mark_behind(seen)
        seen = mark.bit if mark else seen
        # Whole bytes of the block: up to the one in which a mark begins, else to what was searched.
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
    """Reads the blocks of a file from one of them on."""

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
        """Where to read.

        Args:
            source: the file as stored; it must be able to seek.
            start: byte in which the first block begins, or a stream.
            shift: bit of that byte in which a block begins; None for a stream.
            end: where the range ends, as stored: a block begins in this byte, or the file ends.
            size: of the file.
            streams: where streams start in the file, as far as that is known.
        """
        self.parts: list[StreamCrcPart] = []
        """What the range's blocks add to the checksums of streams that leave it, in order."""

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
        """What the blocks hold, those behind the range as well.

        A chunk's `start` and `end` are its block's. An empty one comes before the first block
        behind the range, so that the caller may stop before it is decompressed.
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
        """The end of a stream, and what begins behind it."""
        stored = self._window.number(mark.bit + _MARK_BITS, _CRC_BITS)
        behind = -(-(mark.bit + _MARK_BITS + _CRC_BITS) // 8)
        if stored is None:
            yield self._cut_off()
            return None
        if self._lost and not self._window_ends_at(behind) and not self._is_head(behind):
            return self._following(mark.bit)  # it only looks like an end
        if self._begins and self._blocks is not None and self._crc != stored:
            yield _wrong_checksum(behind, start=self._at)
        self._report(stored, behind)
        self._begins, self._blocks, self._crc = True, 0, 0
        if self._window_ends_at(behind):
            return None
        return (yield from self._head(behind))

    def _head(self, byte: int) -> Generator[Damage, None, _Mark | None]:
        """The mark behind a stream's header."""
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
        """The first mark behind a bit, whether it is one or only looks like it."""
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
        """Where the stream starts and the next, as far as that is known."""
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
            f"expected a bzip2 block to start at byte {self._end:,}, where the file was cut, found "
            f"that one goes on to byte {byte:,}, so the file has been made to deceive; to read it "
            "in one piece, set target_split_bytes to more than its size"
        )
        return Damage("untrusted", byte, reason, self._end - 1)


def verify_stream_crcs(parts: Iterable[StreamCrcPart]) -> list[Damage]:
    """What is wrong with the checksums of a file's streams.

    Args:
        parts: of all ranges of the file, in order.
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
        f"the bzip2 stream that ends at byte {offset:,} has another checksum than its blocks "
        "together, so some are missing or in another order"
    )
    return Damage("stream", offset, reason, start)


def _rotated(crc: int, times: int) -> int:
    times %= _CRC_BITS
    return (crc << times | crc >> _CRC_BITS - times) & 0xFFFFFFFF


def split_at_blocks(
    file: SourceFile, *, start: int, end: int, target_split_bytes: int
) -> list[tuple[int, int]]:
    """Where to cut a range of a file: at the first block behind `target_split_bytes` more.

    Only what lies around these places is read, by several threads. It is remembered of the file's
    bytes (`pipelines.io.user_cache`).

    Args:
        file: a .bz2 file.
        start: of the range, as stored, which is no place to cut.
        end: of the range.
        target_split_bytes: wanted length of a piece; the last may be half as long again.

    Returns:
        (byte, bit of it) in which a block begins, ascending.
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
    """The bit of the file at which the first block begins from a byte on; None if none does.

    A mark is believed if what it begins decompresses, with the right CRC.
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
