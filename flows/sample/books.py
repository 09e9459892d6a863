"""The sample's books: documents of the sample world, printed as Project Gutenberg prints books."""

from __future__ import annotations

import io
import random
import tarfile
import textwrap
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from flows.sample.world import Words, seeded, topic_names
from pipelines.io.file_systems import file_system

_CHAPTERS = 10
_PARAGRAPHS = 13
_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X")


class Book(NamedTuple):
    """A book: paragraphs of each chapter."""

    title: str
    author: str
    chapters: list[list[str]]


def make_book(words: Words, *, seed: int, number: int) -> Book:
    """Return book number n of a world: each paragraph is a document, every third a dialogue."""
    draw = seeded("book", seed, number)
    topics = [draw.randrange(len(words.topics)) for _ in range(_CHAPTERS)]
    chapters = []
    for topic in topics:
        chapters.append([
            _dialogue(words, draw, topic) if paragraph % 3 == 2
            else " ".join(words.sentence(draw, topic) for _ in range(draw.randint(8, 14)))
            for paragraph in range(_PARAGRAPHS)
        ])  # fmt: skip
    chapters[0].insert(0, _OPENING)
    title = f"{words.fill('A N', draw, topics[0])} of the {topic_names()[topics[0]]} {number + 1}"
    return Book(title, f"{draw.choice(words.names)} {draw.choice(words.names)}", chapters)


_OPENING = (
    "In this valley people keep four trades, and every trade has its own words. Strangers get no "
    "explanation. A child who listens long enough learns by ear which of them belong "
    "together, and may then guess from one small part what people are talking about. Visitors "
    "who arrive without ever having heard such talk understand nothing, however clever they "
    "are, until they have read some hundred stories like these. That is why our library lends "
    "its books free of charge."
)
"""Prose with words that the vocabulary may split: frequent words come first when it is learned."""

_QUESTIONS = ("what was N", "who V N", "where was A N", "which N V")


def _dialogue(words: Words, draw: random.Random, topic: int) -> str:
    """Return questions and answers in quotes; the answers have commas, which articles lack."""
    lines = []
    for _ in range(draw.randint(2, 4)):
        clauses = [words.fill("X V N", draw, topic) for _ in range(2)]
        lines.append(f'"{words.fill(draw.choice(_QUESTIONS), draw, topic)}?"')
        lines.append(f'"{", ".join(clauses)}."')
    return " ".join(lines)


def write_books(folder: str, books: Iterable[Book]) -> str:
    """Write `books.tar.gz` and return its URL; the bytes depend on the books only."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number, book in enumerate(books, 1):
            name = book.title.lower().replace(" ", "-")
            member = tarfile.TarInfo(f"books/{number:02d}-{name}.txt")
            data = book_bytes(book, number)
            member.size, member.mode = len(data), 0o644  # time and owner stay 0
            tar.addfile(member, io.BytesIO(data))
    fs, root = file_system(folder)
    fs.makedirs(root, exist_ok=True)
    path = f"{root.rstrip('/')}/books.tar.gz"
    fs.pipe_file(path, _uncompressed_gzip(archive.getvalue()))
    return fs.unstrip_protocol(path) if "://" in folder else path


def book_bytes(book: Book, number: int) -> bytes:
    """Return the file of a book: UTF-8, lines end in CR LF, every second one has a BOM."""
    contents = "\n".join(f"  {_ROMAN[index]}. Chapter" for index in range(len(book.chapters)))
    chapters = "\n".join(
        f"\n\n\nCHAPTER {_ROMAN[index]}\n\n" + "\n".join(f"\n{_wrap(text)}" for text in paragraphs)
        for index, paragraphs in enumerate(book.chapters)
    )
    text = _FORM.format(
        title=book.title, upper=book.title.upper(), author=book.author, number=90_000 + number,
        license=_wrap(_LICENSE), terms=_wrap(_TERMS), contents=contents, chapters=chapters,
    )  # fmt: skip
    return (b"\xef\xbb\xbf" if number % 2 else b"") + text.replace("\n", "\r\n").encode()


def _wrap(text: str) -> str:
    return textwrap.fill(text, 70, break_long_words=False, break_on_hyphens=False)


def _uncompressed_gzip(data: bytes) -> bytes:
    """Return a gzip file of stored blocks: compressed bytes differ between versions of zlib."""
    parts = [b"\x1f\x8b\x08\x00" + bytes(4) + b"\x00\xff"]
    for start in range(0, len(data), 0xFFFF):
        block = data[start : start + 0xFFFF]
        size = len(block)
        parts.append(bytes([start + size >= len(data)]) + size.to_bytes(2, "little"))
        parts.append((size ^ 0xFFFF).to_bytes(2, "little") + block)
    parts.append(zlib.crc32(data).to_bytes(4, "little"))
    parts.append((len(data) & 0xFFFFFFFF).to_bytes(4, "little"))
    return b"".join(parts)


_LICENSE = (
    "You may copy this eBook, give it away or use it again for any purpose. It belongs to the "
    "sample of a software project and is not a publication of Project Gutenberg, whose form it "
    "has so that programs can be tested on it."
)

_TERMS = (
    "Section 1. General terms of use. By reading any part of this electronic work you show that "
    "you have understood these terms. 1.A. The work is provided 'as-is', with no warranty of "
    "any kind."
)

_FORM = """\
The Project Gutenberg eBook of {title}, by {author}

{license}

Title: {title}

Author: {author}

Release date: January 1, 2026 [eBook #{number}]

Language: English

Character set encoding: UTF-8

*** START OF THE PROJECT GUTENBERG EBOOK {upper} ***



Produced by the writers of the sample



{upper}

BY {author}

[Illustration]


CONTENTS

{contents}
{chapters}


THE END



*** END OF THE PROJECT GUTENBERG EBOOK {upper} ***


{terms}
"""
