"""Books as .epub, written here."""

from __future__ import annotations

import io
import zipfile

import pytest
from support.archive_builder import epub_bytes, xhtml, zip_bytes

from pipelines.books.epub import read_epub
from pipelines.books.errors import BookError
from pipelines.books.html import Page

CHAPTERS = {f"{number}.xhtml": f"<h2>{number}</h2><p>Text {number}.</p>" for number in range(3)}


def read(data: bytes, *, max_bytes: int = 1 << 20) -> Page:
    return read_epub(data, max_bytes=max_bytes)


def texts(page: Page) -> list[str]:
    return [line for line in page.text.split("\n") if line.startswith("Text")]


@pytest.mark.parametrize("folder", ["OEBPS/", "a b/c/", ""])
def test_chapters_are_in_the_order_of_the_spine(folder: str) -> None:
    data = epub_bytes(CHAPTERS, spine=["2.xhtml", "0.xhtml"], title="  Un  été ", folder=folder)
    page = read(data)
    assert texts(page) == ["Text 2.", "Text 0."]
    assert page.title == "Un été"


def test_navigation_cover_and_license_are_dropped_and_counted() -> None:
    chapters = {
        "cover.xhtml": "<p>Cover words</p>",
        "nav.xhtml": "<h1>Contents</h1><ol><li><a href='0.xhtml'>One</a></li></ol>",
        "toc.html": "<p>0 1 2</p>",
        **CHAPTERS,
        "imprint.xhtml": "<section epub:type='imprint'><p>Made by us</p></section>",
    }
    nav = '<item id="nav.xhtml" href="nav.xhtml" properties="nav"/>'
    guide = (
        '<reference type="cover" href="cover.xhtml"/><reference type="toc" href="toc.html#x"/>'
        '<reference type="text" href="0.xhtml"/>'
    )
    page = read(epub_bytes(chapters, items=nav, guide=guide))
    assert texts(page) == ["Text 0.", "Text 1.", "Text 2."]
    assert page.text.split() == ["0", "Text", "0.", "1", "Text", "1.", "2", "Text", "2."]
    assert page.dropped_words == {"license": 5, "list": 5}


def test_chapter_that_is_named_twice_is_read_once() -> None:
    encoded = '<item id="1.xhtml" href="%31.xhtml"/>'
    data = epub_bytes(CHAPTERS, items=encoded, spine=["1.xhtml", "0.xhtml", "1.xhtml"])
    assert texts(read(data)) == ["Text 1.", "Text 0."]


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><container>&b;</container>'
OUTSIDE = '<item id="x" href="../../../etc/hostname"/>'
KEYS = (
    '<encryption xmlns:enc="http://www.w3.org/2001/04/xmlenc#"><enc:EncryptedData>'
    '<enc:CipherData><enc:CipherReference URI="OEBPS/{}"/></enc:CipherData>'
    "</enc:EncryptedData></encryption>"
)
HOSTILE = {
    "no zip": (b"no zip at all", "malformed"),
    "cut": (epub_bytes(CHAPTERS)[:-30], "malformed"),
    "no container": (zip_bytes([("a.xhtml", b"<p>a")]), "malformed"),
    "entities": (
        epub_bytes(CHAPTERS, more={"META-INF/container.xml": BOMB.encode()}),
        "malformed",
    ),
    "no XML": (epub_bytes(CHAPTERS, more={"OEBPS/package.opf": b"<package"}), "malformed"),
    "path out of the book": (epub_bytes(CHAPTERS, items=OUTSIDE, spine=["x"]), "malformed"),
    "absolute path": (
        epub_bytes(CHAPTERS, items=OUTSIDE.replace("../../..", ""), spine=["x"]),
        "malformed",
    ),
    "chapter without item": (epub_bytes(CHAPTERS, spine=["9.xhtml"]), "malformed"),
    "bytes that are no text": (
        epub_bytes(CHAPTERS, more={"OEBPS/0.xhtml": bytes(range(256)) * 9}),
        "undecodable",
    ),
    "encrypted": (
        epub_bytes(CHAPTERS, more={"META-INF/encryption.xml": KEYS.format("1.xhtml").encode()}),
        "encrypted",
    ),
    "bomb": (epub_bytes({"0.xhtml": "<p>a</p>" * 200_000}), "too-large"),
    "bomb of many chapters": (
        epub_bytes({f"{n}.xhtml": f"<p>{'a ' * 50_000}</p>" for n in range(20)}),
        "too-large",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_book_that_cannot_be_read_has_a_reason(kind: str) -> None:
    data, reason = HOSTILE[kind]
    with pytest.raises(BookError) as error:
        read(data)
    assert error.value.reason == reason


def test_encrypted_fonts_do_not_matter() -> None:
    keys = KEYS.format("font.otf").encode()
    assert len(texts(read(epub_bytes(CHAPTERS, more={"META-INF/encryption.xml": keys})))) == 3


def test_damaged_chapter_is_an_error() -> None:
    data = epub_bytes({"0.xhtml": "<p>unique words</p>"})
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        start = archive.getinfo("OEBPS/0.xhtml").header_offset + 60
    with pytest.raises(BookError):
        read(data[:start] + b"\0\0\0\0" + data[start + 4 :])


def test_page_in_utf_16_is_read() -> None:
    page = xhtml("<p>Text é.</p>").replace("utf-8", "utf-16").encode("utf-16")
    assert texts(read(epub_bytes({"0.xhtml": ""}, more={"OEBPS/0.xhtml": page}))) == ["Text é."]
