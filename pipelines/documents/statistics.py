"""Statistics of `build-documents`: those of one split, and their sums over the job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel

from pipelines.counters import DROPPED_TEMPLATE, UNKNOWN_TEMPLATE, Counters
from pipelines.documents.duplicates import SAME_ID, Duplicates, excluded_rows
from pipelines.documents.plan import DocumentItem
from pipelines.documents.records import kept_counts
from pipelines.io.shards import open_shard
from pipelines.shard_job.work import WorkResult
from schemas.arrow import DUPLICATES
from schemas.manifest import FileEntry

REPEATED_ID = "documents-dropped-repeated-id"

_MAX_TEMPLATES = 20
"""Maximum number of unknown and of dropped templates of a source with counters."""


class SplitStats(BaseModel):
    """Statistics of a split, in addition to its counters."""

    locations: dict[str, str] = {}
    """Location of the first record that a counter counts, by name."""

    templates: dict[str, int] = {}
    """Counters `template-unknown:NAME` and `template-dropped:NAME`."""


@dataclass
class JobStats:
    """Statistics of all splits, without the documents with repeated ids."""

    counters: Counters = field(default_factory=Counters)
    """Counters, in total and as `NAME@SOURCE`."""

    locations: dict[str, str] = field(default_factory=dict)
    """Location of the first record that a counter counts, by `NAME@SOURCE`."""

    files: dict[str, dict[str, Counters]] = field(default_factory=dict)
    """Counters by source and name of the file."""

    templates: dict[str, Counters] = field(default_factory=dict)
    """Counters of `SplitStats.templates`, by source."""

    def add(self, counts: Mapping[str, int], *, source: str, file: str) -> None:
        """Add counts of a file."""
        self.counters.update(counts)
        self.counters.update({f"{name}@{source}": number for name, number in counts.items()})
        self.files.setdefault(source, {}).setdefault(file, Counters()).update(counts)

    def add_split(self, item: DocumentItem, report: WorkResult) -> None:
        """Add the statistics of a split."""
        source, stats = item.split.source, SplitStats.model_validate(report.statistics)
        self.add(report.counters, source=source, file=item.split.file.name)
        self.templates.setdefault(source, Counters()).update(stats.templates)
        for name, location in stats.locations.items():
            self.locations.setdefault(f"{name}@{source}", location)

    def of_source(self, name: str, source: str) -> int:
        """Return a count of a source."""
        return self.counters.get(f"{name}@{source}", 0)

    def template_counters(self) -> dict[str, int]:
        """Return the counters of the most frequent templates: `template-unknown:NAME@SOURCE` and
        `template-dropped:NAME@SOURCE`."""
        counters: dict[str, int] = {}
        for source, templates in self.templates.items():
            ranked = sorted(templates.items(), key=lambda item: (-item[1], item[0]))
            for prefix in (UNKNOWN_TEMPLATE, DROPPED_TEMPLATE):
                frequent = [item for item in ranked if item[0].startswith(prefix)][:_MAX_TEMPLATES]
                counters |= {f"{name}@{source}": number for name, number in frequent}
        return counters


def sum_statistics(
    items: Sequence[DocumentItem],
    reports: Iterable[WorkResult],
    duplicates: Duplicates,
    *,
    output: str,
) -> JobStats:
    """Return the statistics of a job.

    Args:
        items: Work items.
        reports: Results in the order of the items.
        duplicates: Table of duplicates. Its documents with repeated ids count as dropped.
        output: URL of the folder of the files.
    """
    stats = JobStats()
    table = f"{output}/{duplicates.file.stored_name}"
    if duplicates.same_text:
        stats.counters.count("duplicates-same-text", duplicates.same_text)
    for item, report in zip(items, reports, strict=True):
        stats.add_split(item, report)
        source, file = item.split.source, item.split.file.name
        for entry in report.files:
            if (repeated := duplicates.repeated_ids.get(entry.path)) is None:
                continue
            rows = excluded_rows(table, shard=entry.path, expected=DUPLICATES)[SAME_ID]
            dropped = _count_rows(entry, rows, output=output)
            changes = {name: -number for name, number in dropped.items()}
            stats.add({**changes, REPEATED_ID: repeated.rows}, source=source, file=file)
            location = (
                f"{repeated.document_id!r} in {file}; {repeated.canonical_document_id!r} is kept"
            )
            stats.locations.setdefault(f"{REPEATED_ID}@{source}", location)
    return stats


def _count_rows(shard: FileEntry, rows: npt.NDArray[np.uint32], *, output: str) -> Counters:
    """Return the counts of rows of a shard."""
    counters, first = Counters(), 0
    with open_shard(f"{output}/{shard.stored_name}", columns=("sentences",)) as reader:
        for number in range(reader.num_record_batches):
            column = reader.get_batch(number).column("sentences")
            end = first + len(column)
            here = rows[(rows >= first) & (rows < end)]
            for sentences in column.take(pa.array(here - first, pa.int64())):
                counters.update(kept_counts(sentences.as_py()))
            first = end
    return counters
