"""Stage `tabulate`: all evaluations of a recipe as tables next to the paper's.

The artifact has the same numbers as JSON, Markdown and CSV, and GLUE's submission if its
predictions exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from model.tasks import TASKS
from model.training.artifact_files import write_file
from schemas.errors import PredictionsError
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import TabulateConfig
from schemas.fingerprint import content_digest
from schemas.manifest import StageInput, StageOutput

if TYPE_CHECKING:
    from model.tables.document import Tables


def tabulate(
    config: TabulateConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
) -> StageOutput:
    """Write all evaluations as tables.

    Args:
        config: Expansion of the sweep, if any.
        inputs: `evaluate` artifacts by entry, and as `pretrain.PHASE` the phases that swept entries
            start from.
        output: URL of the folder to write to.
        execution: Unused.

    Raises:
        PredictionsError: Statistics of an artifact are not those of an evaluation, or a prediction
            for GLUE's server has no answer.
        ArtifactCorruptError: Predictions differ from their manifest.
    """
    # lazy: heavy imports
    from model.tables.document import SubmittedFiles, build_tables
    from model.tables.glue_submission import build_submission
    from model.tables.results import Evaluation, in_order, result_rows
    from model.tables.sweeps import Sweep
    from model.task_types.row_terms_files import read_row_terms

    del execution
    phases = {
        f"pretrain.{entry.phase}": entry.phase for entry in config.expanded_sweep if entry.phase
    }
    evaluated = {name: given for name, given in inputs.items() if name not in phases}
    if not evaluated:
        raise PredictionsError(
            "found no evaluation to tabulate, expected at least one: add an entry to finetune"
        )
    evaluations = in_order(
        [
            Evaluation.from_statistics(
                entry,
                given.statistics,
                content=content_digest(given.files),
                row_terms=read_row_terms(given),
            )
            for entry, given in evaluated.items()
        ],
        tasks=TASKS,
    )
    results = result_rows(evaluations, tasks=TASKS)
    sweep = Sweep(
        config,
        results,
        phases={phase: inputs[name] for name, phase in phases.items() if name in inputs},
    )
    # Compared variants are not submitted.
    whole = [item for item in evaluations if item.entry not in sweep.entries]
    submission = build_submission(whole, inputs=evaluated, tasks=TASKS)
    tables = build_tables(
        sweep, submission=SubmittedFiles(entries=submission.entries, missing=submission.missing)
    )
    contents = _contents(tables)
    if submission.data:
        contents["glue-submission.zip"] = submission.data
    return StageOutput(
        files=tuple(write_file(path, [contents[path]], output=output) for path in sorted(contents)),
        counters={
            "entries": len(evaluated),
            "numbers": len(results),
            "comparisons": tables.comparison_count,
            "paper-tables-with-rows-of-ours": sum(bool(table.rows) for table in tables.tables),
            "submission-files": len(submission.entries),
        },
        statistics={
            **_statistics(tables),
            "submission": list(submission.entries),
            "missing": list(submission.missing) if submission.data else [],
        },
        notes=submission.notes,
    )


def _contents(tables: Tables) -> dict[str, bytes]:
    """Return the files of the tables by name."""
    # lazy: heavy imports
    from model.tables import render
    from model.tables.document import JSON_FILE

    return {
        JSON_FILE: tables.to_json(),
        "tables.md": render.to_markdown(tables).encode(),
        "tables.csv": render.to_csv(tables.results).encode(),
    }


def _statistics(tables: Tables) -> dict[str, Any]:
    """Return the main score of each entry, the averages of Table 1, and the rows of each table."""
    numbers = {"task", "metric", "mean", "sd", "best", "ensemble", "majority", "cut", "paper"}
    rows = [row for table in tables.tables for row in table.rows]
    return {
        "entries": {
            row.entry: row.model_dump(mode="json", include=numbers) | {"runs": row.restarts}
            for row in tables.main
        },
        "averages": {row.name: row.average.value for row in rows if row.average},
        "tables": {table.key: len(table.rows) for table in tables.tables},
    }
