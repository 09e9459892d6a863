"""Documents of several rows: BookCorpus as lines, JSON rows and Parquet, written here."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from support import complexity
from support.dump_builder import COMPRESS

from pipelines.counters import Counters, check_balance
from pipelines.io.splits import RawText, Split
from pipelines.sources import text
from schemas.corpus_configs import TextSource
from schemas.errors import CorruptInputError, InputError

Row = str | None

ROWS = [f"sentence number {number} did n't end ." for number in range(200)]
MARKED = ["isbn : 7" if number % 23 == 11 else row for number, row in enumerate(ROWS)]


def write_lines(path: Path, rows: Sequence[Row]) -> None:
    path.write_text("".join(f"{row or ''}\n" for row in rows))


def write_json(path: Path, rows: Sequence[Row]) -> None:
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))


def write_parquet(path: Path, rows: Sequence[Row]) -> None:
    pq.write_table(pa.table({"text": pa.array(rows, pa.string())}), path, row_group_size=13)


FORMS: dict[str, Callable[[Path, Sequence[Row]], None]] = {
    "a.txt": write_lines,
    "a.jsonl": write_json,
    "a.parquet": write_parquet,
}


def read_all(path: Path, **options: Any) -> tuple[list[Split], list[tuple[str, RawText]], Counters]:
    config = TextSource(name="bc", paths=(str(path),), **options)
    counters = Counters()
    splits = text.plan(config)
    documents = [raw for split in splits for raw in text.read(split, config, counters.count)]
    check_balance(counters, "rows", where="test")
    return splits, documents, counters


def paragraphs(documents: list[tuple[str, RawText]]) -> list[Sequence[str]]:
    return [raw.paragraphs for _, raw in documents]


def expected_documents(rows: Sequence[Row], length: int, mark: str = "\0") -> list[list[str]]:
    """The documents by the rule: rows at multiples of `length` and rows with the mark start one."""
    documents = list[list[str]]()
    for number, row in enumerate(rows):
        if number % length == 0 or mark in (row or ""):
            documents.append([])
        if row and row.strip():
            documents[-1].append(row.strip())
    return [document for document in documents if document]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("rows_per_document", [1, 7, 1000])
@pytest.mark.parametrize("target_split_bytes", [1024, 1500, 1 << 20])
def test_documents_do_not_depend_on_splits(
    tmp_path: Path, name: str, rows_per_document: int, target_split_bytes: int
) -> None:
    rows: list[Row] = list(ROWS)
    rows[50:53] = ["", "  ", None]
    FORMS[name](tmp_path / name, rows)
    splits, documents, counters = read_all(
        tmp_path / name, target_split_bytes=target_split_bytes, rows_per_document=rows_per_document
    )
    is_small = target_split_bytes == 1 << 20 or rows_per_document == 1000
    assert (len(splits) == 1) == is_small or name == "a.parquet"
    assert paragraphs(documents) == expected_documents(rows, rows_per_document)
    assert len({document_id for document_id, _ in documents}) == len(documents)
    assert documents[0][0] == f"bc:{name}:0"
    assert counters["rows-in"] == 200
    assert counters["rows-dropped-no-text"] == 3


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("length", [None, 10])
def test_row_that_matches_starts_a_document(tmp_path: Path, name: str, length: int | None) -> None:
    FORMS[name](tmp_path / name, MARKED)
    options = {"rows_per_document": length, "document_start_pattern": "^isbn : [0-9]$"}
    for target_split_bytes in (1024, 2000, 1 << 20):
        splits, documents, _ = read_all(
            tmp_path / name, target_split_bytes=target_split_bytes, **options
        )
        assert paragraphs(documents) == expected_documents(MARKED, length or 1000, "isbn")
        can_be_split = name != "a.parquet" or length is not None
        assert (len(splits) > 1) == (can_be_split and target_split_bytes < 1 << 20)


@pytest.mark.parametrize("options", [{"rows_per_document": 5}, {"document_start_pattern": "start"}])
@pytest.mark.parametrize("form", ["a.txt", "a.jsonl"])
def test_documents_of_random_files_do_not_depend_on_splits(
    tmp_path: Path, form: str, options: dict[str, Any]
) -> None:
    draw = random.Random(11)
    choices = ["start here", "", "x " * 700, "шаг за шагом", "文は続く。", "a word", " \t"]
    for number in range(8):
        rows = [draw.choice(choices) for _ in range(draw.randint(0, 60))]
        path = tmp_path / f"{number}{form}"
        FORMS[form](path, rows)
        malformed = path.read_bytes().splitlines(keepends=True)
        malformed[1::4] = [b"{ \n"] * len(malformed[1::4])
        path.write_bytes(b"".join(malformed))
        limits = options | {"max_document_bytes": 1024}
        _, expected, counters = read_all(path, target_split_bytes=1 << 20, **limits)
        for target_split_bytes in (1024, 1777):
            read = read_all(path, target_split_bytes=target_split_bytes, **limits)
            assert read[1:] == (expected, counters)


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "koi8-r"])
def test_lines_in_any_compression_and_encoding_are_read(
    tmp_path: Path, suffix: str, encoding: str
) -> None:
    russian = [f"старик пошёл к реке {n} ." for n in range(60)]
    lines = ["the first line is ascii .", "да .", *russian]
    path = tmp_path / f"p1.TXT{suffix.upper()}"
    path.write_bytes(COMPRESS[suffix]("\r\n".join(lines).encode(encoding)))
    _, documents, _ = read_all(path, target_split_bytes=1024, rows_per_document=10)
    assert paragraphs(documents) == [lines[start : start + 10] for start in range(0, 62, 10)]


def test_bytes_of_a_document_are_those_of_its_lines(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.txt", ["", *ROWS])
    _, documents, _ = read_all(tmp_path / "a.txt", rows_per_document=9)
    stored = (tmp_path / "a.txt").read_bytes()
    for document_id, raw in documents:
        assert stored[raw.byte_start : raw.byte_end].decode().split("\n")[:-1] == raw.paragraphs
        assert document_id == f"bc:a.txt:{raw.byte_start}"


def test_rows_that_are_no_text_cost_no_other_row(tmp_path: Path) -> None:
    rows = [b'{"text": 3}', b'{"text": ["a"]}', b"{", b'{"text": "caf\xe9"}', b'{"body": "x"}']
    good = [f"a naïve row {n} ." for n in range(5)]
    read = [json.dumps({"text": row}, ensure_ascii=False).encode() for row in good]
    mixed = [row for pair in zip(rows, read, strict=True) for row in pair]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([*mixed, b'{"text": "\\ud800"}']))
    _, documents, counters = read_all(tmp_path / "a.jsonl", rows_per_document=4)
    assert paragraphs(documents) == [good[0:2], good[2:4], good[4:]]
    dropped = {name: n for name, n in counters.items() if name.startswith("rows-dropped-")}
    assert dropped == {
        "rows-dropped-no-text": 3,
        "rows-dropped-malformed-json": 2,
        "rows-dropped-lone-surrogate": 1,
    }


@pytest.mark.parametrize("name", FORMS)
def test_document_without_a_start_is_cut_at_the_maximum_size(tmp_path: Path, name: str) -> None:
    FORMS[name](tmp_path / name, [*ROWS, "x" * 3000])
    options = {"document_start_pattern": "^never$", "max_document_bytes": 1024}
    _, documents, counters = read_all(tmp_path / name, **options)
    sizes = [len("\n".join(raw.paragraphs)) for _, raw in documents]
    assert max(sizes) <= 1024
    assert min(sizes[:-4]) > 900
    assert counters["rows-cut"] >= len(documents) - 1
    assert "".join(line for _, raw in documents for line in raw.paragraphs).startswith(
        "".join(ROWS)
    )
    assert len({document_id for document_id, _ in documents}) == len(documents)


@pytest.mark.parametrize(
    "options",
    [
        {"document_start_pattern": "("},
        {"rows_per_document": 0},
        {"rows_per_document": 2, "id_column": "id"},
        {"document_start_pattern": "a", "title_column": "title"},
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TextSource(name="bc", paths=("x",), **options)


@pytest.mark.parametrize("name", ["corpus.tar.bz2", "corpus.zip", "corpus.tar"])
def test_archive_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(InputError, match="Unpack"):
        text.plan(TextSource(name="bc", paths=(str(tmp_path / name),)))


def test_lines_that_are_cut_off_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "p1.txt.gz"
    path.write_bytes(COMPRESS[".gz"]("\n".join(ROWS).encode())[:-20])
    with pytest.raises(CorruptInputError) as error:
        read_all(path, rows_per_document=10)
    assert error.value.file == str(path)


@pytest.mark.parametrize("unit", ["a b\n", "\n", "start\n", "word ", "{}\n"])
@pytest.mark.parametrize("options", [{"rows_per_document": 3}, {"document_start_pattern": "start"}])
def test_rows_are_joined_in_linear_time(tmp_path: Path, unit: str, options: dict[str, Any]) -> None:
    def join(content: str) -> object:
        path = tmp_path / f"{len(content)}.txt"
        path.write_text(content)
        return len(read_all(path, target_split_bytes=1024, **options)[1])

    complexity.assert_linear(join, unit)
