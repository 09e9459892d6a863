"""Dumps in several files, as large wikis publish theirs: written, changed in one file, and read."""

from __future__ import annotations

import bz2
import gzip
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

from flows.sample import SampleFiles


def read_articles(path: Path) -> Iterator[tuple[str, str]]:
    """(title, wikitext) of the articles in a dump, as far as it is whole."""
    opened = gzip.open if path.suffix == ".gz" else bz2.open
    page: dict[str, str] = {}
    with opened(path, "rb") as stream:
        try:
            for _, element in ElementTree.iterparse(stream):
                tag = element.tag.rpartition("}")[2]
                page[tag] = element.text or ""
                if tag == "page":
                    if "redirect" not in page and page.get("ns", "0") == "0":
                        yield page["title"], page["text"]
                    page = {}
                    element.clear()
        except (ElementTree.ParseError, EOFError):
            return  # some of the dumps are truncated on purpose


def _streams(data: bytes) -> Iterator[bytes]:
    while data:
        unpacker = bz2.BZ2Decompressor()
        unpacker.decompress(data)
        yield data[: len(data) - len(unpacker.unused_data)]
        data = unpacker.unused_data


def write_parts(sample: SampleFiles, folder: Path, *, parts: int) -> list[Path]:
    """Files of about as many streams of pages each, all with the dump's header and end."""
    first, *pages, last = _streams(Path(sample.pages).read_bytes())
    folder.mkdir()
    paths = []
    for number in range(parts):
        start, stop = (len(pages) * end // parts for end in (number, number + 1))
        path = folder / f"samplewiki-20260101-pages-articles{number + 1}.xml.bz2"
        path.write_bytes(b"".join([first, *pages[start:stop], last]))
        paths.append(path)
    return paths


def change_part(path: Path) -> None:
    """Edit some pages of a file, which moves all bytes after them."""
    first, changed, *rest = _streams(path.read_bytes())
    text = bz2.decompress(changed).decode()
    said = r"\1The people of the valley tell this story in another way.\n\n"
    retold, pages = re.subn(r"(<text[^>]*>)(?!#)", said, text)
    assert pages > 1
    path.write_bytes(b"".join([first, bz2.compress(retold.encode()), *rest]))
