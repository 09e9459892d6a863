"""Read dumps in UTF-16 as UTF-8. MediaWiki writes UTF-8 only."""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Iterable, Iterator
from typing import Literal

from pipelines.io.compression import Chunk, Damage
from schemas.errors import InputError

Encoding = Literal["utf-8", "utf-16-le", "utf-16-be"]

_STARTS: tuple[tuple[bytes, Encoding | Literal["utf-32"]], ...] = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins with that one
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (b"<\0?\0", "utf-16-le"),
    (b"\0<\0?", "utf-16-be"),
    (b"<\0m\0", "utf-16-le"),
    (b"\0<\0m", "utf-16-be"),
)
_LONGEST_START = 4


def detect_encoding(
    chunks: Iterable[Chunk | Damage], *, where: str
) -> tuple[Encoding, Iterator[Chunk | Damage]]:
    """Return the encoding of a dump by its first bytes, and all of its chunks.

    Raises:
        InputError: The dump is UTF-32.
    """
    remaining = iter(chunks)
    taken: list[Chunk | Damage] = []
    head = b""
    while len(head) < _LONGEST_START:
        chunk = next(remaining, None)
        if chunk is None:
            break
        taken.append(chunk)
        if isinstance(chunk, Damage):
            break
        head += chunk.data
    found: Encoding | Literal["utf-32"] = "utf-8"
    for start, name in reversed(_STARTS):
        found = name if head.startswith(start) else found
    if found == "utf-32":
        raise InputError(
            f"{where}: is UTF-32. Expected UTF-8 or UTF-16: convert it, e.g. `iconv -f UTF-32 -t "
            "UTF-8`, and take the encoding out of its first line"
        )
    return found, itertools.chain(taken, remaining)


def transcode_to_utf8(
    chunks: Iterable[Chunk | Damage], *, encoding: Encoding, end: int
) -> Iterator[Chunk | Damage]:
    """Yield the chunks in UTF-8. A chunk of UTF-16 has the whole file as its place.

    A file that ends within a UTF-16 character ends with a `Damage`.

    Args:
        chunks: Chunks of the whole file. Half a surrogate pair becomes U+FFFD.
        encoding: Encoding of the file, from `detect_encoding`.
        end: Size of the file in bytes.
    """
    if encoding == "utf-8":
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    is_first = True
    for chunk in chunks:
        if isinstance(chunk, Damage):
            yield chunk
            continue
        text = decoder.decode(chunk.data)
        if is_first and text:
            text, is_first = text.removeprefix("\ufeff"), False
        yield Chunk(text.encode(), 0, end, chunk.position)
    if decoder.decode(b"", final=True):
        yield Damage("truncated", end, "the file ends within a UTF-16 character")
