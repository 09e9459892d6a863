"""`build-documents`: read dumps and books, write shards of documents and a table of duplicates.

Each planned split gives one or more shards. Beam groups digests and ids, never text, to find
documents with equal texts or ids.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from pipelines.counters import Counters, check_balance
from pipelines.documents.build_shard import BuildDocumentShard, count_corrupt_streams
from pipelines.documents.dropped import DroppedRecords, drop_reasons, excluded_documents
from pipelines.documents.duplicates import (
    SAME_ID,
    SAME_TEXT,
    buckets_for,
    find_duplicates_in_bucket,
    write_duplicates,
)
from pipelines.documents.notes import JobCounts, count_repeated_ids, document_notes
from pipelines.documents.plan import (
    expected_documents,
    plan,
    raw_inputs_of,
)
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
    buckets = buckets_for(expected_documents(planned, config))
    done = run_shard_job(
        "build-documents",
        planned,
        work=BuildDocumentShard(config, output, buckets),
        output=output,
        execution=execution,
        pieces=pieces,
        grouping=BucketReduce(functools.partial(find_duplicates_in_bucket, output=output)),
    )
    damaged = count_corrupt_streams(config, planned, done.reports)
    duplicates = write_duplicates(done.groups, output=output, shards=done.files)
    job = JobCounts.of(
        planned,
        done.reports,
        duplicates,
        more=damaged,
        repeated_counts=count_repeated_ids(done.files, duplicates, output=output),
    )
    _check_counts(config, job.counters)
    if not job.counters["documents-kept"]:
        raise InputError(
            f"build-documents: no document in the sources: {'; '.join(job.describe_empty_inputs())}"
        )
    counters = job.counters | job.named_templates()
    same_id = sum(repeated.rows for repeated in duplicates.repeated_ids.values())
    repeats = excluded_documents(
        duplicates.file,
        output=output,
        column="canonical_document_id",
        stage="build-documents",
        reasons={SAME_TEXT: duplicates.same_text, SAME_ID: same_id},
    )
    dropped = DroppedRecords(dropped=(*drop_reasons(counters, job.examples), *repeats))
    return StageOutput(
        files=(*done.files, duplicates.file),
        records=(dropped.write(output=output),),
        counters=dict(sorted(counters.items())),
        table_name="documents",
        notes=tuple(document_notes(config, job)),
        raw_inputs=raw_inputs_of(planned, config),
        reuse=done.reuse,
    )


def _check_counts(config: DocumentsConfig, counters: Counters) -> None:
    for source in config.sources:
        of_source = {
            name.removesuffix(f"@{source.name}"): amount
            for name, amount in counters.items()
            if name.endswith(f"@{source.name}")
        }
        for records in ("pages", "books", "book-words", "rows", "documents"):
            check_balance(of_source, records, where=f"build-documents, source {source.name!r}")
