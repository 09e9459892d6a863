"""One long bzip2 stream is read by its blocks, and gives what it gives in one piece."""

from __future__ import annotations

import bisect
import bz2
import io
import itertools
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bzip2_builder import FALSE_MARK, block_places, write_stream
from support.dump_builder import dump, page

from pipelines.counters import Counters, check_balance
from pipelines.io.compression import Damage, whole_blocks
from pipelines.io.splits import RawText, SourceFile
from pipelines.mediawiki import bzip2 as bzip2_blocks
from pipelines.mediawiki.bzip2 import (
    BlockRange,
    read_range,
    split_at_blocks,
)
from pipelines.sources.wikipedia import plan, read
from schemas.corpus_configs import WikipediaSource
from schemas.errors import CorruptInputError

pytestmark = pytest.mark.usefixtures("fresh_cache")

KEEP = "keep-whole-pages"
HEAD = rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"
Ranges = list[BlockRange]


def words(seed: int, number: int) -> str:
    rng = random.Random(seed)
    return " ".join(f"w{rng.randrange(10**6)}" for _ in range(number))


def read_ranges(stored: bytes, ranges: Ranges) -> tuple[list[bytes], list[Damage]]:
    """Return the contents of each range, and the damage."""
    texts, damages = [], list[Damage]()
    streams = [match.start() for match in re.finditer(HEAD, stored)] + [len(stored)]
    for part in ranges:
        text = b""
        for item in read_range(io.BytesIO(stored), part, streams=streams_around(streams, part)):
            if item.is_behind:
                break
            if isinstance(item, Damage):
                damages.append(item)
            else:
                text += item.data
        texts.append(text)
    return texts, damages


def streams_around(streams: list[int], part: BlockRange) -> list[int]:
    """Return the streams from the last one before a range."""
    return streams[max(0, bisect.bisect_right(streams, part.start) - 1) :]


def cut(path: Path, target_split_bytes: int) -> Ranges:
    size = path.stat().st_size
    file = SourceFile(str(path), path.name, size, sha256="")
    starts = split_at_blocks(file, start=0, end=size, target_split_bytes=target_split_bytes)
    bounds: list[tuple[int, int | None]] = [(0, None), *starts, (size, None)]
    return [
        BlockRange(start, end, shift, end_shift or 0)
        for (start, shift), (end, end_shift) in itertools.pairwise(bounds)
    ]


@given(
    texts=st.lists(st.binary(min_size=1, max_size=400), max_size=8),
    more=st.lists(st.binary(min_size=1, max_size=40), max_size=3),
    false=st.booleans(),
    step=st.sampled_from([13, 64, 1000, 1 << 18]),
    level=st.integers(1, 9),
    wanted=st.integers(1, 900),
)
@settings(deadline=None, max_examples=40)
def test_ranges_of_blocks_have_all_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[bytes],
    more: list[bytes],
    false: bool,
    step: int,
    level: int,
    wanted: int,
) -> None:
    if false:
        texts = [FALSE_MARK.encode() + b"a" * n for n, _ in enumerate(texts)]
    stored = write_stream(texts, level=level) + write_stream([]) + write_stream(more)
    assert bz2.decompress(stored) == b"".join([*texts, *more])
    marks = [bit for bit, is_end in block_places(stored) if not is_end]
    assert bzip2_blocks.find_marks(stored) == marks
    path = tmp_path_factory.mktemp("x") / "x.bz2"
    path.write_bytes(stored)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bzip2_blocks, "_READ", step)
        ranges = cut(path, wanted)
        parts, damages = read_ranges(stored, ranges)
    assert damages == []
    assert b"".join(parts) == b"".join([*texts, *more])
    if texts and wanted == 1:
        assert len(ranges) >= len(texts) - 1


def source(path: Path, **said: Any) -> WikipediaSource:
    return WikipediaSource(name="wiki", paths=(str(path),), **said)


