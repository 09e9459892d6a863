"""Contract of every task of TASKS: its fields and its reader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from support.paths import ROOT
from support.task_file_builder import ROWS, write_task_file

from model.build_examples import build_examples
from model.tables.paper_results import PAPER_TABLES
from model.task_types.by_name import TASK_TYPES
from model.task_types.metrics import METRICS
from model.tasks import TASKS, Bad, Row, Task, find_task
from model.tasks.sentence_tasks import read_text_rows
from model.tasks.task import FileLayout
from schemas.arrow import EXAMPLES
from schemas.errors import ConfigError, TaskDataError
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import ExamplesConfig

_OTHER_METRICS = {
    "span": {"em", "f1"},
    "tagging": {"entity-f1", "entity-precision", "entity-recall"},
}
PLACES = [pytest.param(task, split, id=f"{task.name}-{split}")
          for task in TASKS.values() for split in task.splits]  # fmt: skip
FIRST = [pytest.param(task, next(iter(task.splits)), id=task.name) for task in TASKS.values()]


def read(task: Task, split: str, url: str) -> tuple[list[Row], list[Bad]]:
    items = list(task.reader(task, split, url))
    return (
        [item for item in items if isinstance(item, Row)],
        [item for item in items if isinstance(item, Bad)],
    )


def test_the_papers_tasks_are_there() -> None:
    glue = {"cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli", "ax"}
    assert glue | {"squad-1.1", "squad-2.0", "swag", "codah", "conll-2003"} <= set(TASKS)
    assert {"wikigold", "wnut17", "tagging", "single-sentence", "sentence-pair"} <= set(TASKS)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_tasks_fields_fit_together(task: Task) -> None:
    assert TASKS[task.name] is task
    assert TASK_TYPES[task.type]
    assert task.metrics
    assert set(task.metrics) <= _OTHER_METRICS.get(task.type, set(METRICS))
    assert len(set(task.labels)) == len(task.labels)
    if "train" in task.splits:
        assert list(task.splits)[:2] == ["train", "dev"]
    assert all(globs for globs in task.splits.values())
    assert set(task.submission) <= set(task.splits)
    assert set(task.submitted_labels) <= set(task.labels)
    assert not task.label_words or list(task.label_words) == list(task.labels)
    assert len(set(task.label_words.values())) == len(task.label_words)
    words = [task.label_words.get(label, label) for label in task.labels]
    assert not [word for word in words if word.isdigit()], "for people"
    assert (task.choices > 1) == (task.type == "choice")


def test_a_prediction_in_words() -> None:
    said = {"id": "7", "label": "1", "probabilities": {"0": 0.1, "1": 0.9}}
    words = {"id": "7", "label": "positive", "probabilities": {"negative": 0.1, "positive": 0.9}}
    assert TASKS["sst-2"].in_words(said) == words
    assert said["label"] == "1"
    names = {
        "cola": ["unacceptable", "acceptable"],
        "mrpc": ["not_equivalent", "equivalent"],
        "qqp": ["not_duplicate", "duplicate"],
        "wnli": ["not_entailment", "entailment"],
    }
    for name, expected in names.items():
        assert [TASKS[name].label_words[label] for label in ("0", "1")] == expected
    for name, label in (("rte", "entailment"), ("single-sentence", "1"), ("swag", 2)):
        assert TASKS[name].in_words({"label": label}) == {"label": label}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_tasks_cells_are_cells_of_the_papers_tables(task: Task) -> None:
    for place, (table, name) in task.paper.items():
        split, _, metric = place.partition("/")
        assert split in task.splits
        assert metric in task.metrics
        assert PAPER_TABLES[table].column(name, split=split).metric == metric


@pytest.mark.parametrize(("task", "split"), PLACES)
def test_the_official_file_is_read_whole(task: Task, split: str, tmp_path: Path) -> None:
    rows, bad = read(task, split, write_task_file(task, split, folder=tmp_path))
    assert len(rows) + len(bad) == ROWS
    assert not [item for item in bad if item.is_fault]
    assert len(rows) == ROWS or (rows and task.layout.shares)
    schema = EXAMPLES[task.type]
    for row in rows:
        assert set(row.values) <= set(schema.names)
        assert row.position
    batch = pa.RecordBatch.from_pylist([row.values for row in rows], schema=schema)
    for field, column in zip(schema, batch.columns, strict=True):
        assert field.nullable or not column.null_count, field.name
    assert len(set(batch["id"].to_pylist())) == len(rows)
    _check_values(task, split, rows)


def _check_values(task: Task, split: str, rows: list[Row]) -> None:
    needs_answer = split.startswith(("train", "dev"))
    for row in (row.values for row in rows):
        if task.type == "classification":
            assert row["label"] is not None or not needs_answer
            assert row["label"] is None or not task.labels or row["label"] in task.labels
            assert (row["text_b"] is not None) == task.is_pair
        elif task.type == "regression":
            assert row["score"] is not None or not needs_answer
        elif task.type == "choice":
            assert len(row["continuations"]) == task.choices
            assert row["label"] in range(task.choices)
        elif task.type == "span":
            for text, start in zip(row["answers"], row["answer_starts"], strict=True):
                assert row["context"][start:].startswith(text)
        else:
            assert sum(row["sentence_lengths"]) == len(row["words"]) == len(row["tags"])


@pytest.mark.parametrize(("task", "split"), FIRST)
def test_an_answer_that_is_none_makes_a_bad_row(task: Task, split: str, tmp_path: Path) -> None:
    if task.type == "classification" and not task.labels:
        pytest.skip("its labels may be any text")
    url = write_task_file(task, split, folder=tmp_path, fault="unknown-answer")
    rows, bad = read(task, split, url)
    faults = [item for item in bad if item.is_fault]
    assert faults
    # Of tagging a document is a row, and a sentence that cannot be used is one more.
    assert len(rows) + len(bad) == ROWS or task.type == "tagging"
    for item in faults:
        assert item.position
        assert item.found
        assert item.reason == item.reason.lower().replace(" ", "-")


@pytest.mark.parametrize(("task", "split"), FIRST)
def test_another_tasks_columns_are_refused(task: Task, split: str, tmp_path: Path) -> None:
    url = write_task_file(task, split, folder=tmp_path, fault="missing-column")
    with pytest.raises(TaskDataError, match=r"expected .*(found|in it)"):
        read(task, split, url)


@pytest.mark.parametrize(("task", "split"), PLACES)
@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_file_is_refused(task: Task, split: str, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.write_bytes(content)
    with pytest.raises(TaskDataError, match="empty"):
        read(task, split, str(file))


def test_a_task_is_found_by_its_name() -> None:
    assert find_task("sst-2").title == "SST-2"


@pytest.mark.parametrize(
    ("name", "close"), [("sst2", "sst-2"), ("MNLI", "mnli"), ("SQuAD 1.1", "squad-1.1")]
)
def test_a_name_nearly_right_is_answered_with_the_right_one(name: str, close: str) -> None:
    with pytest.raises(ConfigError, match=rf"no task '{name}'. Did you mean .*{close}"):
        find_task(name)


def test_a_name_of_nothing_is_answered_with_all_names() -> None:
    with pytest.raises(ConfigError, match=r"Choose from cola, sst-2, .*pair-regression"):
        find_task("zzzzzz")


def test_new_task_needs_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    films = Task(
        name="films",
        title="Films",
        type="classification",
        splits={"train": ("train",), "dev": ("dev",)},
        reader=read_text_rows,
        layout=FileLayout(columns={"text": (("review",),), "label": (("stars",),)}),
        labels=("bad", "good"),
        metrics=("accuracy",),
    )
    monkeypatch.setitem(TASKS, films.name, films)
    (tmp_path / "train.csv").write_text("review,stars\nFine,good\nDull,bad\n")
    (tmp_path / "dev.tsv").write_text("stars\treview\ngood\tNice\n")
    config = ExamplesConfig(task="films", data_dir=str(tmp_path))
    made = build_examples(
        config, inputs={}, output=str(tmp_path / "out"), execution=ExecutionConfig()
    )
    assert made.statistics["splits"] == {"train": 2, "dev": 1}
    assert made.statistics["labels"] == ["bad", "good"]
    (tmp_path / "dev.tsv").write_text("stars\treview\ngood\tNice\nnone\tWhat?\n")
    with pytest.raises(TaskDataError, match=r"dev\.tsv: .*line 3: unknown-label: none"):
        build_examples(config, inputs={}, output=str(tmp_path / "out"), execution=ExecutionConfig())


def test_tasks_and_the_stage_load_neither_torch_nor_beam() -> None:
    code = (
        "import sys, model.tasks, model.build_examples, model.tasks.examples\n"
        "heavy = ('torch', 'apache_beam', 'prefect', 'transformers')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=ROOT,
    )  # fmt: skip
    assert run.stdout.strip() == "[]"
