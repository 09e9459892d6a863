"""Files with columns that a recipe or a command names, and errors for other files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from support.task_rows import faults, read, values, write
from typer.testing import CliRunner

from flows.cli.app import app
from model.tasks import BadRow, Row, task_of
from schemas.errors import ConfigError, TaskDataError, UsageError
from schemas.finetune_configs import ExamplesConfig

UNIVERSAL_NER = """# sent_id = weblog-1
# text = Mia saw # 4 in Oslo
1\tMia\tB-PER\t-\tann
2\tsaw\tO\t-\tann
3\t#\tO\t-\tann
4-5\t4in\t_\t-\tann
4\t4\tO\t-\tann
5\tin\tO\t-\tann
6\tOslo\tB-LOC\t-\tann

# sent_id = weblog-2
1\tYes\tO\t-\tann
"""
WEBANNO = """#FORMAT=WebAnno TSV 3.2
#T_SP=webanno.custom.Referent|entity|infstat


#Text=She met his old friend
1-1\t0-3\tShe\tperson\tnew\tana\t
1-2\t4-7\tmet\t_\t_\t_\t
1-3\t8-11\this\tperson[2]|person[3]\tnew[2]|giv[3]\tana\t
1-4\t12-15\told\tperson[2]\tnew[2]\t_\t
1-5\t16-22\tfriend\tperson[2]\tnew[2]\t_\t
1-6\t23-28\tBob\tperson\tgiv\t_\t

#Text=Rome fell
2-1\t29-33\tRome\tplace\tnew\t_\t
2-2\t34-38\tfell\t_\t_\t_\t
"""
REVIEWS = 'id,review,stars,said\n7,"Good, ""really""",5,yes\n8,Bad,1,no\n'


def parse(
    path: Path, text: str | bytes, task: str, split: str = "train", **config: Any
) -> tuple[list[Row], list[BadRow]]:
    return read(task, split, write(path, text), **config)


def test_universal_ner_has_its_words_in_the_second_of_five_columns(tmp_path: Path) -> None:
    columns = {"words": 1, "tags": 2}
    rows, bad = parse(tmp_path / "f", UNIVERSAL_NER, "tagging", columns=columns)
    assert not bad
    assert values(rows, "words", "tags") == [
        (["Mia", "saw", "#", "4", "in", "Oslo"], ["B-PER", "O", "O", "O", "O", "B-LOC"]),
        (["Yes"], ["O"]),
    ]


def test_error_of_unnamed_columns_describes_the_file(tmp_path: Path) -> None:
    plain = UNIVERSAL_NER.replace("4-5\t4in\t_\t-\tann\n", "")
    _, bad = parse(tmp_path / "f", plain, "tagging")
    assert [item.reason for item in bad] == ["unknown-tag", "unknown-tag"]
    first_line = "5 columns: 0 '1', 1 'Mia', 2 'B-PER', 3 '-', 4 'ann'"
    for fact in ("B-LOC in column 4", first_line, "tags are in column 2"):
        assert fact in bad[0].found


def test_gums_entity_types_become_tags(tmp_path: Path) -> None:
    rows, bad = parse(tmp_path / "f", WEBANNO, "tagging", columns={"words": 2, "tags": 3})
    assert not bad
    assert values(rows, "words", "tags") == [
        (
            ["She", "met", "his", "old", "friend", "Bob"],
            ["B-person", "O", "B-person", "I-person", "I-person", "B-person"],
        ),
        (["Rome", "fell"], ["B-place", "O"]),
    ]
    assert [row.notes for row in rows] == [("overlapping-entities",), ()]


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("form ner\nMia B-PER\nsaw O\n", {"columns": {"words": "form", "tags": "ner"}}),
        (
            "% a comment\nner;form\nB-PER;Mia\n% and one\nO;saw\n",
            {
                "columns": {"words": "form", "tags": "ner"},
                "file_format": {"delimiter": "semicolon", "comment_prefix": "%"},
            },
        ),
        (
            '"Mia",B-PER,x\nsaw,O\n",",O\n',
            {"columns": {"words": 0, "tags": 1}, "file_format": {"delimiter": "comma"}},
        ),
        (
            "B-PER x Mia\nO x saw\n",
            {"columns": {"words": 2, "tags": 0}, "file_format": {"header": False}},
        ),
    ],
)
def test_headers_separators_and_comments_of_tagged_words(
    text: str, config: dict[str, Any], tmp_path: Path
) -> None:
    rows, bad = parse(tmp_path / "f", text, "tagging", **config)
    assert not bad
    words = ["Mia", "saw", ","] if '","' in text else ["Mia", "saw"]
    assert values(rows, "words", "tags") == [(words, ["B-PER", "O", "O"][: len(words)])]


def test_tags_may_be_missing_in_a_test_set(tmp_path: Path) -> None:
    columns = {"words": 1, "tags": 2}
    rows, _ = parse(tmp_path / "f", "1\tMia\n2\tsaw\n", "tagging", "test", columns=columns)
    assert values(rows, "words", "tags") == [(["Mia", "saw"], None)]
    with pytest.raises(TaskDataError, match=r"column 2 \(tags\).*2 columns: 0 '1', 1 'Mia'"):
        parse(tmp_path / "f", "1\tMia\n", "tagging", "dev", columns=columns)
    rows, bad = parse(tmp_path / "f", "1\tMia\tO\n\n2\tsaw\n", "tagging", columns=columns)
    assert [(len(rows), item.reason) for item in bad] == [(1, "too-few-columns")]


