"""The sample wiki in the format of the official dumps: multistream bz2, its index, sha1 sums."""

from __future__ import annotations

import bz2
import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, NamedTuple

from flows.sample.pages import Page
from pipelines.io.file_systems import file_system

NAMESPACES = {
    -2: "Media", -1: "Special", 0: "", 1: "Talk", 2: "User", 3: "User talk", 4: "Samplewiki",
    5: "Samplewiki talk", 6: "File", 7: "File talk", 8: "MediaWiki", 9: "MediaWiki talk",
    10: "Template", 11: "Template talk", 12: "Help", 13: "Help talk", 14: "Category",
    15: "Category talk", 828: "Module", 829: "Module talk",
}  # fmt: skip
_XMLNS = "http://www.mediawiki.org/xml/export-0.11/"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class DumpFiles(NamedTuple):
    """URLs of what was written, and how much it holds."""

    pages: str
    page_index: str
    checksums: str
    page_count: int
    xml_bytes: int
    """Size of the uncompressed XML."""


def write_dump(
    folder: str,
    pages: Iterable[Page],
    *,
    date: str,
    pages_per_stream: int = 100,
    compresslevel: int = 9,
    size: int | None = None,
) -> DumpFiles:
    """Write the pages as `samplewiki-DATE-pages-articles-multistream.xml.bz2` with its companions.

    Args:
        folder: path or fsspec URL; it is made where it does not exist.
        date: eight digits; also the year of the revisions.
        pages_per_stream: the official dumps have 100.
        compresslevel: of bz2, 1 to 9.
        size: stop after the stream that reaches so many bytes of XML; None writes all pages.

    Memory holds a few streams, whatever the size of the dump.
    """
    fs, root = file_system(folder)
    fs.makedirs(root, exist_ok=True)
    base = f"samplewiki-{date}-pages-articles-multistream"
    names = (f"{base}.xml.bz2", f"{base}-index.txt.bz2")
    paths = [f"{root.rstrip('/')}/{name}" for name in names]
    counter = _XmlCounter()
    with fs.open(paths[0], "wb") as raw, fs.open(paths[1], "wb") as raw_index:
        out, index = _Hashed(raw), _Hashed(raw_index)
        entries = bz2.BZ2Compressor(compresslevel)
        streams = _streams(pages, counter, date=date, count=pages_per_stream, size=size)
        for stored, titles in _compressed(streams, compresslevel):
            if titles:
                lines = "".join(f"{out.written}:{number}:{title}\n" for number, title in titles)
                index.write(entries.compress(lines.encode()))
            out.write(stored)
        index.write(entries.flush())
    sums = "".join(f"{f.sha1}  {name}\n" for f, name in zip((out, index), names, strict=True))
    checksums = f"{root.rstrip('/')}/samplewiki-{date}-sha1sums.txt"
    fs.pipe_file(checksums, sums.encode())
    urls = [fs.unstrip_protocol(p) if "://" in folder else p for p in (*paths, checksums)]
    return DumpFiles(urls[0], urls[1], urls[2], counter.pages, counter.bytes)


class _XmlCounter:
    def __init__(self) -> None:
        self.pages = 0
        self.bytes = 0


