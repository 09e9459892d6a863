"""SQuAD's files: every question becomes an example or is counted by reason."""

from __future__ import annotations

import bz2
import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from support import complexity

from model.tasks.squad import NOT_FOUND, SQUAD_TASKS, check_answers
from model.tasks.squad_metrics import gold_answers, score_question
from model.tasks.task import BadRow, Row
from schemas.arrow import SPAN_EXAMPLES
from schemas.errors import TaskDataError

CONTEXT = "The mill was built in 1895. It burnt down in 1895, and Ada Byrne built it again."


def question(**changes: Any) -> dict[str, Any]:
    values = {
        "id": "q1",
        "question": "Who built it again?",
        "answers": [{"text": "Ada Byrne", "answer_start": CONTEXT.index("Ada")}],
    }
    return {key: value for key, value in {**values, **changes}.items() if value is not ...}


def article(*questions: Any, context: Any = CONTEXT, title: Any = "Mill") -> dict[str, Any]:
    return {"title": title, "paragraphs": [{"context": context, "qas": list(questions)}]}


def write(path: Path, *articles: Any) -> str:
    path.write_text(json.dumps({"version": "1.1", "data": list(articles)}), encoding="utf-8")
    return str(path)


def read(url: str, *, task: str = "squad-1.1", split: str = "train") -> list[Row | BadRow]:
    chosen = SQUAD_TASKS[task]
    return list(chosen.reader(chosen, split, url))


def reasons_of(url: str) -> list[str]:
    return [item.reason if isinstance(item, BadRow) else "kept" for item in read(url)]


def read_one(tmp_path: Path, item: Any, **options: Any) -> Row | BadRow:
    context = options.pop("context", CONTEXT)
    (result,) = read(write(tmp_path / "file.json", article(item, context=context)), **options)
    return result


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"answers": ...}, "missing-key"),
        ({"answers": [{"text": " ", "answer_start": 4}]}, "empty-answer"),
        ({"answers": [{"text": "Bo Byrne", "answer_start": 55}]}, "answer-not-in-context"),
        ({"question": ...}, "missing-key"),
        ({"id": ...}, "missing-key"),
        ({"question": " \n"}, "empty-question"),
        ({"id": ""}, "empty-id"),
        ({"question": 3}, "malformed"),
        ({"id": True}, "malformed"),
        ({"question": "half \ud83d"}, "malformed"),
        ({"answers": []}, "unanswerable"),
        ({"answers": [], "is_impossible": True}, "unanswerable"),
        ({"answers": [], "is_impossible": False}, "no-answer"),
        ({"is_impossible": True}, "contradictory"),
        ({"is_impossible": "no"}, "malformed"),
        ({"answers": [{"answer_start": 3}]}, "malformed"),
        ({"answers": [{"text": "mill", "answer_start": "3"}]}, "malformed"),
        ({"answers": "mill"}, "malformed"),
        ({"answers": {"text": ["mill"], "answer_start": []}}, "malformed"),
    ],
)
def test_a_bad_question_is_counted_and_the_next_is_read(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    url = write(tmp_path / "a.json", article(question(**changes), question(id="q2")))
    bad, good = read(url)
    assert isinstance(bad, BadRow)
    assert bad.reason == reason
    assert bad.is_fault
    assert isinstance(good, Row)


def test_malformed_parts_are_counted(tmp_path: Path) -> None:
    url = write(
        tmp_path / "a.json",
        {"title": "No paragraphs"},
        {"title": "No questions", "paragraphs": [{"context": CONTEXT}, "text"]},
        article("text", question()),
        article(question(), question(id=7)),
        article(question(id=8), question(id=9), context=" \t"),
        article(question(id=8), context=None),
    )
    reasons = ["missing-key"] * 3 + ["malformed", "kept", "kept", "kept"]
    assert reasons_of(url) == [*reasons, "empty-context", "empty-context", "missing-key"]
    assert read(url)[6].values["id"] == "7"


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("1895", 22, (["1895"], [22], ())),
        ("1895", 20, (["1895"], [22], ("answer-start-mended",))),
        ("1895", 43, (["1895"], [45], ("answer-start-mended",))),
        ("1895", -5, (["1895"], [22], ("answer-start-mended",))),
        ("1895", 10_000, (["1895"], [45], ("answer-start-mended",))),
        ("1895", None, (["1895"], [22], ("answer-start-mended",))),
        ("Ada  Byrne", 3, (["Ada Byrne"], [55], ("answer-space-mended",))),
        ("Ada\nByrne", 55, (["Ada Byrne"], [55], ("answer-space-mended",))),
    ],
)
def test_an_answer_is_looked_for_where_it_is_not(
    tmp_path: Path, text: str, start: int | None, expected: tuple[list[str], list[int], Any]
) -> None:
    assert check_answers([{"text": text, "answer_start": start}], CONTEXT) == expected
    result = read_one(tmp_path, question(answers=[{"text": text, "answer_start": start}]))
    assert isinstance(result, Row)
    assert result.notes == expected[2]


