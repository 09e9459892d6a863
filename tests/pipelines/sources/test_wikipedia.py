import bz2
import gzip
import hashlib
import itertools
import json
import random

import fsspec
import pytest
from support.dump_builder import COMPRESS, dump, header, page, write_multistream

from pipelines.counters import Counters, check_balance
from pipelines.sources.wikipedia import plan, read
from schemas.corpus_configs import WikipediaSource
from schemas.errors import ChecksumError, CorruptInputError, InputError, MissingInputError

pytestmark = pytest.mark.usefixtures("fresh_cache")

KEEP = "keep-whole-pages"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


@pytest.fixture
def pages():
    return [page(number) for number in range(1, 31)]


def source(*paths, **said):
    return WikipediaSource(name="wiki", paths=tuple(map(str, paths)), **said)


def read_all(config):
    """Documents in the order of the plan, and the counters, which add up."""
    counters, documents = Counters(), []
    for split in plan(config):
        documents += read(split, config, counters.count)
    check_balance(counters, "pages", where="test")
    assert len(documents) == counters["pages-kept"]
    return documents, counters


def ids(documents):
    return [document.page_id for document in documents]


@pytest.mark.parametrize("suffix", list(COMPRESS))
@pytest.mark.parametrize("version", ["0.3", "0.5", "0.6", "0.8", "0.10", "0.11"])
def test_every_version_and_compression_gives_the_same_documents(folder, version, suffix):
    old = version in ("0.3", "0.5")
    said = {"namespace": None, "model": None} if old else {}
    talk = {"namespace": None if old else 1, "model": None if old else "wikitext"}
    data = dump([page(1, **said), page(2, title="Talk:Page", **talk)], version=version)
    (folder / f"x.xml{suffix}").write_bytes(COMPRESS[suffix](data))
    documents, counters = read_all(source(folder))
    assert [document.document_id for document in documents] == ["wiki:1:1001"]
    assert documents[0].title == "Page 1"
    assert documents[0].paragraphs == [
        f"Page 1 says that {'ink and paper ' * 5}are number 1.",
    ]
    assert documents[0].timestamp == "2025-01-01T00:00:00Z"
    assert counters["pages-dropped-namespace"] == 1
    assert counters["xml-bytes"] == len(data)
    assert counters["raw-bytes"] == (folder / f"x.xml{suffix}").stat().st_size


def test_every_reason_to_drop_is_counted_and_pages_behind_are_kept(folder):
    two = "    </revision>\n    <revision><id>9</id><text>Newer words.</text></revision>\n  </page>"
    texts = [
        page(1),
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
    (folder / "x.xml").write_bytes(dump(texts))
    documents, counters = read_all(source(folder))
    assert ids(documents) == [1, 10, 11]
    assert documents[1].paragraphs == ["Newer words."]
    assert documents[1].document_id == "wiki:10:9"
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
    }


def test_other_namespaces_can_be_asked_for(folder):
    (folder / "x.xml").write_bytes(dump([page(1), page(2, title="Talk:A", namespace=1)]))
    assert ids(read_all(source(folder, namespaces=(1,)))[0]) == [2]


def test_a_dump_without_siteinfo_tells_its_language(folder):
    (folder / "x.xml").write_bytes(dump([page(1)], siteinfo=False, language="ja"))
    (split,) = plan(source(folder))
    assert json.loads(split.detail)["language"] == "ja"


def test_a_missing_revision_id_is_left_out_of_the_documents_id(folder):
    text = page(1).replace("      <id>1001</id>\n", "")
    (folder / "x.xml").write_bytes(dump([text]))
    (document,) = read_all(source(folder))[0]
    assert document.document_id == "wiki:1"
    assert document.revision_id is None


# Splits.


@pytest.mark.parametrize("index", [True, False])
def test_a_multistream_dump_is_cut_and_read_whole(folder, pages, index):
    path, offsets = write_multistream(folder, pages, per_stream=4, index=index)
    config = source(folder, target_split_bytes=1024)
    splits = plan(config)
    assert len(splits) > 2
    assert {split.start for split in splits} <= set(offsets)
    documents, counters = read_all(config)
    assert ids(documents) == list(range(1, 31))
    assert counters["raw-bytes"] == path.stat().st_size
    assert counters["xml-bytes"] == len(bz2.decompress(path.read_bytes()))
    for position, document in enumerate(documents):
        stream = position // 4 + 1
        assert (document.byte_start, document.byte_end) == tuple(offsets[stream : stream + 2])


