"""Malformed archives: a bad member is dropped and counted, a bad container is an error."""

from __future__ import annotations

import bz2
import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from pipelines.counters import Counters, check_balance
from pipelines.io.raw_files import describe_file
from pipelines.sources import bookcorpus, books
from pipelines.sources.archives import Member, open_unpacked, read_members
from schemas.corpus_configs import BookCorpusSource, BooksSource
from schemas.errors import CorruptInputError

PROSE = (
    b"It was a bright cold morning when the three of them set out along the river bank, and "
    b"nobody in the village had yet opened so much as a single shutter to see them go."
)
OTHER = PROSE.replace(b"three", b"four")


def read(path: Path) -> tuple[list[str], Counters]:
    counters = Counters()
    config = BooksSource(name="b", paths=(str(path),))
    splits = books.plan(config)
    found = [raw for split in splits for raw in books.read(split, config, counters.count)]
    check_balance(counters, "books", where="test")
    return [raw.document_id for raw in found], counters


def members(path: Path) -> list[tuple[Member, object]]:
    return list(read_members(describe_file(str(path), name=path.name), max_bytes=1 << 20))


def tar_of(*members: tuple[tarfile.TarInfo | str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=form, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for named, data in members:
            entry = tarfile.TarInfo(named) if isinstance(named, str) else named
            entry.size = entry.size or len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("stored", [b"caf\xe9.txt", b"\x81\xe9.txt"])
def test_a_name_in_latin_1_is_read_as_such_and_counted(
    tmp_path: Path, form: int, stored: bytes
) -> None:
    name = stored.decode("utf-8", "surrogateescape")
    (tmp_path / "b.tar").write_bytes(tar_of((name, PROSE), ("plain.txt", OTHER), form=form))
    ids, counters = read(tmp_path / "b.tar")
    encoding = "windows-1252" if stored.startswith(b"c") else "iso-8859-1"
    assert ids == [f"b:{stored.decode(encoding)[:-4]}", "b:plain"]
    assert counters[f"books-named-in-{encoding}"] == 1
    assert "b.tar" in counters.examples[f"books-named-in-{encoding}"][0].text


def test_a_name_of_pax_that_is_no_utf_8(tmp_path: Path) -> None:
    record = b"path=caf\xe9.txt\n"
    header = f"{len(record) + 3} ".encode() + record
    extended = tarfile.TarInfo("x")
    extended.type = tarfile.XHDTYPE
    data = tar_of((extended, header), ("short.txt", PROSE), form=tarfile.USTAR_FORMAT)
    (tmp_path / "b.tar").write_bytes(data)
    assert read(tmp_path / "b.tar")[0] == ["b:caf\u00e9"]


def pax(**headers: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo("sparse.txt")
    entry.pax_headers = {name.replace("_", "."): value for name, value in headers.items()}
    return entry


LYING_SPARSE = {
    "no-number": {"GNU_sparse_major": "1", "GNU_sparse_minor": "0"},
    "map": {"GNU_sparse_map": "0,x,5", "GNU_sparse_size": "10"},
    "size": {"GNU_sparse_map": "0,5", "GNU_sparse_size": "many"},
    "offsets": {"GNU_sparse_size": "9", "GNU_sparse_numblocks": "1"},
    "huge": {"GNU_sparse_map": "0,99999999999999999999", "GNU_sparse_size": "9" * 30},
}

LEFT_OUT = ("offsets",)


@pytest.mark.parametrize("kind", LYING_SPARSE)
@pytest.mark.parametrize("packed", [False, True])
def test_a_lying_sparse_header_is_left_out_or_said(tmp_path: Path, kind: str, packed: bool) -> None:
    data = tar_of((pax(**LYING_SPARSE[kind]), PROSE), ("good.txt", OTHER))
    path = tmp_path / ("b.tar.gz" if packed else "b.tar")
    path.write_bytes(data if not packed else gzip.compress(data))
    if kind in LEFT_OUT:
        ids, counters = read(path)
        assert ids == ["b:good"]
        assert counters["books-dropped-not-a-file"] == 1
        return
    with pytest.raises(CorruptInputError, match="cut off or damaged"):
        read(path)


def with_size(data: bytes, field: bytes) -> bytes:
    """Return the tar with another size in its first header and a correct checksum."""
    header = bytearray(data[:512])
    header[124:136] = field
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data[512:]


@pytest.mark.parametrize(
    "field",
    [
        struct.pack(">Bxxx q", 0xFF, -512).ljust(12, b"\xff")[:12],
        b"\xff" * 12,  # -1
        b"\x80" + b"\x7f" * 11,
        b"77777777777\0",
        b"00000002000\0",
    ],
)
def test_a_lying_size_ends_in_an_error_and_never_in_a_circle(tmp_path: Path, field: bytes) -> None:
    data = with_size(tar_of(("a.txt", PROSE), form=tarfile.USTAR_FORMAT), field)
    (tmp_path / "b.tar").write_bytes(data[:1024])
    with pytest.raises(CorruptInputError, match="cut off or damaged"):
        read(tmp_path / "b.tar")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_an_extended_header_is_not_read_into_memory_whatever_it_says(
    tmp_path: Path, kind: bytes
) -> None:
    entry = tarfile.TarInfo("x")
    entry.type = kind
    data = tar_of((entry, PROSE), ("a.txt", PROSE), form=tarfile.USTAR_FORMAT)
    (tmp_path / "b.tar").write_bytes(with_size(data, b"77777777777\0"))
    with pytest.raises(CorruptInputError, match="8,589,934,591"):
        read(tmp_path / "b.tar")


@pytest.mark.parametrize("form", ["b.tar", "b.tar.gz"])
def test_a_damaged_header_is_not_taken_for_the_end(tmp_path: Path, form: str) -> None:
    """All members behind it were lost without a word."""
    data = bytearray(tar_of(*((f"{n}.txt", PROSE) for n in range(5)), form=tarfile.USTAR_FORMAT))
    data[2 * 1024 + 5] ^= 1
    stored = bytes(data) if form == "b.tar" else gzip.compress(bytes(data))
    (tmp_path / form).write_bytes(stored)
    with pytest.raises(CorruptInputError, match="no valid header at byte 2,048"):
        read(tmp_path / form)


@pytest.mark.parametrize("form", ["b.tar", "b.tar.gz", "b.tar.zst"])
@pytest.mark.parametrize("kept", [2048, 2048 + 100, 2048 + 600])
def test_a_tar_that_is_cut_off_anywhere_is_an_error(tmp_path: Path, form: str, kept: int) -> None:
    """Between two members it was taken for whole."""

    compress: dict[str, Callable[[bytes], bytes]] = {
        "b.tar": bytes,
        "b.tar.gz": gzip.compress,
        "b.tar.zst": zstandard.ZstdCompressor().compress,
    }
    data = tar_of(*((f"{n}.txt", PROSE) for n in range(5)), form=tarfile.USTAR_FORMAT)
    (tmp_path / form).write_bytes(compress[form](data[:kept]))
    with pytest.raises(CorruptInputError, match="cut off or damaged"):
        read(tmp_path / form)


def zip_of(path: Path, *members: tuple[str, bytes]) -> bytearray:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return bytearray(path.read_bytes())


def patched(data: bytearray, offset: int, value: bytes, *, of: bytes, last: bool = False) -> bytes:
    """Bytes at an offset within the first (or last) record of a signature."""
    at = (data.rfind(of) if last else data.find(of)) + offset
    data[at : at + len(value)] = value
    return bytes(data)


LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


@pytest.mark.parametrize("source", ["books", "bookcorpus"])
def test_an_empty_zip_gives_nothing_but_is_planned(tmp_path: Path, source: str) -> None:
    zip_of(tmp_path / "b.zip")
    if source == "books":
        splits = books.plan(BooksSource(name="b", paths=(str(tmp_path),)))
        assert read(tmp_path / "b.zip") == ([], {})
    else:
        splits = bookcorpus.plan(BookCorpusSource(name="b", paths=(str(tmp_path),)))
    assert [split.file.name for split in splits] == ["b.zip"]


@pytest.mark.parametrize(
    ("offset", "value"),
    [(10, b"\x09\x00"), (10, b"\x63\x00"), (8, b"\x20\x00"), (8, b"\x40\x00")],
    ids=["deflate64", "aes", "patched", "strong-encryption"],
)
def test_a_member_of_an_unknown_method_costs_only_itself(
    tmp_path: Path, offset: int, value: bytes
) -> None:
    data = zip_of(tmp_path / "b.zip", ("odd.txt", PROSE), ("good.txt", OTHER))
    data = bytearray(patched(data, offset, value, of=CENTRAL))
    (tmp_path / "b.zip").write_bytes(patched(data, offset - 2, value, of=LOCAL))
    ids, counters = read(tmp_path / "b.zip")
    assert ids == ["b:good"]
    assert counters["books-dropped-unknown-method"] == 1
    assert counters.examples["books-dropped-unknown-method"][0].text == "'odd.txt' of b.zip"


def test_an_encrypted_member_costs_only_itself(tmp_path: Path) -> None:
    data = zip_of(tmp_path / "b.zip", ("odd.txt", PROSE), ("good.txt", OTHER))
    (tmp_path / "b.zip").write_bytes(patched(data, 8, b"\x01\x00", of=CENTRAL))
    ids, counters = read(tmp_path / "b.zip")
    assert ids == ["b:good"]
    assert counters["books-dropped-encrypted"] == 1


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (6, b"\xff\x00"),  # version that is needed
        (24, b"\x05\x00\x00\x00"),  # unpacked size, too small
        (42, b"\xff\xff\xff\x7f"),  # place of the member
    ],
)
def test_a_lying_directory_is_one_clear_error(tmp_path: Path, offset: int, value: bytes) -> None:
    data = zip_of(tmp_path / "b.zip", ("a.txt", PROSE), ("b.txt", OTHER))
    (tmp_path / "b.zip").write_bytes(patched(data, offset, value, of=CENTRAL, last=True))
    with pytest.raises(CorruptInputError, match=r"b\.zip.*damaged"):
        read(tmp_path / "b.zip")


def test_a_name_that_is_said_to_be_utf_8_and_is_not(tmp_path: Path) -> None:
    data = zip_of(tmp_path / "b.zip", ("caf\u00e9.txt", PROSE))
    (tmp_path / "b.zip").write_bytes(bytes(data).replace("caf\u00e9".encode(), b"caf\xe9\xe9"))
    with pytest.raises(CorruptInputError, match=r"b\.zip.*damaged.*utf-8"):
        read(tmp_path / "b.zip")


@pytest.mark.parametrize("form", ["zip", "two-zips", "folders", "tar"])
def test_books_of_one_name_are_told_apart_by_their_bytes(tmp_path: Path, form: str) -> None:
    """All members with the same name are read."""
    members = [("x.txt", PROSE), ("x.TXT", OTHER), ("y.txt", PROSE + OTHER)]
    paths = [str(tmp_path / name) for name in ("one", "two")]
    if form == "zip":
        zip_of(tmp_path / "one.zip", *members)
        paths = [str(tmp_path / "one.zip")]
    elif form == "two-zips":
        zip_of(tmp_path / "one.zip", members[0], members[2])
        zip_of(tmp_path / "two.zip", ("x.txt", OTHER))
        paths = [f"{path}.zip" for path in paths]
    elif form == "tar":
        (tmp_path / "one.tar").write_bytes(tar_of(members[0], ("x.txt", OTHER), members[2]))
        paths = [str(tmp_path / "one.tar")]
    else:
        for folder, (name, data) in zip(("one", "two", "two"), members, strict=True):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / name.lower()).write_bytes(data)
    found = []
    for order in (paths, paths[::-1]):
        counters = Counters()
        config = BooksSource(name="b", paths=tuple(order))
        splits = books.plan(config)
        ids = [raw.document_id for s in splits for raw in books.read(s, config, counters.count)]
        assert counters["books-kept"] == len(set(ids)) == 3
        assert counters["books-disambiguated-by-digest"] == 2
        found.append(sorted(ids))
    assert found[0] == found[1]
    assert [name.partition("~")[0] for name in found[0]] == ["b:x", "b:x", "b:y"]