def documents_of(config: WikipediaSource) -> tuple[list[tuple[str, RawText]], Counters]:
    counters, documents = Counters(), list[tuple[str, RawText]]()
    for split in plan(config):
        documents += read(split, config, counters.count)
    check_balance(counters, "pages", where="test")
    return documents, counters


def pieces_of(data: bytes, length: int) -> list[bytes]:
    return [data[at : at + length] for at in range(0, len(data), length)]


@pytest.fixture(scope="module")
def pages() -> bytes:
    texts = [f"{FALSE_MARK} {words(n, 30 + n * 7 % 300)}." for n in range(60)]
    return dump([page(n, text) for n, text in enumerate(texts, 1)])


@pytest.mark.parametrize(("level", "length"), [(1, 300), (9, 1777), (5, 40_000)])
def test_documents_do_not_depend_on_the_number_of_splits(
    tmp_path: Path, pages: bytes, level: int, length: int
) -> None:
    """Pages lie across blocks, blocks and pages across splits, false marks in every block."""
    path = tmp_path / "x.xml.bz2"
    stored = write_stream(pieces_of(pages, length), level=level)
    path.write_bytes(stored)
    blocks = len(pieces_of(pages, length))
    assert len(block_places(stored)) > blocks + 1  # of which one is the end
    plain = tmp_path / "plain.xml"
    plain.write_bytes(pages)
    whole, counted = documents_of(source(path, target_split_bytes=1 << 30))
    texts, _ = documents_of(source(plain))
    size = path.stat().st_size
    expected = [(name, text._replace(byte_start=0, byte_end=size)) for name, text in texts]
    assert expected == whole
    numbers = set()
    for target_split_bytes in (1 << 10, 4096, size // 3, size - 1):
        config = source(path, target_split_bytes=max(1 << 10, target_split_bytes))
        numbers.add(len(plan(config)))
        assert documents_of(config) == (whole, counted)
    assert max(numbers) > 5 or length > 2000


def test_blocks_of_bzip2_itself(tmp_path: Path) -> None:
    path = tmp_path / "x.xml.bz2"
    path.write_bytes(bz2.compress(dump([page(n, words(n, 3000)) for n in range(1, 41)]), 1))
    whole, counted = documents_of(source(path))
    assert [document.page_id for _, document in whole] == list(range(1, 41))
    assert len(plan(source(path, target_split_bytes=40_000))) > 3
    assert documents_of(source(path, target_split_bytes=40_000)) == (whole, counted)


def test_progress_within_a_range_rises_to_its_end(
    tmp_path: Path, pages: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.bz2"
    path.write_bytes(write_stream(pieces_of(pages, 500)))
    reported: list[float] = []
    monkeypatch.setattr(bzip2_blocks, "report_fraction", reported.append)
    first, *others = cut(path, 2000)
    assert first.start == 0
    assert len(others) > 3
    for part in others:
        reported.clear()
        read_ranges(path.read_bytes(), [part])
        assert reported == sorted(reported)
        assert 0 < reported[0] < 0.9 < reported[-1] <= 1.01


def test_blocks_to_split_at_are_cached(
    tmp_path: Path, pages: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.xml.bz2"
    path.write_bytes(write_stream(pieces_of(pages, 2000)))
    config = source(path, target_split_bytes=4000)
    first = plan(config)

    def refuse(*_: object, **__: object) -> int:
        raise AssertionError("looked again")

    monkeypatch.setattr(bzip2_blocks, "block_at_or_after", refuse)
    assert plan(config) == first
    with pytest.raises(AssertionError, match="looked again"):
        plan(source(path, target_split_bytes=4001))


# Damage.


def damaged(stored: bytes, bit: int) -> bytes:
    changed = bytearray(stored)
    changed[bit // 8] ^= 0x80 >> bit % 8
    return bytes(changed)


_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "bit": lambda stored: damaged(stored, 4 * len(stored)),
    "zero": lambda stored: stored + b"\0",
    "garbage": lambda stored: stored + b"BZh9 not a stream",
}


@pytest.mark.parametrize("on_corrupt", ["fail", KEEP])
@pytest.mark.parametrize("target_split_bytes", [1 << 30, 1024])
@pytest.mark.parametrize("name", _DAMAGES)
def test_damage_is_an_error_with_its_byte(
    tmp_path: Path, pages: bytes, name: str, target_split_bytes: int, on_corrupt: str
) -> None:
    stored = _DAMAGES[name](write_stream(pieces_of(pages, 3000)))
    path = tmp_path / "x.xml.bz2"
    path.write_bytes(stored)
    with pytest.raises(CorruptInputError) as raised:
        documents_of(source(path, target_split_bytes=target_split_bytes, on_corrupt=on_corrupt))
    assert raised.value.file == str(path)
    byte = len(stored) // 2 if name == "bit" else len(stored)
    assert abs(raised.value.offset - byte) < 4500
    assert raised.value.last_record.startswith("'Page")


@pytest.mark.parametrize("target_split_bytes", [1 << 30, 1024])
def test_truncated_stream_is_refused_or_whole_pages_are_kept(
    tmp_path: Path, pages: bytes, target_split_bytes: int
) -> None:
    stored = write_stream(pieces_of(pages, 3000))
    path = tmp_path / "x.xml.bz2"
    path.write_bytes(stored[: len(stored) * 2 // 3])
    config = source(path, target_split_bytes=target_split_bytes)
    with pytest.raises(CorruptInputError, match="has no end") as raised:
        documents_of(config)
    assert raised.value.offset == path.stat().st_size
    kept, counts = documents_of(config.model_copy(update={"on_corrupt": KEEP}))
    assert 30 < len(kept) < 60
    assert kept == documents_of(source(path, on_corrupt=KEEP))[0]
    assert counts["files-truncated"] == 1


def test_stream_whose_blocks_do_not_match_its_checksum_is_damaged(
    tmp_path: Path, pages: bytes
) -> None:
    path = tmp_path / "x.xml.bz2"
    stored = write_stream(pieces_of(pages, 3000))
    end, _ = block_places(stored)[-1]
    path.write_bytes(damaged(stored, end + 48))  # the first bit of the checksum
    with pytest.raises(CorruptInputError) as caught:
        documents_of(source(path))
    assert caught.value.offset == len(stored)


# Twice as much is twice the work.


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of bytes fed to decoders."""
    amounts: list[int] = []

    def counted(decoder: bz2.BZ2Decompressor, step: bytes) -> bytes:
        amounts.append(len(step) + 1)
        return whole_blocks(decoder, step)

    monkeypatch.setattr(bzip2_blocks, "whole_blocks", counted)
    monkeypatch.setattr("pipelines.io.compression.whole_blocks", counted)
    return amounts


MARK = b"1AY&SY"
HOSTILE: dict[str, Callable[[int], bytes]] = {
    "marks": lambda size: b"BZh9" + MARK * (size // 6),
    "marks and heads": lambda size: b"BZh9" + (MARK + b"BZh9" + MARK) * (size // 16),
    "marks that begin well": lambda size: (
        b"BZh9" + (write_stream([words(1, 400).encode()])[4:600]) * (size // 596)
    ),
    "false marks": lambda size: write_stream([FALSE_MARK.encode() * 20] * (size // 60)),
    "ends": lambda size: write_stream([b"x"]) + write_stream([]) * (size // 14),
    "noise": lambda size: write_stream([b"x"]) + random.Random(3).randbytes(size),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_work_is_linear_in_the_size_of_hostile_files(
    name: str, tmp_path: Path, fed: list[int]
) -> None:
    work = []
    for size in (60_000, 120_000):
        stored = HOSTILE[name](size)
        path = tmp_path / f"{size}.bz2"
        path.write_bytes(stored)
        fed.clear()
        for target_split_bytes in (1 << 30, 1 << 14):
            read_ranges(stored, cut(path, target_split_bytes))
        work.append(sum(fed))
    assert work[1] <= 2.6 * work[0]
