"""The raw text that a document was made of, read again from its raw file; its page on the web.

A raw file may be gone, be another by now, or be one long compressed stream in which the document
lies far behind: then a sentence says so. Nothing is hashed; a file of another size is another file.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pipelines.io.compression import Chunk, Compression, Damage, compression_of, decompressed
from pipelines.io.encodings import decode_text
from pipelines.io.file_systems import A_LITTLE
from pipelines.io.lines import is_compressed
from pipelines.io.raw_files import file_size, open_file
from pipelines.io.splits import SourceFile
from pipelines.mediawiki.dump_encoding import Encoding, in_utf_8, tell_encoding
from pipelines.mediawiki.dump_header import Header, read_header, site_of_dump
from pipelines.mediawiki.dump_xml import Page, iterate_pages
from pipelines.sources.archives import is_archive, read_members
from pipelines.sources.books import MAX_BOOK_BYTES, decode_book
from schemas.errors import BertloomError, InputError
from schemas.manifest import Manifest, RawInput

MOST_BYTES = 256 << 20
"""Unpacked bytes that are read through, at most, to come to a document."""

_MOST_TEXT = 4 << 20
_HEAD = 1 << 16
_SIGNATURE = 8
_DIGEST = re.compile(r"~([0-9a-f]{12})\Z")
_TXT = re.compile(r"\.txt(\.gz)?\Z", re.IGNORECASE)


class RawText(NamedTuple):
    """A document as its raw file has it."""

    text: str
    """Wikitext of a page; a book's or row's own text. "" where there is a problem."""

    member: str = ""
    """Path of a book within its archive or folder."""

    problem: str = ""
    """Why there is no text, in a sentence."""

    is_final: bool = True
    """Whether it will be so the next time: not where a file could not be read."""


class WebPage(NamedTuple):
    """Where a page of a wiki is to be seen; "" where that is not known."""

    page: str = ""
    revision: str = ""


class Dump(NamedTuple):
    """What is known of a dump's file before its pages are read."""

    header: Header
    compression: Compression
    encoding: Encoding


def source_of(documents: Manifest, name: str) -> Mapping[str, Any]:
    """The configuration of a source of a documents artifact; empty if there is none."""
    sources = documents.config.get("sources", ())
    return next((item for item in sources if item.get("name") == name), {})


def language_of(documents: Manifest, source: str, raw: RawInput | None) -> str:
    """ISO 639 code of a source: the recipe's, or else what its dump says; "" where none does."""
    config = source_of(documents, source)
    if config.get("language") or config.get("kind") != "wikipedia" or raw is None:
        return str(config.get("language") or "")
    try:
        return open_dump(raw).header.language
    except (BertloomError, OSError):
        return ""


def web_page(raw: RawInput | None, document: Mapping[str, Any]) -> WebPage:
    """A page's address, by the dump's `<base>` or, where the dump is gone, by its file's name.

    Args:
        raw: the dump.
        document: `page_id` and `revision_id` of the documents table.
    """
    page, revision = document["page_id"], document["revision_id"]
    root = web_root(raw) if raw is not None and page is not None else ""
    if not root:
        return WebPage()
    return WebPage(f"{root}/?curid={page}", f"{root}/?oldid={revision}" if revision else "")


def web_root(raw: RawInput) -> str:
    """`https://HOST` of the wiki that a dump is of; "" where it cannot be told."""
    try:
        site = open_dump(raw).header.site
    except (BertloomError, OSError):
        site = ""
    return site or site_of_dump(raw.name)


def read_raw(
    documents: Manifest,
    raw: RawInput | None,
    document: Mapping[str, Any],
    *,
    most_bytes: int = MOST_BYTES,
) -> RawText:
    """A document as its raw file has it, or why that cannot be read.

    Args:
        documents: the artifact that the document is in.
        raw: its raw file; None where the manifest lists none.
        document: a row of the documents table.
        most_bytes: unpacked bytes that are read through, at most, to come to it.
    """
    if raw is None:
        return RawText("", problem="The manifest does not list the raw file.")
    kind = source_of(documents, document["source"]).get("kind", "")
    read = {"wikipedia": _wikitext, "books": _book}.get(kind, _lines)
    try:
        return read(raw, document, most_bytes)
    except (BertloomError, OSError, ValueError) as error:
        return RawText("", problem=f"The raw file cannot be read: {error}", is_final=False)


def check_same(raw: RawInput) -> None:
    """Refuse a file that is not as long as the one that was read.

    Raises:
        InputError: it is missing, or has another size.
    """
    size = file_size(raw.uri)
    if size != raw.size:
        raise InputError(
            f"{raw.uri}: expected the {raw.size:,} bytes that were read, found {size:,}: it is "
            "another file by now"
        )


def _budgeted(chunks: Iterator[Chunk | Damage], most_bytes: int) -> Iterator[Chunk | Damage]:
    """Raises InputError behind so many unpacked bytes."""
    read = 0
    for chunk in chunks:
        if isinstance(chunk, Chunk):
            read += len(chunk.data)
        yield chunk
        if read > most_bytes:
            raise InputError(
                f"it lies more than {most_bytes >> 20:,} MB deep in what is compressed as one "
                "stream, and is not looked for there"
            )


# Pages


def open_dump(raw: RawInput) -> Dump:
    """What a dump says before its pages.

    Raises:
        InputError: it is gone, is another file by now, or is no dump.
    """
    found = open_cached(raw.uri, raw.size, raw.sha256)
    if isinstance(found, str):
        raise InputError(found)
    return found


