"""Books: one text file each, in a folder, a .zip or a .tar (also .gz, .bz2, .xz).

BookCorpusOpen's `epubtxt` folder and Project Gutenberg's files are such. A document is the cleaned
text of one book (`pipelines.books_cleaning`). Loose files are grouped, so that thousands of books
do not make thousands of shards; the members of an archive are grouped in its order. A compressed
tar has to be unpacked up to each of its groups, so it is cut into sixteen at most.

Counters: `books-in`, `books-kept`, `books-dropped-` unsafe-name, not-a-file, encrypted, too-large,
empty, undecodable or no-prose; `books-decoded-as-ENCODING`, `books-unzipped` (a gzip file under a
.txt name), `files-ignored-not-text` (members of archives that are not named .txt), `raw-bytes`.
In folders only files named .txt, .txt.gz or like an archive are looked at.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import IO, NamedTuple

from pipelines.books_cleaning import clean_book
from pipelines.counters import Count
from pipelines.encodings import DecodedText, decode_text
from pipelines.inputs import describe_file, expand_paths, open_file
from pipelines.sources.archives import (
    ARCHIVE_SUFFIXES,
    Member,
    MemberStream,
    Problem,
    is_archive,
    is_seekable,
    member_name,
    read_members,
)
from pipelines.splits import RawDocument, SourceFile, Split
from schemas.configs import BooksSource

MAX_BOOK_BYTES = 64 << 20
"""A larger text is no book (the longest novels have about 10 MB), and would have to fit memory."""

_TEXT_SUFFIXES = (".txt", ".TXT", ".txt.gz")
_GZIP = b"\x1f\x8b"
_MAX_PASSES = 16  # over a compressed tar
_MAX_FILES = 4096  # in one group, however small they are


class _LooseFile(NamedTuple):
    """One file of a group; as JSON in `Split.detail`."""

    uri: str
    name: str
    size: int
    sha256: str


def plan(config: BooksSource) -> list[Split]:
    """Groups of about `split_bytes` of text.

    Raises:
        MissingInputError: there is no text file and no archive at a path.
        CorruptInputError: an archive is cut off or damaged.
    """
    found = expand_paths(config.paths, suffixes=(*_TEXT_SUFFIXES, *ARCHIVE_SUFFIXES))
    files = [describe_file(uri, name=name) for uri, name in found]
    loose = [file for file in files if not is_archive(file.name)]
    splits = _plan_loose(loose, config)
    for file in files:
        if is_archive(file.name):
            splits.extend(_plan_archive(file, config))
    return splits


def read(split: Split, config: BooksSource, count: Count) -> Iterator[RawDocument]:
    """The documents of one group of books, in order.

    Raises:
        CorruptInputError: the archive is cut off or damaged.
    """
    entries = _loose_entries(split) if split.detail else _archive_entries(split, count)
    for member, stream in entries:
        count("books-in")
        if member.problem or stream is None:
            count(f"books-dropped-{member.problem or 'not-a-file'}")
            continue
        data = stream.read(MAX_BOOK_BYTES + 1)
        count("raw-bytes", len(data))
        document = _document(data, member, config, count)
        if document is not None:
            count("books-kept")
            yield document


def decode_book(data: bytes) -> DecodedText | None:
    """A book's text, also where a gzip file goes by a .txt name, as some mirrors serve them.

    Returns None where the bytes are no text, a damaged gzip file, or more than `MAX_BOOK_BYTES`.
    """
    if data.startswith(_GZIP):
        unzip = zlib.decompressobj(31)
        try:
            data = unzip.decompress(data, MAX_BOOK_BYTES)
        except zlib.error:
            return None
        if not unzip.eof:
            return None
    return decode_text(data)


def _document(data: bytes, member: Member, config: BooksSource, count: Count) -> RawDocument | None:
    if len(data) > MAX_BOOK_BYTES:
        count("books-dropped-too-large")
        return None
    if not data.strip(b"\0\t\n\r\x0b\x0c "):
        count("books-dropped-empty")
        return None
    decoded = decode_book(data)
    if decoded is None:
        count("books-dropped-undecodable")
        return None
    if data.startswith(_GZIP):
        count("books-unzipped")
    count(f"books-decoded-as-{decoded.encoding}")
    book = clean_book(decoded.text)
    if not book.paragraphs:
        count("books-dropped-no-prose")
        return None
    stem = _stem(member.name)
    return RawDocument(
        document_id=f"{config.name}:{stem}",
        title=book.title or PurePosixPath(stem).name.removesuffix(".epub"),
        paragraphs=book.paragraphs,
        byte_start=member.data_start,
        byte_end=member.data_end,
    )


def _stem(name: str) -> str:
    for suffix in (".txt.gz", ".txt"):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name


def _is_text(name: str) -> bool:
    return name.lower().endswith((".txt", ".txt.gz"))


def _plan_loose(files: Iterable[SourceFile], config: BooksSource) -> list[Split]:
    splits: list[Split] = []
    group: list[SourceFile] = []
    start = 0
    for file in files:
        group.append(file)
        size = sum(member.size for member in group)
        if size >= config.split_bytes or len(group) == _MAX_FILES:
            splits.append(_loose_split(group, config, start=start))
            start, group = start + size, []
    if group:
        splits.append(_loose_split(group, config, start=start))
    return splits


def _loose_split(group: list[SourceFile], config: BooksSource, *, start: int) -> Split:
    """A group of files as one: its digest is that of its files' names and digests."""
    digest = hashlib.sha256()
    for file in group:
        digest.update(f"{file.name}\t{file.size}\t{file.sha256}\n".encode())
    size = sum(file.size for file in group)
    first, last = group[0], group[-1]
    if len(group) == 1:
        together = first
    else:
        name = f"{first.name} ... {last.name} ({len(group)} files)"
        together = SourceFile(
            uri=str(PurePosixPath(first.uri).parent)
            if "://" not in first.uri
            else first.uri.rpartition("/")[0],
            name=name,
            size=size,
            sha256=digest.hexdigest(),
        )
    members = [_LooseFile(file.uri, file.name, file.size, file.sha256) for file in group]
    detail = json.dumps(members, ensure_ascii=False)
    return Split(config.name, together, start, start + size, detail)


