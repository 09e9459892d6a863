"""Results of fine-tuning and evaluation, from the `tables.json` of the tabulate artifact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ValidationError

from flows.report.figures import Figure
from flows.report.number_sources import NO_SOURCES, NumberSources
from flows.report.result_charts import overview_figure
from flows.report.run_steps import Steps
from flows.report.sweep_charts import sweep_figure
from flows.report.task_results import TaskResult, overview_table, task_results
from flows.store.artifacts import ArtifactStore
from model.tables.filled_tables import FilledTable
from model.tables.render import (
    JSON_FILE,
    Tables,
    TextTable,
    paper_table,
    result_tables,
    variants_table,
)
from model.task_results import wrong_fields
from schemas.errors import ArtifactCorruptError, StoreError
from schemas.manifest import Manifest


class TableView(NamedTuple):
    """A table of the paper with rows of the run, or a table of a sweep."""

    filled: FilledTable
    rows: TextTable
    differences: TextTable | None
    """Comparison of the variants."""

    figure: Figure | None
    """Scores over steps of pretraining."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """The sections about fine-tuning and evaluation."""

    problem: str = ""
    """Why there are no tables."""

    tables: Tables | None = None
    overview: TextTable | None = None
    """A row for each task."""

    overview_figure: Figure | None = None
    grids: Sequence[TextTable] = ()
    """Results, entries, and comparisons of entries."""

    paper: Sequence[TableView] = ()
    is_sweep: bool = False
    """True if the entries are variants of a sweep."""

    tasks: Sequence[TaskResult] = ()
    """Rows of the overview."""

    sources: NumberSources = NO_SOURCES


def read_results(store: ArtifactStore, steps: Steps) -> Results | None:
    """Return the results of a run; None for a run without fine-tuning."""
    built = steps.last_of_type("tables")
    if built is None:
        if not steps.of_type("trial", "evaluation"):
            return None
        return Results(
            problem="This run did not build the tables. The steps show the score of each training."
        )
    try:
        tables = read_tables(store, built.manifest)
    except StoreError as error:
        return Results(problem=str(error))
    return show_results(tables, sources=NumberSources.of_run(steps))


def show_results(tables: Tables, *, sources: NumberSources = NO_SOURCES) -> Results:
    """Return the tables and charts of a run.

    Args:
        tables: Tables of the run.
        sources: Artifacts that the numbers come from.
    """
    is_sweep = any(table.axis for table in tables.tables)
    by_task = [] if is_sweep else task_results(tables)
    views = []
    for table in tables.tables:
        if table.rows:
            drawing = sweep_figure(table)
            differences = variants_table(table) if table.comparisons else None
            views.append(TableView(table, paper_table(table, tables), differences, drawing))
    return Results(
        tables=tables,
        overview=overview_table(by_task) if by_task else None,
        overview_figure=overview_figure(by_task) if by_task else None,
        grids=result_tables(tables, tables.main),
        paper=views,
        is_sweep=is_sweep,
        tasks=by_task,
        sources=sources,
    )


def read_tables(store: ArtifactStore, manifest: Manifest) -> Tables:
    """Return the tables of a tabulate artifact.

    Raises:
        ArtifactNotFoundError: The artifact has no tables.
        ArtifactCorruptError: The file is missing or damaged, or has other fields.
    """
    artifact = store.artifact(manifest)
    with artifact.open(JSON_FILE) as source:
        try:
            return Tables.model_validate_json(source.read())
        except ValidationError as error:
            raise ArtifactCorruptError(
                f"{artifact}: expected the fields of {JSON_FILE}: {wrong_fields(error)}"
            ) from error