def test_neither_the_index_nor_the_splits_change_a_document(folder, tmp_path, pages):
    write_multistream(folder, pages, per_stream=4)
    other = tmp_path / "other"
    other.mkdir()
    write_multistream(other, pages, per_stream=4, index=False)
    first = [split._replace(file=None) for split in plan(source(folder, target_split_bytes=1024))]
    again = [split._replace(file=None) for split in plan(source(other, target_split_bytes=1024))]
    assert first == again
    whole = read_all(source(folder, target_split_bytes=1 << 30))[0]
    assert read_all(source(folder, target_split_bytes=1024))[0] == whole


def test_streams_cut_anywhere_are_read_whole(folder, pages):
    # As pbzip2 makes them: pages and even tags span streams.
    data = dump(pages)
    for length in (97, 311, 1000):
        blocks = [data[i : i + length] for i in range(0, len(data), length)]
        (folder / "x.xml.bz2").write_bytes(b"".join(map(bz2.compress, blocks)))
        config = source(folder, target_split_bytes=1024)
        assert len(plan(config)) > 3
        documents, counters = read_all(config)
        assert ids(documents) == list(range(1, 31))
        assert counters["xml-bytes"] == len(data)


@pytest.mark.parametrize("target_split_bytes", [1024, 1025, 1500, 2777])
def test_a_plain_dump_is_cut_anywhere_and_read_whole(folder, pages, target_split_bytes):
    data = dump(pages)
    (folder / "x.xml").write_bytes(data)
    config = source(folder, target_split_bytes=target_split_bytes)
    assert len(plan(config)) > 3
    documents, counters = read_all(config)
    assert ids(documents) == list(range(1, 31))
    assert counters["xml-bytes"] == counters["raw-bytes"] == len(data)
    for document in documents:
        text = data[document.byte_start : document.byte_end]
        assert text.startswith(b"<page>")
        assert text.endswith(b"</page>")
        assert f"<id>{document.page_id}</id>".encode() in text


@pytest.mark.parametrize("missing", range(14))
def test_no_range_of_a_plain_dump_starts_in_the_last_tag(folder, missing):
    body = dump([page(1), page(2)])[: -len("</mediawiki>\n")]
    body = body + b" " * (2048 + missing - len("</mediawiki>\n") - len(body)) + b"</mediawiki>\n"
    (folder / "x.xml").write_bytes(body)
    assert ids(read_all(source(folder, target_split_bytes=1024))[0]) == [1, 2]


def test_the_order_of_paths_does_not_matter_and_copies_are_read_once(folder, pages):
    for number in range(4):
        (folder / f"x{number}.xml.gz").write_bytes(gzip.compress(dump([pages[number]]), mtime=0))
    (folder / "copy.xml.gz").write_bytes((folder / "x1.xml.gz").read_bytes())
    files = sorted(folder.iterdir())
    plans = [plan(source(*order)) for order in itertools.permutations(files)]
    assert all(other == plans[0] for other in plans[1:])
    assert len(plans[0]) == 4


def test_a_folder_or_pattern_leaves_out_what_is_no_dump(folder, pages):
    write_multistream(folder, pages, per_stream=8)
    (folder / "xxwiki-20250101-sha1sums.txt").write_text(f"{'0' * 40}  other\n")
    (folder / "README.txt").write_text("hello")
    assert len(plan(source(folder))) == len(plan(source(folder / "xxwiki*"))) == 1
    (index,) = folder.glob("*-index*")
    with pytest.raises(MissingInputError, match="expected dumps"):
        plan(source(index))


def test_a_named_file_may_have_any_name(folder):
    (folder / "export").write_bytes(dump([page(1)]))
    assert ids(read_all(source(folder / "export"))[0]) == [1]


