"""Curves of pretraining: one panel for each quantity, with the phases end to end."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from flows.plots import Axis, Chart, Point, format_tick, linear_axis, log_axis
from flows.report.figures import Figure, Key, Panel
from flows.report.run_steps import Built
from flows.store.artifact import StoredArtifact
from flows.store.artifacts import ArtifactStore
from model.training.artifact_files import CURVES_FILE, TIMINGS_FILE

_MAX_POINTS = 400
"""Maximum number of points of a phase. More are averaged."""

_LEGEND = (
    Key(mark="line series-1", label="training"),
    Key(mark="dot series-2", label="held-out documents"),
)


class Curve(NamedTuple):
    """A training value, and its held-out value if there is one."""

    title: str
    unit: str
    train: str
    """Field of the training's records."""

    held_out: str = ""
    """Field of the evaluations' records."""

    factor: float = 1.0
    is_log: bool = False
    starts_at_zero: bool = False
    chance: float | None = None
    """Value of a random guess."""


CURVES = (
    Curve("LM loss", "nats per predicted token", "mlm_loss", "held_out_mlm_loss"),
    Curve("LM accuracy", "%", "mlm_accuracy", "held_out_mlm_accuracy", 100, starts_at_zero=True),
    Curve("Next sentence loss", "nats per pair", "nsp_loss", "held_out_nsp_loss"),
    Curve("Next sentence accuracy", "%", "nsp_accuracy", "held_out_nsp_accuracy", 100, chance=50),
    Curve("Learning rate", "10\u207b\u2076", "learning_rate", factor=1e6, starts_at_zero=True),
    Curve("Gradient norm before clipping", "Euclidean norm", "gradient_norm", is_log=True),
    Curve("Throughput", "thousand tokens/s", "tokens_per_second", factor=1e-3, starts_at_zero=True),
    Curve(
        "Model FLOPs utilization",
        "% of peak",
        "model_flops_utilization",
        factor=100,
        starts_at_zero=True,
    ),
)


class Phase(NamedTuple):
    """Records of a phase of pretraining."""

    name: str
    start: float
    """Number of updates of the phases before."""

    end: float
    records: Sequence[dict[str, Any]]
    """Lines of curves and timings. `step` counts from the start of the first phase."""

    def points(self, field: str, *, factor: float = 1.0) -> list[Point]:
        """Return (step, value) of every record with a finite value."""
        points = (
            (record["step"], factor * float(record[field]))
            for record in self.records
            if field in record
        )
        return [(x, y) for x, y in points if math.isfinite(y)]


def curve_figure(store: ArtifactStore, phases: Sequence[Built]) -> Figure:
    """Draw the curves of phases.

    Raises:
        ArtifactNotFoundError: An artifact has no curves.
        ArtifactCorruptError: A file is missing or damaged.
    """
    records = read_phases(store, phases)
    curves = [curve for curve in CURVES if any(phase.points(curve.train) for phase in records)]
    panels = [_draw(curve, records) for curve in curves]
    note = "The horizontal axis counts updates of the weights"
    if len(records) > 1:
        order = ", then ".join(phase.name for phase in records)
        note += f". Dashed lines separate the phases: {order}"
    return Figure(tuple(panels), _LEGEND, f"{note}.")


def read_phases(store: ArtifactStore, phases: Sequence[Built]) -> list[Phase]:
    """Return the records of phases, placed end to end."""
    listed: list[Phase] = []
    for built in phases:
        artifact = store.artifact(built.manifest)
        lines = [*_read_lines(artifact, CURVES_FILE), *_read_lines(artifact, TIMINGS_FILE)]
        start = listed[-1].end if listed else 0.0
        records = [{**line, "step": start + line["step"]} for line in lines]
        end = max((record["step"] for record in records), default=start)
        listed.append(Phase(built.name, start, end, records))
    return listed


def _read_lines(artifact: StoredArtifact, path: str) -> list[dict[str, Any]]:
    with artifact.open(path) as source:
        return [json.loads(line) for line in source]


def _draw(curve: Curve, phases: Sequence[Phase]) -> Panel:
    training, held_out = (
        [reduce(phase.points(field, factor=curve.factor)) for phase in phases]
        for field, reduce in ((curve.train, average_points), (curve.held_out, list))
    )
    values = [y for points in (*training, *held_out) for _, y in points]
    x = linear_axis(0.0, 1.02 * phases[-1].end)
    chart = Chart(curve.title, x=x, y=_value_axis(curve, values))
    if curve.chance is not None:
        chart.horizontal(curve.chance, "muted")
    for phase in phases[1:]:
        chart.vertical(phase.start, "muted")
    for points in training:
        chart.line(points, "series-1")
    for points in held_out:
        chart.line(points, "series-2", width=1.0)
        chart.dots(points, "series-2", radius=2.2)
    return Panel(curve.title, chart.svg(), _note(curve, training, held_out))


def _value_axis(curve: Curve, values: Sequence[float]) -> Axis:
    """Return the axis of values, which are finite; a logarithmic one shows only those above 0."""
    unit = curve.unit
    shown = [*values, *([curve.chance] if curve.chance is not None else [])]
    if curve.is_log and min(shown) > 0:
        return log_axis(0.9 * min(shown), 1.1 * max(shown), unit)
    margin = 0.05 * (max(shown) - min(shown))
    low = min(0.0, min(shown)) if curve.starts_at_zero else min(shown) - margin
    return linear_axis(low, max(shown) + margin, unit)


def _note(
    curve: Curve, training: Sequence[Sequence[Point]], held_out: Sequence[Sequence[Point]]
) -> str:
    """Return the last values, and what the horizontal lines mean."""
    notes = list[str]()
    if curve.held_out:
        unit = " %" if curve.unit == "%" else ""
        lasts = {
            name: points[-1][1]
            for name, group in (("training", training), ("held-out", held_out))
            for points in group
            if points
        }
        ends = ", ".join(f"{name} {_value_text(value)}{unit}" for name, value in lasts.items())
        notes.append(f"At the end: {ends}.")
    if curve.chance is not None:
        notes.append(f"Dashed: a random guess, {curve.chance:g} %.")
    return " ".join(notes)


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
