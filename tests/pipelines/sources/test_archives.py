"""Malformed archives: a bad member is dropped and counted, a bad container is an error."""

from __future__ import annotations

import io
import itertools
import re
import struct
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.archive_builder import COMPRESSORS, tar_bytes, tar_entry, write_books, zip_bytes

from pipelines.counters import Counters, check_balance
from pipelines.sources import books
from pipelines.sources.archives import MemberStream
from schemas.corpus_configs import BooksSource
from schemas.errors import CorruptInputError

PROSE = (
    b"It was a bright cold morning when the three of them set out along the river bank, and "
    b"no one in the village had yet opened so much as a single shutter to see them go."
)
OTHER = PROSE.replace(b"three", b"four")
FIVE = tar_bytes([(f"{n}.txt", PROSE) for n in range(5)], form=tarfile.USTAR_FORMAT)
TWO = tar_bytes([("a.txt", PROSE)]), tar_bytes([("b.txt", OTHER)])


def read(*paths: Path) -> tuple[list[str], Counters]:
    """Return the ids of all books, and the counters."""
    counters = Counters()
    config = BooksSource(name="b", paths=tuple(map(str, paths)))
    splits = books.plan(config)
    ids = [name for split in splits for name, _ in books.read(split, config, counters.count)]
    check_balance(counters, "books", where="test")
    return ids, counters


def with_size(data: bytes, field: bytes) -> bytes:
    """Return the tar with another size in its first header and a correct checksum."""
    header = bytearray(data[:512])
    header[124:136] = field
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data[512:]