@given(st.text("ab ", max_size=12), st.text("ab", min_size=1, max_size=3), st.integers(-3, 15))
def test_the_place_found_is_the_nearest_occurrence(context: str, text: str, start: int) -> None:
    result = check_answers([{"text": text, "answer_start": start}], context)
    places = [at for at in range(len(context)) if context[at : at + len(text)] == text]
    if not places:
        assert result.starts == [NOT_FOUND]
    else:
        assert abs(result.starts[0] - start) == min(abs(at - start) for at in places)
        assert context.startswith(text, result.starts[0])
        assert bool(result.notes) == (result.starts[0] != start)


@given(
    st.text("ab \n", max_size=14),
    st.text("ab\t", min_size=1, max_size=5).filter(str.strip),
    st.integers(-3, 15),
)
def test_answer_with_other_white_space_is_the_nearest_occurrence(
    context: str, text: str, start: int
) -> None:
    pattern = re.compile(r"\s+".join(text.split()))
    matches = [match for at in range(len(context)) if (match := pattern.match(context, at))]
    answers = check_answers([{"text": text, "answer_start": start}], context)
    if text in context or not matches:
        return
    nearest = min(matches, key=lambda match: abs(match.start() - start))
    assert answers == ([nearest[0]], [nearest.start()], ("answer-space-mended",))


@pytest.mark.parametrize(("unit", "end"), [("a", ""), ("a", "b"), ("a ", "b"), ("a  ", "")])
def test_answer_search_takes_linear_time(unit: str, end: str) -> None:
    def search(context: str) -> None:
        answer = context[: len(context) // 2].replace("  ", " ") + end
        check_answers([{"text": answer, "answer_start": len(context)}], context)

    complexity.assert_linear(search, unit)


@pytest.mark.parametrize(
    ("answers", "split", "expected"),
    [
        (["Bo", "mill"], "train", (["Bo", "mill"], [NOT_FOUND, 4], ("answer-not-in-context",))),
        (["", "mill"], "train", (["mill"], [4], ("empty-answer-left-out",))),
        (["Bo"], "dev", (["Bo"], [NOT_FOUND], ("answer-not-in-context",))),
    ],
)
def test_one_answer_that_is_found_is_enough_for_training_and_none_for_dev(
    tmp_path: Path, answers: list[str], split: str, expected: Any
) -> None:
    answers_value = [{"text": text, "answer_start": 4} for text in answers]
    result = read_one(tmp_path, question(answers=answers_value), split=split)
    assert isinstance(result, Row)
    columns = result.values["answers"], result.values["answer_starts"]
    assert (*columns, result.notes) == expected


@pytest.mark.parametrize("task", ["squad-1.1", "squad-2.0"])
def test_empty_answer_is_scored_as_the_official_script_does(tmp_path: Path, task: str) -> None:
    """It compares with it, and in 2.0 counts the question among those that have an answer."""
    answers = [{"text": " \n", "answer_start": 3}]
    result = read_one(tmp_path, question(answers=answers), task=task, split="dev")
    assert isinstance(result, Row)
    assert result.values["answers"] == [" \n"]
    assert result.values["answer_starts"] == [NOT_FOUND]
    assert result.notes == ("empty-answer",)
    table = pa.Table.from_pylist([result.values], schema=SPAN_EXAMPLES)
    [gold] = gold_answers(table, has_unanswerable=task == "squad-2.0")
    assert gold.has_answer
    assert score_question("", gold).em == 1.0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"answers": []}, True),
        ({"answers": [], "is_impossible": True, "plausible_answers": [{"text": "mill"}]}, True),
        ({"is_impossible": False}, False),
        ({"answers": ...}, None),
    ],
)
def test_is_impossible_of_2_0(
    tmp_path: Path, changes: dict[str, Any], expected: bool | None
) -> None:
    result = read_one(tmp_path, question(**changes), task="squad-2.0", split="dev")
    assert isinstance(result, Row)
    assert result.values["is_impossible"] is expected
    assert bool(result.values["answers"]) == (expected is False)


