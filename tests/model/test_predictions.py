"""Comparison of trials, and prediction files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from model.evaluate import Trial, rank_trials, read_trials
from model.tasks import TASKS, Task
from model.tasks.prediction_files import check_ids, read_lines, to_lines
from model.tasks.task_types import TASK_TYPES
from schemas.arrow import EXAMPLES
from schemas.errors import CorruptInputError, InputError, PredictionsError
from schemas.finetune_configs import TaskTypeName
from schemas.manifest import StageInput


def official_files(task: Task, examples: pa.Table, **options: Any) -> dict[str, bytes]:
    said = options.pop("predictions")
    return TASK_TYPES[task.type].official_files(examples, said, task=task, **options)


def trial(name: str, value: float | None, **more: Any) -> Trial:
    metrics = {"dev": {"matthews": value}} if value is not None else {}
    result = {
        "cell": {"batch_size": 16, "learning_rate": 2e-5, "num_epochs": 3, "restart": 0},
        "task": "cola",
        "metrics": metrics,
        **more,
    }
    options = StageInput(name=name, artifact_id="a", data="/d", files=(), statistics=result)
    (made,) = read_trials({name: options})
    return made


def test_best_trial_and_best_point_may_differ() -> None:
    trials = [
        trial("bs16-lr2e-05-ep3-r0", 0.50),
        trial("bs16-lr2e-05-ep3-r1", 0.70),
        trial("bs16-lr5e-05-ep3-r0", 0.64),
        trial("bs16-lr5e-05-ep3-r1", 0.66),
    ]
    ranking = rank_trials(trials, metric="matthews")
    assert [c.name for c in ranking.best][:2] == ["bs16-lr2e-05-ep3-r1", "bs16-lr5e-05-ep3-r1"]
    assert ranking.best_point == "bs16-lr5e-05-ep3"
    equal = [trial("b-r1", 0.5), trial("b-r0", 0.5), trial("a-r0", 0.4)]
    assert [c.name for c in rank_trials(equal, metric="matthews").best] == ["b-r1", "b-r0", "a-r0"]


def test_the_order_of_a_recipes_lists_changes_nothing() -> None:
    """It is in no cache key."""
    options: dict[str, StageInput] = {}
    for entry in ("a.", ""):
        for batch, rate in [(32, 2e-5), (8, 1e-4), (8, 2e-5)]:
            name = f"{entry}bs{batch}-lr{rate:g}-ep3-r0"
            point = {"batch_size": batch, "learning_rate": rate, "num_epochs": 3, "restart": 0}
            options[name] = trial(name, 0.5, cell=point).artifact
    points = ("bs8-lr2e-05-ep3-r0", "bs8-lr0.0001-ep3-r0", "bs32-lr2e-05-ep3-r0")
    expected = [*points, *(f"a.{point}" for point in points)]
    for inputs in (options, dict(reversed(options.items()))):
        assert [trial.name for trial in read_trials(inputs)] == expected


def test_trials_without_the_metric_cannot_be_compared() -> None:
    with pytest.raises(PredictionsError, match=r"b: .*matthews"):
        rank_trials([trial("a", 0.5), trial("b", None)], metric="matthews")


def table(kind: str, rows: list[dict[str, Any]]) -> pa.Table:
    schema = EXAMPLES[kind]
    full = [{field.name: row.get(field.name) for field in schema} for row in rows]
    return pa.Table.from_pylist(full, schema=schema)


TEXTS = [
    {"id": "0", "text_a": "One.", "label": "1"},
    {"id": "1", "text_a": "Two.", "label": "0"},
]


def test_predictions_go_to_a_file_and_back(tmp_path: Path) -> None:
    said = [
        {"id": "0", "label": "1", "probabilities": {"0": 0.25, "1": 0.75}},
        {"id": "1", "label": "1", "probabilities": {"0": 0.5, "1": 0.5}},
    ]
    file = tmp_path / "said.jsonl"
    file.write_bytes(to_lines(said))
    assert read_lines(str(file)) == said
    for content, line in ((b"{\n", 1), (b'{"id": "0"}\n[]\n', 2), (b'{"id": "\xff"}\n', 1)):
        other = tmp_path / "other.jsonl"
        other.write_bytes(content)
        with pytest.raises(PredictionsError, match=f"line {line}"):
            read_lines(str(other))
    task_type, task = TASK_TYPES["classification"], TASKS["sst-2"]
    examples = table("classification", TEXTS)
    assert task_type.score_known(examples, said, task=task) == {"accuracy": 0.5}
    check_ids(said, examples, where="said")
    for rows, expected in ((TEXTS[:1], "2 predictions for 1"), (TEXTS[::-1], "has the id '0'")):
        with pytest.raises(PredictionsError, match=expected):
            check_ids(said, table("classification", rows), where="said")
    unknown = table("classification", [{**row, "label": None} for row in TEXTS])
    assert not task_type.is_answered(unknown)
    assert task_type.score_known(unknown, said, task=task) == {}


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("classification", "index\tprediction\n0\t1\n1\t0\n", ", line 1: .*one prediction a line"),
        ("tagging", "Ann B-PER\nsings O\n", ", line 1: .*one prediction a line"),
        ("classification", "PAR1 PAR1", ": .*Parquet"),
        ("span", "PAR1 PAR1", ": .*Parquet"),
    ],
)
def test_files_of_other_programs_are_refused(
    tmp_path: Path, kind: TaskTypeName, content: str, expected: str
) -> None:
    file = tmp_path / "said.txt"
    file.write_text(content)
    with pytest.raises(PredictionsError, match=f"said.txt{expected}"):
        TASK_TYPES[kind].read_predictions(str(file))


def test_tags_are_written_in_columns() -> None:
    tags = ["B-PER", "O", "B-LOC"]
    words = ["Ann", "sings", "Bergen"]
    document = {"id": "d", "sentence_lengths": [2, 1], "words": words, "tags": tags}
    said = [{"id": "d", "tags": ["B-PER", "O", "O"]}]
    options: dict[str, Any] = {"predictions": said, "split": "dev", "threshold": 0.0}
    files = official_files(TASKS["conll-2003"], table("tagging", [document]), **options)
    assert files["tags-dev.conll"].decode() == (
        "-DOCSTART- O O\n\nAnn B-PER B-PER\nsings O O\n\nBergen B-LOC O\n\n"
    )
    spaced = {**document, "words": ["New York", "a\u00a0b", "c\u2028d"], "sentence_lengths": [3]}
    files = official_files(TASKS["tagging"], table("tagging", [spaced]), **options)
    assert files["tags-dev.conll"].decode() == ("New_York B-PER B-PER\na_b O O\nc_d B-LOC O\n\n")


def test_questions_files_are_those_of_the_official_scorer() -> None:
    row = {"id": "q", "title": "", "question": "Who?", "context": "Ann.", "answers": ["Ann"],
           "answer_starts": [0], "is_impossible": False}  # fmt: skip
    said = [{"id": "q", "text": "Ann", "null_odds": -2.5, "n_best": []}]
    options = {"predictions": said, "split": "dev", "threshold": -1.0}
    examples = table("span", [row])
    files = official_files(TASKS["squad-2.0"], examples, **options)  # type: ignore[arg-type]
    assert json.loads(files["answers-dev.json"]) == {"q": "Ann"}
    # The official scorer takes a question for unanswered where this is above 0.
    assert json.loads(files["null-odds-dev.json"]) == {"q": -1.5}
    assert set(official_files(TASKS["squad-1.1"], examples, **options)) == {"answers-dev.json"}  # type: ignore[arg-type]


def questions(*names: str) -> pa.Table:
    row = {"title": "", "question": "Who?", "context": "Ann.", "answers": ["Ann"],
           "answer_starts": [0], "is_impossible": False}  # fmt: skip
    return table("span", [{**row, "id": name} for name in names])


def test_squads_answers_have_any_order_and_gaps(tmp_path: Path) -> None:
    file, examples, task = tmp_path / "said.json", questions("a", "b"), TASKS["squad-1.1"]
    span = TASK_TYPES["span"]
    file.write_text('{"c": "Ann", "b": "Ann"}')
    result = span.read_predictions(str(file))
    assert span.score(examples, result, task=task) == {"em": 0.5, "f1": 0.5}
    file.write_text('{"c": "Ann"}')
    with pytest.raises(PredictionsError, match="none of 1 answers is to a question"):
        span.score(examples, span.read_predictions(str(file)), task=task)


@pytest.mark.parametrize("name", ["said.jsonl.gz", "said.json.bz2", "said.tsv.zst"])
def test_predictions_that_are_damaged_say_so(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"hello")
    with pytest.raises(InputError, match=f"{name}: expected a"):
        TASK_TYPES["classification"].read_predictions(str(tmp_path / name))
    cut = tmp_path / f"cut-{name}"
    cut.write_bytes(gzip.compress(b'{"id": "0"}\n' * 99)[:30])
    with pytest.raises(CorruptInputError, match="cut off"):
        read_lines(str(cut))
    with pytest.raises(PredictionsError, match="no file there"):
        TASK_TYPES["classification"].read_predictions(str(tmp_path))


PAIR = {"text_a": "One.", "text_b": "Two."}
SCORES = table("regression", [{"id": "0", "score": 1.0, **PAIR}, {"id": "1", "score": 2.0, **PAIR}])
CHOICES = table("choice", [{"id": "0", "context": "One", "continuations": [*"abcd"], "label": 1}])
SENTENCE = {"id": "0", "sentence_lengths": [1], "words": ["Ann"], "tags": ["B-PER"]}


@pytest.mark.parametrize(
    ("task", "examples", "key", "values"),
    [
        ("sts-b", SCORES, "score", ("4", float("nan"), float("inf"), [1], True, 10**400)),
        ("swag", CHOICES, "label", ("1", "foo", 4, -1, 1.5, 1 << 70, [1], True)),
        ("tagging", table("tagging", [SENTENCE]), "tags", (5, "O", ["PER"], [3], None)),
        ("tagging", table("tagging", [SENTENCE]), "label", (1,)),
        ("single-sentence", table("classification", TEXTS), "label", (["1"],)),
        ("squad-1.1", questions("0"), "text", (5,)),
        ("squad-1.1", questions("0"), "label", ("x",)),
    ],
)
def test_prediction_of_another_type_is_refused(
    task: str, examples: pa.Table, key: str, values: tuple[object, ...]
) -> None:
    ids = examples.column("id").to_pylist()
    for value in values:
        rows = [{"id": name, key: value} for name in ids]
        with pytest.raises(PredictionsError):
            TASK_TYPES[TASKS[task].type].score(examples, rows, task=TASKS[task])
