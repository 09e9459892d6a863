"""Reading the artifact of `build-examples`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pipelines.io.shards import open_shard
from pipelines.io.stage_inputs import InputFile
from schemas.arrow import EXAMPLES
from schemas.errors import ArtifactCorruptError, ExamplesError
from schemas.manifest import StageInput


def splits_of(given: StageInput) -> tuple[str, ...]:
    """The splits there are, in the task's order."""
    return tuple(_statistic(given, "splits"))


def read_examples(given: StageInput, split: str) -> pa.Table:
    """The examples of a split, in the order of its files; the table of the task's kind.

    Raises:
        ExamplesError: there is no such split.
        ArtifactCorruptError: the file is not there, or not what the manifest says.
    """
    path = f"{split}.arrow"
    entry = next((entry for entry in given.files if entry.path == path), None)
    if entry is None:
        raise ExamplesError(
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
