"""Pages as a dump in the form of the official ones: multistream bz2, its index, SHA-1 sums."""

from __future__ import annotations

import bz2
import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple
from xml.sax.saxutils import escape

import numpy as np

from flows.sample.pages import Page
from pipelines.io.file_systems import file_system


class DumpFiles(NamedTuple):
    """URLs of a dump (or paths, as the folder was given), and its size."""

    pages: str
    page_index: str
    checksums: str
    page_count: int
    """Number of articles, redirects and pages of other namespaces."""

    xml_bytes: int
    """Size before compression."""


def write_dump(
    folder: str, pages: Iterable[Page], *, date: str = "20260101", pages_per_stream: int = 100
) -> DumpFiles:
    """Write pages as `samplewiki-DATE-pages-articles-multistream.xml.bz2`, its index and its sums.

    Memory holds one stream and the index, however large the dump is.

    Args:
        folder: path or fsspec URL; it is created if it does not exist.
        pages: the pages, in order.
        date: eight digits, for the names of the files and the time of the revisions.
        pages_per_stream: pages of each bz2 stream; the official dumps have 100.
    """
    fs, root = file_system(folder)
    fs.makedirs(root, exist_ok=True)
    base = f"samplewiki-{date}-pages-articles-multistream"
    names = (f"{base}.xml.bz2", f"{base}-index.txt.bz2", f"samplewiki-{date}-sha1sums.txt")
    paths = [f"{root.rstrip('/')}/{name}" for name in names]
    sha1 = hashlib.sha1(usedforsecurity=False)  # the format asks for SHA-1
    offset = xml_bytes = 0
    index = list[str]()
    with fs.open(paths[0], "wb") as out:
        for xml, titles in _streams(pages, year=date[:4], count=pages_per_stream):
            data = bz2.compress(xml)
            out.write(data)
            sha1.update(data)
            index += [f"{offset}:{page_id}:{title}\n" for page_id, title in titles]
            offset += len(data)
            xml_bytes += len(xml)
    index_data = bz2.compress("".join(index).encode())
    sums = sha1.hexdigest(), hashlib.sha1(index_data, usedforsecurity=False).hexdigest()
    fs.pipe_file(paths[1], index_data)
    fs.pipe_file(paths[2], f"{sums[0]}  {names[0]}\n{sums[1]}  {names[1]}\n".encode())
    urls = [fs.unstrip_protocol(path) if "://" in folder else path for path in paths]
    return DumpFiles(urls[0], urls[1], urls[2], len(index), xml_bytes)


def _streams(
    pages: Iterable[Page], *, year: str, count: int
) -> Iterator[tuple[bytes, list[tuple[int, str]]]]:
    """Yield the XML of each stream with the id and title of its pages."""
    yield _HEADER.encode(), []
    numbered = enumerate(pages, 1)
    while batch := list(islice(numbered, count)):
        # Deleted pages leave gaps between the ids.
        with_ids = [(10 + number + number // 7, page) for number, page in batch]
        xml = "".join(_page_xml(page, page_id, year) for page_id, page in with_ids).encode()
        yield xml, [(page_id, escape(page.title)) for page_id, page in with_ids]
    yield b"</mediawiki>\n", []


def _page_xml(page: Page, page_id: int, year: str) -> str:
    data = page.text.encode()
    sha1 = int.from_bytes(hashlib.sha1(data, usedforsecurity=False).digest(), "big")
    user = f"<username>Writer {page_id % 40}</username><id>{page_id % 40 + 1}</id>"
    return _PAGE.format(
        title=_escape(page.title), namespace=page.namespace, page_id=page_id, year=year,
        redirect=f'<redirect title="{_escape(page.redirect)}" />' if page.redirect else "",
        revision=7 * page_id + 900_000, seconds=f"{page_id // 60 % 60:02d}:{page_id % 60:02d}",
        user=user if page_id % 11 else f"<ip>192.0.2.{page_id % 250}</ip>",
        model="Scribunto" if page.namespace == 828 else "wikitext", bytes=len(data),
        text=f">{_escape(page.text)}</text>" if page.text else " />",
        sha1=np.base_repr(sha1, 36).lower().zfill(31),
    )  # fmt: skip


def _escape(text: str) -> str:
    return escape(text, {'"': "&quot;"})


_NAMESPACES = {
    0: "", 1: "Talk", 2: "User", 3: "User talk", 4: "Samplewiki", 6: "File", 8: "MediaWiki",
    10: "Template", 12: "Help", 14: "Category", 828: "Module",
}  # fmt: skip

_NAMESPACE_ELEMENTS = "".join(
    f'<namespace key="{key}">{name}</namespace>' for key, name in _NAMESPACES.items()
)

_HEADER = f"""\
<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <siteinfo>
    <sitename>Samplewiki</sitename>
    <dbname>samplewiki</dbname>
    <base>https://sample.example.org/wiki/Main_Page</base>
    <generator>MediaWiki 1.45.0-wmf.1</generator>
    <case>first-letter</case>
    <namespaces>
      {_NAMESPACE_ELEMENTS}
    </namespaces>
  </siteinfo>
"""

_PAGE = """\
  <page>
    <title>{title}</title>
    <ns>{namespace}</ns>
    <id>{page_id}</id>
    {redirect}
    <revision>
      <id>{revision}</id>
      <timestamp>{year}-01-01T00:{seconds}Z</timestamp>
      <contributor>{user}</contributor>
      <comment>checked &amp; linked</comment>
      <model>{model}</model>
      <format>text/x-wiki</format>
      <text bytes="{bytes}" sha1="{sha1}" xml:space="preserve"{text}
      <sha1>{sha1}</sha1>
    </revision>
  </page>
"""
