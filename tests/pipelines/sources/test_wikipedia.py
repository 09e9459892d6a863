"""The source `wikipedia`: dumps in every form, whole, cut into splits, truncated and damaged."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import itertools
import json
import logging
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fsspec
import pytest
from support.dump_builder import COMPRESS, dump, page, write_multistream

from pipelines.counters import Counters, check_balance
from pipelines.io.splits import RawText
from pipelines.sources.wikipedia import plan, read
from schemas.corpus_configs import WikipediaSource
from schemas.errors import ChecksumError, CorruptInputError, InputError, MissingInputError

pytestmark = pytest.mark.usefixtures("fresh_cache")

KEEP = "keep-whole-pages"
PAGES = [page(number) for number in range(1, 31)]
DUMP = dump(PAGES)
WHOLE = 1 << 30
"""Size of a split that holds all of a dump."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


def source(*paths: Path | str, size: int | None = None, **options: Any) -> WikipediaSource:
    return WikipediaSource(
        name="wiki", paths=tuple(map(str, paths)), target_split_bytes=size, **options
    )


def read_all(config: WikipediaSource) -> tuple[list[tuple[str, RawText]], Counters]:
    """Return the documents in the order of the plan, and the counters, which add up."""
    counters, documents = Counters(), list[tuple[str, RawText]]()
    for split in plan(config):
        documents += read(split, config, counters.count)
    check_balance(counters, "pages", where="test")
    assert len(documents) == counters["pages-kept"]
    return documents, counters


def ids(documents: Sequence[tuple[str, RawText]]) -> list[int | None]:
    return [document.page_id for _, document in documents]


def texts(documents: Sequence[tuple[str, RawText]]) -> list[tuple[str, str, Sequence[str]]]:
    return [(document_id, raw.title, raw.paragraphs) for document_id, raw in documents]


@pytest.mark.parametrize(
    ("version", "suffix"),
    [*((version, "") for version in ("0.3", "0.5", "0.6", "0.8", "0.10")),
     *(("0.11", suffix) for suffix in COMPRESS)],
)  # fmt: skip
def test_every_version_and_compression_gives_the_same_documents(
    folder: Path, version: str, suffix: str
) -> None:
    old = version in ("0.3", "0.5")
    said = {"namespace": None, "model": None} if old else {}
    talk = {"namespace": None if old else 1, "model": None if old else "wikitext"}
    data = dump([page(1, **said), page(2, title="Talk:Page", **talk)], version=version)
    (folder / f"x.xml{suffix}").write_bytes(COMPRESS[suffix](data))
    documents, counters = read_all(source(folder))
    paragraph = f"Page 1 says that {'ink and paper ' * 5}are number 1."
    assert texts(documents) == [("wiki:1:1001", "Page 1", [paragraph])]
    assert documents[0][1].timestamp == "2025-01-01T00:00:00Z"
    assert counters["pages-dropped-namespace"] == 1
    assert counters["xml-bytes"] == len(data)
    assert counters["raw-bytes"] == (folder / f"x.xml{suffix}").stat().st_size


def test_every_reason_to_drop_is_counted_and_pages_behind_are_kept(folder: Path) -> None:
    two = "    </revision>\n    <revision><id>9</id><text>Newer words.</text></revision>\n  </page>"
    pages = [
        page(1).replace("      <id>1001</id>\n", ""),
        page(2, title="File:A.png", namespace=6),
        page(3, "#REDIRECT [[Page 1]]"),
        page(4, inside='    <redirect title="Page 1" />\n'),
        page(5, ""),
        page(6, " \n "),
        page(7, "{{Infobox|a=b}}"),
        page(8, "a { color: red }", model="css"),
        page(9).replace("<title>Page 9</title>", ""),
        page(10).replace("    </revision>\n  </page>", two),
        page(11),
    ]
    (folder / "x.xml").write_bytes(dump(pages))
    documents, counters = read_all(source(folder))
    assert [document_id for document_id, _ in documents] == ["wiki:1", "wiki:10:9", "wiki:11:1011"]
    (_, first), (_, second), _ = documents
    assert (first.revision_id, second.timestamp) == (None, None)
    assert second.paragraphs == ["Newer words."]
    del counters["xml-bytes"], counters["raw-bytes"]
    assert counters == {
        "pages-in": 11,
        "pages-kept": 3,
        "pages-dropped-namespace": 1,
        "pages-dropped-redirect": 2,
        "pages-dropped-empty": 2,
        "pages-dropped-no-text-left": 1,
        "pages-dropped-not-wikitext": 1,
        "pages-dropped-malformed": 1,
        "revisions-superseded": 1,
        "characters-dropped-template": len("{{Infobox|a=b}}"),
    }
    assert ids(read_all(source(folder, namespaces=(6,)))[0]) == [2]


