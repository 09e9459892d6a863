"""Stage `tabulate`: all evaluations of a recipe as tables next to the paper's.

The artifact has the same numbers as JSON, Markdown and CSV, and GLUE's submission if its
predictions exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model.tables.glue_submission import build_submission
from model.tables.render import JSON_FILE, Tables, build_tables, to_csv, to_markdown
from model.tables.results import Evaluation, result_rows
from model.tables.sweeps import Sweep
from model.training.artifact_files import write_file
from schemas.errors import PredictionsError
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import TabulateConfig
from schemas.manifest import StageInput, StageOutput


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
        PredictionsError: Statistics of an artifact are not those of an evaluation.
        ArtifactCorruptError: Predictions differ from their manifest.
    """
    del execution
    names = {entry.phase: f"pretrain.{entry.phase}" for entry in config.expanded_sweep}
    phases = {phase: inputs[name] for phase, name in names.items() if name in inputs}
    evaluated = {name: item for name, item in inputs.items() if name not in names.values()}
    if not evaluated:
        raise PredictionsError("expected an evaluation to tabulate, got none: add one to finetune")
    evaluations = [Evaluation.of_artifact(entry, item) for entry, item in evaluated.items()]
    results = result_rows(evaluations)
    sweep = Sweep(config, results, phases)
    # Compared variants are not submitted.
    whole = [item for item in evaluations if item.entry not in sweep.entries]
    submission = build_submission(whole, inputs=evaluated)
    tables = build_tables(sweep)
    contents = {
        JSON_FILE: tables.to_json(),
        "tables.csv": to_csv(tables.results).encode(),
        "tables.md": to_markdown(tables).encode(),
        **({"glue-submission.zip": submission.data} if submission.data else {}),
    }
    return StageOutput(
        files=tuple(write_file(path, [contents[path]], output=output) for path in sorted(contents)),
        counters={
            "entries": len(evaluated),
            "numbers": len(results),
            "comparisons": len(tables.comparisons)
            + sum(len(table.comparisons) for table in tables.tables),
            "paper-tables-with-rows-of-ours": sum(bool(table.rows) for table in tables.tables),
            "submission-files": len(submission.entries),
        },
        statistics={
            **_statistics(tables),
            "submission": submission.entries,
            "missing": list(submission.missing) if submission.data else [],
        },
        notes=submission.notes,
    )


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
