"""Curves of pretraining: a panel for each quantity, the phases end to end."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from flows.report.drawing import GRID, MUTED, PAPER, SERIES, draw_panel, number_text
from flows.report.kept_figures import Figure, Key, Panel
from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.manifest import Manifest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVES_FILE = "curves.jsonl"
TIMING_FILE = "timing.jsonl"
_TRAIN, _HELD_OUT = SERIES[0], SERIES[1]
_POINTS = 400  # drawn of a phase; of more lines, means of neighbours
_LEGEND = (
    Key(mark="line series-1", label="training"),
    Key(mark="dot series-2", label="held-out documents"),
)

Point = tuple[float, float]


class _Quantity(NamedTuple):
    title: str
    unit: str
    train: str
    held_out: str = ""
    factor: float = 1.0
    guess: float | None = None  # what guessing gives
    from_zero: bool = False


_QUANTITIES = (
    _Quantity("Masked LM loss", "nats per token", "mlm_loss", "held_out_mlm_loss"),
    _Quantity(
        "Masked LM accuracy", "%", "mlm_accuracy", "held_out_mlm_accuracy", 100, from_zero=True
    ),
    _Quantity("Next sentence loss", "nats per pair", "nsp_loss", "held_out_nsp_loss"),
    _Quantity("Next sentence accuracy", "%", "nsp_accuracy", "held_out_nsp_accuracy", 100, 50),
    _Quantity("Learning rate", "", "learning_rate", from_zero=True),
    _Quantity("Speed", "tokens/s", "tokens_per_second", from_zero=True),
)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A phase's lines, moved to where it begins."""

    name: str
    begin: int
    end: int
    """Updates of the weights, over all phases."""

    lines: Sequence[Mapping[str, Any]]
    """Of curves and timing, each with its `step` in the phase."""

    def points(self, field: str, *, factor: float) -> list[Point]:
        """(update, value) of every line that has the field as a finite number."""
        found = (
            (self.begin + float(line["step"]), factor * float(line[field]))
            for line in self.lines
            if field in line
        )
        return [(x, y) for x, y in found if math.isfinite(y)]


def curve_figure(
    store: ArtifactStore, manifests: Sequence[tuple[str, Manifest]], *, name: str
) -> Figure:
    """The curves of phases, each after the one before.

    Raises:
        ArtifactNotFoundError: an artifact has no curves.
        ArtifactCorruptError, OSError, ValueError: a file is missing or damaged.
    """
    phases = read_phases(store, manifests)
    panels = tuple(
        _panel(quantity, phases, name=f"{name}-{number}")
        for number, quantity in enumerate(_QUANTITIES)
        if any(phase.points(quantity.train, factor=1) for phase in phases)
    )
    note = "The horizontal axis counts updates of the weights."
    if len(phases) > 1:
        order = ", then ".join(phase.name for phase in phases)
        note += f" Dashed lines part the phases: {order}."
    return Figure(panels=panels, legend=_LEGEND, note=note)


def read_phases(store: ArtifactStore, manifests: Sequence[tuple[str, Manifest]]) -> list[Phase]:
    """The records of phases, placed end to end."""
    phases: list[Phase] = []
    begin = 0
    for label, manifest in manifests:
        curves = list(_lines(store, manifest, CURVES_FILE))
        if not curves:
            raise ArtifactCorruptError(f"{manifest.path}: {CURVES_FILE} has no lines")
        timing = list(_lines(store, manifest, TIMING_FILE))
        end = begin + max(int(line["step"]) for line in curves)
        name = label.partition(".")[2] or label
        phases.append(Phase(name=name, begin=begin, end=end, lines=[*curves, *timing]))
        begin = end
    return phases


def _lines(store: ArtifactStore, manifest: Manifest, path: str) -> Iterator[dict[str, Any]]:
    entry = manifest.file(path)
    if entry is None:
        raise ArtifactNotFoundError(f"{manifest.path}: the artifact lists no {path}")
    stored = store.backend.read(f"{manifest.data}/{entry.object}")
    for number, text in enumerate(stored.decode().splitlines(), 1):
        line = json.loads(text)
        if not isinstance(line, dict) or "step" not in line:
            raise ArtifactCorruptError(
                f"{manifest.path}: {path}, line {number}: expected an object with a step"
            )
        yield line


def _panel(quantity: _Quantity, phases: Sequence[Phase], *, name: str) -> Panel:
    note = _note(quantity, phases)

    def draw(axes: Axes) -> None:
        for phase in phases:
            _draw_phase(axes, quantity, phase)
        for phase in phases[1:]:
            axes.axvline(phase.begin, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        if quantity.guess is not None:
            axes.axhline(quantity.guess, color=MUTED, linewidth=0.9, linestyle=":")
        if quantity.from_zero:
            axes.set_ylim(bottom=0)
        axes.set_ylabel(quantity.unit)
        axes.set_xlim(0, phases[-1].end * 1.02)
        axes.grid(color=GRID, linewidth=0.7)
        axes.xaxis.set_major_formatter(lambda value, _: number_text(value))
        axes.yaxis.set_major_formatter(lambda value, _: number_text(value))
        axes.locator_params(nbins=6)

    title, description = quantity.title, f"Curve over updates of the weights. {note}"
    svg = draw_panel(draw, name=name, title=title, description=description)
    return Panel(title=title, note=note, svg=svg)


def _draw_phase(axes: Axes, quantity: _Quantity, phase: Phase) -> None:
    trained = thinned(phase.points(quantity.train, factor=quantity.factor))
    if trained:
        x, y = zip(*trained, strict=True)
        axes.plot(x, y, color=_TRAIN, linewidth=1.5, marker="o" if len(x) == 1 else "", ms=4)
    held_out = phase.points(quantity.held_out, factor=quantity.factor) if quantity.held_out else []
    if held_out:
        x, y = zip(*held_out, strict=True)
        axes.plot(x, y, color=_HELD_OUT, linewidth=1.0, zorder=3)
        points = axes.scatter(x, y, s=26, color=_HELD_OUT, edgecolors=PAPER, lw=0.8, zorder=4)
        points.set_clip_on(False)


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most a few hundred points: means of as many neighbours each."""
    size = -(-len(points) // _POINTS) or 1
    groups = (points[start : start + size] for start in range(0, len(points), size))
    return [
        (sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group))
        for group in groups
    ]


def _note(quantity: _Quantity, phases: Sequence[Phase]) -> str:
    """Where it ended, in words."""
    parts = []
    for field, word in ((quantity.train, "training"), (quantity.held_out, "held-out")):
        points = phases[-1].points(field, factor=quantity.factor) if field else []
        if points:
            unit = "%" if quantity.unit == "%" else ""
            value = points[-1][1]
            text = number_text(float(f"{value:.3g}")) if abs(value) < 1e4 else f"{value:,.0f}"
            parts.append(f"{word} {text} {unit}".strip())
    text = f"At the end: {', '.join(parts)}." if parts else ""
    if quantity.guess is not None:
        text += f" Dotted: guessing, {quantity.guess:g} %."
    return text.strip()
