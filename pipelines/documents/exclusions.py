"""Document shards as later stages read them: without duplicates and excluded documents.

`find-contamination` and `find-near-duplicates` write a table of the schema `EXCLUDED_DOCUMENTS`.
`build-vocabulary` and `build-tokens` read it from each of `EXCLUSION_INPUTS` that they have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines.counters import Counters
from pipelines.documents.duplicates import DUPLICATES_FILE, SAME_ID, SAME_TEXT, excluded_rows
from pipelines.io.shards import open_shard
from pipelines.io.stage_inputs import EXCLUSION_INPUTS, InputFile, input_file
from schemas.arrow import DOCUMENTS, DUPLICATES, EXCLUDED_DOCUMENTS
from schemas.manifest import FileEntry, StageInput

EXCLUSIONS_FILE = "__excluded__/excluded-documents.arrow"
"""Path in the artifact. Readers of a dataset skip folders that start with `_`."""

CONTAMINATED, NEAR_DUPLICATE = "contaminated", "near-duplicate"


def exclusion_tables(inputs: Mapping[str, StageInput]) -> list[InputFile]:
    """Return the tables of excluded documents of a stage's inputs, by priority."""
    return [
        input_file(inputs[name], EXCLUSIONS_FILE) for name in EXCLUSION_INPUTS if name in inputs
    ]


def document_shards(documents: StageInput) -> list[FileEntry]:
    """Return the document shards of an artifact in order, without its table of duplicates."""
    return [entry for entry in documents.files if entry.path != DUPLICATES_FILE]


class ShardItem(NamedTuple):
    """A shard of an input artifact."""

    number: int
    path: str
    """Logical name of the shard."""

    file: InputFile
    weight: int
    duplicates: InputFile | None
    """Table of duplicates, if the artifact has one."""

    remove_duplicates: bool
    """True: rows with equal texts are excluded. Rows with repeated ids always are."""

    exclusions: tuple[InputFile, ...] = ()
    """Tables of further excluded rows."""

    def identity(self) -> dict[str, Any]:
        """Return what decides the documents of `kept_rows`."""
        others = {"others": excluded} if (excluded := sorted(self.excluded_rows().items())) else {}
        return {
            "shard": self.file.sha256,
            "repeated": sorted(self.repeated_id_rows()),
            "left-out": sorted(self.duplicate_rows()),
            **others,
        }

    def repeated_id_rows(self) -> frozenset[int]:
        """Return the rows with repeated ids, which `build-documents` wrote and then dropped."""
        return self._rows(SAME_ID)

    def duplicate_rows(self) -> frozenset[int]:
        """Return the excluded rows with equal texts."""
        return self._rows(SAME_TEXT) if self.remove_duplicates else frozenset()

    def excluded_rows(self) -> dict[int, str]:
        """Return further excluded rows, each with the reason of highest priority."""
        reasons: dict[int, str] = {}
        for table in reversed(self.exclusions):
            by_reason = excluded_rows(table, shard=self.path, expected=EXCLUDED_DOCUMENTS)
            for reason, rows in by_reason.items():
                reasons |= dict.fromkeys(rows.tolist(), reason)
        return reasons

    def _rows(self, reason: str) -> frozenset[int]:
        if self.duplicates is None:
            return frozenset()
        by_reason = excluded_rows(self.duplicates, shard=self.path, expected=DUPLICATES)
        return frozenset(by_reason[reason].tolist() if reason in by_reason else ())


def shard_items(
    documents: StageInput, *, remove_duplicates: bool, exclusions: Sequence[InputFile] = ()
) -> list[ShardItem]:
    """Return one work item per document shard, in order.

    Args:
        documents: Artifact of documents.
        remove_duplicates: Whether to exclude rows with equal texts.
        exclusions: Tables of further excluded rows, by priority after duplicates.
    """
    tables = [entry for entry in documents.files if entry.path == DUPLICATES_FILE]
    table = InputFile.of(documents, tables[0]) if tables else None
    return [
        ShardItem(
            index,
            entry.path,
            InputFile.of(documents, entry),
            entry.size_bytes,
            table,
            remove_duplicates,
            tuple(exclusions),
        )
        for index, entry in enumerate(document_shards(documents))
    ]


def kept_rows(item: ShardItem, counters: Counters) -> Iterator[tuple[list[int], pa.RecordBatch]]:
    """Yield the documents of a shard without the excluded ones, with their rows in the shard.

    Counts `documents-*`. `build-documents` dropped and counted rows with repeated ids already.
    """
    repeated = item.repeated_id_rows()
    unwanted = item.excluded_rows() | dict.fromkeys(item.duplicate_rows(), "duplicate")
    first = 0
    with open_shard(item.file, expected=DOCUMENTS) as reader:
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
