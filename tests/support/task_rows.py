"""Rows of small task files, and the examples that `build-examples` makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model.build_examples import build_examples
from model.tasks import BadRow, Row, Task, task_of
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import ExamplesConfig
from schemas.manifest import StageInput, StageOutput


def write(path: Path, content: str | bytes) -> str:
    """Write a file and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def read(
    task: str | Task, split: str, url: str | Path, **config: Any
) -> tuple[list[Row], list[BadRow]]:
    """Read a file with a task's reader; `config` as in a recipe."""
    if isinstance(task, str):
        task = task_of(ExamplesConfig.model_validate({"task": task, "data_dir": "x", **config}))
    items = list(task.reader(task, split, str(url)))
    rows = [item for item in items if isinstance(item, Row)]
    return rows, [item for item in items if isinstance(item, BadRow)]


def values(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    """Return some columns of rows."""
    return [tuple(row.values[name] for name in names) for row in rows]


def faults(bad: list[BadRow]) -> list[tuple[str, str]]:
    """Return position and reason of bad rows."""
    return [(row.position, row.reason) for row in bad]


def build(output: Path | str, **config: Any) -> tuple[StageOutput, StageInput]:
    """Run `build-examples`; return its output, and the same as the input of another stage."""
    made = build_examples(
        ExamplesConfig.model_validate(config),
        inputs={},
        output=str(output),
        execution=ExecutionConfig(),
    )
    provided = StageInput(
        name="examples",
        artifact_id="0" * 16,
        data=str(output),
        files=made.files,
        counters=made.counters,
        statistics=made.statistics,
    )
    return made, provided
