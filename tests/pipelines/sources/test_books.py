"""The source `books`, on archives written here."""

from __future__ import annotations

import gzip
import json
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.archive_builder import epub_bytes, tar_bytes, tar_entry, write_books, xhtml
from support.log_records import own_records

from pipelines.counters import Counters, check_balance
from pipelines.io.splits import RawText, Split
from pipelines.sources import archives, book_files, books
from pipelines.sources.archives import decompress_tar, list_members
from schemas.corpus_configs import BooksSource
from schemas.errors import MissingInputError

PROSE = (
    "It was a bright cold morning when the three of them set out along the river bank, and "
    "no one in the village had yet opened so much as a single shutter to see them go."
)


def book(title: str, *, paragraphs: int = 3) -> bytes:
    header = f"Title: {title}\n\n*** START OF THE PROJECT GUTENBERG EBOOK ***\n\n"
    return (header + "\n\n".join([PROSE] * paragraphs)).encode()


BOOKS = {f"folder/book-{number}.txt": book(f"Book {number}") for number in range(6)}


def read_all(source: Any, config: Any) -> tuple[list[Split], list[tuple[str, RawText]], Counters]:
    counters = Counters()
    splits = source.plan(config)
    documents = [raw for split in splits for raw in source.read(split, config, counters.count)]
    for things in ("books", "book-words"):
        check_balance(counters, things, where="test")
    return splits, documents, counters


def config_of(path: Path, **options: Any) -> BooksSource:
    return BooksSource(name="test", paths=(str(path),), **options)


