"""Examples of a task as tables, from an artifact of `build-examples` or a user's file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from model.tasks.task import Bad, Row, Task
from pipelines.io.stage_inputs import InputFile
from schemas.errors import ArtifactCorruptError, ConfigError, TaskDataError
from schemas.manifest import StageInput

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 5


def splits_of(given: StageInput) -> tuple[str, ...]:
    """The splits there are, in the task's order."""
    return tuple(_statistic(given, "splits"))


def read_examples(given: StageInput, split: str) -> pa.Table:
    """Return the examples of a split, in the order of its files, as the table of the task's type.

    Raises:
        TaskDataError: The split does not exist.
        ArtifactCorruptError: The file is missing or differs from the manifest.
    """
    from pipelines.io.shards import open_shard
    from schemas.arrow import EXAMPLES

    path = f"{split}.arrow"
    entry = next((entry for entry in given.files if entry.path == path), None)
    if entry is None:
        raise TaskDataError(
            f"the examples of {_statistic(given, 'task')} ({given.artifact_id}) have no split "
            f"{split}: expected one of {', '.join(splits_of(given))}. Give files for it to "
            "build_examples, or choose another"
        )
    file = InputFile.of(given, entry)
    with open_shard(file, expected=EXAMPLES[_statistic(given, "kind")]) as reader:
        table: pa.Table = reader.read_all()
    if table.num_rows != entry.rows:
        raise ArtifactCorruptError(
            f"{file.url}: expected {entry.rows:,} examples, found {table.num_rows:,}; rebuild the "
            "stage."
        )
    return table


def _statistic(given: StageInput, name: str) -> Any:
    try:
        return given.statistics[name]
    except KeyError:
        raise ArtifactCorruptError(
            f"{given.artifact_id}: expected an artifact of build-examples, whose statistics say "
            f"{name}, found {', '.join(given.statistics) or 'none'}"
        ) from None


def examples_of_file(
    task: Task, url: str, *, split: str, labels: Sequence[str] = ()
) -> tuple[pa.Table, dict[str, int]]:
    """Read a file in a split's official layout.

    Args:
        task: Task of the file.
        url: Path or any fsspec URL.
        split: `dev`, `test`, ...
        labels: Labels of the model, for tasks without fixed ones; rows with other labels are
            dropped and counted.

    Returns:
        The valid examples, and the counts `rows-in`, `rows-kept` and `rows-dropped-REASON`.

    Raises:
        ConfigError: The task has no such split.
        TaskDataError: The file cannot be used, or has no valid row.
    """
    import pyarrow as pa

    from schemas.arrow import EXAMPLES

    if split not in task.splits:
        raise ConfigError(
            f"--split {split}: {task.name} has no such split; choose from {', '.join(task.splits)}"
        )
    try:
        rows = [_checked(row, task, labels) for row in task.reader(task, split, url)]
    except IsADirectoryError as error:
        raise TaskDataError(
            f"{url}: expected the file of {task.name} {split}, found a folder; name a file in it"
        ) from error
    kept = [row.values for row in rows if isinstance(row, Row)]
    bad = [row for row in rows if isinstance(row, Bad)]
    if not kept:
        shown = "; ".join(f"{item.position}: {item.reason}: {item.found}" for item in bad[:_SHOWN])
        raise TaskDataError(
            f"{url}: as {task.name} {split}, none of {len(rows):,} rows can be used"
            f"{f' ({shown})' if shown else ''}: is it the right file?"
        )
    counts = Counter(f"rows-dropped-{item.reason}" for item in bad)
    counts.update({"rows-in": len(rows), "rows-kept": len(kept)})
    return pa.Table.from_pylist(kept, schema=EXAMPLES[task.type]), dict(counts)


def _checked(row: Row | Bad, task: Task, labels: Sequence[str]) -> Row | Bad:
    if isinstance(row, Row) and task.type == "classification" and labels:
        label = row.values.get("label")
        if label is not None and label not in labels:
            return Bad(row.position, "label-not-of-the-model", str(label))
    return row
