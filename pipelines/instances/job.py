"""`build-instances`: create paired and masked instances, one shard per token shard and pass.

`part-00003-pass-01.arrow` has the instances of pass 1 over the token shard `part-00003.arrow`, in
the order of its documents: the loader reads rows in any order, so nothing is shuffled.
`__held-out__/held-out-00003.arrow` has the instances of pass 0 over that shard's held-out
documents, if there are any. Readers of a dataset skip this folder. No instance has tokens of both
parts: random Bs come from documents of A's own part.

Rows refer to B's shard by its position in the pool, which the statistics of the file list. So the
bytes of a shard depend on the contents of its pool, not on the numbers of shards.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.counters import check_balance
from pipelines.instances import HELD_OUT
from pipelines.instances.build_shard import BuildInstanceShard, corpus_statistics
from pipelines.instances.notes import instance_notes
from pipelines.instances.plan import plan
from pipelines.io.stage_inputs import input_file
from pipelines.lengths import merge_lengths, write_lengths
from pipelines.shard_job.job import run_shard_job
from pipelines.shard_job.work import sum_counters
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.corpus_configs import InstancesConfig
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageInput, StageOutput


def build_instances(
    config: InstancesConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
    pieces: str = "",
) -> StageOutput:
    """Create the instances of `tokens` with their `vocabulary`.

    Raises:
        CountMismatchError: Counts of documents do not add up.
    """
    tokens, vocabulary = inputs["tokens"], inputs["vocabulary"]
    vocab_size = int(vocabulary.statistics["vocab_size"])
    planned = plan(config, tokens)
    work = BuildInstanceShard(
        config=config,
        vocab=input_file(vocabulary, VOCAB_FILE),
        vocab_size=vocab_size,
        output=output,
    )
    job = run_shard_job(
        "build-instances", planned, work=work, output=output, execution=execution, pieces=pieces
    )
    counters = sum_counters(job.reports)
    for records in ("documents", "source-tokens"):
        for part in ("", f"{HELD_OUT}-"):
            check_balance(counters, f"{part}{records}", where="build-instances")
    lengths = merge_lengths(report.statistics or {} for report in job.reports)
    return StageOutput(
        files=job.files,
        records=(write_lengths(lengths, output=output),),
        counters=dict(sorted(counters.items())),
        statistics=corpus_statistics(config, counters, vocab_size),
        table_name="instances",
        notes=tuple(instance_notes(config, counters)),
        reuse=job.reuse,
    )
