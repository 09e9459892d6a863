"""`tabulate`: all evaluations of a recipe as tables beside the paper's, as a stage.

The artifact holds the same numbers as JSON, Markdown, plain text, CSV and a picture, and GLUE's
submission where there are predictions for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from model.tables.entry_comparison import Comparison, compare
from model.tables.filled_tables import FilledCell, FilledTable, fill_tables
from model.tables.result_rows import ResultRow, in_order, result_rows
from model.tables.submission import Submission, build_submission
from model.tables.table_texts import all_grids, to_csv, to_markdown, to_text
from model.tables.task_results import DEV, Evaluation
from model.tasks import TASKS, Task
from model.telling.amounts import tables_amount
from pipelines.io.shards import FileWriter
from schemas.configs import ExecutionConfig
from schemas.errors import PredictionsError
from schemas.manifest import FileEntry, StageInput, StageOutput
from schemas.stage import ANY, Stage
from schemas.task_configs import TabulateConfig

JSON_FILE = "tables.json"
MARKDOWN_FILE = "tables.md"
TEXT_FILE = "tables.txt"
CSV_FILE = "tables.csv"
PICTURE_FILE = "tables.png"
SUBMISSION_FILE = "glue-submission.zip"


class Tables(NamedTuple):
    """What there is to tell."""

    rows: list[ResultRow]
    comparisons: list[Comparison]
    filled: tuple[FilledTable, ...]
    submission: Submission


def tabulate(
    config: TabulateConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
) -> StageOutput:
    """Write all evaluations as tables.

    Args:
        config: holds nothing.
        inputs: the `evaluate` artifacts by entry.
        output: URL of the folder to write to.
        execution: not used.

    Raises:
        PredictionsError: an artifact's statistics are not those of an evaluation, or a prediction
            for GLUE's server has no answer.
        ArtifactCorruptError: predictions are not those that their manifest lists.
    """
    del config, execution
    tables = _tables(inputs, tasks=TASKS)
    contents = _contents(tables)
    files = tuple(_write(path, contents[path], output=output) for path in sorted(contents))
    return StageOutput(
        files=files,
        counters=_counters(tables, entries=len(inputs)),
        statistics=_statistics(tables),
        notes=tables.submission.notes,
    )


def _tables(inputs: Mapping[str, StageInput], *, tasks: Mapping[str, Task]) -> Tables:
    if not inputs:
        raise PredictionsError(
            "found no evaluation to tabulate, expected at least one: add an entry to finetune"
        )
    evaluations = in_order(
        [Evaluation.read(entry, given.statistics) for entry, given in inputs.items()], tasks=tasks
    )
    return Tables(
        rows=result_rows(evaluations, tasks=tasks),
        comparisons=compare(evaluations),
        filled=fill_tables(evaluations, tasks=tasks),
        submission=build_submission(evaluations, inputs=inputs, tasks=tasks),
    )


def _contents(tables: Tables) -> dict[str, bytes]:
    grids = all_grids(tables.rows, tables.comparisons, tables.filled)
    closing = _closing(tables.filled)
    contents = {
        JSON_FILE: _to_json(to_data(tables)),
        MARKDOWN_FILE: to_markdown(grids, closing=closing).encode(),
        TEXT_FILE: to_text(grids, closing=closing).encode(),
        CSV_FILE: to_csv(tables.rows).encode(),
    }
    if any(row.is_main and row.split == DEV and row.shown is not None for row in tables.rows):
        from model.tables.result_pictures import draw_results  # start-up: 600 ms

        contents[PICTURE_FILE] = draw_results(tables.rows)
    if tables.submission.data:
        contents[SUBMISSION_FILE] = tables.submission.data
    return contents


def _closing(filled: Sequence[FilledTable]) -> list[str]:
    """Names the paper's tables that nothing of ours is in, so that none is missing silently."""
    without = [table.table.title for table in filled if not table.rows]
    return [f"Without rows of ours, and so not shown: {'; '.join(without)}."] if without else []


