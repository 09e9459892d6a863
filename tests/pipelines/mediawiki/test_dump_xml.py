"""Reading a dump's XML: its header, its pages, and the bytes of a compressed file."""

from __future__ import annotations

import bz2
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.dump_builder import COMPRESS, dump, header, page

from pipelines.io.compression import Chunk, Damage, compression_of, decompressed
from pipelines.mediawiki.dumps import Header, Page, iterate_pages, namespace_of, read_header
from schemas.errors import InputError

WHOLE = dump([page(number, f"text <{number}> & é 漢字 😀") for number in range(1, 8)])


def plain_chunks(data: bytes, *, size: int = 1 << 18, start: int = 0) -> Iterator[Chunk]:
    for at in range(0, len(data), size):
        chunk = data[at : at + size]
        first, last = start + at, start + at + len(chunk)
        yield Chunk(chunk, first, last, last, is_plain=True)


def read_all(
    data: bytes, *, start: int = 0, end: int | None = None, size: int = 1 << 18
) -> list[Page | Damage]:
    end = len(data) if end is None else end
    chunks = plain_chunks(data[start:], size=size, start=start)
    return list(iterate_pages(chunks, end=end, at_start=start == 0, at_end=end == len(data)))


def titles(items: Sequence[Page | Damage]) -> list[str]:
    """Return the titles of pages, and the kinds of damage."""
    return [item.title if isinstance(item, Page) else item.kind for item in items]


def test_fields_are_those_of_the_page_and_its_revision() -> None:
    slot = "      <content><role>x</role><model>json</model><text>no</text></content>\n"
    upload = "    <upload><timestamp>1999</timestamp><id>3</id><text>no</text></upload>\n"
    text = page(1, "text <1> & é 漢字 😀").replace("      <model>", slot + "      <model>")
    whole = dump([text.replace("  </page>", upload + "  </page>")])
    assert read_all(whole) == [
        Page(
            title="Page 1",
            namespace=0,
            page_id=1,
            revision_id=1001,  # not that of the parent, the contributor or the upload
            timestamp="2025-01-01T00:00:00Z",
            model="wikitext",
            text="text <1> & é 漢字 😀",
            has_redirect=False,
            revisions=1,
            byte_start=whole.index(b"<page>"),
            byte_end=whole.index(b"</page>") + len(b"</page>"),
        )
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 8, 13, 64, 1000])
def test_where_the_chunks_are_cut_does_not_matter(size: int) -> None:
    assert read_all(WHOLE, size=size) == read_all(WHOLE)


def test_every_cut_into_two_ranges_gives_each_page_once() -> None:
    expected = read_all(WHOLE)
    for middle in range(1, WHOLE.index(b"</mediawiki>") + 1):
        parts = read_all(WHOLE, end=middle) + read_all(WHOLE, start=middle)
        assert parts == expected, middle


def test_every_truncation_gives_whole_pages_and_then_damage() -> None:
    expected = read_all(WHOLE)
    for length in range(len(WHOLE) - len("</mediawiki>\n") + 1):
        *kept, last = read_all(WHOLE[:length])
        assert kept == expected[: len(kept)]
        assert isinstance(last, Damage)
        assert last.kind == "truncated"
        head = WHOLE[:length]
        assert len(kept) == head.count(b"</page>")
        assert last.cut_page is (head.count(b"<page>") > head.count(b"</page>"))


@pytest.mark.parametrize(
    "bad",
    [
        page(2).replace("</title>", "</titel>"),
        page(2).replace("</text>", ""),
        page(2).replace("says", "&nbsp;"),
        page(2).replace("says", "&xxe;"),
        page(2).replace("says", "\x01"),
        page(2).replace("says", "a < b"),
        page(2).replace("says", "<b>says</b>"),
        page(2).replace("  </page>\n", ""),
        page(2).replace("<revision>", "<!DOCTYPE x [<!ENTITY a 'b'>]><revision>"),
        page(2).replace("says", "\udcff\udcfe"),  # bytes that are not UTF-8
    ],
)
@pytest.mark.parametrize("size", [7, 1 << 18])
def test_page_that_is_not_valid_xml_costs_only_itself(bad: str, size: int) -> None:
    data = "".join((header(), page(1), bad, page(3), page(4), "</mediawiki>\n"))
    items = read_all(data.encode(errors="surrogateescape"), size=size)
    kinds = titles(items)
    assert kinds[0] == "Page 1"
    assert kinds[-2:] == ["Page 3", "Page 4"]
    assert "page" in kinds
    assert all(item.cut_page for item in items if isinstance(item, Damage))
    assert "Page 2" not in kinds


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (page(2).replace("<title>Page 2</title>", ""), "no <title>"),
        ("  <page><title>T</title><ns>0</ns><id>2</id></page>\n", "no <revision>"),
        (page(2).replace("<id>2</id>", "<id>two</id>"), "got 'two'"),
        (page(2).replace("<ns>0</ns>", "<ns>1_0</ns>"), "got '1_0'"),
    ],
)
def test_page_that_lacks_what_it_needs_has_a_fault(text: str, fault: str) -> None:
    first, second, third = read_all(dump([page(1), text, page(3)]))
    assert isinstance(second, Page)
    assert fault in second.fault
    assert titles([first, third]) == ["Page 1", "Page 3"]