@pytest.mark.parametrize("suffix", ["", ".zip", ".tar", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"])
@pytest.mark.parametrize("target_split_bytes", [1024, 32 << 20])
def test_every_form_gives_the_same_documents(
    tmp_path: Path, suffix: str, target_split_bytes: int
) -> None:
    path = tmp_path / f"books{suffix}"
    write_books(path, BOOKS)
    splits, documents, counters = read_all(
        books, config_of(path, target_split_bytes=target_split_bytes)
    )
    is_stream = suffix not in ("", ".zip", ".tar")
    assert len(splits) == (3 if target_split_bytes == 1024 and not is_stream else 1)
    assert [document_id for document_id, _ in documents] == [f"test:{name[:-4]}" for name in BOOKS]
    assert [raw.title for _, raw in documents] == [f"Book {number}" for number in range(6)]
    assert all(raw.paragraphs == [PROSE] * 3 for _, raw in documents)
    assert counters["books-in"] == counters["books-kept"] == 6
    assert counters["books-decoded-as-utf-8"] == 6
    if suffix in (".tar", ".zip"):  # the bytes of a document are those in the archive
        stored = path.read_bytes()
        for (_, raw), data in zip(documents, BOOKS.values(), strict=True):
            piece = stored[raw.byte_start : raw.byte_end]
            assert piece == data if suffix == ".tar" else piece.startswith(b"PK\x03\x04")


def test_many_small_files_have_few_splits_known_by_their_bytes(tmp_path: Path) -> None:
    members = {f"{n:03}.txt": book(f"{n}", paragraphs=1) for n in range(50)}
    plans = []
    for folder in ("here", "there", "there"):
        write_books(tmp_path / folder, members)
        plans.append(books.plan(config_of(tmp_path / folder, target_split_bytes=2048)))
        members["000.txt"] = book("changed") if folder == "there" else members["000.txt"]
    first, moved, changed = ([split.file.sha256 for split in splits] for splits in plans)
    assert 3 <= len(set(first)) == len(first) <= 10
    assert first == moved != changed
    assert [split.start for split in plans[0][1:]] == [split.end for split in plans[0][:-1]]


@pytest.mark.usefixtures("fresh_cache")
@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst"])
def test_compressed_tar_is_decompressed_once_to_plan_and_once_to_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    opened: list[str] = []

    def counting(source: Any, *, name: str) -> Any:
        opened.append(name)
        return decompress_tar(source, name=name)

    monkeypatch.setattr(archives, "decompress_tar", counting)
    members = {f"{n:03}.txt": book("x", paragraphs=6) for n in range(100)}
    path = tmp_path / f"books{suffix}"
    write_books(path, members)
    config = config_of(path, target_split_bytes=4096)
    for _ in range(3):  # as for the cache key, and in later runs
        list_members.cache_clear()
        books.plan(config)
    assert len(opened) == 1
    splits, documents, _ = read_all(books, config)
    assert len(splits) == 1
    assert [document_id for document_id, _ in documents] == [
        f"test:{name[:-4]}" for name in members
    ]
    assert len(opened) == 2
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["members"]
    assert [record.args for record in own_records(caplog)] == [(str(path),)]


ODD = {
    "../evil.txt": book("up"),
    "/absolute.txt": book("absolute"),
    "a/../../b.txt": book("up"),
    "Z: A Novel.txt": book("a novel"),
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
    write_books(path, ODD)
    before = sorted(tmp_path.rglob("*"))
    _, documents, counters = read_all(books, config_of(path))
    assert sorted(tmp_path.rglob("*")) == before, "nothing is ever unpacked to disk"
    kept = ["../evil", "/absolute", "a/../../b", "Z: A Novel", "fine", "caf\u00e9"]
    kept += ["utf16", "bom", "latin", "crlf", "zipped", "the-book.epub"]
    assert [document_id for document_id, _ in documents] == [f"test:{name}" for name in kept]
    assert documents[-1][1].title == "the-book"
    texts = {document_id: raw.paragraphs for document_id, raw in documents}
    assert texts["test:latin"] == [f"{PROSE} Caf\xe9."]
    assert texts["test:crlf"] == [PROSE, PROSE]
    counted = {name: number for name, number in counters.items() if "words" not in name}
    del counted["raw-bytes"]
    assert counted == {
        "books-in": 17,
        "books-kept": 12,
        "books-dropped-empty": 2,
        "books-dropped-undecodable": 2,
        "books-dropped-no-prose": 1,
        "books-decoded-as-utf-8": 11,
        "books-decoded-as-utf-16-le": 1,
        "books-decoded-as-cp1252": 1,
        "books-unzipped": 1,
        "files-ignored-not-text": 1,
    }


@pytest.mark.parametrize("form", ["books", "books.zip"])
def test_every_gzip_member_of_a_book_is_read(tmp_path: Path, form: str) -> None:
    parts = [f"{PROSE} Part {number}.".encode() for number in range(3)]
    members = b"".join(gzip.compress(part + b"\n\n") for part in parts)
    write_books(tmp_path / form, {"a.TXT": members, "b.txt.GZ": members, "c.txt": members + b"x"})
    _, documents, counters = read_all(books, config_of(tmp_path / form))
    assert [raw.paragraphs for _, raw in documents] == [[part.decode() for part in parts]] * 2
    assert counters["books-dropped-undecodable"] == 1


def test_links_and_devices_are_never_followed(tmp_path: Path) -> None:
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
    entries = [tar_entry(f"{n}.txt", kind=kind) for n, kind in enumerate(kinds)]
    for entry in entries:
        entry.linkname = "/etc/passwd"
    (tmp_path / "b.tar").write_bytes(tar_bytes([(entry, b"") for entry in entries]))
    link = zipfile.ZipInfo("soft.txt")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as zipped:
        zipped.writestr(link, "/etc/passwd")
    for form, links in (("b.tar", 4), ("b.zip", 1)):
        _, documents, counters = read_all(books, config_of(tmp_path / form))
        assert documents == []
        assert counters["books-dropped-not-a-file"] == links


@pytest.mark.parametrize("form", ["books", "books.zip", "books.tar.gz"])
def test_member_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(book_files, "MAX_BOOK_BYTES", 1000)
    large = PROSE.encode() * 100
    members = {"large.txt": large, "small.txt": PROSE.encode(), "bomb.txt": gzip.compress(large)}
    write_books(tmp_path / form, members)
    _, documents, counters = read_all(books, config_of(tmp_path / form))
    assert [document_id for document_id, _ in documents] == ["test:small"]
    assert counters["books-dropped-too-large"] == 1
    assert counters["books-dropped-undecodable"] == 1


@pytest.mark.parametrize("suffix", ["", ".tar", ".zip", ".tar.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "iso-8859-1", "utf-16"])
def test_several_books_in_a_file_are_documents_with_their_own_bytes(
    tmp_path: Path, suffix: str, encoding: str
) -> None:
    end = "\n\n*** END OF THE PROJECT GUTENBERG EBOOK ***\nLicense.\n"
    texts = [f"{book(f'Café {number}').decode()}{end}" for number in range(3)]
    write_books(tmp_path / f"books{suffix}", {"all.txt": "".join(texts).encode(encoding)})
    splits, documents, counters = read_all(books, config_of(tmp_path / f"books{suffix}"))
    assert [document_id for document_id, _ in documents] == ["test:all", "test:all#2", "test:all#3"]
    assert [raw.title for _, raw in documents] == ["Café 0", "Café 1", "Café 2"]
    assert all(raw.paragraphs == [PROSE] * 3 for _, raw in documents)
    assert counters["books-in"] == counters["books-kept"] == 3
    assert counters["book-words-kept"] == 9 * len(PROSE.split())
    if suffix in ("", ".tar"):
        stored = Path(
            json.loads(splits[0].detail)["files"][0][0] if not suffix else splits[0].file.uri
        )
        data = stored.read_bytes()
        pieces = [data[raw.byte_start : raw.byte_end] for _, raw in documents]
        assert b"".join(pieces) == "".join(texts).encode(encoding)
        decoder = encoding.removesuffix("-sig") if encoding != "utf-16" else "utf-16-le"
        assert [piece.decode(decoder).lstrip("\ufeff") for piece in pieces] == texts
    for (document_id, _), text in zip(documents, texts, strict=True):
        assert book_files.read_book("".join(texts), document_id, name="all.txt") == text


def test_words_of_dropped_books_are_counted_by_reason(tmp_path: Path) -> None:
    write_books(
        tmp_path / "books", {"a.txt": b"THE TITLE\n\nBY\n\nAN AUTHOR\n", "b.txt": book("B")}
    )
    _, _, counters = read_all(books, config_of(tmp_path / "books"))
    assert counters["books-dropped-no-prose"] == 1
    assert counters["book-words-in"] == 5 + len(book("B").split())
    assert counters["book-words-dropped-heading"] == 5
    assert counters["book-words-dropped-license"] == len(book("B", paragraphs=0).split())


def page_of(title: str) -> str:
    return (
        f"<title>{title}</title><style>p {{ x }}</style><nav>Contents</nav><h1>{title}</h1>"
        f"<h2>I</h2><p>{PROSE}</p><h2>II</h2><p>{PROSE}</p><p>{PROSE}</p>"
    )


@pytest.mark.parametrize("suffix", ["", ".zip", ".tar", ".tar.gz"])
def test_pages_and_epubs_are_books(tmp_path: Path, suffix: str) -> None:
    chapters = {"1.xhtml": f"<h2>I</h2><p>{PROSE}</p>", "2.xhtml": f"<p>{PROSE}</p><p>{PROSE}</p>"}
    members = {
        "a.HTML": page_of("A Walk").encode("utf-16"),
        "b.htm": page_of("Caf\u00e9 Noir").encode(),
        "c.Epub": epub_bytes(chapters, title="A Voyage"),
        "d.xhtml": xhtml(page_of("")).encode(),
        "g.epub": b"no zip",
        "e.html": b"<script>nothing</script>",
        "f.html": bytes(range(256)) * 9,
        "same.txt": PROSE.encode(),
        "same.html": page_of("Same").encode(),
    }
    path = tmp_path / f"books{suffix}"
    write_books(path, members)
    _, documents, counters = read_all(books, config_of(path))
    assert sorted((document_id.partition("~")[0], raw.title) for document_id, raw in documents) == [
        ("test:a", "A Walk"),
        ("test:b", "Caf\u00e9 Noir"),
        ("test:c", "A Voyage"),
        ("test:d", "d"),
        ("test:same", "Same"),
        ("test:same", "same"),
    ]
    assert sorted(len(raw.paragraphs) for _, raw in documents) == [1, 3, 3, 3, 3, 3]
    assert {paragraph for _, raw in documents for paragraph in raw.paragraphs} == {PROSE}
    assert counters["books-disambiguated-by-digest"] == 2
    dropped = {name: n for name, n in counters.items() if name.startswith("books-dropped-")}
    assert dropped == {
        "books-dropped-malformed": 1,
        "books-dropped-no-prose": 1,
        "books-dropped-undecodable": 1,
    }
    assert counters["book-words-dropped-markup"] == 4 * 4 + 1
    assert counters["book-words-dropped-list"] == 4


def test_book_of_one_page_is_found_again(tmp_path: Path) -> None:
    data = page_of("A").encode()
    write_books(tmp_path / "books", {"a.html": data})
    _, ((document_id, _),), _ = read_all(books, config_of(tmp_path / "books"))
    text = book_files.extract_text(data, name="a.html").text
    assert book_files.read_book(text, document_id, name="a.html") == text


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "picture.jpg").write_bytes(b"x")
    with pytest.raises(MissingInputError):
        books.plan(config_of(tmp_path))
