"""`build-tokens`: encode documents without duplicates as WordPiece ids, shard by shard."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.counters import check_balance
from pipelines.documents.exclusions import (
    exclusion_tables,
    shard_items,
)
from pipelines.io.stage_inputs import input_file
from pipelines.lengths import merge_lengths, write_lengths
from pipelines.shard_job.job import run_shard_job
from pipelines.shard_job.work import sum_counters
from pipelines.tokens.build_shard import BuildTokenShard
from pipelines.wordpiece.text_rules import get_text_rules
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.corpus_configs import TokensConfig
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageInput, StageOutput


def build_tokens(
    config: TokensConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
    pieces: str = "",
) -> StageOutput:
    """Tokenize `documents` with a `vocabulary`.

    Raises:
        CountMismatchError: Counts of documents do not add up.
    """
    vocabulary = inputs["vocabulary"]
    vocab_size = int(vocabulary.statistics["vocab_size"])
    rules = get_text_rules(vocabulary.statistics)
    planned = shard_items(
        inputs["documents"],
        remove_duplicates=config.remove_duplicates,
        exclusions=exclusion_tables(inputs),
    )
    work = BuildTokenShard(
        vocab=input_file(vocabulary, VOCAB_FILE),
        rules=rules,
        vocab_size=vocab_size,
        word_cache_size=config.word_cache_size,
        output=output,
    )
    job = run_shard_job(
        "build-tokens", planned, work=work, output=output, execution=execution, pieces=pieces
    )
    counters = sum_counters(job.reports)
    check_balance(counters, "documents", where="build-tokens")
    lengths = merge_lengths(report.statistics for report in job.reports)
    return StageOutput(
        files=job.files,
        records=(write_lengths(lengths, output=output),),
        counters=dict(sorted(counters.items())),
        statistics={"vocab_size": vocab_size, **rules},
        table_name="tokens",
        reuse=job.reuse,
    )