@pytest.mark.parametrize("size", [5, 1 << 18])
def test_page_is_found_again_behind_a_tag_too_many(size: int) -> None:
    odd = page(2).replace("  <page>", "  <page><page>")
    items = read_all(dump([page(1), odd, page(3)]), size=size)
    assert titles(items) == ["Page 1", "page", "Page 2", "Page 3"]


def test_nothing_between_pages_hides_one() -> None:
    assert titles(read_all(dump([page(1), "<!-- x -->\n", page(2)]))) == ["Page 1", "Page 2"]
    hidden = dump([page(1), "<!--\n", page(2), "-->\n", page(3)])
    odd = dump([page(1), page(2).replace("<page>", '<page x="1">'), page(3)])
    assert "damaged" in titles(read_all(hidden))
    assert "damaged" in titles(read_all(odd))


def test_damage_ends_the_pages_and_counts_the_one_that_it_cuts() -> None:
    data = dump([page(1), page(2), page(3)])
    half = data.index(b"Page 2 says")
    damage = Damage("damaged", 60, "broken")
    for start, is_behind in ((Chunk(data[:half], 0, 50, 50), False), (Chunk(b"", 0, 50, 50), True)):
        chunks = [start, damage._replace(is_behind=is_behind)]
        items = list(iterate_pages(chunks, end=100, at_start=True, at_end=False))
        # Damage behind the range concerns only a page that reaches there.
        assert titles(items) == ([] if is_behind else ["Page 1", "damaged"])
    assert items == []
    behind = damage._replace(is_behind=True)
    cut = list(
        iterate_pages([Chunk(data[:half], 0, 50, 50), behind], end=50, at_start=True, at_end=False)
    )
    assert titles(cut) == ["Page 1", "damaged"]
    assert cut[1] == behind._replace(cut_page=True)


@pytest.mark.parametrize("most", [1, 1 << 30])
@pytest.mark.parametrize("size", [7, 1 << 18])
def test_last_of_many_revisions_is_kept(
    monkeypatch: pytest.MonkeyPatch, most: int, size: int
) -> None:
    monkeypatch.setattr("pipelines.mediawiki.dumps._MOST_SUPERSEDED", most)
    revisions = "".join(
        f"<revision><id>{number}</id><text>Text {number}.</text></revision>" for number in range(40)
    )
    text = f"  <page><title>T</title><ns>0</ns><id>2</id>{revisions}</page>\n"
    first, many, last = read_all(dump([page(1), text, page(3)]), size=size)
    assert isinstance(many, Page)
    assert (many.revisions, many.revision_id, many.text) == (40, 39, "Text 39.")
    assert titles([first, last]) == ["Page 1", "Page 3"]


# The header.


def header_of(text: str) -> Header | Damage:
    return read_header(plain_chunks(text.encode(), size=50), where="x.xml")


def test_header_has_version_language_and_namespaces() -> None:
    read = header_of(header(version="0.10", language="de") + page(1))
    assert isinstance(read, Header)
    assert (read.version, read.language) == ("0.10", "de")
    assert (read.namespaces[0], read.namespaces[14]) == ("", "Category")
    text = '\ufeff<?xml version="1.0" encoding="UTF-8"?>\n' + header(siteinfo=False)
    assert header_of(text + page(1)) == Header("0.11", "en", {})
    assert header_of(text + "</mediawiki>") == Header("0.11", "en", {})


