"""Reading GLUE's official files, the hub's Parquet, JSON, and custom tables."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model.tasks import TASKS, BadRow, Row
from model.tasks.examples import examples_of_file
from model.tasks.task import LabelSet
from schemas.errors import CorruptInputError, InputError, TaskDataError


def read(task: str, split: str, path: Path | str) -> tuple[list[Row], list[BadRow]]:
    found = TASKS[task]
    items = list(found.reader(found, split, str(path)))
    return (
        [item for item in items if isinstance(item, Row)],
        [item for item in items if isinstance(item, BadRow)],
    )


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def values(rows: list[Row], *names: str) -> list[Any]:
    return [tuple(row.values[name] for name in names) for row in rows]


# --- text tables


def test_cola_has_no_header_but_in_its_test(tmp_path: Path) -> None:
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
    assert [row.values["text_a"] for row in rows] == [
        '"never closed',
        "it \u2028 goes \x0b on \x85 here",
        '" too "',
    ]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_marks_and_line_ends_of_windows_change_nothing(compress: Any, tmp_path: Path) -> None:
    text = "\ufeffsentence\tlabel\r\ngood film \t1\r\n\r\nbad film\t0"
    rows, bad = read("sst-2", "dev", write(tmp_path / "a.txt", compress(text.encode())))
    assert values(rows, "id", "text_a", "label") == [
        ("0", "good film ", "1"),
        ("1", "bad film", "0"),
    ]
    assert [(item.position, item.reason, item.is_fault) for item in bad] == [
        ("line 3", "blank-line", False)
    ]


@pytest.mark.parametrize(
    ("line", "reason", "found"),
    [
        ("0\tone\ttwo", "too-few-columns", "3 columns, expected 4"),
        ("0\tone\ttwo\tentailment\tmore", "too-many-columns", "5 columns, expected 4"),
        ("0\t \ttwo\tentailment", "empty-text", "sentence1"),
        ("0\tone\ttwo\tneutral", "unknown-label", "neutral, expected one of entailment, not_"),
        ("0\tone\ttwo\t", "no-answer", "label"),
        ("0\tone\ttwo\t-1", "no-answer", "label: -1"),
    ],
)
def test_a_bad_row_says_where_and_why(line: str, reason: str, found: str, tmp_path: Path) -> None:
    head = "index\tsentence1\tsentence2\tlabel\n"
    good = "5\tyes\tno\tnot_entailment\n"
    rows, bad = read("rte", "train", write(tmp_path / "a", f"{head}{good}{line}\n{good}"))
    assert len(rows) == 2
    assert [(item.position, item.reason, item.is_fault) for item in bad] == [
        ("line 3", reason, True)
    ]
    assert found in bad[0].found


def test_a_row_that_is_handed_in_is_kept_without_a_text(tmp_path: Path) -> None:
    text = "id\tquestion1\tquestion2\n0\tHow?\t\n1\tHow?\tWhy?\n"
    rows, bad = read("qqp", "test", write(tmp_path / "a", text))
    assert not bad
    assert [(row.values["id"], row.values["text_b"], row.notes) for row in rows] == [
        ("0", "", ("empty-text",)),
        ("1", "Why?", ()),
    ]


def test_a_row_that_is_not_utf_8_is_bad(tmp_path: Path) -> None:
    data = b"sentence\tlabel\ncaf\xe9\t1\ncaf\xc3\xa9\t1\n"
    rows, bad = read("sst-2", "train", write(tmp_path / "a", data))
    assert [row.values["text_a"] for row in rows] == ["café"]
    assert [(item.position, item.reason) for item in bad] == [("line 2", "not-utf-8")]


def test_what_is_mended_is_noted(tmp_path: Path) -> None:
    text = "sentence\tlabel\ngood\t1\t\t\nbad\t 0 \nplain\t1\n"
    rows, bad = read("sst-2", "train", write(tmp_path / "a", text))
    assert not bad
    assert [(row.values["label"], row.notes) for row in rows] == [
        ("1", ("trailing-tabs",)),
        ("0", ("spaces-around-label",)),
        ("1", ()),
    ]


def test_the_columns_found_and_expected_are_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n")
    expected = r"a\.tsv: expected the columns of rte train .*sentence1 and sentence2.*, and label\)"
    with pytest.raises(TaskDataError, match=f"{expected}, found index, sentence1, sentence2"):
        read("rte", "train", file)
    with pytest.raises(TaskDataError, match=r"question and sentence.*found index, sentence1"):
        read("qnli", "test", file)


def test_utf_16_and_foreign_archives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="UTF-16"):
        read("sst-2", "dev", write(tmp_path / "a", "sentence\tlabel\nx\t1\n".encode("utf-16")))
    with pytest.raises(InputError, match="zip archive"):
        read("sst-2", "dev", write(tmp_path / "b", b"PK\x03\x04rest"))


def test_a_truncated_gzip_is_damaged_not_short(tmp_path: Path) -> None:
    lines = "".join(f"film {number} {number * 7919 % 1013}\t1\n" for number in range(5000))
    data = gzip.compress(f"sentence\tlabel\n{lines}".encode())
    with pytest.raises(CorruptInputError, match="whole file"):
        read("sst-2", "train", write(tmp_path / "a.gz", data[: len(data) // 2]))


# --- the tasks' own ways


def test_sts_b_scores_are_numbers_from_0_to_5(tmp_path: Path) -> None:
    head = "index\tsentence1\tsentence2\tscore\n"
    scores = ["0.000", "5", "5.001", "-0.1", "nan", "high", "-1", "3.5"]
    lines = "".join(f"{n}\ta\tb\t{score}\n" for n, score in enumerate(scores))
    rows, bad = read("sts-b", "dev", write(tmp_path / "a", head + lines))
    assert values(rows, "score", "label") == [(0.0, None), (5.0, None), (3.5, None)]
    reasons = [item.reason for item in bad]
    assert reasons.count("score-out-of-range") == 3
    assert reasons.count("score-not-a-number") == 2


def test_mnli_leaves_out_rows_without_gold_label_by_rule(tmp_path: Path) -> None:
    text = "index\tsentence1\tsentence2\tlabel1\tgold_label\n"
    text += "0\ta\tb\tneutral\t-\n1\ta\tb\tneutral\tcontradiction\n"
    rows, bad = read("mnli", "dev", write(tmp_path / "a", text))
    assert [row.values["label"] for row in rows] == ["contradiction"]
    assert [(item.reason, item.is_fault) for item in bad] == [("left-out-label", False)]
    assert TASKS["mnli"].labels == ("contradiction", "entailment", "neutral")


def test_the_full_diagnostic_file_has_labels(tmp_path: Path) -> None:
    text = "Lexical Semantics\tLogic\tDomain\tPremise\tHypothesis\tLabel\n"
    text += "\tNegation\t\tA.\tB.\tneutral\n"
    file = write(tmp_path / "diagnostic-full.tsv", text)
    for task, split in (("ax", "test"), ("mnli", "diagnostic")):
        rows, bad = read(task, split, file)
        assert not bad
        assert values(rows, "id", "text_a", "text_b", "label") == [("0", "A.", "B.", "neutral")]


def test_qqp_rows_that_lack_columns_are_counted(tmp_path: Path) -> None:
    head = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    lines = "1\t2\t3\tHow?\tWhy?\t0\n4\t5\t6\tHow?\n7\t8\t9\tHow?\tHow?\t1\n"
    rows, bad = read("qqp", "train", write(tmp_path / "a", head + lines))
    assert values(rows, "id", "label") == [("1", "0"), ("7", "1")]
    assert [item.reason for item in bad] == ["too-few-columns"]


def msr_folder(tmp_path: Path, dev_ids: str | None) -> Path:
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    lines = "".join(f"{n % 2}\t{n}\t{n + 100}\tone {n}\ttwo {n}\r\n" for n in range(10))
    write(tmp_path / "msr_paraphrase_train.txt", head + lines)
    write(tmp_path / "msr_paraphrase_test.txt", head + lines)
    if dev_ids is not None:
        write(tmp_path / "dev_ids.tsv", dev_ids)
    return tmp_path / "msr_paraphrase_train.txt"


def test_microsofts_mrpc_is_split_by_glues_list(tmp_path: Path) -> None:
    file = msr_folder(tmp_path, "3\t103\n5\t105\n")
    train, left_out = read("mrpc", "train", file)
    dev, _ = read("mrpc", "dev", file)
    assert values(dev, "text_a", "text_b", "label") == [
        ("one 3", "two 3", "1"),
        ("one 5", "two 5", "1"),
    ]
    assert len(train) == 8
    assert {row.values["text_a"] for row in train} | {"one 3", "one 5"} == {
        f"one {n}" for n in range(10)
    }
    assert {(item.reason, item.is_fault) for item in left_out} == {("other-split", False)}
    test, bad = read("mrpc", "test", tmp_path / "msr_paraphrase_test.txt")
    assert (len(test), bad) == (10, [])


def test_microsofts_mrpc_needs_glues_list(tmp_path: Path) -> None:
    file = msr_folder(tmp_path, None)
    with pytest.raises(TaskDataError, match=r"expected dev_ids\.tsv next to it.*found msr_para"):
        read("mrpc", "train", file)
    file = msr_folder(tmp_path, "3\n")
    with pytest.raises(TaskDataError, match=r"dev_ids\.tsv: line 1: expected two ids"):
        read("mrpc", "dev", file)


# --- Parquet and JSON


def hub_table(columns: Mapping[str, Any], *, names: list[str] | None = None) -> pa.Table:
    table = pa.table(columns)
    if names is None:
        return table
    label = {"names": names, "_type": "ClassLabel"}
    info = {"info": {"features": {"label": label, "idx": {"dtype": "int32", "_type": "Value"}}}}
    return table.replace_schema_metadata({"huggingface": json.dumps(info)})


def write_parquet(url: str, table: pa.Table) -> str:
    with fsspec.open(url, "wb") as stream:
        pq.write_table(table, stream, row_group_size=2)
    return url


HUB_PAIR = {
    "premise": ["a", "b", "c"],
    "hypothesis": ["d", "e", "f"],
    "label": [0, 1, 2],
    "idx": [10, 11, 12],
}


@pytest.mark.parametrize("names", [None, ["entailment", "neutral", "contradiction"]])
def test_the_hubs_integers_are_in_the_hubs_order(names: list[str] | None) -> None:
    url = write_parquet("memory://glue-a/train.parquet", hub_table(HUB_PAIR, names=names))
    rows, bad = read("mnli", "train", url)
    assert not bad
    assert values(rows, "id", "text_a", "text_b", "label") == [
        ("10", "a", "d", "entailment"),
        ("11", "b", "e", "neutral"),
        ("12", "c", "f", "contradiction"),
    ]


def test_the_files_own_names_of_labels_come_first() -> None:
    names = ["contradiction", "entailment", "neutral"]
    url = write_parquet("memory://glue-b/train.parquet", hub_table(HUB_PAIR, names=names))
    rows, _ = read("mnli", "train", url)
    assert [row.values["label"] for row in rows] == names


@pytest.mark.parametrize(
    ("task", "label", "name"),
    [("cola", 1, "1"), ("sst-2", 0, "0"), ("mrpc", 1, "1"), ("qqp", 1, "1"), ("wnli", 0, "0"),
     ("qnli", 0, "entailment"), ("rte", 1, "not_entailment"), ("sts-b", 2.5, None)],
)  # fmt: skip
def test_the_hubs_columns_of_each_task(task: str, label: float, name: str | None) -> None:
    columns = {
        "cola": ("sentence",),
        "sst-2": ("sentence",),
        "qqp": ("question1", "question2"),
        "qnli": ("question", "sentence"),
    }.get(task, ("sentence1", "sentence2"))
    data = {column: ["some text"] for column in columns} | {"label": [label], "idx": [4]}
    url = write_parquet(f"memory://glue-c/{task}.parquet", pa.table(data))
    rows, bad = read(task, "dev", url)
    assert not bad
    assert values(rows, "id", "label", "score") == [("4", name, 2.5 if name is None else None)]


def test_minus_one_is_unknown_in_a_test_split_and_bad_in_dev() -> None:
    data = {"sentence": ["x", "y"], "label": [-1, 1], "idx": [0, 1]}
    url = write_parquet("memory://glue-d/test.parquet", pa.table(data))
    rows, bad = read("sst-2", "test", url)
    assert [row.values["label"] for row in rows] == [None, "1"]
    assert not bad
    rows, bad = read("sst-2", "dev", url)
    assert [item.reason for item in bad] == ["no-answer"]
    data = {"sentence1": ["x"], "sentence2": ["y"], "label": [-1.0]}
    url = write_parquet("memory://glue-d/sts.parquet", pa.table(data))
    rows, bad = read("sts-b", "test", url)
    assert (values(rows, "score"), bad) == ([(None,)], [])


def test_an_integer_beyond_the_labels_and_a_missing_text_are_bad() -> None:
    data = {"sentence": ["x", None, "z"], "label": [2, 1, 0]}
    url = write_parquet("memory://glue-e/train.parquet", pa.table(data))
    rows, bad = read("sst-2", "train", url)
    assert [row.values["text_a"] for row in rows] == ["z"]
    assert [(item.position, item.reason) for item in bad] == [
        ("row 0", "unknown-label"),
        ("row 1", "no-text"),
    ]


def test_damaged_parquet_is_told_apart_from_text(tmp_path: Path) -> None:
    with pytest.raises(CorruptInputError, match="Parquet"):
        read("sst-2", "dev", write(tmp_path / "a", b"PAR1" + b"\0" * 100))


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
        json.dumps({"version": 1, "data": RECORDS}),
        "".join(json.dumps(record) + "\n" for record in RECORDS),
    ],
    ids=["by-id-indented", "by-id", "array", "data", "lines"],
)
def test_json_in_all_its_layouts(text: str, tmp_path: Path) -> None:
    rows, bad = read("mnli", "train", write(tmp_path / "any-name", text))
    assert not bad
    assert values(rows, "text_a", "text_b", "label") == [
        ("one", "two", "neutral"),
        ("three", "four", "entailment"),
    ]
    ids = [row.values["id"] for row in rows]
    assert ids == (["10", "11"] if '"10"' in text else ["0", "1"])


def test_a_bad_line_of_json_is_a_bad_row(tmp_path: Path) -> None:
    text = f"{json.dumps(RECORDS[0])}\n{{broken\n[1]\n\n{json.dumps({'text_a': 'x'})}\n"
    rows, bad = read("mnli", "train", write(tmp_path / "a", text))
    assert len(rows) == 1
    assert [(item.position, item.reason) for item in bad] == [
        ("line 2", "malformed-json"),
        ("line 3", "malformed-json"),
        ("line 4", "blank-line"),
        ("line 5", "no-text"),
    ]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"a": 1}', '[{"other": "x"}]'])
def test_json_that_is_no_table_of_the_task_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match="xpected"):
        read("mnli", "train", write(tmp_path / "a", text))


# --- custom data


def test_a_comma_separated_file_is_quoted(tmp_path: Path) -> None:
    text = 'label,sentence\r\n"good, too","He said ""no"",\nand left"\nbad,"x"\nshort\n'
    rows, bad = read("single-sentence", "train", write(tmp_path / "a.csv", text))
    assert values(rows, "text_a", "label") == [
        ('He said "no",\nand left', "good, too"),
        ("x", "bad"),
    ]
    assert [row.position for row in rows] == ["line 2", "line 4"]
    assert [(item.position, item.reason) for item in bad] == [("line 5", "too-few-columns")]


def test_a_quotation_mark_never_closed_cannot_swallow_the_file_silently(tmp_path: Path) -> None:
    text = 'label,sentence\ngood,"open\n' + "bad,x\n" * 50
    with pytest.raises(TaskDataError, match=r"line 2.*never closed"):
        read("single-sentence", "train", write(tmp_path / "a.csv", text))


def test_a_row_quoted_wrongly_is_bad_and_the_next_is_read(tmp_path: Path) -> None:
    text = 'label,sentence\ngood,"one" two\nbad,three\n'
    rows, bad = read("single-sentence", "train", write(tmp_path / "a.csv", text))
    assert values(rows, "text_a", "label") == [("three", "bad")]
    assert [(item.position, item.reason) for item in bad] == [("line 2", "malformed-csv")]


def test_any_score_will_do_for_ones_own_pairs(tmp_path: Path) -> None:
    text = "sentence1\tsentence2\tscore\na\tb\t-1\nc\td\t1e3\n"
    rows, bad = read("pair-regression", "train", write(tmp_path / "a", text))
    assert not bad
    assert [row.values["score"] for row in rows] == [-1.0, 1000.0]


# --- the real files

REAL = [
    ("cola", "train", "CoLA/train.tsv", 8551),
    ("cola", "dev", "CoLA/dev.tsv", 1043),
    ("cola", "test", "CoLA/test.tsv", 1063),
    ("sst-2", "train", "SST-2/train.tsv.gz", 67349),
    ("sst-2", "dev", "SST-2/dev.tsv", 872),
    ("sst-2", "test", "SST-2/test.tsv", 1821),
    ("sts-b", "train", "STS-B/train.tsv", 5749),
    ("sts-b", "dev", "STS-B/dev.tsv", 1500),
    ("sts-b", "test", "STS-B/test.tsv", 1379),
    ("rte", "train", "RTE/train.tsv", 2490),
    ("rte", "dev", "RTE/dev.tsv", 277),
    ("rte", "test", "RTE/test.tsv", 3000),
    ("wnli", "train", "WNLI/train.tsv", 635),
    ("wnli", "dev", "WNLI/dev.tsv", 71),
    ("wnli", "test", "WNLI/test.tsv", 146),
    ("qnli", "train", "QNLI/train-subset.json.gz", 8999),
    ("qnli", "dev", "QNLI/dev.tsv", 5463),
    ("qnli", "test", "QNLI/test.tsv", 5463),
    ("mnli", "train", "MNLI/train.json.gz", 8999),
    ("mnli", "train", "MNLI/train-48rows.tsv", 48),
    ("mnli", "dev", "MNLI/dev.json.gz", 1000),
    ("mnli", "dev", "MNLI/dev_matched-48rows.tsv", 48),
    ("mnli", "diagnostic", "AX/diagnostic.tsv", 1104),
    ("ax", "test", "AX/diagnostic.tsv", 1104),
]


@pytest.mark.parametrize(
    ("task", "split", "file", "count"), REAL, ids=[f"{row[0]}-{row[2]}" for row in REAL]
)
def test_every_row_of_the_real_files_is_used(
    task: str, split: str, file: str, count: int, real_data: Path
) -> None:
    rows, bad = read(task, split, real_data / "glue" / file)
    assert (len(rows), bad) == (count, [])
    assert not any(row.notes for row in rows)
    found = TASKS[task]
    if split != "test" and split != "diagnostic" and found.type == "classification":
        assert {row.values["label"] for row in rows} == set(found.labels)
    if found.type == "regression" and split != "test":
        assert all(0 <= row.values["score"] <= 5 for row in rows)
    assert len({row.values["id"] for row in rows}) == count


def test_what_json_can_hold_and_no_table_can_is_a_bad_row(tmp_path: Path) -> None:
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
    assert [item.reason for item in bad] == [
        *("no-text", "unknown-label", "malformed-id", "unknown-label", "no-answer"),
    ]
    huge = f'{{"sentence1": "a", "sentence2": "b", "score": {10**400}}}'
    _, bad = read("sts-b", "dev", write(tmp_path / "b.jsonl", huge))
    assert [item.reason for item in bad] == ["score-not-a-number"]


def test_an_id_twice_in_an_object_of_objects_hides_no_row(tmp_path: Path) -> None:
    text = '{"1": {"text": "a", "label": "x"},\n "1": {"text": "b", "label": "y"}}'
    with pytest.raises(TaskDataError, match="the key '1' stands twice"):
        read("single-sentence", "dev", write(tmp_path / "a.json", text))


@pytest.mark.parametrize("text", ["x" * 200_000, "text,label\rb,y\r"])
def test_a_first_line_that_is_no_header_in_any_way_is_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match="expected the columns of single-sentence dev"):
        read("single-sentence", "dev", write(tmp_path / "a", text))


def not_utf_8(count: int) -> pa.Array:
    offsets = pa.array(range(count + 1), pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), count, [None, offsets, pa.py_buffer(b"\xff" * count)])


def test_parquet_whose_texts_are_not_utf_8_is_damaged(tmp_path: Path) -> None:
    columns = {"text": not_utf_8(2), "label": pa.array(["x", "y"])}
    pq.write_table(pa.table(columns), tmp_path / "a")
    with pytest.raises(CorruptInputError, match="cannot be read: 'utf-8' codec"):
        read("single-sentence", "dev", tmp_path / "a")


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match="expected the file of sst-2 dev, found a folder"):
        examples_of_file(TASKS["sst-2"], str(tmp_path), split="dev")


def test_a_label_of_thousands_of_digits_is_a_name() -> None:
    names = LabelSet(TASKS["single-sentence"])
    for label in ("9" * 5000, "10", "9"):
        names.check("train", Row("line 1", {"label": label}))
    assert names.labels() == ("9", "10", "9" * 5000)
