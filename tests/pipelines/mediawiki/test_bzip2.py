"""One long bzip2 stream is read by its blocks, and gives what it gives in one piece."""

from __future__ import annotations

import bz2
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bzip2_builder import FALSE_MARK, block_places, write_stream
from support.dump_builder import dump, page

from pipelines.counters import STREAM_PART, Counters, check_balance
from pipelines.documents.job import build_documents
from pipelines.io.compression import Damage, whole_blocks
from pipelines.io.raw_files import describe_file
from pipelines.io.splits import RawText
from pipelines.mediawiki import bzip2 as bzip2_blocks
from pipelines.mediawiki.bzip2 import (
    BlockReader,
    StreamCrcPart,
    split_at_blocks,
    verify_stream_crcs,
)
from pipelines.sources.wikipedia import plan, read
from schemas.corpus_configs import DocumentsConfig, WikipediaSource
from schemas.errors import CorruptInputError
from schemas.execution_configs import ExecutionConfig

pytestmark = pytest.mark.usefixtures("fresh_cache")

KEEP = "keep-whole-pages"
Ranges = list[tuple[int, int | None, int]]


def words(seed: int, number: int) -> str:
    rng = random.Random(seed)
    return " ".join(f"w{rng.randrange(10**6)}" for _ in range(number))


def read_ranges(
    stored: bytes, ranges: Ranges
) -> tuple[list[bytes], list[Damage], list[StreamCrcPart]]:
    """Return the contents of each range, the damage, and the parts of checksums."""
    texts, damages, parts = [], list[Damage](), list[StreamCrcPart]()
    for start, shift, end in ranges:
        reader = BlockReader(
            io.BytesIO(stored), start=start, shift=shift, end=end, size=len(stored)
        )
        text = b""
        for item in reader.chunks():
            if item.start >= end:
                break
            if isinstance(item, Damage):
                damages.append(item)
            else:
                text += item.data
        texts.append(text)
        parts += reader.parts
    return texts, damages, parts


def cut(path: Path, target_split_bytes: int) -> Ranges:
    size = path.stat().st_size
    file = describe_file(str(path), name=path.name)
    found = split_at_blocks(file, start=0, end=size, target_split_bytes=target_split_bytes)
    starts: list[tuple[int, int | None]] = [(0, None), *found]
    ends = [*(start for start, _ in found), size]
    return [(start, shift, end) for (start, shift), end in zip(starts, ends, strict=True)]


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
    assert bzip2_blocks.find_marks(stored) == block_places(stored)
    path = tmp_path_factory.mktemp("x") / "x.bz2"
    path.write_bytes(stored)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bzip2_blocks, "_READ", step)
        ranges = cut(path, wanted)
        found, damages, parts = read_ranges(stored, ranges)
    assert damages == []
    assert b"".join(found) == b"".join([*texts, *more])
    assert verify_stream_crcs(parts) == []
    if texts and wanted == 1:
        assert len(ranges) >= len(texts) - 1


def source(path: Path, **said: Any) -> WikipediaSource:
    return WikipediaSource(name="wiki", paths=(str(path),), **said)


def documents_of(config: WikipediaSource) -> tuple[list[tuple[str, RawText]], Counters]:
    counters, documents = Counters(), list[tuple[str, RawText]]()
    for split in plan(config):
        documents += read(split, config, counters.count)
    check_balance(counters, "pages", where="test")
    for name in [name for name in counters if name.startswith(STREAM_PART)]:
        del counters[name]
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


