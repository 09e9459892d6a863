"""The sources `books` and `bookcorpus`, on archives written here."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from pipelines.counters import Counters, check_balance
from pipelines.io.splits import RawDocument, Split
from pipelines.sources import archives, bookcorpus, books
from pipelines.sources.archives import decompress_tar, delete_unpacked
from schemas.corpus_configs import BookCorpusSource, BooksSource
from schemas.errors import ConfigError, CorruptInputError, MissingInputError

PROSE = (
    "It was a bright cold morning when the three of them set out along the river bank, and "
    "nobody in the village had yet opened so much as a single shutter to see them go."
)
Writer = Callable[[Path, dict[str, bytes]], None]


def book(title: str, *, paragraphs: int = 3) -> bytes:
    header = f"Title: {title}\n\n*** START OF THE PROJECT GUTENBERG EBOOK ***\n\n"
    return (header + "\n\n".join([PROSE] * paragraphs)).encode()


BOOKS = {f"folder/book-{number}.txt": book(f"Book {number}") for number in range(6)}


def read_all(source: Any, config: Any) -> tuple[list[Split], list[RawDocument], Counters]:
    counters = Counters()
    splits = source.plan(config)
    documents = [raw for split in splits for raw in source.read(split, config, counters.count)]
    for things in ("books", "rows"):
        check_balance(counters, things, where="test")
    return splits, documents, counters


def config_of(path: Path, **options: Any) -> BooksSource:
    return BooksSource(name="test", paths=(str(path),), **options)


def write_folder(path: Path, members: dict[str, bytes]) -> None:
    for name, data in members.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def write_zip(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def tar_bytes(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def tar_writer(compress: Callable[[bytes], bytes]) -> Writer:
    def write(path: Path, members: dict[str, bytes]) -> None:
        path.write_bytes(compress(tar_bytes(members)))

    return write


FORMS: dict[str, Writer] = {
    "books": write_folder,
    "books.zip": write_zip,
    "books.tar": tar_writer(bytes),
    "books.tar.gz": tar_writer(gzip.compress),
    "books.tgz": tar_writer(gzip.compress),
    "books.tar.bz2": tar_writer(bz2.compress),
    "books.tar.xz": tar_writer(lzma.compress),
    "books.tar.zst": tar_writer(zstandard.ZstdCompressor().compress),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target_split_bytes", [1024, 32 << 20])
def test_every_form_gives_the_same_documents(
    tmp_path: Path, form: str, target_split_bytes: int
) -> None:
    path = tmp_path / form
    FORMS[form](path, BOOKS)
    splits, documents, counters = read_all(
        books, config_of(path, target_split_bytes=target_split_bytes)
    )
    assert len(splits) == (3 if target_split_bytes == 1024 else 1)
    assert [raw.document_id for raw in documents] == [f"test:{name[:-4]}" for name in BOOKS]
    assert [raw.title for raw in documents] == [f"Book {number}" for number in range(6)]
    assert all(raw.paragraphs == [PROSE] * 3 for raw in documents)
    assert counters["books-in"] == counters["books-kept"] == 6
    assert counters["books-decoded-as-utf-8"] == 6


@pytest.mark.parametrize("form", ["books.tar", "books.zip"])
def test_places_lie_in_the_archive(tmp_path: Path, form: str) -> None:
    path = tmp_path / form
    FORMS[form](path, BOOKS)
    stored = path.read_bytes()
    _, documents, _ = read_all(books, config_of(path))
    for raw, data in zip(documents, BOOKS.values(), strict=True):
        piece = stored[raw.byte_start : raw.byte_end]
        assert piece == data if form == "books.tar" else piece.startswith(b"PK\x03\x04")


def test_the_splits_of_many_small_files_are_few(tmp_path: Path) -> None:
    write_folder(tmp_path / "books", {f"{n:03}.txt": book("x", paragraphs=1) for n in range(50)})
    splits = books.plan(config_of(tmp_path / "books", target_split_bytes=2048))
    assert 3 <= len(splits) <= 10
    assert len({split.file.sha256 for split in splits}) == len(splits)
    assert [split.start for split in splits[1:]] == [split.end for split in splits[:-1]]


def test_a_groups_digest_is_that_of_its_files_and_not_of_their_place(tmp_path: Path) -> None:
    for place in ("here", "there"):
        write_folder(tmp_path / place, BOOKS)
    first, again = (
        [split.file.sha256 for split in books.plan(config_of(tmp_path / place))]
        for place in ("here", "there")
    )
    assert first == again
    (tmp_path / "there" / "folder" / "book-0.txt").write_bytes(book("changed"))
    assert first != [split.file.sha256 for split in books.plan(config_of(tmp_path / "there"))]


COMPRESSED_TARS = ["books.tar.gz", "books.tar.bz2", "books.tar.xz", "books.tar.zst"]


@pytest.mark.parametrize("form", COMPRESSED_TARS)
def test_a_compressed_tar_is_unpacked_twice_however_many_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Once to plan and once to read; each of sixteen splits used to unpack what came before it."""
    monkeypatch.setenv("BERTLOOM_CACHE", str(tmp_path / "cache"))
    unpacked = 0

    @contextlib.contextmanager
    def counting(source: Any, *, name: str) -> Iterator[Any]:
        with decompress_tar(source, name=name) as stream:
            yield _Counting(stream)

    class _Counting(io.RawIOBase):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def read(self, size: int = -1) -> bytes:
            nonlocal unpacked
            data = bytes(self._stream.read(size))
            unpacked += len(data)
            return data

    monkeypatch.setattr(archives, "decompress_tar", counting)
    monkeypatch.setattr(archives, "decompress_tar", counting)
    growth = []
    for books_in in (100, 200):
        members = {f"{n:03}.txt": book("x", paragraphs=6) for n in range(books_in)}
        path = tmp_path / f"{books_in}-{form}"
        FORMS[form](path, members)
        config = config_of(path, target_split_bytes=4096)
        unpacked = 0
        books.plan(config)  # as for the cache key
        splits, documents, _ = read_all(books, config)
        assert len(splits) > 16
        assert [raw.document_id for raw in documents] == [f"test:{name[:-4]}" for name in members]
        whole = len(tar_bytes(members))
        assert unpacked <= 2 * whole + 65536
        growth.append(unpacked)
        delete_unpacked({split.file for split in splits})
    assert growth[1] < 2.2 * growth[0]
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_no_room_for_the_unpacked_copy_is_told_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTLOOM_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "b.tar.gz"
    FORMS["books.tar.gz"](path, BOOKS)
    config = config_of(path, target_split_bytes=1024)
    splits = books.plan(config)

    def full(*_arguments: Any, **_options: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archives, "decompress_tar", full)
    with pytest.raises(OSError, match="BERTLOOM_CACHE to another folder") as raised:
        list(books.read(splits[1], config, Counters().count))
    assert raised.value.errno == errno.ENOSPC
    assert not list(tmp_path.rglob("*.partial"))


