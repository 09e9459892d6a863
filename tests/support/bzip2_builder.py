"""Writes bzip2 streams with blocks as small as a test wants, and marks where none should be."""

from __future__ import annotations

import bz2
from collections.abc import Sequence

BLOCK, END = 0x314159265359, 0x177245385090

# Which bytes occur in a block is written in it as bits, here those of a mark: a block that holds
# these characters, and of the others only ASCII, holds a false one.
FALSE_MARK = "".join(chr(0x80 + bit) for bit in range(48) if BLOCK >> (47 - bit) & 1)


def write_stream(pieces: Sequence[bytes], *, level: int = 9) -> bytes:
    """One stream, with a block for each piece, which must fit into one."""
    value, bits, combined = int.from_bytes(b"BZh%d" % level, "big"), 32, 0
    for piece in pieces:
        block, length = _block(piece, level=level)
        value, bits = value << length | block, bits + length
        crc = block >> (length - 80) & 0xFFFFFFFF
        combined = (combined << 1 | combined >> 31) & 0xFFFFFFFF ^ crc
    value, bits = (value << 48 | END) << 32 | combined, bits + 80
    return (value << -bits % 8).to_bytes(-(-bits // 8), "big")


def _block(data: bytes, *, level: int) -> tuple[int, int]:
    """The bits of a block as a number, and how many they are."""
    stored = bz2.compress(data, level)
    value = int.from_bytes(stored, "big")
    padding = next(n for n in range(8) if value >> n + 32 & (1 << 48) - 1 == END)
    length = 8 * len(stored) - padding - 80 - 32
    return value >> padding + 80 & (1 << length) - 1, length


def block_places(data: bytes) -> list[tuple[int, bool]]:
    """Return the bit positions of block marks, by testing every bit."""
    text, marks = f"{int.from_bytes(data, 'big'):0{8 * len(data)}b}", []
    for pattern, is_end in ((BLOCK, False), (END, True)):
        wanted, at = f"{pattern:048b}", -1
        while (at := text.find(wanted, at + 1)) >= 0:
            marks.append((at, is_end))
    return sorted(marks)