def with_flipped_bit(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def sparse(**headers: str) -> bytes:
    """Return a tar with the map of a sparse file that is not one."""
    return tar_bytes([(tar_entry("sparse.txt", **headers), PROSE), ("good.txt", OTHER)])


def extended(kind: bytes) -> bytes:
    """Return a tar with an extended header that claims 8 GB."""
    data = tar_bytes([(tar_entry("x", kind=kind), PROSE), ("a.txt", PROSE)])
    return with_size(data, b"77777777777\0")


DAMAGED_TARS = {
    "sparse-without-number": sparse(GNU_sparse_major="1", GNU_sparse_minor="0"),
    "sparse-map": sparse(GNU_sparse_map="0,x,5", GNU_sparse_size="10"),
    "sparse-size": sparse(GNU_sparse_map="0,5", GNU_sparse_size="many"),
    "sparse-huge": sparse(GNU_sparse_map=f"0,{'9' * 20}", GNU_sparse_size="9" * 30),
    **{
        f"size-{number}": with_size(FIVE, field)[:1024]
        for number, field in enumerate(
            (
                struct.pack(">Bxxx q", 0xFF, -512).ljust(12, b"\xff")[:12],
                b"\xff" * 12,  # -1
                b"\x80" + b"\x7f" * 11,
                b"77777777777\0",
                struct.pack(">Bxxx q", 0x80, 1 << 37),
                struct.pack(">Bxxx q", 0x80, 1 << 50),
                b"00000002000\0",
            )
        )
    },
    "extended-header-of-8-gb": extended(tarfile.XHDTYPE),
    "long-name-of-8-gb": extended(tarfile.GNUTYPE_LONGNAME),
    "damaged-header": with_flipped_bit(FIVE, 2 * 1024 + 5),
    **{f"cut-at-{kept}": FIVE[:kept] for kept in (2048, 2148, 2648)},
    **{f"second-cut-at-{kept}": TWO[0] + TWO[1][:kept] for kept in (1, 511, 512, 700, 1024)},
}


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
@pytest.mark.parametrize("kind", DAMAGED_TARS)
def test_damaged_tar_is_an_error(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"b{suffix}"
    path.write_bytes(COMPRESSORS[suffix](DAMAGED_TARS[kind]))
    with pytest.raises(CorruptInputError, match="cut off or damaged") as error:
        read(path)
    assert error.value.file == str(path)
    assert re.search(r": \w.*\. Expected a whole", str(error.value))


@pytest.mark.parametrize("form", ["b.zip", "b.tar.gz", "b.tar.xz", "b.tar.zst"])
def test_archive_that_is_cut_off_is_an_error(tmp_path: Path, form: str) -> None:
    members = {f"{n}.txt": PROSE + b"%d" % n**9 * 99 for n in range(40)}
    write_books(tmp_path / form, members)
    stored = (tmp_path / form).read_bytes()
    (tmp_path / form).write_bytes(stored[: len(stored) // 2])
    with pytest.raises(CorruptInputError, match=r"cut off or damaged.*: \w.*\. Expected a whole"):
        read(tmp_path / form)


def test_error_without_a_text_has_its_name() -> None:
    """zipfile raises such an error for a member that lacks its end."""

    class CutOff(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise EOFError

    with pytest.raises(CorruptInputError, match=r"damaged: EOFError\. Expected"):
        MemberStream(CutOff(), uri="b.zip", name="b.txt").read(5)


def test_sparse_file_with_invalid_offsets_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "b.tar").write_bytes(sparse(GNU_sparse_size="9", GNU_sparse_numblocks="1"))
    ids, counters = read(tmp_path / "b.tar")
    assert ids == ["b:good"]
    assert counters["books-dropped-not-a-file"] == 1


def test_names_that_are_not_utf_8_are_decoded_and_counted(tmp_path: Path) -> None:
    record = b"path=caf\xe9.txt\n"
    header = (tar_entry("x", kind=tarfile.XHDTYPE), b"%d " % (len(record) + 3) + record)
    western, latin = (name.decode("utf-8", "surrogateescape") for name in (b"\xe9", b"\x81\xe9"))
    for number, (members, form, name, encoding) in enumerate(
        (
            ([(f"caf{western}.txt", PROSE)], tarfile.GNU_FORMAT, "caf\xe9", "windows-1252"),
            ([(f"{latin}.txt", PROSE)], tarfile.USTAR_FORMAT, "\x81\xe9", "iso-8859-1"),
            ([header, ("short.txt", PROSE)], tarfile.USTAR_FORMAT, "caf\xe9", "windows-1252"),
        )
    ):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(tar_bytes([*members, ("plain.txt", OTHER)], form=form))
        ids, counters = read(path)
        assert ids == [f"b:{name}", "b:plain"]
        assert counters[f"books-named-in-{encoding}"] == 1
        assert path.name in counters.locations[f"books-named-in-{encoding}"]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.bz2"])
def test_second_tar_behind_first_is_read(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"b{suffix}").write_bytes(b"".join(map(COMPRESSORS[suffix], TWO)))
    assert read(tmp_path / f"b{suffix}")[0] == ["b:a", "b:b"]


def test_global_headers_end_with_their_tar(tmp_path: Path) -> None:
    first = tarfile.TarInfo.create_pax_global_header({"path": "global.txt"}) + TWO[0]
    (tmp_path / "b.tar").write_bytes(first + TWO[1])
    assert read(tmp_path / "b.tar")[0] == ["b:global", "b:b"]


@pytest.mark.parametrize("zeros", [0, 1, 511, 100_000])
def test_zeros_behind_tar_are_its_end(tmp_path: Path, zeros: int) -> None:
    (tmp_path / "b.tar").write_bytes(TWO[0] + bytes(zeros))
    assert read(tmp_path / "b.tar")[0] == ["b:a"]


def patched(data: bytes, offset: int, value: bytes, *, of: bytes, last: bool = False) -> bytes:
    """Return a zip with other bytes at an offset within the first (or last) record of a type."""
    at = (data.rfind(of) if last else data.find(of)) + offset
    return data[:at] + value + data[at + len(value) :]


LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        pytest.param(10, b"\x09\x00", "unknown-method", id="deflate64"),
        pytest.param(10, b"\x63\x00", "unknown-method", id="aes"),
        pytest.param(8, b"\x20\x00", "unknown-method", id="patched"),
        pytest.param(8, b"\x40\x00", "unknown-method", id="strong-encryption"),
        pytest.param(8, b"\x01\x00", "encrypted", id="encrypted"),
    ],
)
def test_zip_member_that_cannot_be_read_is_dropped(
    tmp_path: Path, offset: int, value: bytes, reason: str
) -> None:
    data = patched(zip_bytes([("odd.txt", PROSE), ("good.txt", OTHER)]), offset, value, of=CENTRAL)
    (tmp_path / "b.zip").write_bytes(patched(data, offset - 2, value, of=LOCAL))
    ids, counters = read(tmp_path / "b.zip")
    assert ids == ["b:good"]
    assert counters[f"books-dropped-{reason}"] == 1
    assert counters.locations[f"books-dropped-{reason}"] == "'odd.txt' of b.zip"


ZIP = zip_bytes([("caf\u00e9.txt", PROSE), ("b.txt", OTHER)])
DAMAGED_ZIPS = {
    "version": patched(ZIP, 6, b"\xff\x00", of=CENTRAL, last=True),
    "size-too-small": patched(ZIP, 24, b"\x05\x00\x00\x00", of=CENTRAL, last=True),
    "position": patched(ZIP, 42, b"\xff\xff\xff\x7f", of=CENTRAL, last=True),
    "name-is-not-utf-8": ZIP.replace("caf\u00e9".encode(), b"caf\xe9\xe9"),
    "content": zip_bytes([("b.txt", PROSE)], compression=zipfile.ZIP_STORED).replace(
        b"three", b"THREE"
    ),
}


@pytest.mark.parametrize("kind", DAMAGED_ZIPS)
def test_damaged_zip_is_an_error(tmp_path: Path, kind: str) -> None:
    (tmp_path / "b.zip").write_bytes(DAMAGED_ZIPS[kind])
    with pytest.raises(CorruptInputError, match=r"b\.zip.*damaged"):
        read(tmp_path / "b.zip")


def test_zip_behind_zip_is_refused(tmp_path: Path) -> None:
    """Its directory lists only the members of the second."""
    first = zip_bytes([("a.txt", PROSE)])
    (tmp_path / "both.zip").write_bytes(first + zip_bytes([("b.txt", OTHER)]))
    with pytest.raises(CorruptInputError) as error:
        read(tmp_path / "both.zip")
    assert error.value.offset == len(first)


def test_zip_behind_program_is_read(tmp_path: Path) -> None:
    (tmp_path / "b.zip").write_bytes(b"MZ" + bytes(998) + zip_bytes([("a.txt", PROSE)]))
    assert read(tmp_path / "b.zip")[0] == ["b:a"]


def test_empty_zip_is_planned(tmp_path: Path) -> None:
    (tmp_path / "b.zip").write_bytes(zip_bytes([]))
    assert read(tmp_path / "b.zip") == ([], {})
    config = BooksSource(name="b", paths=(str(tmp_path),))
    assert [split.file.name for split in books.plan(config)] == ["b.zip"]


X, Y, Z = ("x.txt", PROSE), ("x.txt", OTHER), ("y.txt", PROSE + OTHER)


@pytest.mark.parametrize(
    "contents",
    [
        {"one.zip": [X, ("x.TXT", OTHER), Z]},
        {"one.zip": [X, Z], "two.zip": [Y]},
        {"one.tar": [X, Y, Z]},
        {"one": [X], "two": [Y, Z]},
    ],
    ids=["zip", "two-zips", "tar", "folders"],
)
def test_books_of_one_name_are_told_apart_by_their_bytes(
    tmp_path: Path, contents: dict[str, Sequence[tuple[str, bytes]]]
) -> None:
    for name, members in contents.items():
        if name.endswith(".tar"):
            (tmp_path / name).write_bytes(tar_bytes(members))
        elif name.endswith(".zip"):
            (tmp_path / name).write_bytes(zip_bytes(members))
        else:
            write_books(tmp_path / name, dict(members))
    listings = []
    for order in itertools.permutations(tmp_path / name for name in contents):
        ids, counters = read(*order)
        assert counters["books-kept"] == len(set(ids)) == 3
        assert counters["books-disambiguated-by-digest"] == 2
        listings.append(sorted(ids))
    assert listings[0] == listings[-1]
    assert [name.partition("~")[0] for name in listings[0]] == ["b:x", "b:x", "b:y"]