def test_members_of_one_name_of_two_archives_of_lines(tmp_path: Path) -> None:
    for number in (1, 2):
        zip_of(tmp_path / f"{number}.zip", ("p.txt", f"a line of {number} .\n".encode()))
    config = BookCorpusSource(name="b", paths=(f"{tmp_path}/*.zip",))
    counters = Counters()
    made = [
        raw.document_id
        for split in bookcorpus.plan(config)
        for raw in bookcorpus.read(split, config, counters.count)
    ]
    assert made == ["b:1.zip@0/p.txt:0", "b:2.zip@0/p.txt:0"]


def test_unpacked_tar_passes_on_error_of_callers_block(tmp_path: Path, fresh_cache: None) -> None:
    (tmp_path / "b.tar.gz").write_bytes(gzip.compress(tar_of(("a.txt", PROSE))))
    file = describe_file(str(tmp_path / "b.tar.gz"), name="b.tar.gz")
    missing = FileNotFoundError("a file of the caller")
    with pytest.raises(FileNotFoundError) as raised, open_unpacked(file):
        raise missing
    assert raised.value is missing


ENDS = {".tar": bytes, ".tar.gz": gzip.compress, ".tar.bz2": bz2.compress}


@pytest.mark.parametrize("suffix", ENDS)
def test_second_tar_behind_first_is_read(tmp_path: Path, suffix: str) -> None:
    tars = (tar_of(("a.txt", PROSE)), tar_of(("b.txt", OTHER)))
    (tmp_path / f"b{suffix}").write_bytes(b"".join(map(ENDS[suffix], tars)))
    ids, counters = read(tmp_path / f"b{suffix}")
    assert ids == ["b:a", "b:b"]
    assert counters["books-in"] == 2


