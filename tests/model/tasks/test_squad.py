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

from model.task_types.squad_metrics import gold_answers, score_question
from model.tasks.squad import NOT_FOUND, SQUAD_TASKS, check_answers
from model.tasks.task import BadRow, Row
from schemas.arrow import SPAN_EXAMPLES
from schemas.errors import CorruptInputError, InputError, MissingInputError, TaskDataError

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
    (found,) = read(write(tmp_path / "file.json", article(item, context=context)), **options)
    return found


def test_a_question_becomes_an_example(tmp_path: Path) -> None:
    found = read_one(tmp_path, question())
    assert found == Row(
        "question 1, paragraph 1 of Mill",
        {
            "id": "q1",
            "title": "Mill",
            "question": "Who built it again?",
            "context": CONTEXT,
            "answers": ["Ada Byrne"],
            "answer_starts": [CONTEXT.index("Ada")],
            "is_impossible": False,
        },
    )
    assert pa.Table.from_pylist([found.values], schema=SPAN_EXAMPLES).num_rows == 1


@pytest.mark.parametrize("split", ["train", "dev", "augmentation"])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
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
    tmp_path: Path, changes: dict[str, Any], reason: str, split: str
) -> None:
    url = write(tmp_path / "a.json", article(question(**changes), question(id="q2")))
    bad, good = read(url, split=split)
    assert isinstance(bad, BadRow)
    assert bad.reason == reason
    assert bad.is_fault
    assert isinstance(good, Row)


@pytest.mark.parametrize(
    ("context", "reason"), [("", "empty-context"), (" \t", "empty-context"), (None, "missing-key")]
)
def test_bad_context_drops_each_of_its_questions(tmp_path: Path, context: Any, reason: str) -> None:
    first = article(question(), question(id="q2"), context=context)
    url = write(tmp_path / "a.json", first, article(question(id="q3")))
    assert reasons_of(url) == [reason, reason, "kept"]


def test_repeated_id_and_malformed_parts_are_counted(tmp_path: Path) -> None:
    url = write(
        tmp_path / "a.json",
        {"title": "No paragraphs"},
        {"title": "No questions", "paragraphs": [{"context": CONTEXT}, "text"]},
        article("text", question()),
        article(question(), question(id=7)),
    )
    missing = ["missing-key"] * 3
    assert reasons_of(url) == [*missing, "malformed", "kept", "duplicate-id", "kept"]
    assert read(url)[-1].values["id"] == "7"


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
    found = read_one(tmp_path, question(answers=[{"text": text, "answer_start": start}]))
    assert isinstance(found, Row)
    assert found.notes == expected[2]


@given(st.text("ab ", max_size=12), st.text("ab", min_size=1, max_size=3), st.integers(-3, 15))
def test_the_place_found_is_the_nearest_occurrence(context: str, text: str, start: int) -> None:
    found = check_answers([{"text": text, "answer_start": start}], context)
    places = [at for at in range(len(context)) if context[at : at + len(text)] == text]
    if not places:
        assert found.starts == [NOT_FOUND]
    else:
        assert abs(found.starts[0] - start) == min(abs(at - start) for at in places)
        assert context.startswith(text, found.starts[0])
        assert bool(found.notes) == (found.starts[0] != start)


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


def test_answer_that_is_nowhere_drops_only_training_question(tmp_path: Path) -> None:
    nowhere = question(answers=[{"text": "Bo Byrne", "answer_start": 55}])
    dropped = read_one(tmp_path, nowhere)
    assert isinstance(dropped, BadRow)
    assert dropped.reason == "answer-not-in-context"
    assert "Bo Byrne" in dropped.found
    assert "55" in dropped.found
    kept = read_one(tmp_path, nowhere, split="dev")
    assert isinstance(kept, Row)
    assert kept.notes == ("answer-not-in-context",)
    assert (kept.values["answers"], kept.values["answer_starts"]) == (["Bo Byrne"], [NOT_FOUND])


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["Bo", "mill"], (["Bo", "mill"], [NOT_FOUND, 4], ("answer-not-in-context",))),
        (["", "mill"], (["mill"], [4], ("empty-answer-left-out",))),
        ([" "], "empty-answer"),
    ],
)
def test_training_needs_one_answer_that_is_found(
    tmp_path: Path, answers: list[str], expected: Any
) -> None:
    given = [{"text": text, "answer_start": 4} for text in answers]
    found = read_one(tmp_path, question(answers=given))
    if isinstance(found, BadRow):
        assert found.reason == expected
    else:
        columns = found.values["answers"], found.values["answer_starts"]
        assert (*columns, found.notes) == expected


