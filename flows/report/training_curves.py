"""Curves of pretraining: one panel for each quantity, with the phases end to end."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from flows.plots import COLORS, SERIES, figure_svg, format_tick, new_figure, plot_style
from flows.report.figure_cache import Figure, Key, Panel
from flows.report.run_steps import Built
from flows.store.artifact import Artifact
from flows.store.artifacts import ArtifactStore
from model.training.artifact_files import CURVES_FILE, TIMINGS_FILE

Point = tuple[float, float]

_MAX_POINTS = 400
"""Maximum number of points of a phase. More are averaged."""

_LEGEND = (
    Key(mark="line series-1", label="training"),
    Key(mark="dot series-2", label="held-out documents"),
)


class _Quantity(NamedTuple):
    title: str
    unit: str
    train: str
    held_out: str = ""
    factor: float = 1.0
    chance: float | None = None  # value of a random guess
    from_zero: bool = False


_LOSS = _Quantity("Masked LM loss", "nats per token", "mlm_loss", "held_out_mlm_loss")
_QUANTITIES = (
    _LOSS,
    _Quantity(
        "Masked LM accuracy", "%", "mlm_accuracy", "held_out_mlm_accuracy", 100, from_zero=True
    ),
    _Quantity("Next sentence loss", "nats per pair", "nsp_loss", "held_out_nsp_loss"),
    _Quantity("Next sentence accuracy", "%", "nsp_accuracy", "held_out_nsp_accuracy", 100, 50),
    _Quantity("Learning rate", "", "learning_rate", from_zero=True),
    _Quantity("Speed", "tokens/s", "tokens_per_second", from_zero=True),
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
    records = read_phases(store, phases)
    panels = [
        _panel(quantity, records, name=f"{name}-{number}")
        for number, quantity in enumerate(_QUANTITIES)
        if any(phase.points(quantity.train) for phase in records)
    ]
    note = "The horizontal axis counts updates of the weights"
    if any(phase.points(_LOSS.train, axis="tokens") for phase in records):
        panels.insert(1, _panel(_LOSS, records, name=f"{name}-tokens", axis="tokens"))
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


def _panel(quantity: _Quantity, phases: Sequence[Phase], *, name: str, axis: str = "step") -> Panel:
    figure, axes = new_figure()
    notes = []
    for phase in phases:
        training, held_out = (
            phase.points(field, axis=axis, factor=quantity.factor)
            for field in (quantity.train, quantity.held_out)
        )
        marker = "o" if len(training) == 1 else ""
        axes.plot(*_columns(average_points(training)), marker=marker, color=SERIES[0])
        axes.plot(*_columns(held_out), "o-", color=SERIES[1], clip_on=False)
        notes = [
            f"{word} {_value_text(points[-1][1])}{' %' if quantity.unit == '%' else ''}"
            for word, points in (("training", training), ("held-out", held_out))
            if points
        ]
        if phase is not phases[0]:
            axes.axvline(phase.start[axis], color=COLORS["muted"], linestyle=(0, (4, 3)))
    note = f"At the end: {', '.join(notes)}." if notes else ""
    if quantity.chance is not None:
        axes.axhline(quantity.chance, color=COLORS["ink"], linestyle=(0, (1, 3)))
        note += f" Dotted: a random guess, {quantity.chance:g} %."
    axes.set_xlim(0, 1.02 * phases[-1].end[axis])
    axes.set_ylabel(quantity.unit)
    if quantity.from_zero:
        axes.set_ylim(bottom=0)
    title = quantity.title
    if axis == "tokens":
        title, note = f"{title} over tokens", f"{phases[-1].end[axis]:,.0f} tokens seen. {note}"
    return Panel(name, title, figure_svg(figure, name=name, title=title), note.strip())


def _columns(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


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