def test_global_headers_end_with_their_tar(tmp_path: Path) -> None:
    first = io.BytesIO()
    with tarfile.open(
        fileobj=first, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"path": "global.txt"}
    ) as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
    (tmp_path / "b.tar").write_bytes(first.getvalue() + tar_of(("b.txt", PROSE)))
    found = [member.name for member, _ in members(tmp_path / "b.tar")]
    assert found == ["global.txt", "b.txt"]


@pytest.mark.parametrize("kept", [1, 511, 512, 700, 1024])
def test_second_tar_that_is_cut_off_is_an_error(tmp_path: Path, kept: int) -> None:
    first, second = tar_of(("a.txt", PROSE)), tar_of(("b.txt", OTHER))
    (tmp_path / "b.tar").write_bytes(first + second[:kept])
    with pytest.raises(CorruptInputError):
        read(tmp_path / "b.tar")


@pytest.mark.parametrize("zeros", [0, 1, 511, 100_000])
def test_zeros_behind_tar_are_its_end(tmp_path: Path, zeros: int) -> None:
    (tmp_path / "b.tar").write_bytes(tar_of(("a.txt", PROSE)) + bytes(zeros))
    assert read(tmp_path / "b.tar")[0] == ["b:a"]


def test_zip_behind_zip_is_refused(tmp_path: Path) -> None:
    """Its directory lists only the members of the second."""
    first = zip_of(tmp_path / "1.zip", ("a.txt", PROSE))
    second = zip_of(tmp_path / "2.zip", ("b.txt", OTHER))
    (tmp_path / "both.zip").write_bytes(first + second)
    with pytest.raises(CorruptInputError) as error:
        read(tmp_path / "both.zip")
    assert error.value.offset == len(first)


def test_zip_behind_program_is_read(tmp_path: Path) -> None:
    data = zip_of(tmp_path / "1.zip", ("a.txt", PROSE))
    (tmp_path / "b.zip").write_bytes(b"MZ" + bytes(998) + data)
    assert read(tmp_path / "b.zip")[0] == ["b:a"]