def test_tables_by_name_and_by_number(tmp_path: Path) -> None:
    columns = {"text": "review", "label": 3, "id": "id"}
    rows, bad = parse(tmp_path / "f", REVIEWS, "single-sentence", columns=columns)
    assert not bad
    expected = [("7", 'Good, "really"', "yes"), ("8", "Bad", "no")]
    assert values(rows, "id", "text_a", "label") == expected
    pq.write_table(pa.table({"a": ["Good", "Bad"], "b": [5.0, 1.5]}), tmp_path / "p")
    columns = {"text": 0, "score": "b"}
    rows, _ = read("sentence-regression", "train", tmp_path / "p", columns=columns)
    assert values(rows, "text_a", "score") == [("Good", 5.0), ("Bad", 1.5)]
    columns = {"text_a": "review", "text_b": "said", "label": "stars"}
    rows, _ = parse(tmp_path / "f", REVIEWS, "sentence-pair", columns=columns)
    assert values(rows[1:], "text_a", "text_b", "label") == [("Bad", "no", "1")]


def test_tables_without_header_and_with_other_separators(tmp_path: Path) -> None:
    columns, path = {"text": 1, "label": 0}, tmp_path / "f"
    text = "yes\tFine\n\nno\tBad\tx\n"
    rows, bad = parse(path, text, "single-sentence", columns=columns)
    assert values(rows, "id", "text_a", "label") == [("0", "Fine", "yes")]
    assert faults(bad) == [("line 2", "blank-line"), ("line 3", "too-many-columns")]
    text = "# made by hand\nwhat;said\nyes;'Fine'\n# end\nno;Bad\n"
    form = {"delimiter": "semicolon", "comment_prefix": "#", "header": True, "quoted": False}
    rows, bad = parse(path, text, "single-sentence", columns=columns, file_format=form)
    assert values(rows, "text_a", "label") == [("'Fine'", "yes"), ("Bad", "no")]
    assert {(item.reason, item.is_fault) for item in bad} == {("comment", False)}
    form = {"delimiter": "spaces"}
    rows, _ = parse(path, "0  great\n1 bad\n", "sst-2", columns=columns, file_format=form)
    assert values(rows, "text_a", "label") == [("great", "0"), ("bad", "1")]
    with pytest.raises(ConfigError, match="quotes"):
        parse(path, text, "sst-2", columns=columns, file_format={**form, "quoted": True})


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        (REVIEWS, {"text": "revue", "label": 3}, r"'revue' \(text\) in its first line, "
         r"found 4 columns: 0 'id', 1 'review', 2 'stars', 3 'said'"),
        (REVIEWS, {"text": 1, "label": 4}, r"a column 4 \(label\), counted from 0, found 4 col"),
        (REVIEWS, {"text": 1, "label": 3, "id": 0}, r"has id, which look like .*table\.header"),
        ("a\ta\tb\nx\ty\tz\n", {"text": "a", "label": "b"}, "found 2 of them: give the number"),
        ('"open,x\n', {"text": 0, "label": 1}, "quotation mark of its first line is not closed"),
    ],
)  # fmt: skip
def test_missing_columns_are_refused(
    text: str, columns: Any, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(TaskDataError, match=expected):
        parse(tmp_path / "f", text, "single-sentence", columns=columns)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"columns": {"text": 1, "label": 1}}, "columns: expected one column per field"),
        (
            {"columns": {"text": "a", "label": 1}, "file_format": {"header": False}},
            "columns.text: expected a 0-based number",
        ),
        ({"labels": ("bad", "bad")}, "labels"),
        ({"labels": ("bad", "")}, "labels"),
        ({"file_format": {"delimiter": "tab"}}, "file_format: requires columns"),
    ],
)
def test_columns_that_make_no_sense(config: Any, expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        ExamplesConfig(task="single-sentence", data_dir="x", **config)


@pytest.mark.parametrize(
    ("task", "config", "expected"),
    [
        ("sst", {}, "no task 'sst'"),
        ("tagging", {"columns": {"words": 1}}, r"expected words, tags of tagging, found no tags"),
        ("sst-2", {"columns": {"text": 1, "score": 2}}, r"sst-2 \(id may be missing\), found no l"),
        ("mnli", {"columns": {"text_a": 1, "text_b": 2, "label": 3, "words": 4}}, "found words"),
        ("squad-1.1", {"columns": {"text": 1}}, r"\(span\) have no columns to be named"),
        ("tagging", {"labels": ("O", "place")}, "labels: expected O or tags .*got place"),
        ("sst-2", {"labels": ("a", "b")}, "labels: expected a task without fixed labels"),
        ("pair-regression", {"labels": ("a", "b")}, "labels: expected a task without fixed"),
        ("sst-2", {"data_files": {"holdout": ("x",)}}, "data_files: no split 'holdout'"),
        ("sst-2", {"max_samples": {"dve": 1}}, "max_samples: no split"),
        ("sst-2", {"max_samples": {"dev": 0}}, "max_samples: expected 1 or more"),
    ],
)
def test_config_that_does_not_fit_the_task_is_refused(
    task: str, config: Any, expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        task_of(ExamplesConfig(task=task, data_dir="x", **config))


@pytest.mark.parametrize(
    "options", [("--column", "words"), ("--column", "words=1", "--column", "tags=1")]
)
def test_unusable_column_options_are_usage_errors(tmp_path: Path, options: Sequence[str]) -> None:
    (tmp_path / "a.tsv").write_text(UNIVERSAL_NER)
    arguments = ["evaluate", "tagging", str(tmp_path / "a.tsv"), "--predictions", "none"]
    result = CliRunner().invoke(app, [*arguments, *options])
    assert isinstance(result.exception, UsageError)
