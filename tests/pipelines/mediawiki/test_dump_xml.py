import bz2
import itertools
import random

import pytest
from support.dump_builder import COMPRESS, dump, header, page

from pipelines.io.compression import Chunk, Damage, compression_of, decompressed
from pipelines.mediawiki.dumps import Header, Page, iterate_pages, namespace_of, read_header
from schemas.errors import InputError


def plain_chunks(data, *, sizes=(1 << 18,)):
    position = 0
    for size in itertools.cycle(sizes):
        chunk = data[position : position + size]
        if not chunk:
            return
        yield Chunk(chunk, position, position + len(chunk), position + len(chunk), True)
        position += len(chunk)


def read_all(data, *, start=0, end=None, sizes=(1 << 18,)):
    end = len(data) if end is None else end
    moved = (
        p._replace(start=p.start + start, end=p.end + start)
        for p in plain_chunks(data[start:], sizes=sizes)
    )
    return list(iterate_pages(moved, end=end, at_start=start == 0, at_end=end == len(data)))


def titles(items):
    return [item.title if isinstance(item, Page) else item.kind for item in items]


@pytest.fixture
def whole():
    return dump([page(number, f"text <{number}> & é 漢字 😀") for number in range(1, 8)])


def test_fields_are_those_of_the_page_and_its_revision(whole):
    first = read_all(whole)[0]
    assert first == Page(
        title="Page 1",
        namespace=0,
        page_id=1,
        revision_id=1001,  # not that of the parent or the contributor
        timestamp="2025-01-01T00:00:00Z",
        model="wikitext",
        text="text <1> & é 漢字 😀",
        has_redirect=False,
        revisions=1,
        byte_start=whole.index(b"<page>"),
        byte_end=whole.index(b"</page>") + len(b"</page>"),
    )


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 8, 13, 64, 1000])
def test_where_the_chunks_are_cut_does_not_matter(whole, size):
    assert read_all(whole, sizes=(size,)) == read_all(whole)


def test_every_cut_into_two_ranges_gives_each_page_once(whole):
    expected = read_all(whole)
    for middle in range(1, whole.index(b"</mediawiki>") + 1):
        parts = read_all(whole, end=middle) + read_all(whole, start=middle)
        assert parts == expected, middle


def test_every_truncation_gives_whole_pages_and_then_damage(whole):
    expected = read_all(whole)
    for length in range(len(whole) - len("</mediawiki>\n") + 1):
        *kept, last = read_all(whole[:length])
        assert kept == expected[: len(kept)]
        assert isinstance(last, Damage)
        assert last.kind == "truncated"
        head = whole[:length]
        assert len(kept) == head.count(b"</page>")
        assert last.cut_page is (head.count(b"<page>") > head.count(b"</page>"))


def test_the_last_of_several_revisions_counts():
    second = "    </revision>\n    <revision>\n      <id>5</id>\n      <text>new</text>\n"
    text = page(1, "old").replace("    </revision>\n", second + "    </revision>\n")
    (item,) = read_all(dump([text]))
    assert (item.text, item.revision_id, item.revisions) == ("new", 5, 2)
    assert item.timestamp is None  # nothing is left over from the older one


def test_slots_uploads_and_unknown_elements_are_not_mistaken_for_the_page():
    slot = "      <content><role>x</role><model>json</model><text>no</text></content>\n"
    upload = "    <upload><timestamp>1999</timestamp><id>3</id><text>no</text></upload>\n"
    text = page(4, "yes").replace("      <model>", slot + "      <model>")
    text = text.replace("  </page>", upload + "  </page>")
    (item,) = read_all(dump([text]))
    assert (item.text, item.page_id, item.revision_id) == ("yes", 4, 1004)
    assert (item.model, item.timestamp) == ("wikitext", "2025-01-01T00:00:00Z")


def test_redirects_and_models_are_told():
    one = page(1, inside='    <redirect title="B" />\n')
    two = page(2, "{}", model="json")
    three = page(3, model=None)
    items = read_all(dump([one, two, three]))
    assert [item.has_redirect for item in items] == [True, False, False]
    assert [item.model for item in items] == ["wikitext", "json", "wikitext"]


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
    ],
)
@pytest.mark.parametrize("size", [7, 1 << 18])
def test_a_page_that_is_not_valid_xml_costs_only_itself(bad, size):
    items = read_all(dump([page(1), bad, page(3), page(4)]), sizes=(size,))
    kinds = titles(items)
    assert kinds[0] == "Page 1"
    assert kinds[-2:] == ["Page 3", "Page 4"]
    assert "page" in kinds
    broken = [item for item in items if isinstance(item, Damage)]
    assert all(item.cut_page for item in broken)
    assert "Page 2" not in kinds