def test_files_may_be_compressed_and_lie_anywhere(tmp_path: Path) -> None:
    plain = json.dumps({"data": [article(question())]}).encode()
    contents = {
        "bom.json": b"\xef\xbb\xbf" + plain,
        "a.json.gz": gzip.compress(plain),
        "a.json.bz2": bz2.compress(plain),
        "a.json.zst": zstandard.compress(plain),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        assert len(read(str(tmp_path / name))) == 1
    with fsspec.open("memory://squad/a.json.gz", "wb") as file:
        file.write(contents["a.json.gz"])
    assert isinstance(read("memory://squad/a.json.gz")[0], Row)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "empty"),
        (b"<html>not here</html>", "no JSON"),
        (b'{"data": [', "no JSON"),
        (b'{"data": [], "data": [1]}', "'data' stands twice"),
        (b'{"rows": []}', "got rows"),
        (b"[1]", "found a list"),
        (b'{"data": []}', "no question"),
        (b'{"data": "\xff"}', "line 1: expected UTF-8, got 0xff"),
    ],
)
def test_a_file_that_is_another_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "dev.json"
    path.write_bytes(content)
    with pytest.raises(TaskDataError, match=expected) as caught:
        read(str(path), split="dev")
    assert str(path) in str(caught.value)


def test_rows_of_datasets_give_the_same_examples(tmp_path: Path) -> None:
    row = {
        "id": "1",
        "title": "Mill",
        "context": CONTEXT,
        "question": "What?",
        "answers": {"text": ["mill"], "answer_start": [4]},
    }
    rows = [
        row,
        {**row, "id": "2", "answers": {"text": [], "answer_start": []}},
        {**row, "id": "3", "question": None},
        {**row, "id": "4", "answers": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a")
    (tmp_path / "b").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    first, second, third, fourth = read(str(tmp_path / "a"), task="squad-2.0", split="dev")
    assert read(str(tmp_path / "b"), task="squad-2.0", split="dev")[:2] == [first, second]
    answers = [{"text": "mill", "answer_start": 4}]
    asked = question(id="1", question="What?", answers=answers, is_impossible=False)
    same = read_one(tmp_path, asked, task="squad-2.0", split="dev")
    assert isinstance(first, Row)
    expected = {**row, "answers": ["mill"], "answer_starts": [4], "is_impossible": False}
    assert same == Row("question 1, paragraph 1 of Mill", expected)
    assert first.values == same.values
    assert second.values["is_impossible"] is True
    assert third == BadRow("row 3", "missing-key", "no question")
    assert fourth.values["is_impossible"] is None
    without = [{key: value for key, value in row.items() if key != "context"} for row in rows]
    pq.write_table(pa.Table.from_pylist(without), tmp_path / "a")
    with pytest.raises(TaskDataError, match="missing context"):
        read(str(tmp_path / "a"))


@pytest.mark.parametrize(
    ("task", "split", "name", "rows"),
    [
        ("squad-1.1", "dev", "dev-v1.1.json.gz", 10_570),
        ("squad-2.0", "dev", "half-dev-v2.0.json.gz", 6_078),
        pytest.param("squad-1.1", "train", "train-v1.1.json.gz", 87_599, marks=pytest.mark.slow),
    ],
)
def test_every_question_of_the_real_files_is_an_example(
    real_data: Path, task: str, split: str, name: str, rows: int
) -> None:
    result = read(str(real_data / "squad" / name), task=task, split=split)
    assert Counter(type(item) for item in result) == {Row: rows}
    assert not any(item.notes for item in result)
    unanswerable = sum(item.values["is_impossible"] for item in result)
    assert (0 < unanswerable < rows) if task == "squad-2.0" else not unanswerable