# Forms of a dump.


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("suffix", ["", ".bz2"])
def test_dump_in_another_encoding_is_refused_with_the_way_to_convert_it(
    folder: Path, encoding: str, suffix: str
) -> None:
    (folder / f"x.xml{suffix}").write_bytes(COMPRESS[suffix](DUMP.decode().encode(encoding)))
    with pytest.raises(InputError, match="iconv"):
        read_all(source(folder))


@pytest.mark.parametrize("data", [b"", DUMP.replace(b"<", b"<ns0:").replace(b"<ns0:/", b"</ns0:")])
def test_file_without_elements_of_a_dump_is_refused(folder: Path, data: bytes) -> None:
    (folder / "x.xml").write_bytes(data)
    with pytest.raises(InputError, match="expected a MediaWiki XML dump"):
        read_all(source(folder))


# Splits.


@pytest.mark.parametrize("index", [True, False])
def test_multistream_dump_is_cut_and_read_whole(folder: Path, index: bool) -> None:
    path, offsets = write_multistream(folder, PAGES, per_stream=4, index=index)
    splits = plan(source(folder, size=1024))
    assert len(splits) > 2
    assert {split.start for split in splits} <= set(offsets)
    documents, counters = read_all(source(folder, size=1024))
    assert ids(documents) == list(range(1, 31))
    assert counters["raw-bytes"] == path.stat().st_size
    assert counters["xml-bytes"] == len(bz2.decompress(path.read_bytes()))
    for position, (_, document) in enumerate(documents):
        stream = position // 4 + 1
        assert (document.byte_start, document.byte_end) == tuple(offsets[stream : stream + 2])
    assert read_all(source(folder, size=WHOLE))[0] == documents


def test_streams_cut_anywhere_are_read_whole(folder: Path) -> None:
    # As pbzip2 makes them: pages and even tags span streams.
    for length in (97, 311, 1000):
        blocks = [DUMP[i : i + length] for i in range(0, len(DUMP), length)]
        (folder / "x.xml.bz2").write_bytes(b"".join(map(bz2.compress, blocks)))
        assert len(plan(source(folder, size=1024))) > 3
        documents, counters = read_all(source(folder, size=1024))
        assert ids(documents) == list(range(1, 31))
        assert counters["xml-bytes"] == len(DUMP)


@pytest.mark.parametrize("size", [1024, 1025, 1500, 2777])
def test_plain_dump_is_cut_anywhere_and_read_whole(folder: Path, size: int) -> None:
    (folder / "x.xml").write_bytes(DUMP)
    assert len(plan(source(folder, size=size))) > 3
    documents, counters = read_all(source(folder, size=size))
    assert ids(documents) == list(range(1, 31))
    assert counters["xml-bytes"] == counters["raw-bytes"] == len(DUMP)
    for _, document in documents:
        text = DUMP[document.byte_start : document.byte_end]
        assert text.startswith(b"<page>")
        assert text.endswith(b"</page>")
        assert f"<id>{document.page_id}</id>".encode() in text


def test_no_range_of_a_plain_dump_starts_in_the_last_tag(folder: Path) -> None:
    end = b"</mediawiki>\n"
    body = dump([page(1), page(2)]).removesuffix(end)
    for missing in range(14):
        (folder / "x.xml").write_bytes(body.ljust(2048 + missing - len(end)) + end)
        assert ids(read_all(source(folder, size=1024))[0]) == [1, 2]


def _names(record: logging.LogRecord) -> set[str]:
    """Names of files in a message."""
    return set(re.findall(r"[\w.-]+\.gz", record.getMessage()))


