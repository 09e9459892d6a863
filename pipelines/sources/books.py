"""Books: one text file per book, in a folder, a .zip or a .tar (also .gz, .bz2, .xz, .zst).

Examples are BookCorpusOpen's `epubtxt` folder and Project Gutenberg's files. A document is the
cleaned text of one book (`pipelines.books.clean_book`). Files are grouped to splits in the order of
the folder or archive. The id of a document is the file name without `.txt`, followed by a digest if
several books have this name.

Counters: `books-in`, `books-kept`, `books-dropped-` not-a-file, encrypted, too-large,
unknown-method, empty, undecodable or no-prose; `books-decoded-as-ENCODING`,
`books-unzipped` (a gzip file under a .txt name), `books-named-in-ENCODING` (where names are not
UTF-8), `books-disambiguated-by-digest`, `files-ignored-not-text` (members of archives that are not
named .txt), `raw-bytes`. In folders only .txt and .txt.gz files and archives are read.
"""

from __future__ import annotations

import collections
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import IO, NamedTuple

from pipelines.counters import Count
from pipelines.io.encodings import UTF8, DecodedText, decode_text
from pipelines.io.raw_files import describe_each, expand_paths, open_file
from pipelines.io.splits import (
    RawDocument,
    RecordTracker,
    SourceFile,
    Split,
    files_of_group,
    split_bytes,
    split_of_group,
)
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
from schemas.corpus_configs import BooksSource

MAX_BOOK_BYTES = 64 << 20
"""Maximum size of a book, which must fit into memory. The longest novels have about 10 MB."""

_TEXT_SUFFIXES = (".txt", ".txt.gz")
_GZIP = b"\x1f\x8b"
_MAX_FILES = 4096  # maximum number of books in a group


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
    found = expand_paths(config.paths, suffixes=(*_TEXT_SUFFIXES, *ARCHIVE_SUFFIXES))
    files = [described.file for described in describe_each(found)]
    loose = [file for file in files if not is_archive(file.name)]
    archives = {file: list_members(file) for file in files if is_archive(file.name)}
    times = collections.Counter(_stem(member_name(file.name)) for file in loose)
    times.update(stem for members in archives.values() for stem in _stems(members))
    target = split_bytes(config.target_split_bytes, files)
    splits = _plan_loose(loose, config, times, target_split_bytes=target)
    for file, members in archives.items():
        splits.extend(_splits_by_size(file, members, config, times, target_split_bytes=target))
    return splits


def read(
    split: Split, config: BooksSource, count: Count, reading: RecordTracker | None = None
) -> Iterator[RawDocument]:
    """Yield the documents of one split in order.

    Raises:
        CorruptInputError: The archive is truncated or damaged.
    """
    reading = reading or RecordTracker()
    count = reading.counting(count)
    detail = json.loads(split.detail)
    entries: Iterable[_Entry] = (
        _loose_entries(files_of_group(split))
        if "files" in detail
        else _archive_entries(split, count, is_all=detail["all"])
    )
    repeated = frozenset(detail["repeated"])
    for member, stream, file in reading.records(entries, file=split.file):
        if not reading.is_new:
            continue
        count("books-in")
        where = f"{member.name!r}" + ("" if "files" in detail else f" of {split.file.name}")
        if member.problem or stream is None:
            count(f"books-dropped-{member.problem or 'not-a-file'}", example=where)
            continue
        if member.name_encoding != "utf-8":
            count(f"books-named-in-{member.name_encoding}", example=where)
        data = stream.read(MAX_BOOK_BYTES + 1)
        count("raw-bytes", len(data))
        document = _document(data, member, config, count, repeated=repeated, where=where)
        if document is not None:
            count("books-kept")
            yield document._replace(file=file)


def decode_book(data: bytes) -> DecodedText | None:
    """Decode a book. Some mirrors serve gzip files with a .txt name.

    Returns None if the bytes are not text, a damaged gzip file, or more than `MAX_BOOK_BYTES`.
    """
    if data.startswith(_GZIP):
        try:
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_BOOK_BYTES + 1)
        except (OSError, EOFError, zlib.error):
            return None
        if len(data) > MAX_BOOK_BYTES:
            return None
    return decode_text(data)


def _document(
    data: bytes,
    member: Member,
    config: BooksSource,
    count: Count,
    *,
    repeated: Container[str],
    where: str,
) -> RawDocument | None:
    if len(data) > MAX_BOOK_BYTES:
        count("books-dropped-too-large", example=where)
        return None
    if not data.strip(b"\0\t\n\r\x0b\x0c "):
        count("books-dropped-empty", example=where)
        return None
    from pipelines.books.clean_book import clean_book  # lazy: `plan` does not need it

    decoded = decode_book(data)
    if decoded is None:
        count("books-dropped-undecodable", example=where)
        return None
    if data.startswith(_GZIP):
        count("books-unzipped")
    foreign = where if decoded.encoding != UTF8 else ""
    count(f"books-decoded-as-{decoded.encoding}", example=foreign)
    book = clean_book(decoded.text)
    if not book.paragraphs:
        count("books-dropped-no-prose", example=where)
        return None
    stem = _stem(member.name)
    name = stem
    if stem in repeated:  # another book has this name, here or in another archive
        name = f"{stem}~{hashlib.sha256(data).hexdigest()[:12]}"
        count("books-disambiguated-by-digest", example=where)
    return RawDocument(
        document_id=f"{config.name}:{name}",
        title=book.title or PurePosixPath(stem).name.removesuffix(".epub"),
        paragraphs=book.paragraphs,
        byte_start=member.data_start,
        byte_end=member.data_end,
        raw=decoded.text,
    )


def _stem(name: str) -> str:
    for suffix in (".txt.gz", ".txt"):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name


def _is_text(name: str) -> bool:
    return name.lower().endswith((".txt", ".txt.gz"))


def _plan_loose(
    files: Iterable[SourceFile],
    config: BooksSource,
    times: Mapping[str, int],
    *,
    target_split_bytes: int,
) -> list[Split]:
    splits: list[Split] = []
    group: list[SourceFile] = []
    start = 0
    for file in files:
        group.append(file)
        size = sum(member.size for member in group)
        if size >= target_split_bytes or len(group) == _MAX_FILES:
            splits.append(_loose_split(group, config, times, start=start))
            start, group = start + size, []
    if group:
        splits.append(_loose_split(group, config, times, start=start))
    return splits


def _loose_split(
    group: list[SourceFile], config: BooksSource, times: Mapping[str, int], *, start: int
) -> Split:
    stems = (_stem(member_name(file.name)) for file in group)
    return split_of_group(config.name, group, start=start, repeated=_repeated(stems, times))


def _repeated(stems: Iterable[str], times: Mapping[str, int]) -> list[str]:
    return sorted({stem for stem in stems if times[stem] > 1})


def _loose_entries(files: Iterable[SourceFile]) -> Iterator[_Entry]:
    for file in files:
        problem: Problem = "too-large" if file.size > MAX_BOOK_BYTES else ""
        with open_file(file.uri) as stream:
            member = Member(member_name(file.name), file.size, 0, 0, file.size, problem)
            yield _Entry(member, stream, file.sha256)


def _stems(members: Iterable[PlannedMember]) -> list[str]:
    return [_stem(member.name) for member in members if _is_text(member.name)]


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
        max_bytes=MAX_BOOK_BYTES,
        start=split.start,
        end=None if is_all else split.end,
    ):
        if member.is_folder:
            continue
        if not _is_text(member.name):
            count("files-ignored-not-text")
            continue
        yield _Entry(member, stream, "")