@pytest.mark.parametrize("task", ["squad-1.1", "squad-2.0"])
def test_empty_answer_is_scored_as_the_official_script_does(tmp_path: Path, task: str) -> None:
    """It compares with it, and in 2.0 counts the question among those that have an answer."""
    answers = [{"text": " \n", "answer_start": 3}]
    found = read_one(tmp_path, question(answers=answers), task=task, split="dev")
    assert isinstance(found, Row)
    assert found.values["answers"] == [" \n"]
    assert found.values["answer_starts"] == [NOT_FOUND]
    assert found.notes == ("empty-answer",)
    table = pa.Table.from_pylist([found.values], schema=SPAN_EXAMPLES)
    [gold] = gold_answers(table, has_unanswerable=task == "squad-2.0")
    assert gold.has_answer
    assert score_question("", gold, has_unanswerable=task == "squad-2.0").em == 1.0


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
    found = read_one(tmp_path, question(**changes), task="squad-2.0", split="dev")
    assert isinstance(found, Row)
    assert found.values["is_impossible"] is expected
    assert bool(found.values["answers"]) == (expected is False)


def test_training_question_without_answers_is_bad(tmp_path: Path) -> None:
    found = read_one(tmp_path, question(answers=...))
    assert isinstance(found, BadRow)
    assert found.reason == "missing-key"


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
        (b'{"rows": []}', "found rows"),
        (b"[1]", "found a list"),
        (b'{"data": []}', "no question"),
        (b'{"data": "\xff"}', "byte 10 is not UTF-8"),
    ],
)
def test_a_file_that_is_another_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "dev.json"
    path.write_bytes(content)
    with pytest.raises(TaskDataError, match=expected) as caught:
        read(str(path), split="dev")
    assert str(path) in str(caught.value)


def test_truncated_and_missing_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "dev.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"data": [article(question())]}).encode())[:-20])
    with pytest.raises(CorruptInputError, match="no end"):
        read(str(path))
    with pytest.raises(MissingInputError):
        read(str(tmp_path / "other.json"))
    path.write_bytes(b"an error page")
    with pytest.raises(InputError, match="error page"):
        read(str(path))


def parquet(path: Path, rows: list[dict[str, Any]]) -> str:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def hugging_face_row(**changes: Any) -> dict[str, Any]:
    answers = {"text": ["mill"], "answer_start": [4]}
    row = {"id": "1", "title": "Mill", "context": CONTEXT, "question": "What?", "answers": answers}
    return {**row, **changes}


def test_parquet_of_hugging_face_gives_the_same_examples(tmp_path: Path) -> None:
    rows = [
        hugging_face_row(),
        hugging_face_row(id="2", answers={"text": [], "answer_start": []}),
        hugging_face_row(id="3", question=None),
        hugging_face_row(id="4", answers=None),
    ]
    url = parquet(tmp_path / "validation-00000-of-00001.parquet", rows)
    first, second, third, fourth = read(url, task="squad-2.0", split="dev")
    answers = [{"text": "mill", "answer_start": 4}]
    asked = question(id="1", question="What?", answers=answers, is_impossible=False)
    same = read_one(tmp_path, asked, task="squad-2.0", split="dev")
    assert isinstance(first, Row)
    assert first.values == same.values
    assert second.values["is_impossible"] is True
    assert third == BadRow("row 3", "missing-key", "no question")
    assert fourth.values["is_impossible"] is None


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
    found = read(str(real_data / "squad" / name), task=task, split=split)
    assert Counter(type(item) for item in found) == {Row: rows}
    assert not any(item.notes for item in found)
    unanswerable = sum(item.values["is_impossible"] for item in found)
    assert (0 < unanswerable < rows) if task == "squad-2.0" else not unanswerable


def test_a_file_of_2_0_is_no_file_of_1_1(real_data: Path) -> None:
    found = read(str(real_data / "squad" / "half-dev-v2.0.json.gz"), split="dev")
    reasons = Counter(item.reason for item in found if isinstance(item, BadRow))
    assert reasons.keys() == {"unanswerable"}
    assert reasons["unanswerable"] > len(found) / 3


def test_parquet_damaged_inside_is_told(tmp_path: Path) -> None:
    url = parquet(tmp_path / "a.parquet", [{**hugging_face_row(), "id": str(n)} for n in range(99)])
    data = bytearray(Path(url).read_bytes())
    data[4:60] = b"\xff" * 56  # the first page
    Path(url).write_bytes(data)
    (tmp_path / "b.parquet").write_bytes(b"PAR1" + bytes(20))
    for damaged in (url, str(tmp_path / "b.parquet")):
        with pytest.raises(CorruptInputError, match=r"(?s)Parquet.*download it again"):
            read(damaged)
