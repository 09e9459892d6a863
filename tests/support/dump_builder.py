"""Writes small MediaWiki dumps, in every version and compression, for the tests to read."""

from __future__ import annotations

import bz2
import gzip
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import zstandard

COMPRESS = {
    "": lambda data: data,
    ".bz2": bz2.compress,
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
}
NAMESPACES = {-1: "Special", 0: "", 1: "Talk", 4: "Wikipedia", 6: "File", 14: "Category"}


def compress_7z(data: bytes, *names: str, **options: Any) -> bytes:
    """Return a .7z archive with the data under each name. Default: one file."""
    import py7zr

    buffer = io.BytesIO()
    with py7zr.SevenZipFile(buffer, "w", **options) as archive:
        for name in names or ("dump.xml",):
            archive.writestr(data, name)
    return buffer.getvalue()


def header(*, version: str = "0.11", language: str = "en", siteinfo: bool = True) -> str:
    names = "".join(
        f'<namespace key="{number}" case="first-letter">{name}</namespace>'
        for number, name in NAMESPACES.items()
    )
    site = f"  <siteinfo><namespaces>{names}</namespaces></siteinfo>\n" if siteinfo else ""
    return (
        f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-{version}/" version="{version}" '
        f'xml:lang="{language}">\n{site}'
    )


def page(
    number: int,
    text: str | None = None,
    *,
    title: str | None = None,
    namespace: int | None = 0,
    inside: str = "",
    model: str | None = "wikitext",
    revision: int | None = None,
) -> str:
    """A page as MediaWiki writes it; without `<ns>` or `<model>` where they are None."""
    said = f"Page {number} says that {'ink and paper ' * 5}are number {number}."
    ns = "" if namespace is None else f"    <ns>{namespace}</ns>\n"
    kind = "" if model is None else f"      <model>{model}</model>\n"
    return (
        f"  <page>\n    <title>{escape(title or f'Page {number}')}</title>\n{ns}"
        f"    <id>{number}</id>\n{inside}    <revision>\n"
        f"      <id>{1000 + number if revision is None else revision}</id>\n"
        f"      <parentid>7</parentid>\n      <timestamp>2025-01-01T00:00:00Z</timestamp>\n"
        f"      <contributor>\n        <username>Ada</username>\n        <id>99</id>\n"
        f"      </contributor>\n      <comment>hello &amp; bye</comment>\n{kind}"
        f'      <text xml:space="preserve">{escape(said if text is None else text)}</text>\n'
        f"    </revision>\n  </page>\n"
    )


def dump(pages: Sequence[str], **said: object) -> bytes:
    return (header(**said) + "".join(pages) + "</mediawiki>\n").encode()  # type: ignore[arg-type]


def write_multistream(
    folder: Path, pages: Sequence[str], *, per_stream: int, index: bool = True
) -> tuple[Path, list[int]]:
    """A multistream dump, its index, and where its streams start."""
    groups = [pages[i : i + per_stream] for i in range(0, len(pages), per_stream)]
    texts = [header(), *("".join(group) for group in groups), "</mediawiki>\n"]
    streams = [bz2.compress(text.encode()) for text in texts]
    offsets = [sum(map(len, streams[:i])) for i in range(len(streams))]
    path = folder / "xxwiki-20250101-pages-articles-multistream.xml.bz2"
    path.write_bytes(b"".join(streams))
    if index:
        lines = [
            f"{offset}:{number}:A title: with a colon\n"
            for offset, group in zip(offsets[1:-1], groups, strict=True)
            for number, _ in enumerate(group)
        ]
        name = "xxwiki-20250101-pages-articles-multistream-index.txt.bz2"
        (folder / name).write_bytes(bz2.compress("".join(lines).encode()))
    return path, offsets