LAUGHS = "".join(
    f'<!ENTITY lol{n} "{f"&lol{n - 1 if n > 1 else str()};" * 10}">' for n in range(1, 10)
)
HOSTILE = [
    f'<!DOCTYPE lolz [<!ENTITY lol "lol">{LAUGHS}]>',
    '<!DOCTYPE x [<!ENTITY xxe SYSTEM "file:///etc/passwd">]>',
    "<!DOCTYPE mediawiki>",
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_declarations_in_the_header_are_refused(hostile: str) -> None:
    text = '<?xml version="1.0"?>' + hostile + header() + page(1, "x").replace("x<", "&lol9;<")
    with pytest.raises(InputError, match="declaration is not allowed"):
        header_of(text)
    # A reader that skips the header does not expand the entity either.
    items = read_all(text.encode())
    assert titles(items)[0] == "damaged"
    assert not any(isinstance(item, Page) and "lollol" in item.text for item in items)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a MediaWiki XML dump"),
        ("<html><body>404</body></html>", "expected a MediaWiki XML dump"),
        ("<feed>" + header() + page(1), "expected <mediawiki> first"),
        ('<?xml version="1.0" encoding="latin-1"?>' + header() + page(1), "expected UTF-8"),
        (header().replace("</siteinfo>", "") + page(1), "header is not valid"),
        (header() + "x" * (2 << 20) + page(1), "no <page> in the first"),
        (page(1), r"expected <mediawiki> before the first.*put"),
        (
            header() + page(1).replace("<page>", '<page xml:space="x">') + "</mediawiki>",
            r"expected pages to begin with <page>.*xml:space",
        ),
    ],
)
def test_file_that_is_no_dump_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_header(plain_chunks(text.encode()), where="x.xml")


def test_namespaces_of_titles() -> None:
    german = {1: "Diskussion", 14: "Kategorie", 0: ""}
    for title, names, number in (
        ("Berlin", german, 0),
        ("Diskussion:Berlin", german, 1),
        ("talk:Berlin", german, 1),
        ("User_talk:Ada", {}, 3),
        ("Wikipedia:About", {}, 4),
        ("2001: A Space Odyssey", german, 0),
        (":Odd", german, 0),
    ):
        assert namespace_of(title, names) == number, title


# Compression.


@pytest.mark.parametrize("suffix", COMPRESS)
def test_members_of_a_compressed_file_are_joined(tmp_path: Path, suffix: str) -> None:
    parts = [random.Random(3).randbytes(3000), b"", b"abc" * 70_000]
    stored = b"".join(COMPRESS[suffix](part) for part in parts)
    (tmp_path / "x").write_bytes(stored)
    with (tmp_path / "x").open("rb") as file:
        kind = compression_of(stored, name=f"x{suffix}")
        chunks = list(decompressed(file, kind, start=0, end=len(stored)))
    assert b"".join(c.data for c in chunks if isinstance(c, Chunk)) == b"".join(parts)


@pytest.mark.parametrize("step", [1, 7, 1024])
def test_block_counts_only_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    # With steps of one byte some step ends where a block does, before its CRC could be checked.
    monkeypatch.setattr("pipelines.io.compression._BZ2_STEP", step)
    rng = random.Random(2)
    data = " ".join(f"w{rng.randrange(5000)}" for _ in range(40_000)).encode()
    stored = bytearray(bz2.compress(data, 1))  # blocks of 100 kB

    def chunks() -> list[Chunk | Damage]:
        (tmp_path / "x").write_bytes(stored)
        with (tmp_path / "x").open("rb") as file:
            return list(decompressed(file, "bz2", start=0, end=len(stored)))

    assert b"".join(chunk.data for chunk in chunks() if isinstance(chunk, Chunk)) == data
    stored[-100] ^= 1  # whole blocks before the damage are used
    *blocks, last = chunks()
    whole = b"".join(chunk.data for chunk in blocks if isinstance(chunk, Chunk))
    assert data.startswith(whole)
    assert len(whole) > 90_000
    assert isinstance(last, Damage)
    stored[10] ^= 1  # the CRC of the first block
    assert [item.kind for item in chunks() if isinstance(item, Damage)] == ["damaged"]


def test_compression_is_known_by_the_first_bytes_and_not_by_the_name() -> None:
    assert compression_of(b"BZh9", name="x.xml") == "bz2"
    assert compression_of(b"<mediawiki", name="x.xml") == "plain"
    for head, name, message in (
        (b"\xfd7zXZ\x00", "x.xml.xz", "xz archive"),
        (b"<html>", "x.xml.bz2", "error page"),
    ):
        with pytest.raises(InputError, match=message):
            compression_of(head, name=name)
