"""Extract the plain text of a book's file: .txt, .html or .epub."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from pipelines.books.errors import BookError
from pipelines.io.encodings import DecodedText, decode_text
from pipelines.sources.archives import member_name

MAX_BOOK_BYTES = 64 << 20
"""Maximum size of a book, which must fit into memory. The longest novels have about 10 MB."""

GZIP = b"\x1f\x8b"
_PAGE_SUFFIXES = (".html", ".htm", ".xhtml")
_EPUB = ".epub"
BOOK_SUFFIXES = (".txt", ".txt.gz", *_PAGE_SUFFIXES, _EPUB)


class ExtractedText(NamedTuple):
    """Plain text of a file."""

    text: str
    encoding: str = ""
    """Name of Python's codec; "" for an .epub, whose pages may differ."""

    title: str = ""
    """Title in a page's markup or an .epub's package, or ""."""

    dropped_words: Mapping[str, int] = {}
    """Words that are not in the text, by reason."""


def extract_text(data: bytes, *, name: str) -> ExtractedText:
    """Return the text of a file of books.

    Args:
        data: The file. Some mirrors serve gzip files with a .txt name.
        name: Its name, whose suffix decides the format.

    Raises:
        BookError: The file is no text, damaged, or has more than `MAX_BOOK_BYTES`.
    """
    from pipelines.books import epub, html  # lazy: `plan` does not need them

    if len(data) > MAX_BOOK_BYTES:
        raise BookError("too-large")
    if not data.strip(b"\0\t\n\r\x0b\x0c "):
        raise BookError("empty")
    if name.lower().endswith(_EPUB):
        book = epub.read_epub(data, max_bytes=MAX_BOOK_BYTES)
        return ExtractedText(book.text, "", book.title, book.dropped_words)
    decoded = _decode(data)
    if is_page(name):
        page = html.read_html(decoded.text)
        return ExtractedText(page.text, decoded.encoding, page.title, page.dropped_words)
    return ExtractedText(*decoded)


def _decode(data: bytes) -> DecodedText:
    if data.startswith(GZIP):
        try:
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_BOOK_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise BookError("undecodable") from error
    decoded = decode_text(data) if len(data) <= MAX_BOOK_BYTES else None
    if decoded is None:
        raise BookError("undecodable")
    return decoded


def stem_of(name: str) -> str:
    """Return the name of a book without its suffix, as it is in document ids."""
    lowered = name.lower()
    suffix = max((end for end in BOOK_SUFFIXES if lowered.endswith(end)), key=len, default="")
    return name[: len(name) - len(suffix)]


def is_book(name: str) -> bool:
    """Return whether a file with this name is read as a book."""
    return name.lower().endswith(BOOK_SUFFIXES)


def is_page(name: str) -> bool:
    """Return whether a file with this name has markup."""
    return name.lower().endswith((*_PAGE_SUFFIXES, _EPUB))


def read_book(text: str, document_id: str, *, name: str) -> str:
    """Return the part of a file's text that is the book of a document.

    Args:
        text: Result of `extract_text`.
        document_id: Id that `read` gave the book.
        name: Name of the file in its folder or archive.
    """
    from pipelines.books.gutenberg import split_books  # lazy: `plan` does not need it

    stem = re.escape(stem_of(member_name(name)))
    match = re.search(rf"{stem}(?:~[0-9a-f]{{12}})?#(\d{{1,9}})\Z", document_id)
    number = int(match[1]) if match else 1
    books = split_books(text)
    book = books[min(number, len(books)) - 1]
    return text[book.start : book.end]