ODD = {
    "../evil.txt": book("evil"),
    "/absolute.txt": book("evil"),
    "a/../../b.txt": book("evil"),
    "./fine.txt": book("fine"),
    "cafe\u0301.txt": book("accent"),
    "picture.jpg": b"\xff\xd8\xff",
    "empty.txt": b"",
    "blank.txt": b" \r\n \r\n",
    "binary.txt": bytes(range(256)) * 8,
    "title-only.txt": b"THE TITLE\n\nBY\n\nAN AUTHOR\n",
    "utf16.txt": PROSE.encode("utf-16"),
    "bom.txt": b"\xef\xbb\xbf" + PROSE.encode(),
    "latin.txt": f"{PROSE} Caf\xe9.".encode("latin-1"),
    "crlf.txt": f"{PROSE}\n\n{PROSE}".replace("\n", "\r\n").encode(),
    "zipped.txt": gzip.compress(PROSE.encode()),
    "cut.txt": gzip.compress(PROSE.encode())[:-9],
    "the-book.epub.txt": PROSE.encode(),
}


@pytest.mark.parametrize("form", ["books.zip", "books.tar", "books.tar.gz"])
def test_odd_members_are_dropped_and_counted(tmp_path: Path, form: str) -> None:
    path = tmp_path / form
    FORMS[form](path, ODD)
    before = sorted(tmp_path.rglob("*"))
    _, documents, counters = read_all(books, config_of(path))
    assert sorted(tmp_path.rglob("*")) == before, "nothing is ever unpacked to disk"
    assert [raw.document_id for raw in documents] == [
        "test:fine",
        "test:caf\u00e9",
        "test:utf16",
        "test:bom",
        "test:latin",
        "test:crlf",
        "test:zipped",
        "test:the-book.epub",
    ]
    assert documents[-1].title == "the-book"
    assert documents[4].paragraphs == [f"{PROSE} Caf\xe9."]
    assert documents[5].paragraphs == [PROSE, PROSE]
    del counters["raw-bytes"]
    assert counters == {
        "books-in": 16,
        "books-kept": 8,
        "books-dropped-unsafe-name": 3,
        "books-dropped-empty": 2,
        "books-dropped-undecodable": 2,
        "books-dropped-no-prose": 1,
        "books-decoded-as-utf-8": 7,
        "books-decoded-as-utf-16-le": 1,
        "books-decoded-as-iso-8859-1": 1,
        "books-unzipped": 1,
        "files-ignored-not-text": 1,
    }


