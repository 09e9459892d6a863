"""Document shards as later stages read them: without duplicates and excluded documents.

`find-contamination` and `find-near-duplicates` write a table of the schema `EXCLUDED_DOCUMENTS`.
`build-vocabulary` and `build-tokens` read it from each of `EXCLUSION_INPUTS` that they have.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.counters import Counters
from pipelines.documents.duplicates import (
    DUPLICATES_FILE,
    SAME_ID,
    SAME_TEXT,
    duplicate_rows,
    rows_by_shard,
)
from pipelines.io.shards import open_shard
from pipelines.io.stage_inputs import LEAVE_OUT_INPUTS, InputFile, input_file
from schemas.arrow import DOCUMENTS, EXCLUDED_DOCUMENTS
from schemas.manifest import FileEntry, StageInput

LEFT_OUT_FILE = "__excluded__/excluded-documents.arrow"
"""Path in the artifact. Readers of a dataset skip folders that start with `_`."""

CONTAMINATED, NEAR_DUPLICATE = "contaminated", "near-duplicate"


def left_out_files(inputs: Mapping[str, StageInput]) -> list[InputFile]:
    """The tables of a stage's inputs that have one, in the order in which they count."""
    return [input_file(inputs[name], LEFT_OUT_FILE) for name in LEAVE_OUT_INPUTS if name in inputs]


def left_out_rows(table: InputFile, *, shard: str) -> dict[int, str]:
    """The reasons of the rows of one document shard that are left out."""
    found = _by_shard(table).get(shard, {})
    return {row: reason for reason, rows in found.items() for row in rows.tolist()}


@functools.lru_cache(maxsize=4)
def _by_shard(table: InputFile) -> Mapping[str, Mapping[str, npt.NDArray[np.uint32]]]:
    found: dict[str, dict[str, npt.NDArray[np.uint32]]] = {}
    for (shard, reason), rows in rows_by_shard(table, expected=EXCLUDED_DOCUMENTS).items():
        found.setdefault(shard, {})[reason] = rows
    return found


def document_shards(documents: StageInput) -> list[FileEntry]:
    """The document shards of an artifact in order, without its table of duplicates."""
    return [entry for entry in documents.files if entry.path != DUPLICATES_FILE]


class ShardPiece(NamedTuple):
    """A shard of an input artifact."""

    number: int
    path: str
    """Its logical name."""

    file: InputFile
    weight: int
    duplicates: InputFile | None
    """The table of duplicates; None where there is none."""

    remove_duplicates: bool
    """Whether rows that say the same as another are left out. Those of a repeated id always are."""

    leave_out: tuple[InputFile, ...] = ()
    """Tables of further rows that are left out, and why."""

    def identity(self) -> dict[str, Any]:
        """The documents that `wanted_documents` gives."""
        repeated, duplicates = self.repeated(), self.left_out()
        others = {"others": found} if (found := sorted(self.others().items())) else {}
        return {
            "shard": self.file.sha256,
            "repeated": sorted(repeated),
            "left-out": sorted(duplicates),
            **others,
        }

    def repeated(self) -> frozenset[int]:
        """The rows that `build-documents` dropped after they were written: of a repeated id."""
        return self._rows(SAME_ID)

    def left_out(self) -> frozenset[int]:
        """The rows that say the same as another and are not wanted."""
        return self._rows(SAME_TEXT) if self.remove_duplicates else frozenset()

    def others(self) -> dict[int, str]:
        """Further rows that are not wanted, each with the reason that counts."""
        found: dict[int, str] = {}
        for table in reversed(self.leave_out):
            found |= left_out_rows(table, shard=self.path)
        return found

    def _rows(self, reason: str) -> frozenset[int]:
        if self.duplicates is None:
            return frozenset()
        return duplicate_rows(self.duplicates, shard=self.path, reason=reason)


def shard_pieces(
    documents: StageInput, *, remove_duplicates: bool, leave_out: Sequence[InputFile] = ()
) -> list[ShardPiece]:
    """One piece for each document shard, in order.

    Args:
        documents: the artifact.
        remove_duplicates: leave out rows that say the same as another.
        leave_out: tables of further rows to leave out (`pipelines.documents.exclusions`). Of a row
            that several name, and duplicates, the first counts.
    """
    tables = [entry for entry in documents.files if entry.path == DUPLICATES_FILE]
    table = InputFile.of(documents, tables[0]) if tables else None
    return [
        ShardPiece(
            index,
            entry.path,
            InputFile.of(documents, entry),
            entry.size_bytes,
            table,
            remove_duplicates,
            tuple(leave_out),
        )
        for index, entry in enumerate(document_shards(documents))
    ]


def wanted_documents(piece: ShardPiece, counters: Counters) -> Iterator[pa.RecordBatch]:
    """The batches of a document shard without what is left out; counts `documents-*`.

    Rows of a repeated id were dropped and counted by `build-documents`: here they do not exist.
    """
    for _, batch in wanted_rows(piece, counters):
        yield batch


def wanted_rows(
    piece: ShardPiece, counters: Counters
) -> Iterator[tuple[list[int], pa.RecordBatch]]:
    """As `wanted_documents`, each batch with the numbers of its rows in the shard."""
    repeated = piece.repeated()
    unwanted = piece.others() | dict.fromkeys(piece.left_out(), "duplicate")
    first = 0
    with open_shard(piece.file, expected=DOCUMENTS) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            rows = range(first, first + batch.num_rows)
            first += batch.num_rows
            there = [row for row in rows if row not in repeated]
            counters.count("documents-in", len(there))
            keep = [row - rows.start for row in there if row not in unwanted]
            counters.count("documents-kept", len(keep))
            if len(keep) < len(there):
                dropped = Counter(unwanted[row] for row in there if row in unwanted)
                for reason, count in dropped.items():
                    counters.count(f"documents-dropped-{reason}", count)
            if len(keep) < batch.num_rows:
                batch = batch.take(pa.array(keep, pa.int64()))
            if batch.num_rows:
                yield [rows.start + row for row in keep], batch


def sentences_of(batch: pa.RecordBatch) -> pa.StringArray:
    """All sentences of a batch of documents, end to end."""
    return batch.column("sentences").flatten()
