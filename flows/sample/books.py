"""The tales as plain text books in the shape of Project Gutenberg's, in one .tar.gz."""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from collections.abc import Iterable

from flows.sample.tales import Tale
from pipelines.io.file_systems import file_system

_WIDTH = 70
_LICENCE = (
    "You may copy this eBook, give it away or use it again for any purpose. It belongs to the "
    "sample corpus of a software project, was written by that project, and imitates the outer "
    "shape of the books of Project Gutenberg so that programs can be tested on it.",
    "It is not a publication of Project Gutenberg, whose name is used here only because a program "
    "that cleans such books must find it. The story, its people and its places are made up.",
)
_FOOTER = (
    "Section 1. General terms of use. By reading any part of this electronic work you show that "
    "you have understood these terms. If you do not agree with them, delete every copy that you "
    "have and enjoy another book instead.",
    "1.A. Nobody guarantees that this electronic work is free of errors. It is provided 'as-is', "
    "with no warranty of any kind, express or implied.",
    "1.B. The full text of this licence goes with every copy, and the marks of start and end must "
    "not be changed, since programs look for them.",
    "Section 2. About donations. None are asked for. Give them to the real Project Gutenberg, "
    "which has made tens of thousands of books free since 1971.",
)


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
    text = "\r\n".join(_lines(tale, number)) + "\r\n"
    return (b"\xef\xbb\xbf" if number % 2 else b"") + text.encode()


def _lines(tale: Tale, number: int) -> list[str]:
    start = "THE" if number % 3 else "THIS"
    title = tale.title.upper()
    lines = [f"The Project Gutenberg eBook of {tale.title}, by {tale.author}", ""]
    for paragraph in _LICENCE:
        lines += [*_wrapped(paragraph), ""]
    lines += [f"Title: {tale.title}", "", f"Author: {tale.author}", ""]
    lines += [f"Release date: January {number}, 2026 [eBook #{90_000 + number}]", ""]
    lines += ["Language: English", "", "Character set encoding: UTF-8", ""]
    lines += [f"*** START OF {start} PROJECT GUTENBERG EBOOK {title} ***", "", "", ""]
    lines += ["Produced by the writers of the sample corpus", "", "", ""]
    lines += _front_matter(tale)
    for index, chapter in enumerate(tale.chapters, 1):
        lines += ["", "", "", *_heading(index, chapter.title, number), "", ""]
        for position, paragraph in enumerate(chapter.paragraphs):
            if position and position % 11 == 0:
                lines += ["       *       *       *       *       *", ""]
            if position == 6 and index % 4 == 1:
                lines += [f"[Illustration: Plate {index} of {tale.region}]", ""]
            lines += [*_wrapped(paragraph), ""]
    lines += ["", "", "THE END", "", "", ""]
    lines += [f"*** END OF {start} PROJECT GUTENBERG EBOOK {title} ***", "", ""]
    for paragraph in _FOOTER:
        lines += [*_wrapped(paragraph), ""]
    return lines


def _front_matter(tale: Tale) -> list[str]:
    lines = [tale.title.upper(), "", "A TALE", "", f"BY {tale.author.upper()}", ""]
    lines += ["[Illustration]", "", f"FIRST PRINTED IN {tale.year}", "", "", "CONTENTS", ""]
    width = max(len(chapter.title) for chapter in tale.chapters) + 4
    for index, chapter in enumerate(tale.chapters, 1):
        label = f"{_roman(index)}."
        lines.append(f"  {label:<6} {chapter.title:<{width}} {index * 14 - 11:>4}")
    return [*lines, "", "", "LIST OF PLATES", "", "  Plate 1     Frontispiece", "  Plate 5     57"]


def _heading(index: int, title: str, number: int) -> list[str]:
    if number % 3 == 0:
        return [f"CHAPTER {_roman(index)}. {title.upper()}"]
    if number % 3 == 1:
        return [f"CHAPTER {_roman(index)}", "", title.upper()]
    return [f"Chapter {index}", "", f"_{title}_"]


def _roman(number: int) -> str:
    numerals = ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))
    text = ""
    for value, letters in numerals:
        while number >= value:
            text += letters
            number -= value
    return text


def _wrapped(paragraph: str) -> list[str]:
    lines, line = [], ""
    for word in paragraph.split(" "):
        if line and len(line) + 1 + len(word) > _WIDTH:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


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