def test_order_of_paths_does_not_matter_and_copies_are_read_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        (folder / f"x{number}.xml.gz").write_bytes(COMPRESS[".gz"](dump([PAGES[number]])))
    (folder / "copy.xml.gz").write_bytes((folder / "x1.xml.gz").read_bytes())
    plans = [plan(source(*order)) for order in itertools.permutations(folder.iterdir())]
    assert all(other == plans[0] for other in plans[1:])
    assert len(plans[0]) == 3
    assert len(caplog.records) == len(plans)  # one warning each
    assert all({"copy.xml.gz", "x1.xml.gz"} == _names(record) for record in caplog.records)


def test_folder_or_pattern_leaves_out_what_is_no_dump(folder: Path) -> None:
    write_multistream(folder, PAGES, per_stream=8)
    (folder / "xxwiki-20250101-sha1sums.txt").write_text(f"{'0' * 40}  other\n")
    (folder / "README.txt").write_text("hello")
    assert len(plan(source(folder))) == len(plan(source(folder / "xxwiki*"))) == 1
    (index,) = folder.glob("*-index*")
    with pytest.raises(MissingInputError, match="expected dumps"):
        plan(source(index))


def test_named_file_may_have_any_name_and_no_siteinfo(folder: Path) -> None:
    (folder / "export").write_bytes(dump([page(1)], siteinfo=False, language="ja"))
    (split,) = plan(source(folder / "export"))
    assert json.loads(split.file.header)["language"] == "ja"
    assert ids(read_all(source(folder / "export"))[0]) == [1]


def test_remote_files_are_read_like_local_ones(folder: Path) -> None:
    write_multistream(folder, PAGES, per_stream=4)
    fs = fsspec.filesystem("memory")
    for path in folder.iterdir():
        fs.pipe(f"/wikipedia-test/{path.name}", path.read_bytes())
    near = read_all(source(folder, size=1024))
    assert read_all(source("memory://wikipedia-test", size=1024)) == near


def test_dump_is_verified_by_the_list_beside_it(folder: Path) -> None:
    path = folder / "x.xml.bz2"
    path.write_bytes(bz2.compress(dump([page(1)])))
    digest = hashlib.sha1(path.read_bytes()).hexdigest()
    listing = folder / "xxwiki-20250101-sha1sums.txt"
    listing.write_text(f"{digest}  x.xml.bz2\n")
    (split,) = plan(source(folder))
    assert split.file.checksum == f"sha1:{digest}"
    listing.write_text(f"{'1' * 40}  x.xml.bz2\n")
    with pytest.raises(ChecksumError):
        plan(source(folder))
    (split,) = plan(source(folder, verify_checksums=False))
    assert split.file.checksum == ""


# Damage.


def test_error_names_file_offset_and_last_whole_page(folder: Path) -> None:
    path = folder / "x.xml"
    cut = DUMP.index(b"Page 7 says")
    path.write_bytes(DUMP[:cut])
    with pytest.raises(CorruptInputError, match="on_corrupt") as error:
        read_all(source(folder))
    assert (error.value.file, error.value.offset) == (str(path), cut)
    assert error.value.last_record == "'Page 6' (id 6)"
    documents, counters = read_all(source(folder, on_corrupt=KEEP))
    assert ids(documents) == [1, 2, 3, 4, 5, 6]
    assert (counters["pages-in"], counters["pages-dropped-malformed"]) == (7, 1)
    assert counters["files-truncated"] == 1


