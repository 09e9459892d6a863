"""Facts about texts that planning reads in the pass that computes their digests."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from pathlib import Path

import pytest
from support import complexity
from support.counting_fs import CountedFiles

from pipelines.sources import text
from pipelines.sources.text_facts import RowKeys, SeparatedDocuments
from schemas.corpus_configs import TextSource


def starts(data: bytes, *, step: int, needs_blank_line: bool, chunk: int = 7) -> list[int]:
    observer = SeparatedDocuments(step, needs_blank_line=needs_blank_line)
    for at in range(0, len(data), chunk):
        observer.update(data[at : at + chunk])
    offsets: list[int] = json.loads(observer.hexdigest())
    return offsets


def document_starts(data: bytes, *, needs_blank_line: bool) -> list[int]:
    lines = data.split(b"\n")
    places = itertools.accumulate((len(line) + 1 for line in lines), initial=0)
    is_blank = [True, *(not line.strip() for line in lines)]
    return [
        offset
        for offset, line, follows in zip(places, lines, is_blank, strict=False)
        if line.strip() and (follows or not needs_blank_line)
    ]


@pytest.mark.parametrize("needs_blank_line", [True, False])
def test_starts_are_those_of_documents_at_every_multiple(needs_blank_line: bool) -> None:
    draw = random.Random(3)
    for _ in range(300):
        data = b"".join(
            draw.choice([b"a word", b"\n", b"\n\n", b" \n", b"x" * 40, b"\r\n"])
            for _ in range(draw.randint(0, 80))
        )
        step = draw.randint(1, 50)
        every = document_starts(data, needs_blank_line=needs_blank_line)
        chosen = starts(data, step=step, needs_blank_line=needs_blank_line)
        assert chosen == starts(data, step=step, needs_blank_line=needs_blank_line, chunk=1000)
        assert set(chosen) <= set(every)
        assert all(start >= step * number for number, start in enumerate(chosen, 1))
        # No document that begins well behind a multiple is missed.
        for number, start in enumerate(chosen, 1):
            line_end = data.find(b"\n", step * number, start)
            missed = [offset for offset in every if line_end < offset < start]
            assert line_end < 0 or len(missed) <= 1


@pytest.mark.parametrize("unit", ["a line\n", "a line\n\n", "\n", " ", "word ", " \n"])
@pytest.mark.parametrize("needs_blank_line", [True, False])
def test_starts_are_found_in_linear_time(unit: str, needs_blank_line: bool) -> None:
    def find(content: str) -> object:
        # A small step: the bytes before the first multiple of it are not looked at.
        return starts(
            content.encode(), step=1 << 10, needs_blank_line=needs_blank_line, chunk=1 << 20
        )

    complexity.assert_linear(find, unit)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_keys_of_first_rows_are_found(compress: type[bytes]) -> None:
    rows = [json.dumps({"text": "x", f"key {number}": 1}) for number in range(300)]
    observer = RowKeys("a.jsonl")
    observer.update(compress("\n".join(rows).encode()))
    assert json.loads(observer.hexdigest()) == ["text", *(f"key {n}" for n in range(100))]


def bytes_read_to_plan(source: TextSource) -> int:
    CountedFiles.bytes_read.clear()
    assert len(text.plan(source)) > 1
    return CountedFiles.bytes_read.total()


@pytest.mark.usefixtures("fresh_cache", "counted")
@pytest.mark.parametrize("delimiter", ["blank-line", "line"])
def test_planning_reads_a_corpus_once_and_a_known_one_not(tmp_path: Path, delimiter: str) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    for number in range(3):
        content = "".join(f"line {n}\n" + "\n" * (n % 9 == 0) for n in range(100_000))
        (folder / f"{number}.txt").write_text(content)
        (folder / f"{number}.jsonl").write_text('{"text": "x"}\n' * 9)
    paths = (f"counted://{folder}",)
    size = sum(path.stat().st_size for path in folder.iterdir())
    for source in (
        TextSource(name="t", paths=paths, document_delimiter=delimiter),  # type: ignore[arg-type]
        TextSource(name="t", paths=paths, rows_per_document=2000),
        TextSource(name="t", paths=paths, document_start_pattern=" .*9{4}$"),
    ):
        assert bytes_read_to_plan(source) == size
        assert bytes_read_to_plan(source) == 0
