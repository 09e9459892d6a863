"""`build-documents`: read dumps and books, write shards of documents and a table of duplicates.

Each planned split gives one or more shards. Beam groups digests and ids, never text, to find
documents with equal texts or ids.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from pipelines.counters import check_balance
from pipelines.documents.build_shard import BuildDocumentShard
from pipelines.documents.duplicates import (
    buckets_for,
    find_duplicates_in_bucket,
    write_duplicates,
)
from pipelines.documents.notes import describe_files, document_notes
from pipelines.documents.plan import plan, raw_inputs_of
from pipelines.documents.statistics import JobStats, sum_statistics
from pipelines.shard_job.job import run_shard_job
from pipelines.shard_job.work import BucketReduce
from schemas.corpus_configs import DocumentsConfig
from schemas.errors import InputError
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageInput, StageOutput


def build_documents(
    config: DocumentsConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
    pieces: str = "",
) -> StageOutput:
    """Build the documents of a corpus from the raw files of a configuration.

    Raises:
        InputError: Raw input is missing, damaged (see `on_corrupt`), does not match its checksum,
            or has no document.
        CountMismatchError: Counts of records do not add up.
    """
    del inputs
    planned = plan(config)
    buckets = buckets_for(sum(item.weight for item in planned))
    done = run_shard_job(
        "build-documents",
        planned,
        work=BuildDocumentShard(config, output, buckets),
        output=output,
        execution=execution,
        pieces=pieces,
        grouping=BucketReduce(functools.partial(find_duplicates_in_bucket, output=output)),
    )
    duplicates = write_duplicates(done.groups, output=output, shards=done.files)
    stats = sum_statistics(planned, done.reports, duplicates, output=output)
    _check_counts(config, stats)
    counters = stats.counters | stats.template_counters()
    return StageOutput(
        files=(*done.files, duplicates.file),
        counters=dict(sorted(counters.items())),
        table_name="documents",
        notes=tuple(document_notes(config, planned, stats)),
        raw_inputs=raw_inputs_of(planned, config),
        reuse=done.reuse,
    )


def _check_counts(config: DocumentsConfig, stats: JobStats) -> None:
    for source in config.sources:
        counters = {
            name.removesuffix(f"@{source.name}"): amount
            for name, amount in stats.counters.items()
            if name.endswith(f"@{source.name}")
        }
        for records in ("pages", "books", "book-words", "rows", "documents"):
            check_balance(counters, records, where=f"build-documents, source {source.name!r}")
    if not stats.counters["documents-kept"]:
        inputs = (
            f"source {source!r}: {describe_files(files)}" for source, files in stats.files.items()
        )
        raise InputError(f"build-documents: no document in the sources: {'; '.join(inputs)}")