@pytest.mark.parametrize("size", [5, 1 << 18])
def test_a_page_is_found_again_behind_a_tag_too_many(size):
    odd = page(2).replace("  <page>", "  <page><page>")
    items = read_all(dump([page(1), odd, page(3)]), sizes=(size,))
    assert titles(items) == ["Page 1", "page", "Page 2", "Page 3"]


def test_bytes_that_are_not_utf8_cost_only_their_page():
    data = dump([page(1), page(2), page(3)]).replace(b"Page 2 says", b"Page 2 \xff\xfe")
    assert titles(read_all(data)) == ["Page 1", "page", "Page 3"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (page(2).replace("<title>Page 2</title>", ""), "no <title>"),
        ("  <page><title>T</title><ns>0</ns><id>2</id></page>\n", "no <revision>"),
        (page(2).replace("<id>2</id>", "<id>two</id>"), "found 'two'"),
        (page(2).replace("<ns>0</ns>", "<ns>1_0</ns>"), "found '1_0'"),
    ],
)
def test_a_page_that_lacks_what_it_needs_says_so(text, fault):
    items = read_all(dump([page(1), text, page(3)]))
    assert [bool(item.fault) for item in items] == [False, True, False]
    assert fault in items[1].fault


def test_comments_between_pages_are_passed_over_but_none_may_hide_a_page():
    assert titles(read_all(dump([page(1), "<!-- x -->\n", page(2)]))) == ["Page 1", "Page 2"]
    hidden = read_all(dump([page(1), "<!--\n", page(2), "-->\n", page(3)]))
    assert "untrusted" in titles(hidden)


def test_a_page_tag_that_is_not_the_formats_is_noticed():
    odd = page(2).replace("<page>", '<page x="1">')
    assert "untrusted" in titles(read_all(dump([page(1), odd, page(3)])))


def test_damaged_streams_lose_the_page_they_cut():
    data = dump([page(1), page(2), page(3)])
    half = data.index(b"Page 2 says")
    given = [
        Chunk(data[:half], 0, 50, 50),
        Damage("stream", 60, "broken", start=0),
        Chunk(data[half:], 70, 100, 100),
    ]
    items = list(iterate_pages(given, end=100, at_start=True, at_end=True))
    assert titles(items) == ["Page 1", "stream", "Page 3"]
    assert items[1].cut_page


def test_damage_behind_the_end_concerns_only_a_page_that_reaches_there():
    data = dump([page(1)])
    half = data.index(b"Page 1 says")
    after = Damage("stream", 99, "broken", start=50)
    cut = list(
        iterate_pages([Chunk(data[:half], 0, 50, 50), after], end=50, at_start=True, at_end=False)
    )
    assert titles(cut) == ["page"]
    whole = [Chunk(data[: data.index(b"</media")], 0, 50, 50), after]
    assert titles(iterate_pages(whole, end=50, at_start=True, at_end=False)) == ["Page 1"]


def test_one_long_page_is_read_in_slices():
    text = "word & " * 400_000
    (item,) = read_all(dump([page(1, text)]), sizes=(4096,))
    assert item.text == text


# The header.


def header_of(text):
    return read_header(plain_chunks(text.encode(), sizes=(50,)), where="x.xml")


@pytest.mark.parametrize("version", ["0.3", "0.5", "0.6", "0.10", "0.11"])
def test_the_header_tells_version_language_and_namespaces(version):
    found = header_of(header(version=version, language="de") + page(1))
    assert (found.version, found.language) == (version, "de")
    assert found.namespaces[0] == ""
    assert found.namespaces[14] == "Category"


def test_a_dump_may_lack_siteinfo_and_start_with_a_declaration():
    text = '\ufeff<?xml version="1.0" encoding="UTF-8"?>\n' + header(siteinfo=False)
    assert header_of(text + page(1)) == Header("0.11", "en", {})
    assert header_of(text + "</mediawiki>") == Header("0.11", "en", {})


LAUGHS = (
    '<!DOCTYPE lolz [<!ENTITY lol "lol">'
    + "".join(
        f'<!ENTITY lol{n} "{f"&lol{n - 1 if n > 1 else str()};" * 10}">' for n in range(1, 10)
    )
    + "]>"
)
EXTERNAL = '<!DOCTYPE x [<!ENTITY xxe SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize("hostile", [LAUGHS, EXTERNAL, "<!DOCTYPE mediawiki>"])
def test_declarations_in_the_header_are_refused(hostile):
    text = '<?xml version="1.0"?>' + hostile + header() + page(1, "x").replace("x<", "&lol9;<")
    with pytest.raises(InputError, match="declaration is not allowed"):
        header_of(text)
    # A reader that skips the header does not expand the entity either.
    items = read_all(text.encode())
    assert items[0].kind == "untrusted"
    assert not any(isinstance(item, Page) and "lollol" in item.text for item in items)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<html><body>404</body></html>", "expected a MediaWiki XML dump"),
        ("<feed>" + header() + page(1), "expected <mediawiki> first"),
        ('<?xml version="1.0" encoding="latin-1"?>' + header() + page(1), "expected UTF-8"),
        (header().replace("</siteinfo>", "") + page(1), "header is not valid"),
        (header() + "x" * (2 << 20) + page(1), "no <page> in the first"),
    ],
)
def test_what_is_no_dump_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        read_header(plain_chunks(text.encode()), where="x.xml")


