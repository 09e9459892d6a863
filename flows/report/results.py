"""Results of fine-tuning and evaluation, as the tabulate artifact's `tables.json` has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.report.drawing import Axis, Plot
from flows.report.figures import Figure, Key, Panel
from flows.report.steps import Steps
from flows.store.artifacts import ArtifactStore
from model.tables.filled_tables import percent
from model.tables.task_results import cut_notes, marked
from schemas.errors import ArtifactCorruptError, StoreError
from schemas.manifest import Manifest

TABLES_FILE = "tables.json"
BASE = "BERT_BASE"
"""The paper's system that ours are shown beside."""

Result = Mapping[str, Any]
"""A row of `results`: an entry's numbers on one split by one metric."""

Columns = list[tuple[str, list[str]]]
"""A table: its columns' titles and cells."""

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


@dataclass(frozen=True, kw_only=True)
class Results:
    """The section about fine-tuning and evaluation."""

    problem: str = ""
    """Why there are no tables; "" where there are."""

    main: Sequence[Result] = ()
    """Of every entry on dev by the metric that chooses, in the tables' order."""

    best: Sequence[Result] = ()
    """The best of `main` of each task."""

    comparisons: Sequence[Mapping[str, Any]] = ()
    paper: Sequence[Mapping[str, Any]] = ()
    """The paper's tables that have rows of ours."""

    figure: Figure | None = None

    @property
    def notes(self) -> list[str]:
        """What entries of `main` were not given: rows, steps, ends of texts."""
        return _notes(self.main)

    @property
    def comparison_notes(self) -> list[str]:
        """Likewise of the entries that are compared."""
        return cut_notes(
            (item[side], item.get(f"{side}_cut", ()))
            for item in self.comparisons
            for side in ("first", "second")
        )


