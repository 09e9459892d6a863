"""`find-near-duplicates`: find near-duplicates by MinHash LSH, write a table of excluded documents.

Beam groups band keys, never text. Documents that share a key are compared by their n-gram sets.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from pipelines.counters import check_balance
from pipelines.documents.exclusions import (
    document_shards,
    exclusion_tables,
    shard_items,
)
from pipelines.near_duplicates.pairs import (
    find_near_duplicates_in_bucket,
    write_near_duplicates,
)
from pipelines.near_duplicates.sketches import Bands, SketchShard, buckets_for
from pipelines.shard_job.job import run_shard_job
from pipelines.shard_job.work import BucketReduce, sum_counters
from schemas.corpus_configs import NearDuplicatesConfig
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageInput, StageOutput


def find_near_duplicates(
    config: NearDuplicatesConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
    pieces: str = "",
) -> StageOutput:
    """Find near-duplicates among the `documents` without duplicates.

    Raises:
        CountMismatchError: Counts of documents do not add up.
    """
    documents, bands = inputs["documents"], Bands.of(config)
    shards = document_shards(documents)
    report = functools.partial(
        find_near_duplicates_in_bucket, output=output, threshold=config.threshold
    )
    job = run_shard_job(
        "find-near-duplicates",
        shard_items(documents, remove_duplicates=True, exclusions=exclusion_tables(inputs)),
        work=SketchShard(
            config, output, buckets_for(sum(entry.rows or 0 for entry in shards), bands)
        ),
        output=output,
        execution=execution,
        pieces=pieces,
        grouping=BucketReduce(report),
    )
    table = write_near_duplicates(job.groups, output=output, shards=shards, sketches=job.files)
    counters = sum_counters([*job.reports, *job.groups])
    if table.rows:
        counters.count("documents-dropped-near-duplicate", table.rows)
        counters.count("documents-kept", -table.rows)
    check_balance(counters, "documents", where="find-near-duplicates")
    return StageOutput(
        files=(*job.files, table),
        counters=dict(sorted(counters.items())),
        statistics={"bands": bands.bands, "rows": bands.rows},
        table_name="minhash-sketches",
        reuse=job.reuse,
    )