def to_data(tables: Tables) -> dict[str, Any]:
    """Everything as plain JSON values: ours as shares of 1, the paper's as printed."""
    return {
        "results": [_result_data(row) for row in tables.rows],
        "comparisons": [
            {**item._asdict(), "difference": item.difference} for item in tables.comparisons
        ],
        "tables": [_table_data(filled) for filled in tables.filled],
        "submission": {
            "entries": tables.submission.entries,
            "missing": list(tables.submission.missing),
        },
    }


def _result_data(row: ResultRow) -> dict[str, Any]:
    figures = row.figures
    return {
        "task": row.task,
        "entry": row.entry,
        "model": row.model,
        "split": row.split,
        "metric": row.metric,
        "is_main": row.is_main,
        "mean": figures.mean,
        "sd": figures.sd,
        "runs": list(figures.runs),
        "failed": figures.failed,
        "best": figures.best,
        "ensemble": figures.ensemble,
        "majority": row.majority,
        "cut": list(row.cut),
        "cells": row.cells,
        "ensemble_of": row.ensemble,
        "paper": dict(row.paper),
        "paper_split": row.paper_split,
    }


def _table_data(filled: FilledTable) -> dict[str, Any]:
    table = filled.table
    columns = [column.key for column in table.columns]
    paper = [
        {
            "system": system.name,
            "values": dict(zip(columns, system.values, strict=True)),
            **({"average": system.average} if table.has_average else {}),
        }
        for system in table.systems
    ]
    ours = [
        {
            "system": row.name,
            "entries": list(row.entries),
            "values": {key: _cell_data(cell) for key, cell in row.cells.items()},
            **({"average": _cell_data(row.average)} if table.has_average else {}),
        }
        for row in filled.rows
    ]
    return {
        "key": table.key,
        "title": table.title,
        "columns": [
            {"key": column.key, "metric": column.metric, "split": column.split}
            for column in table.columns
        ],
        "paper": paper,
        "ours": ours,
        "notes": list(filled.notes),
    }


def _cell_data(cell: FilledCell | None) -> dict[str, Any] | None:
    return None if cell is None else {**cell._asdict(), "text": cell.text}


def _counters(tables: Tables, *, entries: int) -> dict[str, int]:
    return {
        "entries": entries,
        "numbers": len(tables.rows),
        "comparisons": len(tables.comparisons),
        "paper-tables-with-rows-of-ours": sum(bool(filled.rows) for filled in tables.filled),
        "submission-files": len(tables.submission.entries),
    }


def _statistics(tables: Tables) -> dict[str, Any]:
    """The main number of each entry, and where the tables stand."""
    main = [row for row in tables.rows if row.is_main and row.split == DEV]
    return {
        "entries": {
            row.entry: {
                "task": row.task,
                "metric": row.metric,
                "mean": row.figures.mean,
                "sd": row.figures.sd,
                "runs": len(row.figures.runs) + row.figures.failed,
                "best": row.figures.best,
                "ensemble": row.figures.ensemble,
                "majority": row.majority,
                "cut": list(row.cut),
                "paper": dict(row.paper),
            }
            for row in main
        },
        "averages": {
            row.name: row.average.value
            for filled in tables.filled
            for row in filled.rows
            if row.average
        },
        "tables": {filled.table.key: len(filled.rows) for filled in tables.filled},
        "submission": list(tables.submission.entries),
        "missing": list(tables.submission.missing) if tables.submission.data else [],
    }


def _to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _write(path: str, content: bytes, *, output: str) -> FileEntry:
    with FileWriter(path, output=output, is_only_writer=True) as writer:
        writer.file.write(content)
    return writer.entry()


STAGE = Stage(
    name="tabulate",
    module=__name__,
    version=2,
    run=tabulate,
    config=TabulateConfig,
    holds="tables",
    libraries=("matplotlib", "numpy", "scipy"),
    inputs=(ANY,),
    has_metrics=True,
    describe=tables_amount,
)
