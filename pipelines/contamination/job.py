"""`find-contamination`: find evaluation texts in documents by shared n-grams of words.

Workers memory-map the hashed n-grams of the texts (13 words) and write, per document shard, the
numbers of those in each document. This process counts the documents with each n-gram, ignores the
common ones, and joins the others with the texts.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.contamination.counts import count_texts, summarize_texts
from pipelines.contamination.matches import count_documents, write_matches
from pipelines.contamination.scan import ScanShard
from pipelines.contamination.texts import read_texts, select_splits
from pipelines.counters import check_balance
from pipelines.documents.exclusions import shard_items
from pipelines.io.stage_inputs import InputFile
from pipelines.shard_job.job import run_shard_job
from pipelines.shard_job.work import sum_counters
from schemas.corpus_configs import ContaminationConfig
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import FileEntry, StageInput, StageOutput

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
    tasks = {
        name.removeprefix(EXAMPLES): examples
        for name, examples in inputs.items()
        if name.startswith(EXAMPLES)
    }
    splits = select_splits(tasks, config)
    texts = read_texts(splits, config)
    ngrams = texts.ngrams.write(output=output)
    items = shard_items(inputs["documents"], remove_duplicates=config.remove_duplicates)
    job = run_shard_job(
        "find-contamination",
        items,
        work=ScanShard(_as_input(ngrams, output), config.max_document_frequency, output),
        output=output,
        execution=execution,
        pieces=pieces,
    )
    urls = (f"{output}/{entry.stored_name}" for entry in job.files)
    hits = list(zip((item.path for item in items), urls, strict=True))
    frequencies = count_documents(texts.ngrams, hits)
    is_common = frequencies > config.max_document_frequency
    is_found = (frequencies > 0) & ~is_common
    matches = write_matches(
        texts, hits, is_found=is_found, min_overlap=config.min_overlap, output=output
    )
    statistics = summarize_texts(texts, splits, is_found=is_found, is_common=is_common)
    counters = sum_counters(job.reports)
    counters.update(count_texts(statistics["fields"]))
    check_balance(counters, "documents", where="find-contamination")
    counters["documents-matched"] = matches.documents
    counters["documents-to-exclude"] = matches.excluded.rows or 0
    return StageOutput(
        files=(ngrams, *job.files, matches.table, matches.excluded, matches.passages),
        counters=dict(sorted(counters.items())),
        statistics=statistics,
        table_name="contamination",
        reuse=job.reuse,
    )


def _as_input(entry: FileEntry, output: str) -> InputFile:
    """Return a file of this stage's output, which workers read."""
    url = f"{output}/{entry.stored_name}"
    return InputFile(url, entry.path, "this search", entry.size_bytes, entry.sha256)