def test_links_and_devices_are_never_followed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        for name, kind in (
            ("soft.txt", tarfile.SYMTYPE),
            ("hard.txt", tarfile.LNKTYPE),
            ("device.txt", tarfile.CHRTYPE),
            ("fifo.txt", tarfile.FIFOTYPE),
            ("folder.txt", tarfile.DIRTYPE),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            archive.addfile(entry)
    link = zipfile.ZipInfo("soft.txt")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as zipped:
        zipped.writestr(link, "/etc/passwd")
    for form, links in (("b.tar", 4), ("b.zip", 1)):
        _, documents, counters = read_all(books, config_of(tmp_path / form))
        assert documents == []
        assert counters["books-dropped-not-a-file"] == links


def test_a_member_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books, "MAX_BOOK_BYTES", 1000)
    large = PROSE.encode() * 100
    bomb = gzip.compress(large)
    assert len(bomb) < 1000
    for form in ("books", "books.zip", "books.tar.gz"):
        path = tmp_path / form
        FORMS[form](path, {"large.txt": large, "small.txt": PROSE.encode(), "bomb.txt": bomb})
        _, documents, counters = read_all(books, config_of(path))
        assert [raw.document_id for raw in documents] == ["test:small"]
        assert counters["books-dropped-too-large"] == 1
        assert counters["books-dropped-undecodable"] == 1