def _loose_entries(split: Split) -> Iterator[tuple[Member, IO[bytes]]]:
    for uri, name, size, _ in json.loads(split.detail):
        problem: Problem = "too-large" if size > MAX_BOOK_BYTES else ""
        plain = unicodedata.normalize("NFC", member_name(name))
        with open_file(uri) as stream:
            yield Member(plain, size, 0, 0, size, problem), stream


def _plan_archive(file: SourceFile, config: BooksSource) -> Iterator[Split]:
    members = [
        (member.position, member.size)
        for member, _ in read_members(
            file.uri, name=file.name, size=file.size, max_bytes=MAX_BOOK_BYTES
        )
    ]
    target = config.split_bytes
    if not is_seekable(file.name):
        target = max(target, -(-sum(size for _, size in members) // _MAX_PASSES))
    start, text = 0, 0
    for number, (_, size) in enumerate(members):
        text += size
        if text >= target and number + 1 < len(members):
            end = members[number + 1][0]
            yield Split(config.name, file, start, end)
            start, text = end, 0
    if members:
        position, size = members[-1]
        yield Split(config.name, file, start, max(position + size, start) + 1)


def _archive_entries(split: Split, count: Count) -> Iterator[tuple[Member, MemberStream | None]]:
    for member, stream in read_members(
        split.file.uri,
        name=split.file.name,
        size=split.file.size,
        max_bytes=MAX_BOOK_BYTES,
        start=split.start,
        end=split.end,
    ):
        if member.is_folder and member.problem != "unsafe-name":
            continue
        if not _is_text(member.name):
            count("files-ignored-not-text")
            continue
        yield member, stream
