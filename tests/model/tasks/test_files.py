"""Files of tasks: opened once, parsed once, read by their content."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import complexity
from support.task_rows import read, write

import model.tasks.files
from model.tasks.files import base_name, open_data
from schemas.errors import InputError, TaskDataError

QUESTION = {
    "id": "1",
    "question": "Where?",
    "context": "In Oslo.",
    "answers": {"text": ["Oslo"], "answer_start": [3]},
}
NESTED = {**QUESTION, "answers": [{"text": "Oslo", "answer_start": 3}]}
ARTICLE = {"paragraphs": [{"context": "In Oslo.", "qas": [NESTED]}]}
ENDINGS = {f"ending{number}": "c" for number in range(4)}


@pytest.mark.parametrize(
    ("task", "content"),
    [
        ("squad-1.1", {"data": [ARTICLE]}),
        ("squad-1.1", [QUESTION]),
        ("sst-2", [{"sentence": "良い", "label": 1}]),
        ("sst-2", {"7": {"sentence": "bon", "label": 1}}),
        ("swag", [{"sent1": "a", "sent2": "b", **ENDINGS, "label": 1}]),
        ("tagging", [{"tokens": ["Осло"], "ner_tags": ["B-LOC"]}]),
        ("tagging", "Oslo B-LOC\n"),
        ("cola", "x\t1\t\tShe ran.\n"),
    ],
)
@pytest.mark.parametrize("form", ["text", "parquet"])
def test_reader_opens_its_file_once_and_parses_it_once(
    task: str, content: Any, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "file")
    if isinstance(content, list) and form == "parquet":
        pq.write_table(pa.Table.from_pylist(content), url)
    elif isinstance(content, list):
        write(tmp_path / "file", "".join(f"{json.dumps(row)}\n" for row in [*content, {}]))
    else:
        write(tmp_path / "file", content if isinstance(content, str) else json.dumps(content))
    opened, parsed = list[str](), list[Any]()
    open_file, loads = model.tasks.files.open_file, json.loads
    monkeypatch.setattr(
        model.tasks.files, "open_file", lambda url: opened.append(url) or open_file(url)
    )
    monkeypatch.setattr(json, "loads", lambda data, **_: parsed.append(data) or loads(data))
    rows, _ = read(task, "train", url)
    assert len(rows) == 1
    assert opened == [url]
    assert sum(len(data) > 2 for data in parsed) <= 2  # the first line decides the format


@pytest.mark.parametrize(
    "address",
    [
        "folder/train.tsv",
        "s3://bucket/train.tsv",
        "http://user:secret@host/train.tsv;password=secret?token=a/b#c",
    ],
)
def test_name_of_task_file_holds_no_secret_of_its_address(address: str) -> None:
    assert base_name(address) == "train.tsv"


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"\xef\xbb\xbfa\r\nb\rc\n\x85", [b"a", b"b\rc", b"\x85"]),
        (b"x" * 600_000 + b"\nend", [b"x" * 600_000, b"end"]),
    ],
)
def test_lines_end_at_line_feeds_alone(tmp_path: Path, content: bytes, lines: list[bytes]) -> None:
    with open_data(write(tmp_path / "a", content)) as data:
        assert list(data.lines()) == lines


@pytest.mark.parametrize(
    ("content", "expected"), [(b"", "empty"), (b" \n\n", "empty"), (b"PAR1PAR1", "Parquet")]
)
def test_json_is_expected(tmp_path: Path, content: bytes, expected: str) -> None:
    with (
        open_data(write(tmp_path / "a", content)) as data,
        pytest.raises(TaskDataError, match=f"expected JSON, got .*{expected}"),
    ):
        data.read_json(TaskDataError)


@pytest.mark.parametrize(
    ("content", "file_format", "first"),
    [
        ("\n \n\tO\nb\tO\n", "text", b"\tO"),
        ('\ufeff\r\n{"a": 1}\r\n', "json-lines", b'{"a": 1}'),
        ('{"a": {"b": 1}}', "json", b'{"a": {"b": 1}}'),
        ("{\n}", "json", b"{"),
        ('[{"a": 1}]', "json", b'[{"a": 1}]'),
        ('{"a": 1}\t0\n', "text", b'{"a": 1}\t0'),
        ("[1] see\n", "text", b"[1] see"),
    ],
)
def test_first_line_decides_the_format(
    tmp_path: Path, content: str, file_format: str, first: bytes
) -> None:
    with open_data(write(tmp_path / "a.xyz", content)) as data:
        assert (data.format, data.first_line) == (file_format, first)
        text = content.removeprefix("\ufeff").replace("\r", "")
        assert [*data.lines()] == text.encode().removesuffix(b"\n").split(b"\n")


@pytest.mark.parametrize("unit", ["x", '{"a":', '"\n', "\t"])
def test_finding_the_format_and_reading_take_linear_time(tmp_path: Path, unit: str) -> None:
    def work(text: str) -> None:
        url = write(tmp_path / "a", text)
        for task in ("tagging", "single-sentence", "squad-1.1"):
            with contextlib.suppress(InputError):
                read(task, "test", url)

    complexity.assert_linear(work, unit)