def test_namespaces_of_titles():
    german = {1: "Diskussion", 14: "Kategorie", 0: ""}
    assert namespace_of("Berlin", german) == 0
    assert namespace_of("Diskussion:Berlin", german) == 1
    assert namespace_of("talk:Berlin", german) == 1
    assert namespace_of("User_talk:Ada", {}) == 3
    assert namespace_of("Wikipedia:About", {}) == 4
    assert namespace_of("2001: A Space Odyssey", german) == 0
    assert namespace_of(":Odd", german) == 0


# Compression.


@pytest.mark.parametrize("suffix", list(COMPRESS))
def test_compressed_bytes_come_back_and_members_follow_each_other(suffix, tmp_path):
    rng = random.Random(3)
    parts = [bytes(rng.randrange(256) for _ in range(3000)), b"", b"abc" * 70_000]
    stored = b"".join(COMPRESS[suffix](part) for part in parts)
    path = tmp_path / "x"
    path.write_bytes(stored)
    with path.open("rb") as source:
        kind = compression_of(stored, name=f"x{suffix}")
        found = list(decompressed(source, kind, start=0, end=len(stored)))
    assert b"".join(chunk.data for chunk in found) == b"".join(parts)


@pytest.mark.parametrize("suffix", [".bz2", ".gz", ".zst"])
def test_every_truncation_gives_right_bytes_and_then_damage(suffix, tmp_path):
    data = b"".join(b"line %d of the text\n" % (n * 7919) for n in range(2000))
    stored = COMPRESS[suffix](data)
    path = tmp_path / "x"
    for length in range(1, len(stored), max(1, len(stored) // 40)):
        path.write_bytes(stored[:length])
        with path.open("rb") as source:
            *found, last = decompressed(source, suffix[1:], start=0, end=length)
        assert data.startswith(b"".join(chunk.data for chunk in found))
        assert isinstance(last, Damage)
        assert last.kind == "truncated"


def test_no_flipped_bit_gives_wrong_bytes_of_a_bzip2_file(tmp_path):
    rng = random.Random(11)
    words = [f"w{rng.randrange(5000)}" for _ in range(60_000)]
    data = " ".join(words).encode()
    stored = bz2.compress(data, 1)  # blocks of 100 kB
    path = tmp_path / "x"
    kept = []
    for _ in range(60):
        place = rng.randrange(len(stored) * 8)
        damaged = bytearray(stored)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with path.open("rb") as source:
            found = list(decompressed(source, "bz2", start=0, end=len(stored)))
        whole = b"".join(chunk.data for chunk in found if isinstance(chunk, Chunk))
        assert data.startswith(whole)
        kept.append(len(whole))
        assert isinstance(found[-1], Damage) or whole == data
    assert len(set(kept)) > 2  # whole blocks before the damage are used


@pytest.mark.parametrize("step", [1, 7, 1024])
def test_a_block_counts_only_as_a_whole(tmp_path, monkeypatch, step):
    # With steps of one byte some step ends where a block does, before its CRC could be checked.
    monkeypatch.setattr("pipelines.io.compression._BZ2_STEP", step)
    rng = random.Random(2)
    data = " ".join(f"w{rng.randrange(5000)}" for _ in range(40_000)).encode()
    stored = bytearray(bz2.compress(data, 1))
    path = tmp_path / "x"
    path.write_bytes(stored)
    with path.open("rb") as source:
        found = list(decompressed(source, "bz2", start=0, end=len(stored)))
    assert b"".join(chunk.data for chunk in found) == data
    stored[10] ^= 1  # the CRC of the first block
    path.write_bytes(stored)
    with path.open("rb") as source:
        assert [item.kind for item in decompressed(source, "bz2", start=0, end=1 << 30)] == [
            "stream"
        ]


@pytest.mark.parametrize(
    ("head", "name", "message"),
    [
        (b"7z\xbc\xaf\x27\x1c", "x.xml.7z", "7z archive"),
        (b"\xfd7zXZ\x00", "x.xml.xz", "xz archive"),
        (b"<html>", "x.xml.bz2", "error page"),
    ],
)
def test_other_archives_and_wrong_names_are_refused(head, name, message):
    with pytest.raises(InputError, match=message):
        compression_of(head, name=name)


def test_the_first_bytes_count_and_not_the_name():
    assert compression_of(b"BZh9", name="x.xml") == "bz2"
    assert compression_of(b"<mediawiki", name="x.xml") == "plain"
