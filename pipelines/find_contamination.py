"""`find-contamination`: find evaluation texts in documents by shared n-grams of words.

The hashed n-grams of the texts (13 words) are a file that workers memory-map. Only numbers of
n-grams and counts cross a shuffle, never text.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.beam.shard_job import run_shard_job
from pipelines.beam.shard_work import sum_counters
from pipelines.counters import check_balance
from pipelines.io.stage_inputs import InputFile
from schemas.corpus_configs import ContaminationConfig
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import Manifest, StageInput, StageOutput
from schemas.stage import VARIADIC, Stage

EXAMPLES = "examples."
"""Prefix of the names of inputs of examples, before the name of the task."""


def find_contamination(
    config: ContaminationConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
    pieces: str = "",
) -> StageOutput:
    """Search `documents` for the texts of any number of inputs `examples.TASK`.

    Raises:
        ConfigError: No task has a split of the configuration.
        CountMismatchError: Counts of documents do not add up.
    """
    from pipelines.contamination.matches import (
        Matcher,
        split_rows,
        summary_rows,
        text_counters,
        write_matches,
        write_ngrams,
    )
    from pipelines.contamination.scan import (
        HITS,
        ScanShard,
        common_ngrams,
        ngram_document_counts,
        read_texts,
        split_files,
    )
    from pipelines.documents.dropped import DroppedRecords, excluded_documents
    from pipelines.documents.exclusions import CONTAMINATED, EXCLUSIONS_FILE, shard_items

    given = {
        name.removeprefix(EXAMPLES): examples
        for name, examples in inputs.items()
        if name.startswith(EXAMPLES)
    }
    splits = split_files(given, config)
    texts, runs = read_texts(splits, config)
    ngrams = write_ngrams(runs, output=output)
    file = InputFile(
        f"{output}/{ngrams.stored_name}",
        ngrams.path,
        "this search",
        ngrams.size_bytes,
        ngrams.sha256,
    )
    planned = shard_items(inputs["documents"], remove_duplicates=config.remove_duplicates)
    job = run_shard_job(
        "find-contamination",
        planned,
        work=ScanShard(file, config.max_document_frequency, output),
        output=output,
        execution=execution,
        pieces=pieces,
        grouping=ngram_document_counts(config.max_document_frequency, output=output),
    )
    counters = sum_counters(job.reports)
    check_balance(counters, "documents", where="find-contamination")
    matcher = Matcher(texts, common=common_ngrams(job.groups, output=output))
    hits = [entry for entry in job.files if entry.path.startswith(f"{HITS}/")]
    written = write_matches(
        matcher,
        texts,
        zip((item.path for item in planned), hits, strict=True),
        splits=splits,
        min_overlap=config.min_overlap,
        output=output,
    )
    rows = summary_rows(texts, matcher.found, matcher.common)
    counters.update(text_counters(rows))
    counters["documents-matched"] = written.documents
    counters["documents-to-exclude"] = written.excluded
    dropped = excluded_documents(
        next(file for file in written.files if file.path == EXCLUSIONS_FILE),
        output=output,
        column="matched",
        stage="find-contamination",
        reasons={CONTAMINATED: written.excluded},
    )
    record = DroppedRecords(dropped=tuple(dropped)).write(output=output)
    return StageOutput(
        files=(ngrams, *job.files, *written.files),
        records=(record,),
        counters=dict(sorted(counters.items())),
        statistics={"fields": rows, "splits": split_rows(texts, matcher.found)},
        table_name="contamination",
        reuse=job.reuse,
    )


def describe(manifest: Manifest) -> str:
    """Return the number of texts that were found."""
    found, texts = (manifest.counters[f"texts-{kind}"] for kind in ("contaminated", "in"))
    return f"{found:,} of {texts:,} texts found"


STAGE = Stage(
    name="find-contamination",
    module=__name__,
    version=2,
    run=find_contamination,
    config=ContaminationConfig,
    output_type="contamination",
    libraries=("pyarrow", "numpy"),
    inputs=("documents", VARIADIC),
    supports_reuse=True,
    summarize=describe,
)
