"""Read the lines of a file, plain or compressed, with the offset of each.

Offsets are those of the decompressed text in UTF-8, so that they do not depend on the compression
or the encoding. Only plain files in UTF-8 can be read from the middle.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

from pipelines.io.compression import Chunk, Damage, compression_of, decompressed
from pipelines.io.encodings import convert_to_utf8
from pipelines.io.raw_files import open_file
from pipelines.io.splits import SourceFile
from schemas.errors import CorruptInputError, InputError

MAX_LINE_BYTES = 256 << 20
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".zst")

_HEAD = 16
_TAIL = 1 << 12
_UTF8_MARK = b"\xef\xbb\xbf"
# Includes the marks of Chinese, Japanese and Hindi in UTF-8, without a following space.
_SENTENCE_END = re.compile(
    rb"(?:[.!?]|\xe2\x80\xa6)(?:[\"')\]]|\xe2\x80[\x99\x9d])*\s+"
    rb"|(?:\xe3\x80\x82|\xef\xbc[\x81\x9f]|\xe0\xa5\xa4)(?:\xe3\x80[\x8d\x8f])?"
)
_WORD_END = re.compile(rb"\s+")


class Line(NamedTuple):
    """A line of a text."""

    start: int
    """Offset of the first byte in the decompressed text."""

    end: int
    """Offset after the line end."""

    data: bytes
    """Bytes without line end and byte-order mark."""

    is_truncated: bool = False
    """True if the next line continues this one, which is too long."""


def read_lines(
    file: SourceFile,
    *,
    start: int = 0,
    end: int | None = None,
    longest: int = 0,
    on_encoding: Callable[[str], object],
) -> Generator[Line, None, None]:
    """Yield the lines that begin in the bytes from `start` to `end`.

    Args:
        file: A plain, .gz, .bz2 or .zst file.
        start: Start of a line. Must be 0 unless the file is plain and in UTF-8.
        end: End of the range; None for the end of the file, also of one that is not plain UTF-8.
        longest: Maximum length of a line in bytes. Longer lines are split at the end of a sentence.
            0: lines of more than `MAX_LINE_BYTES` are refused.
        on_encoding: Called with the encoding of a whole file that is not in UTF-8.

    Raises:
        CorruptInputError: A compressed file is truncated or damaged.
        InputError: A line has more than `MAX_LINE_BYTES`.
    """
    chunks: Iterator[bytes] = read_chunks(file, start=start)
    if start == 0 and end is None:
        chunks = convert_to_utf8(chunks, on_encoding, encoding=file.encoding)
    yield from _cut(chunks, where=file.uri, start=start, end=end, longest=longest)


def read_chunks(file: SourceFile, *, start: int = 0) -> Generator[bytes, None, None]:
    """Yield the decompressed bytes of a file in chunks. `start` must be 0 unless it is plain.

    Raises:
        CorruptInputError: A compressed file is truncated or damaged.
    """
    with open_file(file.uri) as source:
        compression = compression_of(source.read(_HEAD), name=file.name)
        yield from _bytes_of(decompressed(source, compression, start=start, end=file.size), file)


def _bytes_of(chunks: Iterable[Chunk | Damage], file: SourceFile) -> Iterator[bytes]:
    for chunk in chunks:
        if isinstance(chunk, Damage):
            raise CorruptInputError(
                f"{file.uri}: {chunk.reason}, noticed at byte {chunk.offset:,} of {file.size:,}. "
                "Expected a whole file: download it again",
                file=file.uri,
                offset=chunk.offset,
            )
        yield chunk.data


def _cut(
    chunks: Iterable[bytes], *, where: str, start: int, end: int | None, longest: int = 0
) -> Generator[Line, None, None]:
    position, rest, waiting = start, list[bytes](), 0  # of an incomplete line
    for chunk in chunks:
        head, *tail = chunk.split(b"\n")
        rest.append(head)
        waiting += len(head)
        for data in (b"".join(rest), *tail[:-1]) if tail else ():
            if end is not None and position >= end:
                return
            position, data = yield from _shorten(position, data, longest=longest)
            yield _line(position, data, len(data) + 1)
            position += len(data) + 1
        if tail:
            rest, waiting = [tail[-1]], len(tail[-1])
        elif longest and waiting > longest and (end is None or position < end):
            position, data = yield from _shorten(position, b"".join(rest), longest=longest)
            rest, waiting = [data], len(data)
            # The line began before `end`, so it is read completely.
            end = None if end is None else max(end, position + 1)
        elif waiting > MAX_LINE_BYTES:
            raise InputError(
                f"{where}: the line that starts at byte {position:,} has more than "
                f"{MAX_LINE_BYTES:,} bytes. Expected a text of lines, ended by LF or CRLF"
            )
    last = b"".join(rest)
    if last and (end is None or position < end):
        position, last = yield from _shorten(position, last, longest=longest)
        yield _line(position, last, len(last))


def _shorten(
    position: int, data: bytes, *, longest: int
) -> Generator[Line, None, tuple[int, bytes]]:
    """Yield parts of a line that is too long. Return the offset and bytes of the last part."""
    at = 0
    while longest and len(data) - at > longest:
        size = last_sentence_end(data[at : at + longest])
        yield _line(position + at, data[at : at + size], size)._replace(is_truncated=True)
        at += size
    return position + at, data[at:]


def last_sentence_end(data: bytes) -> int:
    """Return the end of the last sentence in bytes, or of the last word or character.

    Args:
        data: Text in UTF-8 or another superset of ASCII. The result is at least half its length.
    """
    half = len(data) // 2
    for pattern in (_SENTENCE_END, _WORD_END):
        if end := _last_end(pattern, data, half):
            return end
    size = len(data)
    while size > half + 1 and data[size - 1] & 0xC0 == 0x80:  # the rest of a UTF-8 character
        size -= 1
    return size - 1 if size > half + 1 and data[size - 1] >= 0xC0 else len(data)


def _last_end(pattern: re.Pattern[bytes], data: bytes, start: int) -> int:
    """Return the end of the last match after `start`, or 0."""
    width = _TAIL
    while True:  # from the end: most texts have a sentence end close to it
        begin = max(start, len(data) - width)
        ends = [match.end() for match in pattern.finditer(data, begin)]
        if ends or begin == start:
            return ends[-1] if ends else 0
        width *= 2


def _line(position: int, data: bytes, length: int) -> Line:
    text = data.removeprefix(_UTF8_MARK) if position == 0 else data
    return Line(position, position + length, text.removesuffix(b"\r"))
