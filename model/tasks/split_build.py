"""Builder of one split of a task: from files to table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from model.tasks.official_files import ExampleFile
from model.tasks.reduced_data import cut_split, units_of
from model.tasks.squad import with_evidence
from model.tasks.task import BadRow, LabelSet, Row, Task
from pipelines.counters import Counters, check_balance
from pipelines.io.shards import ShardWriter
from schemas.arrow import EXAMPLES
from schemas.errors import TaskDataError
from schemas.finetune_configs import ExamplesConfig
from schemas.manifest import FileEntry

_BATCH_ROWS = 4096
_SHOWN_BAD = 5


class SplitBuild:
    """Builder that reads the files of a split and writes the valid examples."""

    def __init__(
        self, split: str, *, config: ExamplesConfig, task: Task, answers: LabelSet
    ) -> None:
        self.counters = Counters({"rows-in": 0, "rows-kept": 0})
        self.notes: list[str] = []
        self._split, self._config, self._task, self._answers = split, config, task, answers
        self._ids: set[str] = set()
        self._repeated: list[str] = []
        self._kept = self._left_out = 0  # in units of the task's size

    def write(self, files: tuple[ExampleFile, ...], *, output: str) -> FileEntry:
        """Read the files and write the table.

        Raises:
            TaskDataError: A file is invalid, or no row is kept.
            CountMismatchError: The counts of kept and dropped rows do not add up.
        """
        schema = EXAMPLES[self._task.type]
        with ShardWriter(f"{self._split}.arrow", schema=schema, output=output) as shard:
            rows = itertools.chain.from_iterable(self._rows_of(file) for file in files)
            while batch := list(itertools.islice(rows, _BATCH_ROWS)):
                shard.write(_to_batch(batch, schema, task=self._task))
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

    def _rows_of(self, file: ExampleFile) -> Iterator[Row]:
        """Yield the valid rows of a file; raise at its end if too many are invalid."""
        read, bad = 0, list[BadRow]()
        faults = 0
        task = with_evidence(self._task, file.evidence)
        for found in task.reader(task, self._split, file.uri):
            self.counters.count("rows-in")
            item = self._answers.check(self._split, found)
            if isinstance(item, BadRow):
                self.counters.count(f"rows-dropped-{item.reason}")
                if item.is_fault:
                    read, faults = read + 1, faults + 1
                    self._left_out += 1
                    bad += [item] if len(bad) < _SHOWN_BAD else []
                continue
            read += 1
            if self.counters["rows-kept"] >= self._config.max_samples.get(self._split, 1 << 62):
                self.counters.count("rows-dropped-over-limit")
                self._left_out += units_of(item, task=self._task)
                continue
            self.counters.count("rows-kept")
            self._kept += units_of(item, task=self._task)
            for note in item.notes:
                self.counters.count(f"rows-{note}")
            self._remember_id(item)
            yield item
        if faults:
            self._judge(file, read=read, faults=faults, first=bad)

    def _judge(self, file: ExampleFile, *, read: int, faults: int, first: list[BadRow]) -> None:
        listing = "; ".join(f"{bad.position}: {bad.reason}: {bad.found}" for bad in first)
        more = "; ..." if faults > len(first) else ""
        told = f"{faults:,} of {read:,} rows are bad: {listing}{more}"
        if faults > self._config.max_invalid_fraction * read:
            share = f"{self._config.max_invalid_fraction:.2%}"
            raise TaskDataError(
                f"{file.uri}: as {self._task.name} {self._split}, {told}. At most {share} may be: "
                "is it the right file? If it is, raise max_invalid_fraction; bad rows are dropped"
            )
        self.notes.append(f"{self._split}: {file.name}: {told}. They were dropped.")

    def _remember_id(self, row: Row) -> None:
        row_id = row.values["id"]
        if row_id in self._ids:
            self._repeated.append(row_id)
        self._ids.add(row_id)

    def _check(self, files: tuple[ExampleFile, ...]) -> None:
        where = f"{self._task.name} {self._split} ({', '.join(file.uri for file in files)})"
        check_balance(self.counters, "rows", where=where)
        if not self.counters["rows-kept"]:
            dropped = {
                name.removeprefix("rows-dropped-"): count
                for name, count in self.counters.items()
                if name.startswith("rows-dropped-")
            }
            why = ", ".join(f"{name} {count:,}" for name, count in sorted(dropped.items()))
            raise TaskDataError(
                f"{where}: expected examples, found none in {self.counters['rows-in']:,} rows"
                f"{f' (dropped: {why})' if why else ''}. Give another file, or leave the split out"
            )
        if left_out := self.counters["rows-dropped-over-limit"]:
            kept = self.counters["rows-kept"]
            self.notes.append(
                f"{self._split}: the first {kept:,} examples are used, {left_out:,} are dropped "
                "(max_samples)."
            )
        self._check_ids(where)

    def _check_ids(self, where: str) -> None:
        if not self._repeated:
            return
        shown = ", ".join(self._repeated[:_SHOWN_BAD])
        told = f"{len(self._repeated):,} rows have an id that an earlier row has, such as {shown}"
        # Predictions are matched by id; training data has none.
        by_id = self._task.type == "span" and self._split not in ("train", "augmentation")
        if self._split in self._task.submission or by_id:
            raise TaskDataError(
                f"{where}: {told}. Its predictions are handed in by id, or scored by id, so that "
                "each has to be another: is a file given twice?"
            )
        self.notes.append(f"{self._split}: {told}.")


def _to_batch(rows: list[Row], schema: pa.Schema, *, task: Task) -> pa.RecordBatch:
    values: list[dict[str, Any]] = [row.values for row in rows]
    batch = pa.RecordBatch.from_pylist(values, schema=schema)
    for field, column in zip(schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            position = rows[column.is_null().to_pylist().index(True)].position
            raise TaskDataError(
                f"{position}: the reader of the task {task.name} gave no {field.name}, which every "
                "example has to have: a fault of the reader"
            )
    return batch
