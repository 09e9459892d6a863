import bz2

import pytest
from support.dump_builder import page, write_multistream

from pipelines.mediawiki.multistream import (
    choose_starts,
    find_all_streams,
    find_index,
    find_streams,
    is_index,
    is_stream,
    read_index,
)
from schemas.errors import CorruptInputError, InputError

PAGES = [page(number) for number in range(1, 21)]


def all_streams(path, **named):
    return find_all_streams(str(path), name=path.name, size=path.stat().st_size, **named)


@pytest.mark.parametrize(
    ("dump", "index"),
    [
        ("xwiki-multistream.xml.bz2", "xwiki-multistream-index.txt.bz2"),
        ("xwiki-multistream.xml.bz2", "xwiki-multistream-index.txt"),
        (
            "xwiki-1-pages-articles-multistream12.xml-p1p41.bz2",
            "xwiki-1-pages-articles-multistream-index12.txt-p1p41.bz2",
        ),
    ],
)
def test_the_index_is_found_by_its_name(tmp_path, dump, index):
    path = tmp_path / dump
    path.touch()
    assert find_index(str(path), name=dump) is None
    (tmp_path / index).touch()
    assert find_index(str(path), name=dump) == str(tmp_path / index)
    assert is_index(index)
    assert not is_index(dump)


def test_a_head_that_spans_two_reads_is_found(tmp_path, monkeypatch):
    streams = [bz2.compress(bytes([65 + i]) * 50) for i in range(6)]
    offsets = [sum(map(len, streams[:i])) for i in range(6)]
    path = tmp_path / "x.bz2"
    path.write_bytes(b"".join(streams))
    for length in range(10, 40):
        monkeypatch.setattr("pipelines.mediawiki.multistream._READ", length)
        assert find_streams(str(path), start=0) == offsets


def test_what_only_looks_like_a_stream_starts_no_range(tmp_path):
    fake = b"BZh91AY&SY" + b"no stream at all" * 8
    real = bz2.compress(b"real")
    path = tmp_path / "x.bz2"
    path.write_bytes(real + fake + real + real)
    size = path.stat().st_size
    offsets = find_streams(str(path), start=0)
    assert offsets == [0, len(real), len(real + fake), len(real + fake + real)]
    assert [is_stream(str(path), offset) for offset in offsets] == [True, False, True, True]
    ranges = choose_starts(str(path), streams=offsets, size=size, target_split_bytes=1)
    assert ranges == [(0, offsets[2]), (offsets[2], size)]


def test_damaged_index_is_refused(tmp_path):
    write_multistream(tmp_path, PAGES, per_stream=2)
    (index,) = tmp_path.glob("*-index*")
    plain = tmp_path / "x-index.txt"
    for path, content, message in (
        (plain, b"100:1:A\nhello\n", "line 2: expected offset"),
        (plain, b"100:1:A\n50:2:B\n", "line 2: expected offsets to ascend"),
        (index, index.read_bytes()[:-10], "cut off or damaged"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_index(str(path))


def test_a_file_shorter_than_its_index_is_refused_unless_whole_pages_are_wanted(tmp_path):
    path, offsets = write_multistream(tmp_path, PAGES, per_stream=2)
    path.write_bytes(path.read_bytes()[: offsets[4] + 5])
    with pytest.raises(CorruptInputError, match="cut off") as error:
        all_streams(path)
    assert error.value.offset == offsets[4] + 5
    # A search does not find the fifth stream, which is too short, but the index has it.
    assert list(all_streams(path, must_be_whole=False)) == offsets[:5]


def test_the_index_of_another_file_is_refused(tmp_path):
    path, offsets = write_multistream(tmp_path, PAGES, per_stream=2)
    (index,) = tmp_path.glob("*-index*")
    index.write_bytes(bz2.compress(b"".join(b"%d:1:A\n" % (o + 1) for o in offsets[1:-1])))
    with pytest.raises(InputError, match="index of another file"):
        all_streams(path)
