"""The tales as plain text books in the shape of Project Gutenberg's, in one .tar.gz."""

from __future__ import annotations

import io
import re
import tarfile
import textwrap
import zlib
from collections.abc import Iterable
from types import SimpleNamespace

from flows.sample.draws import Draws
from flows.sample.tales import Tale
from flows.sample.wording import pieces
from pipelines.io.file_systems import file_system


def write_books(folder: str, tales: Iterable[Tale]) -> str:
    """Write the tales as `books.tar.gz` and return its URL; the bytes depend on the tales only."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number, tale in enumerate(tales, 1):
            slug = re.sub("[^a-z0-9]+", "-", tale.title.lower()).strip("-")
            member = tarfile.TarInfo(f"books/{number:02d}-{slug}.txt")
            data = book_bytes(tale, number)
            member.size, member.mode = len(data), 0o644  # mtime and owner stay 0
            tar.addfile(member, io.BytesIO(data))
    fs, root = file_system(folder)
    fs.makedirs(root, exist_ok=True)
    path = f"{root.rstrip('/')}/books.tar.gz"
    fs.pipe_file(path, _stored_gzip(archive.getvalue()))
    return fs.unstrip_protocol(path) if "://" in folder else path


def book_bytes(tale: Tale, number: int) -> bytes:
    """One book: UTF-8, CRLF line ends, a byte-order mark in every second one."""
    text = "\n".join(_lines(tale, number)) + "\n"
    return (b"\xef\xbb\xbf" if number % 2 else b"") + text.replace("\n", "\r\n").encode()


_ROMAN = [
    "I",
    "II",
    "III",
    "IV",
    "V",
    "VI",
    "VII",
    "VIII",
    "IX",
    "X",
    "XI",
    "XII",
    "XIII",
    "XIV",
    "XV",
    "XVI",
]


def _lines(tale: Tale, number: int) -> list[str]:
    draws, forms = Draws(0), pieces("books")  # nothing in a book's shape is drawn
    width = max(len(chapter.title) for chapter in tale.chapters) + 4
    shape = SimpleNamespace(
        title=tale.title, author=tale.author, number=number, ebook=90_000 + number, year=tale.year,
        mark="THE" if number % 3 else "THIS", upper=tale.title.upper(),
        author_upper=tale.author.upper(),
        contents="\n".join(
            f"  {_ROMAN[index] + '.':<6} {chapter.title:<{width}} {index * 14 + 3:>4}"
            for index, chapter in enumerate(tale.chapters)
        ),
    )  # fmt: skip
    lines = [f"The Project Gutenberg eBook of {tale.title}, by {tale.author}", ""]
    for say in forms["licence"]:
        lines += [*_wrapped(say(shape, draws)), ""]
    lines += [forms["head"][0](shape, draws), "", "", "", forms["front"][0](shape, draws)]
    for index, chapter in enumerate(tale.chapters, 1):
        shape.index, shape.roman = index, _ROMAN[index - 1]
        shape.chapter, shape.chapter_upper = chapter.title, chapter.title.upper()
        lines += ["", "", "", forms["chapter"][number % 3](shape, draws), "", ""]
        for position, paragraph in enumerate(chapter.paragraphs):
            if position and position % 11 == 0:
                lines += ["       *       *       *       *       *", ""]
            if position == 6 and index % 4 == 1:
                lines += [f"[Illustration: Plate {index} of {tale.region}]", ""]
            lines += [*_wrapped(paragraph), ""]
    mark = f"*** END OF {shape.mark} PROJECT GUTENBERG EBOOK {shape.upper} ***"
    lines += ["", "", "THE END", "", "", "", mark, "", ""]
    for say in forms["footer"]:
        lines += [*_wrapped(say(shape, draws)), ""]
    return lines


def _wrapped(paragraph: str) -> list[str]:
    return textwrap.wrap(paragraph, 70, break_long_words=False, break_on_hyphens=False)


def _stored_gzip(data: bytes) -> bytes:
    # Stored blocks, by hand: what zlib makes of the same bytes depends on its version.
    parts = [b"\x1f\x8b\x08\x00" + bytes(4) + b"\x00\xff"]
    for start in range(0, len(data), 0xFFFF):
        block = data[start : start + 0xFFFF]
        last = start + 0xFFFF >= len(data)
        size = len(block)
        parts.append(bytes([last]) + size.to_bytes(2, "little"))
        parts.append((size ^ 0xFFFF).to_bytes(2, "little") + block)
    parts.append(zlib.crc32(data).to_bytes(4, "little"))
    parts.append((len(data) & 0xFFFFFFFF).to_bytes(4, "little"))
    return b"".join(parts)
