"""Curves of pretraining: one panel for each quantity, with the phases end to end."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flows.plots import COLORS, figure_svg, format_tick, format_ticks, new_figure, plot_style
from flows.report.figure_cache import Figure, Key, Panel
from flows.report.run_steps import Built
from flows.store.artifact import Artifact
from flows.store.artifacts import ArtifactStore
from model.training.artifact_files import CURVES_FILE, TIMINGS_FILE

if TYPE_CHECKING:
    from model.monitoring.plots import Panel as CurvePanel

Point = tuple[float, float]

_MAX_POINTS = 400
"""Maximum number of points of a phase. More are averaged."""

_LEGEND = (
    Key(mark="line series-1", label="training"),
    Key(mark="dot series-2", label="held-out documents"),
)


class Phase(NamedTuple):
    """Records of a phase of pretraining."""

    name: str
    start: dict[str, float]
    """Updates and tokens of the phases before, by axis: `step`, `tokens`."""

    end: dict[str, float]
    records: Sequence[dict[str, Any]]
    """Lines of curves and timings. `step` and `tokens` count from the start of the first phase."""

    def points(self, field: str, *, axis: str = "step", factor: float = 1.0) -> list[Point]:
        """Return (position on the axis, value) of every record with a finite value."""
        points = (
            (record[axis], factor * float(record[field]))
            for record in self.records
            if field in record and axis in record
        )
        return [(x, y) for x, y in points if math.isfinite(y)]


@plot_style()
def curve_figure(store: ArtifactStore, phases: Sequence[Built], *, name: str) -> Figure:
    """Draw the curves of phases.

    Raises:
        ArtifactNotFoundError: An artifact has no curves.
        ArtifactCorruptError: A file is missing or damaged.
    """
    from model.monitoring.plots import PANELS

    records = read_phases(store, phases)
    panels = [
        _draw(panel, records, name=f"{name}-{number}")
        for number, panel in enumerate(PANELS)
        if any(phase.points(panel.train) for phase in records)
    ]
    note = "The horizontal axis counts updates of the weights"
    if any(phase.points(PANELS[0].train, axis="tokens") for phase in records):
        panels.insert(1, _draw(PANELS[0], records, name=f"{name}-tokens", axis="tokens"))
        note += ", and tokens in panels with that title"
    if len(records) > 1:
        order = ", then ".join(phase.name for phase in records)
        note += f". Dashed lines separate the phases: {order}"
    return Figure(panels=tuple(panels), legend=_LEGEND, note=f"{note}.")


def read_phases(store: ArtifactStore, phases: Sequence[Built]) -> list[Phase]:
    """Return the records of phases, placed end to end."""
    placed: list[Phase] = []
    end = {"step": 0.0, "tokens": 0.0}
    for built in phases:
        artifact = store.artifact(built.manifest)
        lines = [*_read_lines(artifact, CURVES_FILE), *_read_lines(artifact, TIMINGS_FILE)]
        tokens = {line["step"]: line["tokens"] for line in lines if "tokens" in line}
        start = end
        records = []
        for line in lines:
            record = {**line, "step": start["step"] + line["step"]}
            if line["step"] in tokens:
                record["tokens"] = start["tokens"] + tokens[line["step"]]
            records.append(record)
        end = {axis: max(record.get(axis, start[axis]) for record in records) for axis in start}
        placed.append(Phase(built.name, start, end, records))
    return placed


def _read_lines(artifact: Artifact, path: str) -> list[dict[str, Any]]:
    with artifact.open(path) as source:
        return [json.loads(line) for line in source]


def _draw(curve: CurvePanel, phases: Sequence[Phase], *, name: str, axis: str = "step") -> Panel:
    from model.monitoring.plots import plot_panel

    figure, axes = new_figure()
    ends: dict[str, str] = {}
    for phase in phases:
        points = {
            "training": average_points(phase.points(curve.train, axis=axis, factor=curve.factor)),
            "held-out": phase.points(curve.held_out, axis=axis, factor=curve.factor),
        }
        training, held_out = (np.array(some).reshape(-1, 2).T for some in points.values())
        plot_panel(
            axes,
            curve._replace(is_smoothed=False),
            training=(training[0], training[1]),
            held_out=(held_out[0], held_out[1]),
        )
        unit = " %" if curve.unit == "%" else ""
        ends |= {
            key: f"{key} {_value_text(some[-1][1])}{unit}" for key, some in points.items() if some
        }
        if phase is not phases[0]:
            axes.axvline(phase.start[axis], color=COLORS["muted"], linestyle=(0, (4, 3)))
    format_ticks(axes.yaxis)
    axes.set_xlim(0, 1.02 * phases[-1].end[axis])
    note = f"At the end: {', '.join(ends.values())}." if curve.held_out else ""
    if curve.chance is not None:
        note += f" Dotted: a random guess, {curve.chance:g} %."
    title = curve.title
    if axis == "tokens":
        title, note = f"{title} over tokens", f"{phases[-1].end[axis]:,.0f} tokens seen. {note}"
    return Panel(name, title, figure_svg(figure, name=name, title=title), note.strip())


def average_points(points: Sequence[Point]) -> list[Point]:
    """Return at most 400 points, each the mean of equally many neighbors."""
    size = -(-len(points) // _MAX_POINTS) or 1
    groups = (points[start : start + size] for start in range(0, len(points), size))
    return [
        (sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group))
        for group in groups
    ]


def _value_text(value: float) -> str:
    return format_tick(float(f"{value:.3g}")) if abs(value) < 1e4 else f"{value:,.0f}"