class _Hashed:
    """Writes, counts and hashes at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha1(usedforsecurity=False)  # what the dump format asks for
        self.written = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.written += len(data)

    @property
    def sha1(self) -> str:
        return self._digest.hexdigest()


_Stream = tuple[bytes, list[tuple[int, str]]]
"""XML of a stream, with the number and the title of each page in it."""


def _streams(
    pages: Iterable[Page], counter: _XmlCounter, *, date: str, count: int, size: int | None
) -> Iterator[_Stream]:
    def stream(xml: list[str], titles: list[tuple[int, str]]) -> _Stream:
        data = "".join(xml).encode()
        counter.bytes += len(data)
        return data, titles

    yield stream([_header()], [])
    xml: list[str] = []
    titles: list[tuple[int, str]] = []
    for page in pages:
        counter.pages += 1
        number = 10 + counter.pages + counter.pages // 7  # deleted pages leave gaps
        xml.append(_page_xml(page, number, year=date[:4]))
        titles.append((number, _escape(page.title)))
        if len(xml) == count:
            yield stream(xml, titles)
            xml, titles = [], []
            if size is not None and counter.bytes >= size:
                break
    if xml:
        yield stream(xml, titles)
    yield stream(["</mediawiki>\n"], [])


def _compressed(
    streams: Iterable[_Stream], compresslevel: int
) -> Iterator[tuple[bytes, list[tuple[int, str]]]]:
    # bz2 lets other threads run, so the next streams are written while these are compressed.
    waiting: deque[tuple[Future[bytes], list[tuple[int, str]]]] = deque()
    with ThreadPoolExecutor(2) as pool:
        for xml, titles in streams:
            waiting.append((pool.submit(bz2.compress, xml, compresslevel), titles))
            if len(waiting) > 4:
                done, its_titles = waiting.popleft()
                yield done.result(), its_titles
        for done, its_titles in waiting:
            yield done.result(), its_titles


def _header() -> str:
    spaces = "".join(
        f'      <namespace key="{key}" case="first-letter"'
        + (f">{name}</namespace>\n" if name else " />\n")
        for key, name in NAMESPACES.items()
    )
    return (
        f'<mediawiki xmlns="{_XMLNS}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        f'xsi:schemaLocation="{_XMLNS} http://www.mediawiki.org/xml/export-0.11.xsd" '
        'version="0.11" xml:lang="en">\n  <siteinfo>\n    <sitename>Samplewiki</sitename>\n'
        "    <dbname>samplewiki</dbname>\n"
        "    <base>https://sample.example.org/wiki/Main_Page</base>\n"
        "    <generator>MediaWiki 1.45.0-wmf.1</generator>\n    <case>first-letter</case>\n"
        f"    <namespaces>\n{spaces}    </namespaces>\n  </siteinfo>\n"
    )


def _page_xml(page: Page, number: int, *, year: str) -> str:
    data = page.text.encode()
    sha1 = _base36(hashlib.sha1(data, usedforsecurity=False).digest())
    redirect = f'    <redirect title="{_escape(page.redirect)}" />\n' if page.redirect else ""
    text = f">{_escape(page.text)}</text>" if page.text else " />"
    lua = page.namespace == 828
    model, form = ("Scribunto", "text/plain") if lua else ("wikitext", "text/x-wiki")
    who = (
        f"<username>Writer {number % 40}</username>\n        <id>{number % 40 + 1}</id>"
        if number % 11
        else f"<ip>192.0.2.{number % 250}</ip>"
    )
    parent = f"      <parentid>{7 * number + 400_000}</parentid>\n" if number % 5 else ""
    minor = "      <minor />\n" if number % 4 == 0 else ""
    when = f"{year}-01-01T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z"
    return (
        f"  <page>\n    <title>{_escape(page.title)}</title>\n    <ns>{page.namespace}</ns>\n"
        f"    <id>{number}</id>\n{redirect}    <revision>\n      <id>{7 * number + 900_000}</id>\n"
        f"{parent}      <timestamp>{when}</timestamp>\n      <contributor>\n        {who}\n"
        f"      </contributor>\n{minor}      <comment>/* Edit */ checked &amp; linked</comment>\n"
        f"      <origin>{7 * number + 900_000}</origin>\n      <model>{model}</model>\n"
        f"      <format>{form}</format>\n"
        f'      <text bytes="{len(data)}" sha1="{sha1}" xml:space="preserve"{text}\n'
        f"      <sha1>{sha1}</sha1>\n    </revision>\n  </page>\n"
    )


def _escape(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;")


def _base36(digest: bytes) -> str:
    number = int.from_bytes(digest, "big")
    digits = []
    for _ in range(31):
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
