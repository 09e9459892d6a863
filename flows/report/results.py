"""Results of fine-tuning and evaluation, as the tabulate artifact's `tables.json` has them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import ValidationError

from flows.report.charts import chart_figure
from flows.report.figures import Figure, Key, Panel, kept_figure
from flows.report.overview import result_columns, result_figure, task_results
from flows.report.plots import Axis, Plot
from flows.report.steps import Steps
from flows.store.artifacts import ArtifactStore
from model.tables.charts import chart_of
from model.tables.document import JSON_FILE, Tables
from model.tables.evaluations import wrong_fields
from model.tables.filled_tables import FilledTable
from model.tables.grids import (
    Grid,
    comparisons_grid,
    entries_grid,
    paper_grid,
    results_grid,
    variants_grid,
)
from model.tables.result_rows import ResultRow
from model.tasks.cut_data import cut_notes, marked
from model.telling.percent import format_percent
from schemas.errors import ArtifactCorruptError, StoreError
from schemas.manifest import Manifest

_BASE = "BERT_BASE"  # row of the paper that charts show for comparison
_ROW, _FRAME = 30.0, 34.0  # heights
_SPREAD = 0.22  # of a row, over which dots of restarts are set
_LEAST_SPAN = 10.0
_LEGEND = (
    Key(mark="dot series-1", label="one restart"),
    Key(mark="tick", label="their mean"),
    Key(mark="triangle series-2", label="ensemble"),
    Key(mark="dashed", label="majority class"),
    Key(mark="diamond", label="the paper's BERT_BASE"),
)


class TableView(NamedTuple):
    """A table with what belongs to it."""

    rows: Grid
    """Rows of the paper, then rows of the run."""

    differences: Grid | None
    """Comparison of the variants."""

    figure: Figure | None
    """Scores over steps or sizes."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """The section about fine-tuning and evaluation."""

    problem: str = ""
    """Why there are no tables; "" where there are."""

    tables: Tables | None = None
    overview: Sequence[tuple[str, Sequence[str]]] = ()
    """Results of all tasks: title and cells of each column."""

    overview_figure: Figure | None = None
    grids: Sequence[Grid] = ()
    """Results, what the entries are, and how they compare."""

    paper: Sequence[TableView] = ()
    """Tables of the paper that the run has rows for, and tables of a sweep."""

    is_sweep: bool = False
    """Whether the entries are variants of a sweep."""

    figure: Figure | None = None

    links: Mapping[str, str] = field(default_factory=dict)
    """Link to the evaluation that a reference in a table names."""


def read_results(store: ArtifactStore, steps: Steps) -> Results | None:
    """Return the results of a run; None for a run without fine-tuning."""
    tables = steps.last_holding("tables")
    if tables is None:
        if not steps.holding("trial", "evaluation"):
            return None
        return Results(
            problem="This run did not build the tables. The steps show the score of each training."
        )
    try:
        found = read_tables(store, tables.manifest)
        return results_of(found, name=tables.manifest.artifact_id, steps=steps, store=store)
    except StoreError as error:
        return Results(problem=str(error))


def read_tables(store: ArtifactStore, manifest: Manifest) -> Tables:
    """Return the tables of a tabulate artifact.

    Raises:
        ArtifactCorruptError: it is not listed, not there or not what it should be.
    """
    entry = manifest.file(JSON_FILE)
    if entry is None:
        raise ArtifactCorruptError(f"{manifest.manifest_path}: the artifact lists no {JSON_FILE}")
    path = f"{manifest.data_path}/{entry.stored_name}"
    try:
        return Tables.model_validate_json(store.backend.read(path))
    except FileNotFoundError:
        raise ArtifactCorruptError(f"{store.url(path)}: the tables are gone") from None
    except ValidationError as error:
        raise ArtifactCorruptError(
            f"{store.url(path)}: {JSON_FILE} is not as expected: {wrong_fields(error)}"
        ) from error


def results_of(
    tables: Tables, *, name: str, steps: Steps | None = None, store: ArtifactStore | None = None
) -> Results:
    """Return the section about the results of a run.

    Args:
        tables: Tables of the run.
        name: Id of their artifact, which is also part of ids in the page.
        steps: Steps of the page that the tables link to.
        store: Store that keeps drawn figures; None: draw all of them.
    """

    def figure(kind: str, draw: Callable[[str], Figure]) -> Figure:
        if store is None:
            return draw(f"{kind}-{name}")
        return kept_figure(store, kind, made_of=[("", name)], draw=draw)

    main = tables.main
    by_task = [] if any(table.axis for table in tables.tables) else task_results(tables)
    grids = [results_grid(main), entries_grid(main)] if main else []
    if tables.comparisons:
        grids.append(comparisons_grid(tables.comparisons))
    return Results(
        tables=tables,
        overview=result_columns(by_task) if by_task else (),
        overview_figure=(
            figure("overview", lambda name: result_figure(by_task, name=name)) if by_task else None
        ),
        grids=grids,
        paper=[_view(table, figure) for table in tables.tables if table.rows],
        is_sweep=any(table.axis for table in tables.tables if table.rows),
        figure=figure("results", lambda name: _figure(main, name=name)) if main else None,
        links=_links(main, steps) if steps is not None else {},
    )


def _links(main: Sequence[ResultRow], steps: Steps) -> dict[str, str]:
    shown = {
        step.manifest.artifact_id: step.anchor
        for group in steps.groups
        for step in group.steps
        if step.manifest and step.anchor
    }
    evaluated = steps.holding("evaluation")
    anchors = {item.name: f"#{shown[item.manifest.artifact_id]}" for item in evaluated}
    return {
        text: anchors[row.entry]
        for row in main
        if row.reference and row.entry in anchors
        for text in (row.reference, row.reference.partition(":")[0])
    }


def _view(
    table: FilledTable, figure: Callable[[str, Callable[[str], Figure]], Figure]
) -> TableView:
    chart = chart_of(table)
    return TableView(
        rows=paper_grid(table),
        differences=variants_grid(table) if table.comparisons else None,
        figure=figure(table.key, lambda name: chart_figure(chart, name=name)) if chart else None,
    )


def _figure(main: Sequence[ResultRow], *, name: str) -> Figure:
    """A panel for each task, a dot for each restart."""
    by_task = itertools.groupby(main, key=lambda row: row.task)
    panels = tuple(
        _panel(list(rows), name=f"{name}-{number}") for number, (_, rows) in enumerate(by_task)
    )
    is_drawn = (
        any(row.runs for row in main),
        any(len(row.runs) > 1 for row in main),
        any(row.ensemble is not None for row in main),
        any(row.majority is not None for row in main),
        any(_BASE in row.paper for row in main),
    )
    notes = ["Metrics on dev, times 100.", *cut_notes((row.entry, row.cut) for row in main)]
    legend = tuple(itertools.compress(_LEGEND, is_drawn))
    return Figure(panels=panels, legend=legend, note=" ".join(notes))


def _panel(rows: Sequence[ResultRow], *, name: str) -> Panel:
    numbers = [number for row in rows for number in _numbers(row)]
    plot = Plot(
        Axis.around(numbers or [0.0], least=_LEAST_SPAN),  # else a tenth looks like a world
        Axis(
            low=len(rows) - 0.4,
            high=-0.6,
            names=tuple(marked(row.entry, row.cut) for row in rows),
        ),
        height=_FRAME + _ROW * len(rows),
    )
    for position, row in enumerate(rows):
        _draw_row(plot, position, row)
    means = [marked(format_percent(row.mean, row.sd), row.cut) or "no value" for row in rows]
    said = [f"{row.entry} {mean}" for row, mean in zip(rows, means, strict=True)]
    title = f"{rows[0].task}: {rows[0].metric}"
    description = f"Each restart as a dot. Means: {'; '.join(said)}."
    return Panel(title=title, svg=plot.svg(name=name, title=title, description=description))


def _numbers(row: ResultRow) -> list[float]:
    """All that is drawn of a row, times 100."""
    shares = [*row.runs, row.ensemble, row.majority]
    paper = [row.paper[_BASE]] if _BASE in row.paper else []
    return [*(100 * share for share in shares if share is not None), *paper]


def _draw_row(plot: Plot, position: int, row: ResultRow) -> None:
    runs = [100 * run for run in row.runs]
    if row.majority is not None:
        x = 100 * row.majority
        plot.line([(x, position - 0.45), (x, position + 0.45)], look="dashed muted")
    offsets = [0.0] * len(runs)
    if len(runs) > 1:
        offsets = [_SPREAD * (2 * n / (len(runs) - 1) - 1) for n in range(len(runs))]
        mean = sum(runs) / len(runs)
        plot.line([(mean, position - 0.34), (mean, position + 0.34)], look="mean")
    points = [(run, position + offset) for run, offset in zip(runs, offsets, strict=True)]
    plot.dots(points, look="series-1")
    if row.ensemble is not None:
        plot.dots([(100 * row.ensemble, position)], look="series-2", shape="triangle")
    if _BASE in row.paper:
        plot.dots([(row.paper[_BASE], position)], look="hollow", shape="diamond")
