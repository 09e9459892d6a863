"""File of an evaluation with the terms of each dev row, for each restart and the majority class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from model.task_types.row_terms import Float64s, RowTerms, Statistic
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from schemas.arrow import ROW_TERMS
from schemas.manifest import FileEntry, StageInput

ROW_TERMS_FILE = "row-terms-dev.arrow"


class StoredTerms(NamedTuple):
    """Terms of one metric, of one restart or of the majority class."""

    metric: str
    statistic: Statistic
    trial: str
    """Name of the restart; "" for the majority class."""

    rows: str
    """Digest of the dev rows."""

    terms: Float64s
    """Terms by row, shape (rows, terms)."""


def write_row_terms(
    row_terms: Iterable[tuple[str, Mapping[str, RowTerms]]], *, rows: str, output: str
) -> FileEntry:
    """Write the terms of all metrics of each trial.

    Args:
        row_terms: Names of trials, each with its terms by metric.
        rows: Digest of the dev rows.
        output: URL of the folder to write to.
    """
    records = [
        {
            "metric": metric,
            "statistic": item.statistic,
            "trial": trial,
            "rows": rows,
            "columns": item.terms.shape[1],
            "terms": item.terms.ravel(),
        }
        for trial, metrics in row_terms
        for metric, item in metrics.items()
    ]
    with ShardWriter(ROW_TERMS_FILE, schema=ROW_TERMS, output=output, compression="zstd") as shard:
        for record in records:
            shard.write(pa.RecordBatch.from_pylist([record], schema=ROW_TERMS))
    return shard.entry()


def read_row_terms(evaluation: StageInput) -> Iterator[StoredTerms]:
    """Yield the records of an evaluation; none without the file.

    Raises:
        ArtifactCorruptError: The file is damaged, or has another schema.
    """
    for entry in evaluation.files:
        if entry.path == ROW_TERMS_FILE:
            with open_shard(InputFile.of(evaluation, entry), expected=ROW_TERMS) as shard:
                for record in shard.read_all().to_pylist():
                    columns, terms = record.pop("columns"), np.array(record.pop("terms"))
                    yield StoredTerms(**record, terms=terms.reshape(-1, columns))
