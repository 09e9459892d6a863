"""Raw text of a document, read again from its raw file, and its page on the web.

Files are compared by size only. If a file is missing or has changed, the result has the reason as
a sentence.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from flows.formatting import format_bytes
from pipelines.books.errors import BookError
from pipelines.io.compression import Compression, Damage, compression_of, decompressed
from pipelines.io.encodings import convert_to_utf8
from pipelines.io.file_systems import SMALL_READ_AHEAD
from pipelines.io.lines import read_chunks
from pipelines.io.raw_files import file_size, open_file
from pipelines.io.splits import SourceFile
from pipelines.mediawiki.dumps import (
    Header,
    Page,
    iterate_pages,
    read_header,
    site_of_dump,
)
from pipelines.mediawiki.pages import page_url, revision_url
from pipelines.sources.archives import Member, is_archive, is_compressed_tar, read_members
from pipelines.sources.book_files import MAX_BOOK_BYTES, extract_text, read_book, stem_of
from schemas.errors import BertloomError, InputError
from schemas.manifest import Manifest, RawInput

_MAX_ROW, _MAX_STREAM_ROW = 4 << 20, 1 << 16
_SIGNATURE = 8
_DIGEST = re.compile(r"~([0-9a-f]{12})\Z")
_NUMBER = re.compile(r"#\d+\Z")


@dataclass(frozen=True)
class RawText:
    """Text of a document as its raw file has it.

    Attributes:
        text: Wikitext of a page, or text of a book or row. "" if there is a problem.
        member: Path of a book in its archive or folder.
        problem: Reason why there is no text, as a sentence.
    """

    text: str
    member: str = ""
    problem: str = ""


def find_raw_file(documents: Manifest, document: Mapping[str, Any]) -> RawInput | None:
    """Return the raw file of a row of the documents table; None if the manifest lists none.

    Among equal files, it is the one whose name is in the document's id.
    """

    def common_length(item: RawInput) -> int:
        stem = f"{document['source']}:{stem_of(item.name)}"
        return len(stem) if document["document_id"].startswith(stem) else 0

    files = [item for item in documents.raw_inputs if item.sha256 == document["file"]]
    return max(files, key=common_length, default=None)


def find_member(
    documents: Manifest,
    raw: RawInput | None,
    document: Mapping[str, Any],
    *,
    max_bytes: float = math.inf,
) -> str:
    """Return the name of a book in its archive, "" for other files.

    The name is without its suffix where only unpacking the whole archive would show it, or if the
    archive cannot be read or is larger than `max_bytes`.
    """
    if raw is None or not is_archive(raw.name) or _kind(documents, document) != "books":
        return ""
    stem = document["document_id"].removeprefix(f"{document['source']}:")
    names = {stem, _DIGEST.sub("", stem)}
    if not is_compressed_tar(raw.name) and raw.size_bytes <= max_bytes:
        file = SourceFile(raw.uri, raw.name, raw.size_bytes, raw.sha256)
        with contextlib.suppress(BertloomError, OSError):
            for member, _ in read_members(file, max_bytes=0):
                if stem_of(member.name) in names and _is_at(member, document):
                    return member.name
    return _DIGEST.sub("", stem)


def _is_at(member: Member, document: Mapping[str, Any]) -> bool:
    return (member.data_start, member.data_end) == (document["byte_start"], document["byte_end"])


def web_urls(raw: RawInput | None, document: Mapping[str, Any]) -> tuple[str, str]:
    """Return the URLs of a document's wiki page and of its revision; "" if unknown."""
    page_id = document["page_id"]
    site = web_root(raw) if raw is not None and page_id is not None else ""
    return page_url(site, page_id), revision_url(site, document["revision_id"])


@functools.lru_cache(maxsize=1024)
def web_root(raw: RawInput) -> str:
    """Return `https://HOST` of a dump's wiki, by its header or its file name; "" if unknown."""
    try:
        site = _open_dump(raw).header.site
    except (BertloomError, OSError):
        site = ""
    return site or site_of_dump(raw.name)


def read_raw(
    documents: Manifest,
    raw: RawInput | None,
    document: Mapping[str, Any],
    *,
    max_bytes: float = math.inf,
) -> RawText:
    """Return a row of the documents table as its raw file has it, or the reason why it cannot.

    Args:
        documents: Manifest of the documents.
        raw: Raw file of the row.
        document: The row.
        max_bytes: Do not read more bytes of the file to find the row.
    """
    if raw is None:
        return RawText("", problem="The manifest does not list the raw file.")
    if (size := _bytes_to_read(raw, document)) > max_bytes:
        text = f"The text is in {format_bytes(size)} of {raw.name}, too much to read here."
        return RawText("", problem=text)
    readers = {"wikipedia": _read_page, "books": _read_book}
    read = readers.get(_kind(documents, document), _read_row)
    try:
        _check_size(raw)
        return read(raw, document)
    except (BertloomError, OSError, ValueError) as error:
        return RawText("", problem=f"The raw file cannot be read: {error}")


