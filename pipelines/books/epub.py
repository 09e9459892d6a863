"""Read the chapters of an .epub in the order of its spine."""

from __future__ import annotations

import io
import posixpath
import urllib.parse
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from lxml import etree

from pipelines.books.errors import BookError
from pipelines.books.html import HEADING_GAP, Page, parse_xml, read_html
from pipelines.books.words import count_words
from pipelines.io.encodings import decode_text

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_DROPPED_GUIDES = {
    **dict.fromkeys(("toc", "loi", "lot", "index"), "list"),
    **dict.fromkeys(("cover", "copyright-page", "colophon"), "license"),
    "title-page": "front-matter",
}
"""Reasons by the types of the book's guide (EPUB 2)."""

_DAMAGE = (
    zipfile.BadZipFile,
    NotImplementedError,  # an unknown method
    RuntimeError,  # an encrypted member
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    etree.XMLSyntaxError,
)


class _Chapter(NamedTuple):
    path: str
    drop_reason: str
    """Reason why the whole file is no text of the book, or ""."""


def read_epub(data: bytes, *, max_bytes: int) -> Page:
    """Return the text of a book, its title, and what was dropped.

    Args:
        data: The file.
        max_bytes: Maximum number of unpacked bytes of all chapters.

    Raises:
        BookError: The file is damaged, encrypted, too large, or no .epub.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _Book(archive, max_bytes).read()
    except _DAMAGE as error:
        raise BookError("malformed") from error


class _Book:
    def __init__(self, archive: zipfile.ZipFile, max_bytes: int) -> None:
        self._archive, self._left = archive, max_bytes

    def read(self) -> Page:
        container = parse_xml(self._unpack(_CONTAINER))
        package_path = container.xpath("string(//*[local-name()='rootfile']/@full-path)")
        package = parse_xml(self._unpack(package_path))
        title = package.xpath("string(//*[local-name()='metadata']/*[local-name()='title'])")
        texts, dropped = list[str](), Counter[str]()
        for chapter in self._list_chapters(package, posixpath.dirname(package_path)):
            decoded = decode_text(self._unpack(chapter.path))
            if decoded is None:
                raise BookError("undecodable")
            page = read_html(decoded.text)
            dropped += page.dropped_words
            if chapter.drop_reason:
                dropped[chapter.drop_reason] += count_words(page.text)
            else:
                texts.append(page.text)
        return Page(HEADING_GAP.join(texts), " ".join(title.split()), dropped)

    def _unpack(self, path: str) -> bytes:
        """Return a file of the archive, whose name is never a path of this machine."""
        if path not in self._archive.NameToInfo:
            raise BookError("malformed")
        with self._archive.open(path) as member:
            data = member.read(self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise BookError("too-large")
        return data

    def _list_chapters(self, package: etree._Element, folder: str) -> list[_Chapter]:
        items = {item.get("id"): item for item in package.iterfind(".//{*}manifest/{*}item")}
        guides = {
            _resolve(folder, guide): _DROPPED_GUIDES.get(guide.get("type", "").lower(), "")
            for guide in package.iterfind(".//{*}guide/{*}reference")
        }
        chapters = dict[str, _Chapter]()
        for entry in package.iterfind(".//{*}spine/{*}itemref"):
            item = items.get(entry.get("idref"))
            if item is None:
                raise BookError("malformed")
            path = _resolve(folder, item)
            is_navigation = "nav" in item.get("properties", "").split()
            chapters[path] = _Chapter(path, "list" if is_navigation else guides.get(path, ""))
        encrypted = self._list_encrypted()
        if not encrypted.isdisjoint(chapters):
            raise BookError("encrypted")
        return list(chapters.values())

    def _list_encrypted(self) -> set[str]:
        if _ENCRYPTION not in self._archive.NameToInfo:
            return set()
        root = parse_xml(self._unpack(_ENCRYPTION))
        uris = (reference.get("URI", "") for reference in root.iterfind(".//{*}CipherReference"))
        return {urllib.parse.unquote(uri) for uri in uris}


def _resolve(folder: str, element: Mapping[str, str]) -> str:
    """Return the name of the member that an element refers to."""
    href = urllib.parse.unquote(element.get("href", "").partition("#")[0])
    return posixpath.normpath(posixpath.join(folder, href))
