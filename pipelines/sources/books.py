"""Books: .txt, .html and .epub files in a folder, a .zip or a .tar (also .gz, .bz2, .xz, .zst).

Examples are BookCorpusOpen's `epubtxt` folder and Project Gutenberg's files. A document is the
cleaned text of one book (`pipelines.books.clean_book`). A file has one book, or several between
Project Gutenberg's START and END marks. Pages are read as plain text (`pipelines.books.html`).
Files are grouped to splits in the order of the folder or archive. The id of a document is the file
name without its suffix, followed by a digest if several files have this name, and by `#2`, `#3`,
... for further books of a file.

Counters: `books-in`, `books-kept`, `books-dropped-` not-a-file, encrypted, too-large,
unknown-method, empty, undecodable, malformed (an .epub) or no-prose; `book-words-in`,
`book-words-kept`, `book-words-dropped-` license, front-matter, heading, list, note, ornament or
markup, of the raw text of decoded books (in scripts without spaces, two characters are a word);
`books-decoded-as-ENCODING`, `books-unzipped` (a gzip file under a .txt name),
`books-named-in-ENCODING` (where names are not UTF-8), `books-disambiguated-by-digest`,
`files-ignored-not-text` (members of archives with other suffixes), `raw-bytes`. In folders only
files with these suffixes and archives are read.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, NamedTuple

from pipelines.books.errors import BookError
from pipelines.counters import Count
from pipelines.io.encodings import UTF8
from pipelines.io.raw_files import describe_each, expand_paths, open_file
from pipelines.io.splits import (
    RawText,
    SourceFile,
    Split,
    files_of_group,
    group_by_size,
    split_bytes,
    split_of_group,
)
from pipelines.sources import book_files
from pipelines.sources.archives import (
    ARCHIVE_SUFFIXES,
    Member,
    MemberStream,
    PlannedMember,
    Problem,
    is_archive,
    is_compressed_tar,
    list_members,
    member_name,
    read_members,
    warn_of_one_worker,
)
from pipelines.sources.book_files import (
    BOOK_SUFFIXES,
    GZIP,
    ExtractedText,
    extract_text,
    is_book,
    is_page,
    stem_of,
)
from schemas.corpus_configs import BooksSource

if TYPE_CHECKING:
    from pipelines.books.gutenberg import BookText

_MAX_BYTE_ORDER_MARK = 4  # bytes


class _Entry(NamedTuple):
    """A book in a folder or an archive."""

    member: Member
    stream: IO[bytes] | MemberStream | None
    file: str
    """Digest of its file; "" in an archive."""


def plan(config: BooksSource) -> list[Split]:
    """Return splits of about `target_split_bytes` of text.

    Raises:
        MissingInputError: A path has no text file and no archive.
        CorruptInputError: An archive is truncated or damaged.
    """
    names = expand_paths(config.paths, suffixes=(*BOOK_SUFFIXES, *ARCHIVE_SUFFIXES))
    files = [described.file for described in describe_each(names)]
    loose = [file for file in files if not is_archive(file.name)]
    archives = {file: list_members(file) for file in files if is_archive(file.name)}
    times = collections.Counter(stem_of(member_name(file.name)) for file in loose)
    times.update(stem for members in archives.values() for stem in _stems(members))
    target = split_bytes(config.target_split_bytes, files)
    splits = list(_plan_loose(loose, config, times, target_split_bytes=target))
    for file, members in archives.items():
        splits.extend(_splits_by_size(file, members, config, times, target_split_bytes=target))
    return splits


def read(split: Split, config: BooksSource, count: Count) -> Iterator[tuple[str, RawText]]:
    """Yield the texts of one split in order.

    Raises:
        CorruptInputError: The archive is truncated or damaged.
    """
    detail = json.loads(split.detail)
    entries: Iterable[_Entry] = (
        _loose_entries(files_of_group(split))
        if "files" in detail
        else _archive_entries(split, count, is_all=detail["all"])
    )
    books = _books(entries, config, count, split=split, repeated=frozenset(detail["repeated"]))
    for book in books:
        if (document := _document(book, count)) is not None:
            yield document


class _RawBook(NamedTuple):
    """One book of a file."""

    text: BookText
    document_id: str
    title: str
    """Title if the header has none."""

    where: str
    byte_start: int
    byte_end: int
    file: str


def _books(
    entries: Iterable[_Entry],
    config: BooksSource,
    count: Count,
    *,
    split: Split,
    repeated: Container[str],
) -> Iterator[_RawBook]:
    """Yield the books of all files, and count the files that cannot be read as dropped books."""
    from pipelines.books.gutenberg import split_books  # lazy: `plan` does not need it

    for member, stream, file in entries:
        where = f"{member.name!r}" + (f" of {split.file.name}" if not file else "")
        if member.problem or stream is None:
            count("books-in")
            count(f"books-dropped-{member.problem or 'not-a-file'}", where=where)
            continue
        if member.name_encoding != "utf-8":
            count(f"books-named-in-{member.name_encoding}", where=where)
        data = stream.read(book_files.MAX_BOOK_BYTES + 1)
        count("raw-bytes", len(data))
        try:
            extracted = extract_text(data, name=member.name)
        except BookError as error:
            count("books-in")
            count(f"books-dropped-{error.reason}", where=where)
            continue
        _count_text(extracted, data, count, where=where)
        name = stem = stem_of(member.name)
        if stem in repeated:  # another file has this name, here or in another archive
            name = f"{stem}~{hashlib.sha256(data).hexdigest()[:12]}"
            count("books-disambiguated-by-digest", where=where)
        texts = split_books(extracted.text)
        ranges = _byte_ranges(member, data, extracted, texts)
        for number, (text, (byte_start, byte_end)) in enumerate(
            zip(texts, ranges, strict=True), start=1
        ):
            suffix = "" if number == 1 else f"#{number}"
            yield _RawBook(
                text=text,
                document_id=f"{config.name}:{name}{suffix}",
                title=(extracted.title or PurePosixPath(stem_of(stem)).name) + suffix,
                where=where + suffix,
                byte_start=byte_start,
                byte_end=byte_end,
                file=file,
            )


def _count_text(extracted: ExtractedText, data: bytes, count: Count, *, where: str) -> None:
    if data.startswith(GZIP):
        count("books-unzipped")
    if extracted.encoding:
        foreign = where if extracted.encoding != UTF8 else ""
        count(f"books-decoded-as-{extracted.encoding}", where=foreign)
    for reason, words in extracted.dropped_words.items():
        count("book-words-in", words)
        count(f"book-words-dropped-{reason}", words)


def _byte_ranges(
    member: Member, data: bytes, extracted: ExtractedText, books: Sequence[BookText]
) -> list[tuple[int, int]]:
    """Return the position of each book in the stored file.

    It is that of the member if it has one book, or if the member is compressed or a page.
    """
    whole = [(member.data_start, member.data_end)] * len(books)
    if len(books) == 1 or data.startswith(GZIP) or is_page(member.name):
        return whole
    pieces = [
        extracted.text[book.start : book.end].encode(extracted.encoding, "replace")
        for book in books
    ]
    mark = member.data_end - member.data_start - sum(map(len, pieces))
    if not 0 <= mark <= _MAX_BYTE_ORDER_MARK:
        return whole
    ends = list(itertools.accumulate(map(len, pieces), initial=member.data_start + mark))
    return list(zip([member.data_start, *ends[1:-1]], ends[1:], strict=True))


def _document(book: _RawBook, count: Count) -> tuple[str, RawText] | None:
    from pipelines.books.clean_book import clean_book  # lazy: `plan` does not need it

    count("books-in")
    cleaned = clean_book(book.text)
    count("book-words-in", cleaned.words)
    count("book-words-kept", cleaned.kept_words)
    for reason, words in cleaned.dropped_words.items():
        if words:
            count(f"book-words-dropped-{reason}", words)
    if not cleaned.paragraphs:
        count("books-dropped-no-prose", where=book.where)
        return None
    count("books-kept")
    text = RawText(
        cleaned.paragraphs,
        title=book.text.title or book.title,
        byte_start=book.byte_start,
        byte_end=book.byte_end,
        file=book.file,
    )
    return book.document_id, text


def _plan_loose(
    files: Iterable[SourceFile],
    config: BooksSource,
    times: Mapping[str, int],
    *,
    target_split_bytes: int,
) -> Iterator[Split]:
    start = 0
    for group in group_by_size(files, target_bytes=target_split_bytes):
        stems = (stem_of(member_name(file.name)) for file in group)
        split = split_of_group(config.name, group, start=start, repeated=_repeated(stems, times))
        yield split
        start = split.end


def _repeated(stems: Iterable[str], times: Mapping[str, int]) -> list[str]:
    return sorted({stem for stem in stems if times[stem] > 1})


def _loose_entries(files: Iterable[SourceFile]) -> Iterator[_Entry]:
    for file in files:
        problem: Problem = "too-large" if file.size > book_files.MAX_BOOK_BYTES else ""
        with open_file(file.uri) as stream:
            member = Member(member_name(file.name), file.size, 0, 0, file.size, problem)
            yield _Entry(member, stream, file.sha256)


def _stems(members: Iterable[PlannedMember]) -> list[str]:
    return [stem_of(member.name) for member in members if is_book(member.name)]


def _splits_by_size(
    file: SourceFile,
    members: Sequence[PlannedMember],
    config: BooksSource,
    times: Mapping[str, int],
    *,
    target_split_bytes: int,
) -> Iterator[Split]:
    groups: list[list[PlannedMember]] = [[]]
    text = 0
    for member in members:
        if text >= target_split_bytes:
            if is_compressed_tar(file.name):
                warn_of_one_worker(file.uri)
            else:
                groups.append([])
            text = 0
        groups[-1].append(member)
        text += member.size
    starts = [group[0].position if group else 0 for group in groups]
    last = max((member.position + member.size for member in members), default=0)
    for group, start, end in zip(groups, [0, *starts[1:]], [*starts[1:], last + 1], strict=True):
        repeated = _repeated(_stems(group), times)
        detail = {"all": len(groups) == 1, "repeated": repeated}
        yield Split(config.name, file, start, end, json.dumps(detail))


def _archive_entries(split: Split, count: Count, *, is_all: bool) -> Iterator[_Entry]:
    for member, stream in read_members(
        split.file,
        max_bytes=book_files.MAX_BOOK_BYTES,
        start=split.start,
        end=None if is_all else split.end,
    ):
        if member.is_folder:
            continue
        if not is_book(member.name):
            count("files-ignored-not-text")
            continue
        yield _Entry(member, stream, "")
