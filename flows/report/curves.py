"""Curves of pretraining: a panel for each quantity, the phases end to end."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flows.report.figures import Figure, Key, Panel
from flows.report.plots import Axis, Plot, Point, number_text
from flows.report.steps import Built
from flows.store.artifacts import ArtifactStore
from model.training.artifact_files import CURVES_FILE, TIMINGS_FILE
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.manifest import Manifest

_POINTS = 400
"""Maximum number of points per phase. More lines are averaged."""

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
    guess: float | None = None  # what guessing gives
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


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A phase's lines, moved to where it begins."""

    name: str
    begin: int
    end: int
    """Updates of the weights, over all phases."""

    begin_tokens: int
    end_tokens: int
    """Tokens that were seen, over all phases."""

    lines: Sequence[Mapping[str, Any]]
    """Lines of curves and timing, each with its `step` in the phase."""

    def points(self, field: str, *, factor: float) -> list[Point]:
        """(update, value) of every line that has the field as a finite number."""
        found = (
            (self.begin + float(line["step"]), factor * float(line[field]))
            for line in self.lines
            if field in line
        )
        return [(x, y) for x, y in found if math.isfinite(y)]

    def points_by_tokens(self, field: str, *, factor: float) -> list[Point]:
        """(tokens seen, value) of the same lines, those of held-out documents by their step."""
        seen = {line["step"]: line["tokens"] for line in self.lines if "tokens" in line}
        found = (
            (self.begin_tokens + float(seen[line["step"]]), factor * float(line[field]))
            for line in self.lines
            if field in line and line["step"] in seen
        )
        return [(x, y) for x, y in found if math.isfinite(y)]


def curve_figure(store: ArtifactStore, pretrained: Sequence[Built], *, name: str) -> Figure:
    """The curves of phases, each after the one before.

    Raises:
        ArtifactNotFoundError: an artifact has no curves.
        ArtifactCorruptError, OSError, ValueError: a file is missing or damaged.
    """
    phases = read_phases(store, pretrained)
    panels = [
        _panel(quantity, phases, name=f"{name}-{number}")
        for number, quantity in enumerate(_QUANTITIES)
        if any(phase.points(quantity.train, factor=1) for phase in phases)
    ]
    note = "The horizontal axis counts updates of the weights."
    if any(phase.points_by_tokens(_LOSS.train, factor=1) for phase in phases):
        panels.insert(1, _panel(_LOSS, phases, name=f"{name}-tokens", by_tokens=True))
        note = (
            "The horizontal axis counts updates of the weights, or tokens where the title says so."
        )
    if len(phases) > 1:
        order = ", then ".join(phase.name for phase in phases)
        note += f" Dashed lines part the phases: {order}."
    return Figure(panels=tuple(panels), legend=_LEGEND, note=note)


def read_phases(store: ArtifactStore, pretrained: Sequence[Built]) -> list[Phase]:
    """The records of phases, placed end to end."""
    phases: list[Phase] = []
    begin, begin_tokens = 0, 0
    for built in pretrained:
        curves = list(_lines(store, built.manifest, CURVES_FILE))
        if not curves:
            raise ArtifactCorruptError(
                f"{built.manifest.manifest_path}: {CURVES_FILE} has no lines"
            )
        timing = list(_lines(store, built.manifest, TIMINGS_FILE))
        end = begin + max(int(line["step"]) for line in curves)
        end_tokens = begin_tokens + max(int(line.get("tokens", 0)) for line in curves)
        phase = Phase(
            name=built.name, begin=begin, end=end, lines=[*curves, *timing],
            begin_tokens=begin_tokens, end_tokens=end_tokens,
        )  # fmt: skip
        phases.append(phase)
        begin, begin_tokens = end, end_tokens
    return phases


def _lines(store: ArtifactStore, manifest: Manifest, path: str) -> Iterator[dict[str, Any]]:
    entry = manifest.file(path)
    if entry is None:
        raise ArtifactNotFoundError(f"{manifest.manifest_path}: the artifact lists no {path}")
    stored = store.backend.read(f"{manifest.data_path}/{entry.stored_name}")
    for number, text in enumerate(stored.decode().splitlines(), 1):
        line = json.loads(text)
        if not isinstance(line, dict) or "step" not in line:
            raise ArtifactCorruptError(
                f"{manifest.manifest_path}: {path}, line {number}: expected an object with a step"
            )
        yield line


def _panel(
    quantity: _Quantity, phases: Sequence[Phase], *, name: str, by_tokens: bool = False
) -> Panel:
    def points(phase: Phase, field: str) -> list[Point]:
        read = phase.points_by_tokens if by_tokens else phase.points
        return read(field, factor=quantity.factor)

    trained = [thinned(points(phase, quantity.train)) for phase in phases]
    held_out = [points(phase, quantity.held_out) for phase in phases]
    values = [y for found in (*trained, *held_out) for _, y in found]
    if quantity.guess is not None:
        values.append(quantity.guess)
    last = phases[-1]
    plot = Plot(
        Axis(low=0, high=1.02 * (last.end_tokens if by_tokens else last.end)),
        Axis.around(values, label=quantity.unit, from_zero=quantity.from_zero),
    )
    for phase in phases[1:]:
        plot.upright(phase.begin_tokens if by_tokens else phase.begin, look="dashed muted")
    if quantity.guess is not None:
        plot.level(quantity.guess, look="dotted")
    for found in trained:
        if len(found) == 1:
            plot.dots(found, look="series-1")
        plot.line(found, look="series-1")
    for found in held_out:
        plot.line(found, look="series-2")
        plot.dots(found, look="series-2")
    note = _note(quantity, training=points(last, quantity.train), held_out=held_out[-1])
    if by_tokens:
        note = f"{last.end_tokens:,} tokens seen. {note}"
    title = f"{quantity.title} over tokens" if by_tokens else quantity.title
    over = "tokens seen" if by_tokens else "updates of the weights"
    svg = plot.svg(name=name, title=title, description=f"Curve over {over}. {note}")
    return Panel(title=title, note=note, svg=svg)


def thinned(points: Sequence[Point]) -> list[Point]:
    """Return at most 400 points, each the mean of equally many neighbors."""
    size = -(-len(points) // _POINTS) or 1
    groups = (points[start : start + size] for start in range(0, len(points), size))
    return [
        (sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group))
        for group in groups
    ]


def _note(quantity: _Quantity, *, training: Sequence[Point], held_out: Sequence[Point]) -> str:
    """Return a sentence on the last values."""
    parts = []
    for word, found in (("training", training), ("held-out", held_out)):
        if found:
            value = found[-1][1]
            text = number_text(float(f"{value:.3g}")) if abs(value) < 1e4 else f"{value:,.0f}"
            parts.append(f"{word} {text}{' %' if quantity.unit == '%' else ''}")
    text = f"At the end: {', '.join(parts)}." if parts else ""
    if quantity.guess is not None:
        text += f" Dotted: guessing, {quantity.guess:g} %."
    return text.strip()