def test_remote_files_are_read_like_local_ones(folder, pages):
    write_multistream(folder, pages, per_stream=4)
    fs = fsspec.filesystem("memory")
    for path in folder.iterdir():
        fs.pipe(f"/wikipedia-test/{path.name}", path.read_bytes())
    near = read_all(source(folder, target_split_bytes=1024))
    assert read_all(source("memory://wikipedia-test", target_split_bytes=1024)) == near


# Checksums.


def test_a_dump_is_verified_by_the_list_beside_it(folder):
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


def test_an_error_names_file_offset_and_last_whole_page(folder, pages):
    path = folder / "x.xml"
    data = dump(pages)
    cut = data.index(b"Page 7 says")
    path.write_bytes(data[:cut])
    with pytest.raises(CorruptInputError) as error:
        read_all(source(folder))
    assert error.value.file == str(path)
    assert error.value.offset == cut
    assert error.value.last_record == "'Page 6' (id 6)"
    assert "on_corrupt" in str(error.value)
    documents, counters = read_all(source(folder, on_corrupt=KEEP))
    assert ids(documents) == [1, 2, 3, 4, 5, 6]
    assert (counters["pages-in"], counters["pages-dropped-malformed"]) == (7, 1)
    assert counters["files-truncated"] == 1


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("target_split_bytes", [1024, 1 << 30])
def test_a_multistream_dump_cut_anywhere_gives_whole_pages_or_an_error(
    folder, pages, index, target_split_bytes
):
    path, offsets = write_multistream(folder, pages, per_stream=4, index=index)
    stored = path.read_bytes()
    expected = {document.page_id: document for document in read_all(source(folder))[0]}
    lengths = {len(stored) * part // 20 for part in range(1, 20)} | set(offsets[1:])
    for length in sorted(lengths):
        path.write_bytes(stored[:length])
        with pytest.raises(CorruptInputError):
            read_all(source(path, target_split_bytes=target_split_bytes))
        documents, counters = read_all(
            source(path, target_split_bytes=target_split_bytes, on_corrupt=KEEP)
        )
        streams = sum(offset <= length for offset in offsets[2:])
        assert ids(documents) == list(range(1, 31))[: streams * 4]
        for document in documents:
            assert document.paragraphs == expected[document.page_id].paragraphs
        assert counters["files-truncated"] == 1


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst", ".bz2"])
def test_a_dump_of_one_stream_cut_anywhere_gives_whole_pages_or_an_error(folder, suffix):
    rng = random.Random(5)
    texts = [" ".join(f"w{rng.randrange(9999)}" for _ in range(300)) for _ in range(100)]
    data = dump([page(number, text) for number, text in enumerate(texts, 1)])
    stored = COMPRESS[suffix](data)
    path = folder / f"x.xml{suffix}"
    most = 0
    for part in range(1, 20):
        path.write_bytes(stored[: len(stored) * part // 20])
        with pytest.raises(InputError):
            read_all(source(path))
        documents, counters = read_all(source(path, on_corrupt=KEEP))
        assert ids(documents) == list(range(1, len(documents) + 1))
        assert [d.paragraphs for d in documents] == [[t] for t in texts[: len(documents)]]
        assert counters["files-truncated"] == 1
        most = max(most, len(documents))
    assert most > 20 or suffix == ".bz2"  # all of it is one block


@pytest.mark.parametrize("target_split_bytes", [1024, 1 << 30])
def test_a_damaged_stream_costs_only_itself(folder, pages, target_split_bytes):
    path, offsets = write_multistream(folder, pages, per_stream=4)
    stored = bytearray(path.read_bytes())
    for place in (offsets[3] + 60, offsets[5] + 1):  # in a block, and in the head of a stream
        stored[place] ^= 0x40
    path.write_bytes(stored)
    config = source(folder, target_split_bytes=target_split_bytes)
    with pytest.raises(CorruptInputError) as error:
        read_all(config)
    assert error.value.last_record == "'Page 8' (id 8)"
    assert error.value.offset > offsets[3]
    documents, counters = read_all(config.model_copy(update={"on_corrupt": KEEP}))
    assert ids(documents) == [*range(1, 9), *range(13, 17), *range(21, 31)]
    assert counters["streams-dropped-corrupt"] == 2
    assert counters["files-truncated"] == 0


def test_no_flipped_bit_gives_a_wrong_page(folder, pages):
    path, _ = write_multistream(folder, pages, per_stream=4)
    stored = path.read_bytes()
    expected = {d.page_id: d.paragraphs for d in read_all(source(folder))[0]}
    rng = random.Random(7)
    for _ in range(80):
        damaged = bytearray(stored)
        place = rng.randrange(len(stored) * 8)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            documents, _ = read_all(source(path, target_split_bytes=2048, on_corrupt=KEEP))
        except InputError:
            continue
        assert all(d.paragraphs == expected[d.page_id] for d in documents)
        assert len(documents) >= 22  # no more than a stream, and its page numbers, can be lost


@pytest.mark.parametrize("words", [10, 400_000])  # noticed while planning, and while reading
def test_wrong_bytes_of_a_gzip_file_are_never_kept(folder, words):
    stored = bytearray(gzip.compress(dump([page(1), page(2, "word " * words)])))
    stored[-6] ^= 1  # its CRC
    (folder / "x.xml.gz").write_bytes(stored)
    config = source(folder, on_corrupt=KEEP)
    if words > 10:
        assert len(plan(config)) == 1
    with pytest.raises(CorruptInputError, match="cannot be verified"):
        read_all(config)


def test_a_page_that_is_not_valid_xml_costs_only_itself(folder):
    bad = page(2).replace("says", "&nbsp;")
    (folder / "x.xml").write_bytes(dump([page(1), bad, page(3)]))
    with pytest.raises(CorruptInputError, match=r"'Page 2' \(id 2\) is not valid XML") as error:
        read_all(source(folder))
    assert error.value.last_record == "'Page 1' (id 1)"
    documents, counters = read_all(source(folder, on_corrupt=KEEP))
    assert ids(documents) == [1, 3]
    assert (counters["pages-in"], counters["pages-dropped-malformed"]) == (3, 1)


def test_entity_declarations_are_refused_in_either_mode(folder):
    hostile = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    (folder / "x.xml").write_text(hostile + header() + page(1, "&b;") + "</mediawiki>")
    for mode in ("fail", KEEP):
        with pytest.raises(InputError, match="declaration is not allowed"):
            plan(source(folder, on_corrupt=mode))


def test_what_is_no_dump_is_refused(folder):
    (folder / "x.xml").write_text("<rss><channel/></rss>")
    with pytest.raises(InputError, match="expected a MediaWiki XML dump"):
        plan(source(folder))
    (folder / "x.xml").write_bytes(b"")
    with pytest.raises(InputError):
        plan(source(folder))


# Real dumps.


def test_real_dumps_are_read_whole(real_data):
    config = source(real_data / "wikipedia", on_corrupt=KEEP)
    named = {split.file.name: split for split in plan(config)}
    counts = {}
    for name in ("en-NickShatalov_wiki.xml.bz2", "en-table-markup.xml.bz2"):
        counters = Counters()
        kept = list(read(named[name], config, counters.count))
        check_balance(counters, "pages", where=name)
        assert len({document.document_id for document in kept}) == len(kept)
        counts[name] = counters["pages-in"]
        assert counters["files-truncated"] == 0
    assert counts == {"en-NickShatalov_wiki.xml.bz2": 232, "en-table-markup.xml.bz2": 5}


@pytest.mark.slow
def test_all_real_dumps_add_up(real_data):
    config = source(real_data / "wikipedia", real_data / "wikibooks", on_corrupt=KEEP)
    total = Counters()
    for split in plan(config):
        counters = Counters()
        for _ in read(split, config, counters.count):
            pass
        check_balance(counters, "pages", where=split.file.name)
        truncated = "truncated" in split.file.name and split.end == split.file.size
        assert counters["files-truncated"] == truncated, split.file.name
        total += counters
    assert total["pages-in"] == 232 + 132 + 27 + 5 + 361 + 262 + 747 + 24_000
    assert total["pages-dropped-malformed"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["en-wp2txt-truncated.xml.bz2", "ja-wp2txt-truncated.xml.bz2"])
def test_real_truncated_dumps_are_refused_unless_told_otherwise(real_data, name):
    with pytest.raises(CorruptInputError, match="ends without </mediawiki>"):
        read_all(source(real_data / "wikipedia" / name))