def _bytes_to_read(raw: RawInput, document: Mapping[str, Any]) -> int:
    """Return how many bytes of a raw file have to be read to find a document.

    Files of lines and dumps are read from the position of the document if they are stored plain or
    by bzip2; other files are read from their start.
    """
    is_whole = is_archive(raw.name) or raw.name.lower().endswith((".gz", ".xz", ".zst", ".7z"))
    return raw.size_bytes if is_whole else int(document["byte_end"] - document["byte_start"])


def _kind(documents: Manifest, document: Mapping[str, Any]) -> str:
    """Return the kind of a document's source, "" if the configuration does not name the source."""
    sources = documents.config.get("sources", ())
    return next((s.get("kind", "") for s in sources if s.get("name") == document["source"]), "")


def _check_size(raw: RawInput) -> None:
    size = file_size(raw.uri)
    if size != raw.size_bytes:
        raise InputError(
            f"{raw.uri}: expected {raw.size_bytes:,} bytes, got {size:,}: the file has changed"
        )


# Pages


class _Dump(NamedTuple):
    header: Header
    compression: Compression


def _open_dump(raw: RawInput) -> _Dump:
    """Return what a dump declares before its pages.

    Raises:
        InputError: The file is missing, has changed, or is no dump.
    """
    _check_size(raw)
    with open_file(raw.uri, ahead=SMALL_READ_AHEAD) as source:
        compression = compression_of(source.read(_SIGNATURE), name=raw.uri)
        stored = decompressed(source, compression, start=0, end=raw.size_bytes)
        header = read_header(stored, where=raw.uri)
    return _Dump(Header() if isinstance(header, Damage) else header, compression)


def _read_page(raw: RawInput, document: Mapping[str, Any]) -> RawText:
    dump = _open_dump(raw)
    start, end = document["byte_start"], max(document["byte_end"], document["byte_start"] + 1)
    if dump.compression not in ("plain", "bz2"):
        start, end = 0, raw.size_bytes
    with open_file(raw.uri) as source:
        stored = decompressed(source, dump.compression, start=start, end=end)
        for page in iterate_pages(stored, end=end, at_start=False, at_end=False):
            if isinstance(page, Page) and all(
                getattr(page, name) == document[name]
                for name in ("page_id", "revision_id", "title")
            ):
                return RawText(page.text)
    return RawText("", problem=f"{raw.uri}: the page is not in the file, which has changed.")


# Books and rows


def _read_book(raw: RawInput, document: Mapping[str, Any]) -> RawText:
    if not is_archive(raw.name):
        with open_file(raw.uri) as source:
            return _decode_book(raw.name, source.read(MAX_BOOK_BYTES + 1), document)
    # Ids of books with equal names have a digest, ids of further books in a file have a number.
    name_in_id = document["document_id"].removeprefix(f"{document['source']}:")
    stem = _NUMBER.sub("", name_in_id)
    digest = _DIGEST.search(stem)
    plain = stem[: digest.start()] if digest else stem
    file = SourceFile(raw.uri, raw.name, raw.size_bytes, raw.sha256)
    for member, stream in read_members(file, max_bytes=MAX_BOOK_BYTES):
        name = stem_of(member.name)
        if stream is not None and name in (name_in_id, stem, plain):
            data = stream.read(MAX_BOOK_BYTES + 1)
            sha256 = hashlib.sha256(data).hexdigest()
            if name != plain or not digest or sha256.startswith(digest[1]):
                return _decode_book(member.name, data, document)
    return RawText("", problem=f"{raw.uri}: {stem} is not in the file, which has changed.")


def _decode_book(name: str, data: bytes, document: Mapping[str, Any]) -> RawText:
    try:
        text = extract_text(data, name=name).text
    except BookError as error:
        return RawText("", name, f"{name}: the text cannot be read ({error.reason}).")
    return RawText(read_book(text, document["document_id"], name=name), name)


def _read_row(raw: RawInput, document: Mapping[str, Any]) -> RawText:
    if raw.name.lower().endswith((".parquet", ".pq")):
        return RawText("", raw.name, "Rows of tables are not shown.")
    file = SourceFile(raw.uri, raw.name, raw.size_bytes, raw.sha256)
    start, end = document["byte_start"], document["byte_end"]
    if (start, end) != (0, raw.size_bytes):
        data = _take(read_chunks(file, start=start), 0, min(end - start, _MAX_ROW))
        return RawText(data.decode("utf-8", "replace"))
    # Offsets are those of the decompressed text in UTF-8.
    position = document["document_id"].rpartition(":")[2].partition("#")[0]
    if not position.isdigit():
        return RawText("", problem="The id does not have the position in the file.")
    chunks = convert_to_utf8(read_chunks(file), lambda _: None)
    text = _take(chunks, int(position), _MAX_STREAM_ROW).decode("utf-8", "ignore")
    return RawText(text.removeprefix("\ufeff"))


def _take(chunks: Generator[bytes, None, None], start: int, size: int) -> bytes:
    """Return up to `size` bytes of a stream, from byte `start` on."""
    position, taken = 0, b""
    with contextlib.closing(chunks):
        for chunk in chunks:
            taken += chunk[max(0, start - position) :][: size - len(taken)]
            position += len(chunk)
            if len(taken) == size:
                break
    return taken
