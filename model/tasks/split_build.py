"""Builder of one split of a task: from files to table."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from model.task_results import TRAINED_ON
from model.tasks.files import base_name
from model.tasks.ner import BARE_TAGS, OUTSIDE, UNNAMED_TYPE
from model.tasks.task import (
    SHOWN_BAD,
    BadRow,
    InvalidRowError,
    Row,
    Task,
    check_repeated_ids,
    convert_row,
    describe_bad,
)
from pipelines.counters import Counters, check_balance
from pipelines.io.shards import ShardWriter
from pipelines.seeds import key_for, uniform
from schemas.arrow import EXAMPLES
from schemas.errors import TaskDataError
from schemas.finetune_configs import ExamplesConfig, TaskTypeName
from schemas.manifest import FileEntry

_BATCH_ROWS = 4096
_DROPPED = "rows-dropped-"
_IN_TRAIN = "rows-also-in-train"
_TEXTS: dict[TaskTypeName, tuple[str, ...]] = {
    "classification": ("text_a", "text_b"),
    "regression": ("text_a", "text_b"),
    "choice": ("context", "continuations"),
    "span": ("question", "context"),
    "tagging": ("words",),
}
"""Columns of an example that the model reads."""


class SplitBuild:
    """Builder that reads the files of a split and writes the valid examples."""

    def __init__(
        self, split: str, *, config: ExamplesConfig, task: Task, answers: LabelSet
    ) -> None:
        self.counters = Counters({"rows-in": 0, "rows-kept": 0})
        self.notes: list[str] = []
        self._split, self._config, self._task, self._answers = split, config, task, answers
        self._ids = Counter[str]()
        self._kept = self._left_out = 0  # in units of the task's size

    def write(self, files: tuple[str, ...], *, output: str) -> FileEntry:
        """Read the files and write the table.

        Raises:
            TaskDataError: A file is invalid, or no row is kept.
            CountMismatchError: The counts of kept and dropped rows do not add up.
        """
        schema = EXAMPLES[self._task.type]
        with ShardWriter(f"{self._split}.arrow", schema=schema, output=output) as shard:
            rows = itertools.chain.from_iterable(self._rows_of(file) for file in files)
            while batch := [row.values for row in itertools.islice(rows, _BATCH_ROWS)]:
                shard.write(pa.RecordBatch.from_pylist(batch, schema=schema))
            self._check(files)
        return shard.entry()

    def cut(self) -> dict[str, Any] | None:
        """Return the reduction of the split; None if its table is complete."""
        return cut_split(
            self._kept,
            left_out=self._left_out,
            split=self._split,
            task=self._task,
            data=self._config.data_label,
        )

    def _rows_of(self, file: str) -> Iterator[Row]:
        """Yield the valid rows of a file; raise at its end if too many are invalid."""
        read, faults, first = 0, 0, list[BadRow]()
        limit = self._config.max_samples.get(self._split, 1 << 62)
        for read_row in self._task.reader(self._task, self._split, file):
            self.counters.count("rows-in")
            row = convert_row(read_row, self._check_row)
            if isinstance(row, BadRow):
                self.counters.count(f"rows-dropped-{row.reason}")
                faults += row.is_fault
                first += [row] if row.is_fault and faults <= SHOWN_BAD else []
                continue
            read += 1
            if self.counters["rows-kept"] >= limit:
                self.counters.count("rows-dropped-over-limit")
                self._left_out += _units_of(row, task=self._task)
            else:
                self.counters.count("rows-kept")
                self._kept += _units_of(row, task=self._task)
                for note in row.notes:
                    self.counters.count(f"rows-{note}")
                if self._answers.is_in_train(self._split, row):
                    self.counters.count(_IN_TRAIN)
                self._ids[row.values["id"]] += 1
                yield row
        if faults:
            self._left_out += faults
            self._judge(file, read + faults, faults, first)

    def _check_row(self, row: Row) -> Row:
        if self._config.dev_fraction and self._split in ("train", "dev"):
            is_dev = is_drawn_for_dev(row, self._task, self._config.dev_fraction)
            split = "dev" if is_dev else "train"
            if split != self._split:
                raise InvalidRowError("in-another-split", f"belongs to {split}", is_fault=False)
        return self._answers.check(self._split, row)

    def _judge(self, file: str, read: int, faults: int, first: list[BadRow]) -> None:
        more = "; ..." if faults > len(first) else ""
        problem = f"{faults:,} of {read:,} rows are bad: {describe_bad(first)}{more}"
        if faults > self._config.max_invalid_fraction * read:
            share = f"{self._config.max_invalid_fraction:.2%}"
            raise TaskDataError(
                f"{file}: as {self._task.name} {self._split}, {problem}. At most {share} may be: "
                "is it the right file? If it is, raise max_invalid_fraction; bad rows are dropped"
            )
        self.notes.append(f"{self._split}: {base_name(file)}: {problem}. They were dropped.")

    def _check(self, files: tuple[str, ...]) -> None:
        where = f"{self._task.name} {self._split} ({', '.join(files)})"
        check_balance(self.counters, "rows", where=where)
        kept = self.counters["rows-kept"]
        if not kept:
            dropped = [
                f"{name.removeprefix(_DROPPED)} {count:,}"
                for name, count in sorted(self.counters.items())
                if name.startswith(_DROPPED)
            ]
            why = f" (dropped: {', '.join(dropped)})" if dropped else ""
            raise TaskDataError(
                f"{where}: expected examples, found none in {self.counters['rows-in']:,} rows"
                f"{why}. Give another file, or leave the split out"
            )
        if left_out := self.counters["rows-dropped-over-limit"]:
            self.notes.append(
                f"{self._split}: the first {kept:,} examples are used, {left_out:,} are dropped "
                "(max_samples)."
            )
        if equal := self.counters[_IN_TRAIN]:
            self.notes.append(
                f"{self._split}: {equal:,} of {kept:,} rows have the texts of a row of train, so "
                "that scores on them say little about new texts. Are the files the same?"
            )
        is_question = self._task.type == "span" and self._split not in TRAINED_ON
        are_matched = is_question or self._split in self._task.submission
        if problem := check_repeated_ids(self._ids, are_matched=are_matched, where=where):
            self.notes.append(f"{self._split}: {problem}.")


def is_drawn_for_dev(row: Row, task: Task, dev_fraction: float) -> bool:
    """Return whether a row of train is used as dev.

    It depends on the task and the texts of the row only, so it stays the same if other rows are
    added, removed or moved, and rows with equal texts are in the same split.
    """
    if task.type == "tagging":
        text = " ".join(row.values["words"])
    else:
        text = "\n".join([row.values["text_a"], row.values["text_b"] or ""])
    key = np.array([key_for(0, "split-of-one-file", task.name, text)], np.uint64)
    return float(uniform(key, 0)[0]) < dev_fraction


def _units_of(row: Row, *, task: Task) -> int:
    """Return the size of a row: 1, or its sentences if rows are documents."""
    return len(row.values["sentence_lengths"]) if task.type == "tagging" else 1


def cut_split(
    kept: int, *, left_out: int, split: str, task: Task, data: str
) -> dict[str, Any] | None:
    """Return the reduction of a split, or None if its table is complete.

    A score on reduced data is marked next to the paper's.

    Args:
        kept: Units in the table: rows, or the sentences of documents.
        left_out: Units of the files that a limit or a fault excluded. Units excluded by rule
            (MNLI's gold label `-`) do not count.
        split: Name of the split.
        task: Task; its `sizes` are those of the official splits.
        data: Description of the files, if they are not the task's own.
    """
    official = 0 if data else task.sizes.get(split, 0)
    whole = max(kept + left_out, official)
    unit = "sentences" if task.type == "tagging" else "rows"
    return {"kept": kept, "of": whole, "unit": unit} if kept < whole else None


class LabelSet:
    """Labels of a task: its fixed ones, or those of the rows read so far.

    A row whose label the training data lacks is bad, because no model can learn it. Tag types come
    from train and dev, so that one rare type does not drop a document.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._seen: set[str] = set()
        self._first_by_form: dict[str, str] = {}  # split and row of tags with and without a type
        self._train_texts: set[int] = set()

    def check(self, split: str, row: Row) -> Row:
        """Record the labels of a row, and return the row.

        Raises:
            InvalidRowError: The row is bad.
        """
        if self._task.type == "tagging":
            self._check_types(split, row)
            self._seen.update(row.values["tags"] or () if split in ("train", "dev") else ())
        elif self._task.type == "classification" and not self._task.labels:
            label = row.values["label"]
            if split == "train":
                self._seen.add(label)
            elif label is not None and label not in self._seen:
                raise InvalidRowError("label-not-in-train", str(label))
        return row

    def _check_types(self, split: str, row: Row) -> None:
        """Check that all tags have a type, or none."""
        types = {tag.removeprefix("B-").removeprefix("I-") for tag in row.values["tags"] or ()}
        types.discard(OUTSIDE)
        if BARE_TAGS in row.notes:
            self._first_by_form.setdefault("without", f"{split}, {row.position}")
        if types - {UNNAMED_TYPE}:
            self._first_by_form.setdefault("with", f"{split}, {row.position}")
        if len(self._first_by_form) == 2:
            raise TaskDataError(
                f"{self._task.name}: expected tags with a type, such as B-LOC, or only tags "
                f"without one, got tags without a type in {self._first_by_form['without']} and "
                f"with one in {self._first_by_form['with']}. Give all of them a type"
            )

    def is_in_train(self, split: str, row: Row) -> bool:
        """Record the texts of training rows; return whether a row of another split has those."""
        key = hash(tuple(str(row.values[name]) for name in _TEXTS[self._task.type]))
        if split == "train":
            self._train_texts.add(key)
        return split not in TRAINED_ON and key in self._train_texts

    def labels(self) -> tuple[str, ...]:
        """Return all labels in the order of the model's outputs."""
        if self._task.type == "tagging":
            types = sorted({tag[2:] for tag in self._seen if tag != "O"})
            return ("O", *(f"{begin}-{name}" for name in types for begin in "BI"))
        return self._task.labels or tuple(sorted(self._seen, key=_by_value))


def _by_value(label: str) -> tuple[int, int, str]:
    digits = label.removeprefix("-")
    # Python refuses to parse numbers of thousands of digits.
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 100
    return (0, int(label), label) if is_number else (1, 0, label)