@pytest.mark.parametrize(
    "form", ["books.zip", "books.tar", "books.tar.gz", "books.tar.xz", "books.tar.zst"]
)
def test_a_cut_archive_is_an_error_that_says_where(tmp_path: Path, form: str) -> None:
    path = tmp_path / form
    members = {f"{n}.txt": book("x") + bytes(f"{n**9}", "ascii") * 99 for n in range(40)}
    FORMS[form](path, members)
    stored = path.read_bytes()
    path.write_bytes(stored[: len(stored) // 2])
    with pytest.raises(CorruptInputError, match="cut off or damaged") as caught:
        read_all(books, config_of(path))
    assert caught.value.file == str(path)


def test_a_damaged_member_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("first.txt", book("first"))
        archive.writestr("second.txt", book("second"))
    stored = path.read_bytes()
    path.write_bytes(stored.replace(b"Title: second", b"Title: SECOND"))
    with pytest.raises(CorruptInputError, match=r"second\.txt"):
        read_all(books, config_of(path))


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "picture.jpg").write_bytes(b"x")
    with pytest.raises(MissingInputError):
        books.plan(config_of(tmp_path))


def corpus(path: Path, **options: Any) -> BookCorpusSource:
    return BookCorpusSource(name="bc", paths=(str(path),), **options)


LINES = [f"sentence number {number} did n't end ." for number in range(100)]


@pytest.mark.parametrize("target_split_bytes", [1024, 1500, 1 << 20])
@pytest.mark.parametrize("lines", [1, 7, 10, 1000])
def test_documents_do_not_depend_on_splits(
    tmp_path: Path, target_split_bytes: int, lines: int
) -> None:
    path = tmp_path / "p1.txt"
    path.write_text("\n".join(LINES[:50]) + "\n\n  \n" + "\n".join(LINES[50:]))
    config = corpus(path, target_split_bytes=target_split_bytes, lines_per_document=lines)
    splits, documents, counters = read_all(bookcorpus, config)
    assert len(splits) > 1 or target_split_bytes > 1500 or lines == 1000
    assert [raw.paragraphs for raw in documents] == [
        LINES[start : start + lines] for start in range(0, 100, lines)
    ]
    assert len({raw.document_id for raw in documents}) == len(documents)
    assert documents[0].document_id == "bc:p1.txt:0"
    stored = path.read_bytes()
    for raw in documents:
        assert stored[raw.byte_start : raw.byte_end].decode().split("\n")[0] == raw.paragraphs[0]
    assert counters["rows-kept"] == 100
    assert counters["rows-dropped-blank"] == 2


def test_a_line_that_matches_begins_a_document(tmp_path: Path) -> None:
    path = tmp_path / "p1.txt"
    path.write_text("a .\nb .\nisbn : 1\nc .\nd .\ne .\nisbn : 2\n")
    _, documents, _ = read_all(
        bookcorpus, corpus(path, lines_per_document=3, document_start_pattern="^isbn")
    )
    assert [raw.paragraphs for raw in documents] == [
        ["a .", "b ."],
        ["isbn : 1", "c .", "d ."],
        ["e ."],
        ["isbn : 2"],
    ]


def test_a_bad_expression_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "p1.txt"
    path.write_text("a\n")
    with pytest.raises(ConfigError, match="document_start_pattern"):
        bookcorpus.plan(corpus(path, document_start_pattern="("))


def test_compressed_and_archived_corpora_give_the_same_text(tmp_path: Path) -> None:
    data = "\n".join(LINES).encode()
    (tmp_path / "p1.txt.gz").write_bytes(gzip.compress(data))
    (tmp_path / "p1.txt.bz2").write_bytes(bz2.compress(data))
    members = {"in/p1.txt": data, "urls.list": b"x\n", "../p2.txt": data}
    (tmp_path / "all.tar.gz").write_bytes(gzip.compress(tar_bytes(members)))
    write_zip(tmp_path / "all.zip", members)
    for name in ("p1.txt.gz", "p1.txt.bz2", "all.tar.gz", "all.zip"):
        config = corpus(tmp_path / name, lines_per_document=30)
        _, documents, counters = read_all(bookcorpus, config)
        assert [line for raw in documents for line in raw.paragraphs] == LINES
        assert len(documents) == 4
        if name.startswith("all"):
            assert counters["files-ignored-not-text"] == 1
            assert counters["files-ignored-unsafe-name"] == 1
            assert documents[0].document_id == "bc:in/p1.txt:0"


def test_a_cut_corpus_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "p1.txt.gz"
    path.write_bytes(gzip.compress("\n".join(LINES).encode())[:-20])
    with pytest.raises(CorruptInputError, match="no end"):
        read_all(bookcorpus, corpus(path))
