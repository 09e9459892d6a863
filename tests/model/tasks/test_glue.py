"""Reading GLUE's official files, the hub's Parquet, JSON, and custom tables."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.task_rows import faults, read, values, write

from model.tasks import TASKS
from model.tasks.examples import examples_of_file
from schemas.errors import InputError, TaskDataError

# Text tables


def test_cola_has_header_only_in_test(tmp_path: Path) -> None:
    train = write(tmp_path / "a", "gj04\t1\t\tShe ran.\nks08\t0\t*\tRan she the.\n")
    rows, bad = read("cola", "train", train)
    assert not bad
    assert values(rows, "id", "text_a", "label") == [
        ("0", "She ran.", "1"),
        ("1", "Ran she the.", "0"),
    ]
    rows, _ = read("cola", "test", write(tmp_path / "b", "index\tsentence\n7\tShe sat.\n"))
    assert values(rows, "id", "text_a", "text_b", "label") == [("7", "She sat.", None, None)]


def test_quotation_marks_and_odd_line_ends_are_text(tmp_path: Path) -> None:
    text = 'sentence\tlabel\n"never closed\t0\nit \u2028 goes \x0b on \x85 here\t1\n" too "\t1\n'
    rows, bad = read("sst-2", "train", write(tmp_path / "a", text))
    assert not bad
    assert values(rows, "text_a") == [
        ('"never closed',),
        ("it \u2028 goes \x0b on \x85 here",),
        ('" too "',),
    ]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_byte_order_mark_and_crlf_are_dropped(compress: Any, tmp_path: Path) -> None:
    text = "\ufeffsentence\tlabel\r\ngood film \t1\r\n\r\nbad film\t0"
    rows, bad = read("sst-2", "dev", write(tmp_path / "a.txt", compress(text.encode())))
    assert values(rows, "id", "text_a", "label") == [
        ("0", "good film ", "1"),
        ("1", "bad film", "0"),
    ]
    assert faults(bad) == [("line 3", "blank-line")]
    assert not bad[0].is_fault


@pytest.mark.parametrize(
    ("line", "reason", "detail"),
    [
        ("0\tone\ttwo", "too-few-columns", "3 columns, expected 4"),
        ("0\tone\ttwo\tentailment\tmore", "too-many-columns", "5 columns, expected 4"),
        ("0\t \ttwo\tentailment", "empty-text", "sentence1"),
        ("0\tone\ttwo\tneutral", "unknown-label", "neutral, expected one of entailment, not_"),
        ("0\tone\ttwo\t", "no-answer", "label"),
        ("0\tone\ttwo\t-1", "no-answer", "label: '-1'"),
        (b"0\tcaf\xe9\ttwo\tentailment", "not-utf-8", "caf"),
    ],
)
def test_bad_row_has_position_and_reason(
    line: str | bytes, reason: str, detail: str, tmp_path: Path
) -> None:
    head, good = b"index\tsentence1\tsentence2\tlabel\n", b"5\tyes\tno\tnot_entailment\n"
    data = line if isinstance(line, bytes) else line.encode()
    rows, bad = read("rte", "train", write(tmp_path / "a", head + good + data + b"\n" + good))
    assert len(rows) == 2
    assert faults(bad) == [("line 3", reason)]
    assert bad[0].is_fault
    assert detail in bad[0].detail


def parquet_with_texts_that_are_not_utf_8() -> bytes:
    offsets = pa.array(range(3), pa.int32()).buffers()[1]
    texts = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"\xff\xff")])
    stream = io.BytesIO()
    pq.write_table(pa.table({"sentence": texts, "label": ["0", "1"]}), stream)
    return stream.getvalue()


def parquet_with_damaged_page() -> bytes:
    stream = io.BytesIO()
    numbers = [str(number) for number in range(99)]
    pq.write_table(pa.table({"sentence": numbers, "label": numbers}), stream)
    data = bytearray(stream.getvalue())
    data[4:60] = b"\xff" * 56
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("sentence\tlabel\nx\t1\n".encode("utf-16"), "UTF-16"),
        (b"PK\x03\x04rest", "zip archive"),
        (
            gzip.compress(b"".join(b"%d" % (n * 7919 % 1013) for n in range(5000)))[:-40],
            "whole file",
        ),
        (b"PAR1" + b"\0" * 100, "Parquet"),
        (parquet_with_damaged_page(), "Parquet"),
        (parquet_with_texts_that_are_not_utf_8(), "Parquet"),
        (b"index\tsentence\n0\ta\n", r"sst-2 dev.*got index, sentence; missing label"),
        (b"x" * 200_000, "expected the columns of sst-2 dev"),
        (b"text,label\rb,y\r", "expected the first line of a table"),
    ],
    ids=range(9),
)
def test_damaged_and_foreign_files_are_refused(data: bytes, expected: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=expected):
        read("sst-2", "dev", write(tmp_path / "a", data))


# Single tasks


def test_sts_b_scores_are_numbers_from_0_to_5(tmp_path: Path) -> None:
    scores = ["0.000", "5", "5.001", "-0.1", "nan", "high", "-1", "3.5"]
    lines = "".join(f"{n}\ta\tb\t{score}\n" for n, score in enumerate(scores))
    text = f"index\tsentence1\tsentence2\tscore\n{lines}"
    rows, bad = read("sts-b", "dev", write(tmp_path / "a", text))
    assert values(rows, "score", "label") == [(0.0, None), (5.0, None), (3.5, None)]
    out, no_number = "score-out-of-range", "score-not-a-number"
    assert [row.reason for row in bad] == [out, out, no_number, no_number, out]
    rows, bad = read("pair-regression", "train", write(tmp_path / "b", text))
    assert [row.reason for row in bad] == [no_number, no_number]


@pytest.mark.parametrize(
    ("task", "split", "text", "note"),
    [
        ("sst-2", "train", "sentence\tlabel\ngood\t1\t\t\n", "trailing-tabs"),
        ("sst-2", "train", "sentence\tlabel\ngood\t 1 \n", "spaces-around-label"),
        ("qqp", "test", "id\tquestion1\tquestion2\n0\tHow?\t\n", "empty-text"),
    ],
)
def test_corrected_and_submitted_rows_are_kept_with_a_note(
    task: str, split: str, text: str, note: str, tmp_path: Path
) -> None:
    rows, bad = read(task, split, write(tmp_path / "a", text))
    assert ([row.notes for row in rows], bad) == ([(note,)], [])
    assert split == "test" or rows[0].values["label"] == "1"


def msr_folder(folder: Path, dev_ids: str | None) -> str:
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    lines = "".join(f"{n % 2}\t{n}\t{n + 100}\tone {n}\ttwo {n}\r\n" for n in range(10))
    write(folder / "msr_paraphrase_test.txt", head + lines)
    if dev_ids is not None:
        write(folder / "dev_ids.tsv", dev_ids)
    return write(folder / "msr_paraphrase_train.txt", head + lines)


def test_microsofts_mrpc_is_split_by_glues_list(tmp_path: Path) -> None:
    file = msr_folder(tmp_path, "3\t103\n5\t105\n")
    train, left_out = read("mrpc", "train", file)
    dev, _ = read("mrpc", "dev", file)
    assert values(dev, "text_a", "text_b", "label") == [
        ("one 3", "two 3", "1"),
        ("one 5", "two 5", "1"),
    ]
    assert {text for (text,) in values(train, "text_a")} == {
        f"one {n}" for n in range(10) if n not in (3, 5)
    }
    assert {(row.reason, row.is_fault) for row in left_out} == {("other-split", False)}
    test, bad = read("mrpc", "test", tmp_path / "msr_paraphrase_test.txt")
    assert (len(test), bad) == (10, [])


@pytest.mark.parametrize(
    ("dev_ids", "expected"), [(None, r"expected dev_ids\.tsv"), ("3\n", r"dev_ids\.tsv: line 1")]
)
def test_microsofts_mrpc_needs_glues_list(
    dev_ids: str | None, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(TaskDataError, match=expected):
        read("mrpc", "dev", msr_folder(tmp_path, dev_ids))


# Parquet


def write_parquet(
    columns: Mapping[str, Any], name: str = "a", names: list[str] | None = None
) -> str:
    table, url = pa.table(dict(columns)), f"memory://glue-{name}/train.parquet"
    if names is not None:
        label = {"names": names, "_type": "ClassLabel"}
        info = {"info": {"features": {"label": label, "idx": {"dtype": "int32"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
    with fsspec.open(url, "wb") as stream:
        pq.write_table(table, stream, row_group_size=2)
    return url


HUB_NAMES = ["entailment", "neutral", "contradiction"]
HUB_PAIR = {
    "premise": ["a", "b", "c"],
    "hypothesis": ["d", "e", "f"],
    "label": [0, 1, 2],
    "idx": [10, 11, 12],
}


@pytest.mark.parametrize("names", [None, HUB_NAMES, sorted(HUB_NAMES)])
def test_label_numbers_take_names_of_file_or_hub(names: list[str] | None) -> None:
    rows, bad = read("mnli", "train", write_parquet(HUB_PAIR, names=names))
    assert not bad
    assert values(rows, "id", "text_a", "text_b", "label") == [
        ("10", "a", "d", (names or HUB_NAMES)[0]),
        ("11", "b", "e", (names or HUB_NAMES)[1]),
        ("12", "c", "f", (names or HUB_NAMES)[2]),
    ]


@pytest.mark.parametrize(
    ("task", "label", "name"),
    [("cola", 1, "1"), ("sst-2", 0, "0"), ("mrpc", 1, "1"), ("qqp", 1, "1"), ("wnli", 0, "0"),
     ("qnli", 0, "entailment"), ("rte", 1, "not_entailment"), ("sts-b", 2.5, None)],
)  # fmt: skip
def test_hubs_columns_of_each_task(task: str, label: float, name: str | None) -> None:
    columns = {
        "cola": ("sentence",),
        "sst-2": ("sentence",),
        "qqp": ("question1", "question2"),
        "qnli": ("question", "sentence"),
    }.get(task, ("sentence1", "sentence2"))
    data = {column: ["some text"] for column in columns} | {"label": [label], "idx": [4]}
    rows, bad = read(task, "dev", write_parquet(data, task))
    assert not bad
    assert values(rows, "id", "label", "score") == [("4", name, 2.5 if name is None else None)]


def test_minus_one_is_unknown_in_test_and_bad_in_dev() -> None:
    url = write_parquet({"sentence": ["x", "y"], "label": [-1, 1], "idx": [0, 1]})
    rows, bad = read("sst-2", "test", url)
    assert (values(rows, "label"), bad) == ([(None,), ("1",)], [])
    assert faults(read("sst-2", "dev", url)[1]) == [("row 0", "no-answer")]
    url = write_parquet({"sentence1": ["x"], "sentence2": ["y"], "label": [-1.0]})
    rows, bad = read("sts-b", "test", url)
    assert (values(rows, "score"), bad) == ([(None,)], [])


def test_label_number_out_of_range_and_null_text_are_bad() -> None:
    url = write_parquet({"sentence": ["x", None, "z"], "label": [2, 1, 0]})
    rows, bad = read("sst-2", "train", url)
    assert values(rows, "text_a") == [("z",)]
    assert faults(bad) == [("row 0", "unknown-label"), ("row 1", "no-text")]


# JSON

RECORDS = [
    {"text_a": "one", "text_b": "two", "label": "neutral"},
    {"text_a": "three", "text_b": "four", "label": "entailment"},
]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"10": RECORDS[0], "11": RECORDS[1]}, indent=4),
        json.dumps({"10": RECORDS[0], "11": RECORDS[1]}),
        json.dumps(RECORDS),
        "".join(json.dumps(record) + "\n" for record in RECORDS),
    ],
    ids=["by-id-indented", "by-id", "array", "lines"],
)
def test_json_in_all_its_layouts(text: str, tmp_path: Path) -> None:
    rows, bad = read("mnli", "train", write(tmp_path / "any-name", text))
    assert not bad
    ids = ["10", "11"] if '"10"' in text else ["0", "1"]
    assert values(rows, "id", "text_a", "text_b", "label") == [
        (ids[0], "one", "two", "neutral"),
        (ids[1], "three", "four", "entailment"),
    ]


def test_bad_line_of_json_is_bad_row(tmp_path: Path) -> None:
    text = f"{json.dumps(RECORDS[0])}\n{{broken\n[1]\n\n{json.dumps({'text_a': 'x'})}\n"
    rows, bad = read("mnli", "train", write(tmp_path / "a", text))
    assert len(rows) == 1
    assert faults(bad) == [
        ("line 2", "malformed-json"),
        ("line 3", "malformed-json"),
        ("line 4", "blank-line"),
        ("line 5", "no-text"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, "xpected") for text in ("{", "[]", "{}", '{"a": 1}', '[{"other": "x"}]')),
        ('{"1": {"text_a": "a"},\n "1": {"text_a": "b"}}', "'1' stands twice"),
    ],
)
def test_json_without_table_of_task_is_refused(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match=expected):
        read("mnli", "train", write(tmp_path / "a", text))


def test_json_values_that_no_table_can_hold_are_bad_rows(tmp_path: Path) -> None:
    half = "\\ud800"  # of a surrogate pair
    lines = [
        f'{{"text": "a {half}", "label": "x"}}',
        f'{{"text": "a", "label": "{half}"}}',
        f'{{"text": "a", "label": "x", "id": "{half}"}}',
        '{"text": "a", "label": {"x": 1}}',
        '{"text": "a", "label": NaN}',
        '{"text": "a", "label": "x"}',
    ]
    rows, bad = read("single-sentence", "dev", write(tmp_path / "a.jsonl", "\n".join(lines)))
    assert values(rows, "id", "label") == [("5", "x")]
    assert [row.reason for row in bad] == [
        *("no-text", "unknown-label", "malformed-id", "unknown-label", "no-answer"),
    ]
    scores = [str(10**400), "true", "false"]
    lines = [f'{{"sentence1": "a", "sentence2": "b", "score": {score}}}' for score in scores]
    _, bad = read("sts-b", "dev", write(tmp_path / "b.jsonl", "\n".join(lines)))
    assert [row.reason for row in bad] == ["score-not-a-number"] * 3


# Custom tables


def test_comma_separated_file_is_quoted(tmp_path: Path) -> None:
    text = 'label,sentence\r\n"good, too","He said ""no"",\nand left"\nbad,"x"\nshort\n'
    text += 'good,"one" two\nbad,three\n'
    rows, bad = read("single-sentence", "train", write(tmp_path / "a.csv", text))
    assert values(rows, "text_a", "label") == [
        ('He said "no",\nand left', "good, too"),
        ("x", "bad"),
        ("three", "bad"),
    ]
    assert [row.position for row in rows] == ["line 2", "line 4", "line 7"]
    assert faults(bad) == [("line 5", "too-few-columns"), ("line 6", "malformed-csv")]


def test_quotation_mark_that_is_never_closed_is_refused(tmp_path: Path) -> None:
    text = 'label,sentence\ngood,"open\n' + "bad,x\n" * 50
    with pytest.raises(TaskDataError, match=r"line 2.*never closed"):
        read("single-sentence", "train", write(tmp_path / "a.csv", text))


def test_folder_in_place_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match="expected the file of sst-2 dev, found a folder"):
        examples_of_file(TASKS["sst-2"], str(tmp_path), split="dev")


@pytest.mark.parametrize(
    ("task", "split", "file", "count"),
    [
        ("cola", "train", "CoLA/train.tsv", 8551),
        ("cola", "test", "CoLA/test.tsv", 1063),
        ("sts-b", "train", "STS-B/train.tsv", 5749),
        ("rte", "dev", "RTE/dev.tsv", 277),
        ("wnli", "train", "WNLI/train.tsv", 635),
        ("sst-2", "train", "SST-2/train.tsv.gz", 67349),
        ("qnli", "train", "QNLI/train-subset.json.gz", 8999),
        ("qnli", "dev", "QNLI/dev.tsv", 5463),
        ("mnli", "train", "MNLI/train.json.gz", 8999),
        ("mnli", "train", "MNLI/train-48rows.tsv", 48),
        ("mnli", "dev", "MNLI/dev_matched-48rows.tsv", 48),
        ("mnli", "diagnostic", "AX/diagnostic.tsv", 1104),
        ("ax", "test", "AX/diagnostic.tsv", 1104),
    ],
)
def test_every_row_of_real_files_is_used(
    task: str, split: str, file: str, count: int, real_data: Path
) -> None:
    rows, bad = read(task, split, real_data / "glue" / file)
    assert (len(rows), bad) == (count, [])
    assert not any(row.notes for row in rows)
    if split in ("train", "dev") and task != "sts-b":
        assert {row.values["label"] for row in rows} == set(TASKS[task].labels)
    assert len({row.values["id"] for row in rows}) == count
