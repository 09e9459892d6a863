"""`build-instances`: token shards become masked, paired instances, a shard for each pass over each.

`part-00003-pass-01.arrow` holds what pass 1 makes of the token shard `part-00003.arrow`, in the
order of its documents: the loader takes any permutation by random access, so nothing is shuffled.
`__held-out__/held-out-00003.arrow` holds what pass 0 makes of that shard's held-out documents; it
is there where the shard has any, in a folder that whoever opens the one above as a data set does
not read. No instance has tokens of both: random Bs come from documents of A's own part.

Rows name the shard that B comes from by its position in the pool; the file's statistics say which
it is. So the bytes of a shard depend on what it and its pool hold, not on their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.beam.jobs import run_shard_job
from pipelines.beam.plan_file import SharedInput
from pipelines.beam.work import add_up
from pipelines.counters import check_balance
from pipelines.io.stage_inputs import input_file
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.corpus_configs import InstancesConfig
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageInput, StageOutput
from schemas.stage import Stage


def build_instances(
    config: InstancesConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
    pieces: str = "",
) -> StageOutput:
    """Make the instances of a corpus: of `tokens` with their `vocabulary`.

    Raises:
        CountMismatchError: documents in are not those kept and dropped.
    """
    from pipelines.instances.build_shard import BuildInstanceShard, corpus_statistics
    from pipelines.instances.held_out import (  # start-up: 270 ms, most of it pyarrow's
        HELD_OUT,
        HELD_OUT_PREFIX,
    )
    from pipelines.instances.plan import colocation_key, plan
    from pipelines.instances.samples import InstanceSamples, sample_instances
    from pipelines.lengths import LengthsRecord
    from pipelines.wordpiece.vocab_files import read_vocab

    tokens, vocabulary = inputs["tokens"], inputs["vocabulary"]
    vocab_size = int(vocabulary.statistics["vocab_size"])
    planned = plan(config, tokens)
    shared = SharedInput(tokens)
    work = BuildInstanceShard(
        config=config,
        tokens=shared,
        vocab=input_file(vocabulary, VOCAB_FILE),
        vocab_size=vocab_size,
        output=output,
    )
    job = run_shard_job(
        "build-instances",
        planned,
        work=work,
        output=output,
        execution=execution,
        pieces=pieces,
        together=colocation_key(planned),
        shared=shared,
    )
    counters = add_up(job.reports)
    for things in ("documents", f"{HELD_OUT}-documents"):
        check_balance(counters, things, where="build-instances")
    lengths = LengthsRecord.merge([report.details[0] for report in job.reports if report.details])
    samples = InstanceSamples()
    first = next((f for f in job.files if f.rows and not f.path.startswith(HELD_OUT_PREFIX)), None)
    if first is not None:
        words = list(read_vocab(work.vocab))
        samples = sample_instances(first, output=output, tokens=tokens, vocabulary=words)
    return StageOutput(
        files=job.files,
        records=(lengths.write(output=output), samples.write(output=output)),
        counters=dict(sorted(counters.items())),
        statistics=corpus_statistics(config, counters, vocab_size),
        table_name="instances",
        reuse=job.reuse,
    )


STAGE = Stage(
    name="build-instances",
    module=__name__,
    version=6,
    run=build_instances,
    config=InstancesConfig,
    output_type="instances",
    libraries=("pyarrow", "numpy"),
    python_independent=True,
    inputs=("tokens", "vocabulary"),
    supports_reuse=True,
)