@pytest.mark.parametrize(
    ("form", "size"),
    [
        *((suffix, WHOLE) for suffix in COMPRESS),
        ("stream", 1024),
        ("index", 1024),
        ("index", WHOLE),
    ],
)
def test_dump_cut_anywhere_gives_whole_pages_or_an_error(
    folder: Path, form: str, size: int
) -> None:
    path, streams = folder / f"x.xml{form}", list[int]()
    if form in COMPRESS:
        words = random.Random(5).choices([f"w{n}" for n in range(9999)], k=30_000)
        pages = [page(n, " ".join(words[300 * n - 300 : 300 * n])) for n in range(1, 101)]
        path.write_bytes(COMPRESS[form](dump(pages)))
    else:
        path, streams = write_multistream(folder, PAGES, per_stream=4, index=form == "index")
    stored = path.read_bytes()
    expected = texts(read_all(source(path))[0])
    lengths = {len(stored) * part // 20 for part in range(1, 20)} | set(streams[1:])
    for length in sorted(lengths):
        path.write_bytes(stored[:length])
        with pytest.raises(InputError):
            read_all(source(path, size=size))
        documents, counters = read_all(source(path, size=size, on_corrupt=KEEP))
        whole = 4 * sum(offset <= length for offset in streams[2:]) if streams else len(documents)
        assert texts(documents) == expected[:whole]
        assert counters["files-truncated"] == 1
    assert len(documents) > 20 or form == ".bz2"  # all of it is one block


@pytest.mark.parametrize("on_corrupt", ["fail", KEEP])
@pytest.mark.parametrize("size", [1024, WHOLE])
def test_damaged_stream_is_an_error_with_the_last_whole_page(
    folder: Path, size: int, on_corrupt: str
) -> None:
    path, offsets = write_multistream(folder, PAGES, per_stream=4)
    stored = bytearray(path.read_bytes())
    stored[offsets[3] + 60] ^= 0x40
    path.write_bytes(stored)
    with pytest.raises(CorruptInputError, match="Download it again") as error:
        read_all(source(folder, size=size, on_corrupt=on_corrupt))
    assert error.value.last_record == "'Page 8' (id 8)"
    assert offsets[3] < error.value.offset <= offsets[3] + 60 + 1024


def test_no_flipped_bit_gives_a_wrong_page(folder: Path) -> None:
    path, _ = write_multistream(folder, PAGES, per_stream=4)
    stored = path.read_bytes()
    expected = texts(read_all(source(folder))[0])
    rng = random.Random(7)
    for _ in range(40):
        damaged = bytearray(stored)
        bit = rng.randrange(len(stored) * 8)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            documents, counters = read_all(source(path, size=2048, on_corrupt=KEEP))
        except InputError:
            continue
        assert texts(documents) == expected or counters["files-truncated"]


def test_plan_of_many_streams_is_linear_and_has_one_header(folder: Path) -> None:
    details = []
    for number in (100, 200):
        pages = [page(n, "word " * 50) for n in range(1, number + 1)]
        write_multistream(folder, pages, per_stream=1, index=False)
        splits = plan(source(folder, size=1024))
        assert len({id(split.file) for split in splits}) == 1
        assert "Wikipedia" not in splits[0].detail
        details.append(sum(len(split.detail) for split in splits))
    assert details[1] <= 2.3 * details[0]


@pytest.mark.parametrize("words", [10, 400_000])  # noticed while planning, and while reading
def test_wrong_bytes_of_a_gzip_file_are_never_kept(folder: Path, words: int) -> None:
    stored = bytearray(gzip.compress(dump([page(1), page(2, "word " * words)])))
    stored[-6] ^= 1  # its CRC
    (folder / "x.xml.gz").write_bytes(stored)
    with pytest.raises(CorruptInputError, match="Download it again"):
        read_all(source(folder, on_corrupt=KEEP))


def test_page_that_is_not_valid_xml_costs_only_itself(folder: Path) -> None:
    bad = page(2).replace("says", "&nbsp;")
    (folder / "x.xml").write_bytes(dump([page(1), bad, page(3)]))
    with pytest.raises(CorruptInputError, match=r"'Page 2' \(id 2\) is not valid XML") as error:
        read_all(source(folder))
    assert error.value.last_record == "'Page 1' (id 1)"
    documents, counters = read_all(source(folder, on_corrupt=KEEP))
    assert ids(documents) == [1, 3]
    assert (counters["pages-in"], counters["pages-dropped-malformed"]) == (3, 1)


# Real dumps.


def test_small_real_dump_is_read_whole(real_data: Path) -> None:
    path = real_data / "wikipedia" / "en-NickShatalov_wiki.xml.bz2"
    documents, counters = read_all(source(path, on_corrupt=KEEP))
    assert len({document_id for document_id, _ in documents}) == len(documents)
    assert (counters["pages-in"], counters["files-truncated"]) == (232, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["en-wp2txt-truncated.xml.bz2", "ja-wp2txt-truncated.xml.bz2"])
def test_real_truncated_dumps_are_refused_unless_told_otherwise(real_data: Path, name: str) -> None:
    with pytest.raises(CorruptInputError, match="ends without </mediawiki>"):
        read_all(source(real_data / "wikipedia" / name))
