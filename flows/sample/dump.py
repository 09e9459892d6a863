"""The sample wiki in the format of the official dumps: multistream bz2, its index, sha1 sums."""

from __future__ import annotations

import bz2
import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from flows.sample.draws import Draws
from flows.sample.pages import Page
from flows.sample.wording import pieces
from pipelines.io.file_systems import file_system


class DumpFiles(NamedTuple):
    """URLs of what was written, and how much it holds."""

    pages: str
    page_index: str
    checksums: str
    page_count: int
    xml_bytes: int
    """Size of the uncompressed XML."""


class _Stream(NamedTuple):
    """XML of a stream, with the number and the title of each page in it."""

    xml: bytes
    titles: list[tuple[int, str]]


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
    root = root.rstrip("/") or root
    fs.makedirs(root, exist_ok=True)
    base = f"samplewiki-{date}-pages-articles-multistream"
    names = (f"{base}.xml.bz2", f"{base}-index.txt.bz2")
    sums = [hashlib.sha1(usedforsecurity=False) for _ in names]  # what the dump format asks for
    page_count = xml_bytes = written = 0
    entries = bz2.BZ2Compressor(compresslevel)
    streams = _streams(pages, date=date, count=pages_per_stream, size=size)
    with fs.open(f"{root}/{names[0]}", "wb") as out, fs.open(f"{root}/{names[1]}", "wb") as index:
        for stored, stream in _compressed(streams, compresslevel):
            lines = "".join(f"{written}:{number}:{title}\n" for number, title in stream.titles)
            for file, digest, data in zip(
                (out, index), sums, (stored, entries.compress(lines.encode())), strict=True
            ):
                file.write(data)
                digest.update(data)
            written += len(stored)
            page_count += len(stream.titles)
            xml_bytes += len(stream.xml)
        last = entries.flush()
        index.write(last)
        sums[1].update(last)
    checksums = f"samplewiki-{date}-sha1sums.txt"
    told = (f"{digest.hexdigest()}  {name}\n" for digest, name in zip(sums, names, strict=True))
    fs.pipe_file(f"{root}/{checksums}", "".join(told).encode())
    paths = [f"{root}/{name}" for name in (*names, checksums)]
    urls = [fs.unstrip_protocol(path) if "://" in folder else path for path in paths]
    return DumpFiles(urls[0], urls[1], urls[2], page_count, xml_bytes)


def _streams(
    pages: Iterable[Page], *, date: str, count: int, size: int | None
) -> Iterator[_Stream]:
    yield _Stream(f"{pieces('dump')['header'][0](None, Draws(0))}\n".encode(), [])
    source = enumerate(pages, 1)
    written = 0
    while (size is None or written < size) and (batch := list(islice(source, count))):
        # Deleted pages leave gaps between the numbers.
        numbered = [(10 + position + position // 7, page) for position, page in batch]
        xml = "".join(_page_xml(page, number, year=date[:4]) for number, page in numbered).encode()
        written += len(xml)
        yield _Stream(xml, [(number, _escape(page.title)) for number, page in numbered])
    yield _Stream(b"</mediawiki>\n", [])


def _compressed(streams: Iterable[_Stream], compresslevel: int) -> Iterator[tuple[bytes, _Stream]]:
    # bz2 lets other threads run, so the next streams are written while these are compressed.
    waiting: deque[tuple[Future[bytes], _Stream]] = deque()
    with ThreadPoolExecutor(2) as pool:
        for stream in streams:
            waiting.append((pool.submit(bz2.compress, stream.xml, compresslevel), stream))
            if len(waiting) > 4:
                done, compressed = waiting.popleft()
                yield done.result(), compressed
        for done, compressed in waiting:
            yield done.result(), compressed


_NOBODY = Draws(0)  # nothing in a page's frame is drawn


def _page_xml(page: Page, number: int, *, year: str) -> str:
    data = page.text.encode()
    sha1 = int.from_bytes(hashlib.sha1(data, usedforsecurity=False).digest(), "big")
    model, form = ("wikitext", "text/x-wiki")
    if page.namespace == 828:
        model, form = ("Scribunto", "text/plain")
    who = f"<ip>192.0.2.{number % 250}</ip>"
    if number % 11:
        who = f"<username>Writer {number % 40}</username>\n        <id>{number % 40 + 1}</id>"
    hour, minute, second = number // 3600 % 24, number // 60 % 60, number % 60
    frame = SimpleNamespace(
        title=_escape(page.title), namespace=page.namespace, number=number,
        redirect=f'    <redirect title="{_escape(page.redirect)}" />\n' if page.redirect else "",
        revision=7 * number + 900_000, who=who, model=model, form=form, bytes=len(data),
        parent=f"      <parentid>{7 * number + 400_000}</parentid>\n" if number % 5 else "",
        time=f"{year}-01-01T{hour:02d}:{minute:02d}:{second:02d}Z",
        minor="" if number % 4 else "      <minor />\n",
        sha1=np.base_repr(sha1, 36).lower().zfill(31),
        text=f">{_escape(page.text)}</text>" if page.text else " />",
    )  # fmt: skip
    return pieces("dump")["page"][0](frame, _NOBODY) + "\n"


def _escape(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;")
