"""Reading the artifact of `build-examples`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pipelines.inputs import digest_file
from pipelines.shards import open_shard
from schemas.arrow import EXAMPLES
from schemas.errors import ArtifactCorruptError, ExamplesError, MissingInputError
from schemas.manifest import FileEntry, StageInput


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
    url = f"{given.data}/{entry.object}"
    _check_bytes(entry, given, url=url)
    with open_shard(url, expected=EXAMPLES[_statistic(given, "kind")]) as reader:
        table: pa.Table = reader.read_all()
    if table.num_rows != entry.rows:
        raise ArtifactCorruptError(
            f"{url}: expected {entry.rows:,} examples, found {table.num_rows:,}; rebuild the stage."
        )
    return table


def _check_bytes(entry: FileEntry, given: StageInput, *, url: str) -> None:
    try:
        read = digest_file(url)
    except MissingInputError as error:
        raise ArtifactCorruptError(
            f"{entry.path} of the examples {given.artifact_id}: expected it at {url}, found no "
            "such file. Put it back, or rebuild the stage."
        ) from error
    if (read.size, read.digests["sha256"]) != (entry.size, entry.sha256):
        raise ArtifactCorruptError(
            f"{entry.path} of the examples {given.artifact_id} is damaged: expected {entry.size:,} "
            f"bytes with the sha256 {entry.sha256}, found {read.size:,} with "
            f"{read.digests['sha256']} at {url}. Put the right file back, or rebuild the stage."
        )


def _statistic(given: StageInput, name: str) -> Any:
    try:
        return given.statistics[name]
    except KeyError:
        raise ArtifactCorruptError(
            f"{given.artifact_id}: expected an artifact of build-examples, whose statistics say "
            f"{name}, found {', '.join(given.statistics) or 'none'}"
        ) from None