def read_results(store: ArtifactStore, steps: Steps) -> Results | None:
    """None where a run has no fine-tuning; what cannot be read is said."""
    tables = steps.last_holding("tables")
    if tables is None:
        if not steps.holding("trial", "evaluation"):
            return None
        return Results(
            problem="The tables were not made in this run; the steps say what each training scored."
        )
    try:
        return results_of(read_tables(store, tables.manifest), name=tables.manifest.artifact_id)
    except StoreError as error:
        return Results(problem=str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        path = tables.manifest.path
        return Results(problem=f"{path}: {TABLES_FILE} is not as expected: {error!r}")


def results_of(tables: Mapping[str, Any], *, name: str) -> Results:
    """The section about what `tables.json` holds; `name` is part of ids in the page."""
    main = [row for row in tables["results"] if row["is_main"] and row["split"] == "dev"]
    best: dict[str, tuple[float, Result]] = {}
    for row in main:
        shown, known = score(row), best.get(row["task"])
        if shown is not None and (known is None or shown > known[0]):
            best[row["task"]] = (shown, row)
    paper = [table for table in tables["tables"] if table["ours"]]
    # Made once here, where it is caught what another version wrote or a fault left out.
    result_columns(main)
    comparison_columns(tables["comparisons"])
    for table in paper:
        paper_columns(table)
        _ = table["title"], table["notes"]
    return Results(
        main=main,
        best=[row for _, row in best.values()],
        comparisons=tables["comparisons"],
        paper=paper,
        figure=_figure(main, name=f"results-{name}"),
    )


def read_tables(store: ArtifactStore, manifest: Manifest) -> dict[str, Any]:
    """What `tables.json` of a tabulate artifact holds.

    Raises:
        ArtifactCorruptError: it is not listed, not there or not what it should be.
    """
    entry = manifest.file(TABLES_FILE)
    if entry is None:
        raise ArtifactCorruptError(f"{manifest.path}: the artifact lists no {TABLES_FILE}")
    path = f"{manifest.data}/{entry.object}"
    try:
        data = json.loads(store.backend.read(path))
    except FileNotFoundError:
        raise ArtifactCorruptError(f"{store.url(path)}: the tables are gone") from None
    except ValueError as error:
        raise ArtifactCorruptError(f"{store.url(path)}: expected JSON: {error}") from error
    wanted = ("results", "comparisons", "tables")
    if not isinstance(data, dict) or not all(isinstance(data.get(key), list) for key in wanted):
        raise ArtifactCorruptError(f"{store.url(path)}: expected lists of {', '.join(wanted)}")
    return data


def score(row: Result) -> float | None:
    """What an entry is judged by: the mean of its restarts, or what else there is."""
    return next((row[k] for k in ("mean", "ensemble", "best") if row[k] is not None), None)


def _notes(main: Sequence[Result]) -> list[str]:
    return cut_notes((row["entry"], row.get("cut", ())) for row in main)


def result_columns(main: Sequence[Result]) -> Columns:
    """The main number of every entry."""

    def marked_percent(name: str) -> list[str]:
        return [marked(percent(row[name]), row.get("cut", ())) for row in main]

    return [
        ("task", [row["task"] for row in main]),
        ("entry", [row["entry"] for row in main]),
        ("metric", [row["metric"] for row in main]),
        ("mean", [mean_text(row) for row in main]),
        ("best", marked_percent("best")),
        ("ensemble", marked_percent("ensemble")),
        ("majority", [percent(row["majority"]) for row in main]),
        (BASE, [_paper_text(row) for row in main]),
        ("restarts", [str(len(row["runs"]) + row["failed"]) for row in main]),
        ("model", [row["model"] for row in main]),  # last, as it is long
    ]


def mean_text(row: Result) -> str:
    """The mean of an entry's restarts with their standard deviation."""
    return marked(percent(row["mean"], row["sd"]), row.get("cut", ()))


def _paper_text(row: Result) -> str:
    value = row["paper"].get(BASE)
    if value is None:
        return ""
    return f"{value:.1f}" if row["paper_split"] == "dev" else f"{value:.1f} ({row['paper_split']})"


def comparison_columns(comparisons: Sequence[Mapping[str, Any]]) -> Columns:
    """Entries of the same task against each other."""
    differences = []
    for item in comparisons:
        cut = [*item.get("first_cut", ()), *item.get("second_cut", ())]
        differences.append(marked(f"{100 * item['difference']:+.1f}", cut))
    names = ("task", "first", "second", "metric")
    return [
        *((name, [item[name] for item in comparisons]) for name in names),
        ("difference", differences),
        ("95 % interval", [_interval(item) for item in comparisons]),
        ("p", [_chance(item["p"]) for item in comparisons]),
    ]


def _interval(item: Mapping[str, Any]) -> str:
    if item["low"] is None or item["high"] is None:
        return ""
    return f"{100 * item['low']:+.1f} to {100 * item['high']:+.1f}"


def _chance(p: float | None) -> str:
    if p is None:
        return ""
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def paper_columns(table: Mapping[str, Any]) -> Columns:
    """One of the paper's tables, with ours below."""
    paper, ours = table["paper"], table["ours"]

    def column(values: Iterable[Any], own: Iterable[Any]) -> list[str]:
        printed = ["-" if value is None else f"{value:.1f}" for value in values]
        return printed + ["" if cell is None else str(cell["text"]) for cell in own]

    names = [row["system"] for row in paper] + [f"ours: {row['system']}" for row in ours]
    columns = [("system", names)]
    for key in (column["key"] for column in table["columns"]):
        values = column((r["values"].get(key) for r in paper), (r["values"].get(key) for r in ours))
        columns.append((key, values))
    if any("average" in row for row in paper):
        values = column((r.get("average") for r in paper), (r.get("average") for r in ours))
        columns.append(("Average", values))
    return columns


def _figure(main: Sequence[Result], *, name: str) -> Figure:
    """A panel for each task, a dot for each restart."""
    by_task: dict[str, list[Result]] = {}
    for row in main:
        by_task.setdefault(str(row["task"]), []).append(row)
    panels = tuple(
        _panel(task, rows, name=f"{name}-{number}")
        for number, (task, rows) in enumerate(by_task.items())
    )
    has = (
        any(len(row["runs"]) > 0 for row in main),
        any(len(row["runs"]) > 1 for row in main),
        any(row["ensemble"] is not None for row in main),
        any(row["majority"] is not None for row in main),
        any(BASE in row["paper"] for row in main),
    )
    legend = tuple(key for key, is_drawn in zip(_LEGEND, has, strict=True) if is_drawn)
    note = " ".join(["Metrics on dev, times 100.", *_notes(main)])
    return Figure(panels=panels, legend=legend, note=note)


def _panel(task: str, rows: Sequence[Result], *, name: str) -> Panel:
    numbers = [number for row in rows for number in _numbers(row)]
    names = tuple(marked(str(row["entry"]), row.get("cut", ())) for row in rows)
    plot = Plot(
        Axis.around(numbers or [0.0], least=_LEAST_SPAN),  # else a tenth looks like a world
        Axis(low=len(rows) - 0.4, high=-0.6, names=names),
        height=_FRAME + _ROW * len(rows),
    )
    for position, row in enumerate(rows):
        _draw_row(plot, position, row)
    said = [f"{row['entry']} {mean_text(row) or 'no value'}" for row in rows]
    title = f"{task}: {rows[0]['metric']}"
    description = f"Each restart as a dot. Means: {'; '.join(said)}."
    return Panel(title=title, svg=plot.svg(name=name, title=title, description=description))


def _numbers(row: Result) -> list[float]:
    """All that is drawn of a row, times 100."""
    shares = [*row["runs"], row["ensemble"], row["majority"]]
    paper = [row["paper"][BASE]] if BASE in row["paper"] else []
    return [*(100 * share for share in shares if share is not None), *paper]


def _draw_row(plot: Plot, position: int, row: Result) -> None:
    runs = [100 * run for run in row["runs"]]
    if row["majority"] is not None:
        x = 100 * row["majority"]
        plot.line([(x, position - 0.45), (x, position + 0.45)], look="dashed muted")
    offsets = [0.0] * len(runs)
    if len(runs) > 1:
        offsets = [_SPREAD * (2 * n / (len(runs) - 1) - 1) for n in range(len(runs))]
        mean = sum(runs) / len(runs)
        plot.line([(mean, position - 0.34), (mean, position + 0.34)], look="mean")
    points = [(run, position + offset) for run, offset in zip(runs, offsets, strict=True)]
    plot.dots(points, look="series-1")
    if row["ensemble"] is not None:
        plot.dots([(100 * row["ensemble"], position)], look="series-2", shape="triangle")
    if BASE in row["paper"]:
        plot.dots([(row["paper"][BASE], position)], look="hollow", shape="diamond")