@functools.lru_cache(maxsize=1024)
def open_cached(uri: str, size: int, sha256: str) -> Dump | str:
    """What `open_dump` gives, or the error: a server that is gone is asked once."""
    try:
        check_same(RawInput(name="", uri=uri, size=size, sha256=sha256))
        with open_file(uri, ahead=A_LITTLE) as source:
            compression = compression_of(source.read(_SIGNATURE), name=uri)
            stored = decompressed(source, compression, start=0, end=size)
            encoding, stored = tell_encoding(stored, where=uri)
            header = read_header(in_utf_8(stored, encoding=encoding, end=size), where=uri)
    except (BertloomError, OSError) as error:
        return str(error)
    return Dump(Header() if isinstance(header, Damage) else header, compression, encoding)


def dump_pages(
    raw: RawInput, *, start: int = 0, end: int | None = None, most_bytes: int = MOST_BYTES
) -> Iterator[Page | Damage]:
    """The pages of a dump from a page or stream on, as the file has them.

    Args:
        raw: the dump.
        start: `byte_start` of a page; of what is no bzip2 and not plain it is 0.
        end: `byte_end` of the last of them; None for the file's.
        most_bytes: as of `read_raw`.

    Raises:
        InputError: the file is gone, is another by now, or most_bytes are read.
    """
    dump = open_dump(raw)
    if dump.encoding != "utf-8" or dump.compression not in ("plain", "bz2"):
        start, end = 0, None
    end = raw.size if end is None else end
    with open_file(raw.uri) as source:
        stored = decompressed(source, dump.compression, start=start, end=end)
        stored = in_utf_8(_budgeted(stored, most_bytes), encoding=dump.encoding, end=raw.size)
        yield from iterate_pages(
            stored, end=end, at_start=False, at_end=False, tags=dump.header.tags
        )


def _wikitext(raw: RawInput, document: Mapping[str, Any], most_bytes: int) -> RawText:
    wanted = tuple(document[name] for name in ("page_id", "revision_id", "title"))
    start, end = document["byte_start"], max(document["byte_end"], document["byte_start"] + 1)
    for page in dump_pages(raw, start=start, end=end, most_bytes=most_bytes):
        if isinstance(page, Page) and (page.page_id, page.revision_id, page.title) == wanted:
            return RawText(page.text)
    return RawText("", problem=f"{raw.uri}: has no such page any more: it is another file by now.")


# Books and rows


def _book(raw: RawInput, document: Mapping[str, Any], most_bytes: int) -> RawText:
    check_same(raw)
    if not is_archive(raw.name):
        with open_file(raw.uri) as stream:
            return _book_text(raw.name, stream.read(MAX_BOOK_BYTES + 1))
    stem = document["document_id"].removeprefix(f"{document['source']}:")
    digest = _DIGEST.search(stem)
    plain = stem[: digest.start()] if digest else stem
    for name, data in _books(raw, document, most_bytes):
        found = _TXT.sub("", name)
        if digest is not None and found == plain:
            found += f"~{hashlib.sha256(data).hexdigest()[: len(digest[1])]}"
        if found == stem:
            return _book_text(name, data)
    return RawText("", problem=f"{raw.uri}: has no {stem}.txt any more.")


def _book_text(name: str, data: bytes) -> RawText:
    decoded = decode_book(data)
    if decoded is None:
        return RawText("", name, f"{name}: is no text that can be decoded.")
    return RawText(decoded.text.removeprefix("\ufeff"), name)


def _books(
    raw: RawInput, document: Mapping[str, Any], most_bytes: int
) -> Iterator[tuple[str, bytes]]:
    """Yield names and bytes of the archive's books that the document may be."""
    wanted, passed = document["document_id"], 0
    file = SourceFile(raw.uri, raw.name, raw.size, raw.sha256)
    for member, stream in read_members(file, max_bytes=MAX_BOOK_BYTES):
        stem = _TXT.sub("", member.name)
        if stream is not None and stem and stem in wanted:
            yield member.name, stream.read(MAX_BOOK_BYTES + 1)
        passed += member.size if member.data_start == 0 else 0
        if passed > most_bytes:
            raise InputError(
                f"{raw.uri}: it lies more than {most_bytes >> 20:,} MB deep in a compressed "
                "archive, and is not looked for there"
            )


def _lines(raw: RawInput, document: Mapping[str, Any], most_bytes: int) -> RawText:
    """The bytes of a row; of a compressed file from the place on that the document's id says."""
    check_same(raw)
    file = SourceFile(raw.uri, raw.name, raw.size, raw.sha256)
    start, end = document["byte_start"], document["byte_end"]
    if raw.name.lower().endswith((".parquet", ".pq")) or is_archive(raw.name):
        return RawText(
            "", raw.name, "The text of a table's row or an archive's lines is not shown."
        )
    if is_compressed(file):
        at = document["document_id"].rpartition(":")[2].partition("#")[0]
        if not at.isdigit():
            return RawText("", problem="Its id does not say where in the compressed file it is.")
        return RawText(_unpacked(raw, int(at), most_bytes))
    with open_file(raw.uri, start=start) as source:
        data = source.read(min(end - start, _MOST_TEXT))
    decoded = decode_text(data)
    return RawText(decoded.text if decoded else data.decode("utf-8", "replace"))


def _unpacked(raw: RawInput, at: int, most_bytes: int) -> str:
    with open_file(raw.uri) as source:
        compression = compression_of(source.read(_SIGNATURE), name=raw.uri)
        passed, found = 0, b""
        chunks = decompressed(source, compression, start=0, end=raw.size)
        for chunk in _budgeted(chunks, most_bytes):
            if isinstance(chunk, Damage):
                break
            found += chunk.data[max(0, at - passed) :]
            passed += len(chunk.data)
            if len(found) > _HEAD:
                break
    return found[:_HEAD].decode("utf-8", "ignore")
