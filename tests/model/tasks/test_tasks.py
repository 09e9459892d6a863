"""Contract of every task of TASKS: its fields and its reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.task_file_builder import ROWS, write_task_file
from support.task_rows import build, read

from model.tables.paper import PAPER_TABLES
from model.tasks import TASKS, Task, find_task
from model.tasks.examples import read_examples, splits_of
from model.tasks.row_terms import METRICS
from model.tasks.sentences import read_text_rows
from model.tasks.task import FileLayout
from model.tasks.task_types import TASK_TYPES
from schemas.arrow import EXAMPLES
from schemas.errors import ConfigError, TaskDataError

_OTHER_METRICS = {
    "span": {"em", "f1"},
    "tagging": {"entity-f1", "entity-precision", "entity-recall"},
}


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
    assert not task.label_words or list(task.label_words) == list(task.labels)
    assert len(set(task.label_words.values())) == len(task.label_words)
    words = [task.label_words.get(label, label) for label in task.labels]
    assert not [word for word in words if word.isdigit()], "for people"
    assert (task.choices > 1) == (task.type == "choice")
    for score, (table, column) in task.paper.items():
        split, _, metric = score.partition("/")
        assert split in task.splits
        assert metric in task.metrics
        assert PAPER_TABLES[table].columns_by_key[column].metric == metric


def test_prediction_has_meanings_of_labels_that_are_numbers() -> None:
    said = {"id": "7", "label": "1", "probabilities": {"0": 0.1, "1": 0.9}}
    words = {"id": "7", "label": "positive", "probabilities": {"negative": 0.1, "positive": 0.9}}
    assert TASKS["sst-2"].in_words(said) == words
    assert said["label"] == "1"
    assert TASKS["single-sentence"].in_words({"label": "1"}) == {"label": "1"}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_official_files_become_examples(task: Task, tmp_path: Path) -> None:
    files = {split: (write_task_file(task, split, folder=tmp_path),) for split in task.splits}
    made, provided = build(tmp_path / "out", task=task.name, data_files=files)
    counters, statistics = made.counters, made.statistics
    assert (statistics["task"], statistics["kind"]) == (task.name, task.type)
    assert splits_of(provided) == tuple(task.splits)
    for split in task.splits:
        table = read_examples(provided, split)
        assert table.schema.equals(EXAMPLES[task.type], check_metadata=True)
        assert table.num_rows == statistics["splits"][split] == len(set(table["id"].to_pylist()))
        assert counters[f"rows-in@{split}"] == ROWS == table.num_rows
        answers = {"regression": "score", "span": "answers", "tagging": "tags"}
        if split.startswith(("train", "dev")):
            assert table[answers.get(task.type, "label")].null_count == 0
    if task.labels:
        assert statistics["labels"] == list(task.labels)
    else:
        own = {
            "classification": ["blue", "green"],
            "tagging": ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"],
        }
        assert statistics["labels"] == own.get(task.type, [])


@pytest.mark.parametrize("task", ["sst-2", "mrpc", "swag", "conll-2003", "squad-1.1"])
@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_empty_file_is_refused(task: str, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.write_bytes(content)
    with pytest.raises(TaskDataError, match="empty"):
        read(task, "train", file)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("SQuAD 1.1", "squad-1.1"), ("MNLI", "mnli"), ("zzzzzz", "pair-regression")],
)
def test_unknown_task_suggests_names(name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        find_task(name)


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
    config = {"task": "films", "data_dir": str(tmp_path)}
    made, _ = build(tmp_path / "out", **config)
    assert made.statistics["splits"] == {"train": 2, "dev": 1}
    assert made.statistics["labels"] == ["bad", "good"]
    (tmp_path / "dev.tsv").write_text("stars\treview\ngood\tNice\nnone\tWhat?\n")
    with pytest.raises(TaskDataError, match=r"dev\.tsv: .*line 3: unknown-label: none"):
        build(tmp_path / "out", **config)