@given(
    place=st.floats(0, 1, exclude_max=True), target_split_bytes=st.sampled_from([1024, 3000, 9000])
)
@settings(deadline=None, max_examples=12)
def test_flipped_bit_loses_the_pages_of_its_block(
    tmp_path_factory: pytest.TempPathFactory, pages: bytes, place: float, target_split_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("x") / "x.xml.bz2"
    stored = write_stream(pieces_of(pages, 3000))
    path.write_bytes(stored)
    right, _ = documents_of(source(path))
    path.write_bytes(damaged(stored, 32 + int(place * (8 * len(stored) - 32))))
    try:
        whole, counted = documents_of(source(path, on_corrupt=KEEP))
    except CorruptInputError:  # of the first block, with the header
        with pytest.raises(CorruptInputError):
            documents_of(source(path, on_corrupt=KEEP, target_split_bytes=target_split_bytes))
        return
    known = dict(right)
    assert all(known[document_id] == document for document_id, document in whole)
    # Two blocks of 3,000 bytes, if the mark between them is damaged; no page has less than 500.
    assert len(right) - len(whole) <= 14
    cut_up, counts = documents_of(
        source(path, on_corrupt=KEEP, target_split_bytes=target_split_bytes)
    )
    assert cut_up == whole
    # The job combines the checksums of ranges; a single range does not check that of its stream.
    del counts["streams-dropped-corrupt"], counted["streams-dropped-corrupt"]
    assert counts == counted


_DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "bit": (lambda stored: damaged(stored, 4 * len(stored)), "block that starts at byte"),
    "zero": (lambda stored: stored + b"\0", "has no header"),
    "garbage": (lambda stored: stored + b"BZh9 not a stream", "has no header"),
    "truncated": (lambda stored: stored[: len(stored) * 2 // 3], "has no end"),
}


@pytest.mark.parametrize("target_split_bytes", [1 << 30, 1024])
@pytest.mark.parametrize("name", _DAMAGES)
def test_damage_is_refused_or_whole_pages_are_kept(
    tmp_path: Path, pages: bytes, name: str, target_split_bytes: int
) -> None:
    change, message = _DAMAGES[name]
    stored = change(write_stream(pieces_of(pages, 3000)))
    path = tmp_path / "x.xml.bz2"
    path.write_bytes(stored)
    with pytest.raises(CorruptInputError, match=message) as raised:
        documents_of(source(path, target_split_bytes=target_split_bytes))
    assert raised.value.file == str(path)
    place = len(stored) // 2 if name == "bit" else len(stored)
    assert abs(raised.value.offset - place) < 3000
    kept, counts = documents_of(
        source(path, target_split_bytes=target_split_bytes, on_corrupt=KEEP)
    )
    assert kept == documents_of(source(path, on_corrupt=KEEP))[0]
    is_cut = name == "truncated"
    assert 30 < len(kept) < 60 if name in ("bit", "truncated") else len(kept) == 60
    assert (counts["files-truncated"], counts["streams-dropped-corrupt"]) == (is_cut, not is_cut)


def build(config: WikipediaSource, folder: Path) -> list[int]:
    folder.mkdir()
    done = build_documents(
        DocumentsConfig(sources=(config,)),
        inputs={},
        output=str(folder),
        execution=ExecutionConfig(),
    )
    found = [done.counters["documents-kept"], done.counters.get("streams-dropped-corrupt", 0)]
    assert not any(name.startswith(STREAM_PART) for name in done.counters)
    return found


def test_stream_whose_blocks_do_not_match_its_checksum_is_damaged(
    tmp_path: Path, pages: bytes
) -> None:
    path = tmp_path / "x.xml.bz2"
    stored = write_stream(pieces_of(pages, 3000))
    end, _ = block_places(stored)[-1]
    path.write_bytes(damaged(stored, end + 48))  # the first bit of the checksum
    with pytest.raises(CorruptInputError, match="does not match its blocks") as caught:
        documents_of(source(path))
    assert caught.value.offset == len(stored)
    kept, counts = documents_of(source(path, on_corrupt=KEEP))
    assert (len(kept), counts["streams-dropped-corrupt"]) == (60, 1)
    # The checksums of ranges are combined by the job.
    with pytest.raises(CorruptInputError, match="does not match its blocks") as caught:
        build(source(path, target_split_bytes=1024), tmp_path / "fail")
    assert caught.value.offset == len(stored)
    config = source(path, target_split_bytes=1024, on_corrupt=KEEP)
    assert build(config, tmp_path / "keep") == [60, 1]


def test_range_that_ends_within_a_block_is_refused() -> None:
    """A complete block inside the data of another block is refused."""
    stored = write_stream([b"one", b"two", b"three"])
    ends = [place // 8 for place, is_end in block_places(stored) if not is_end]
    _, damages, _ = read_ranges(stored, [(0, None, ends[2])])
    assert damages == []
    _, damages, _ = read_ranges(stored, [(0, None, ends[2] - 1)])
    assert [damage.kind for damage in damages] == ["untrusted"]
    assert "set target_split_bytes to more" in damages[0].reason


# Twice as much is twice the work.


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of bytes fed to decoders."""
    amounts: list[int] = []

    def counted(decoder: bz2.BZ2Decompressor, step: bytes) -> bytes:
        amounts.append(len(step) + 1)
        return whole_blocks(decoder, step)

    monkeypatch.setattr(bzip2_blocks, "whole_blocks", counted)
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
    for size in (30_000, 60_000):
        stored = HOSTILE[name](size)
        path = tmp_path / f"{size}.bz2"
        path.write_bytes(stored)
        fed.clear()
        for target_split_bytes in (1 << 30, 1 << 14):
            read_ranges(stored, cut(path, target_split_bytes))
        work.append(sum(fed))
    assert work[1] <= 2.6 * work[0]
