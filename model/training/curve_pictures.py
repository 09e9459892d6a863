"""The curves of a training as a picture, several phases one after the other."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from model.training.curves import Curves, EvaluationRecord, SpeedRecord, StepRecord
from schemas.errors import TrainingError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]
XUnit = Literal["steps", "tokens"]

# Okabe and Ito's palette, which the colour-blind can tell apart.
_TRAIN, _HELD_OUT, _GREY = "#0072B2", "#D55E00", "#666666"
_SMOOTHED_FROM = 40  # lines of a phase; fewer are drawn as they are
_SIGMA_SHARE = 1 / 100  # standard deviation of the smoothing, as a share of all lines drawn
_WIDTH, _ROW_HEIGHT, _DPI = 11.0, 2.5, 120


class _Panel(NamedTuple):
    """One diagram: what is drawn of steps or speeds, what of evaluations, and how."""

    title: str
    unit: str  # "" where numbers are given times a power of ten
    train: str  # field of StepRecord or SpeedRecord
    held_out: str = ""  # field of EvaluationRecord
    factor: float = 1.0
    is_log: bool = False
    is_noisy: bool = True
    from_zero: bool = False
    chance: float | None = None  # what guessing gives
    legend: Literal["upper right", "lower right"] = "upper right"  # away from a line that learns


_PANELS = (
    _Panel("LM loss", "nats per predicted token", "mlm_loss", "held_out_mlm_loss"),
    _Panel(
        "LM accuracy",
        "%",
        "mlm_accuracy",
        "held_out_mlm_accuracy",
        factor=100,
        from_zero=True,
        legend="lower right",
    ),
    _Panel("Next sentence loss", "nats per pair", "nsp_loss", "held_out_nsp_loss"),
    _Panel(
        "Next sentence accuracy",
        "%",
        "nsp_accuracy",
        "held_out_nsp_accuracy",
        factor=100,
        chance=50,
        legend="lower right",
    ),
    _Panel("Learning rate", "", "learning_rate", is_noisy=False, from_zero=True),
    _Panel("Gradient norm before clipping", "Euclidean norm", "gradient_norm", is_log=True),
    _Panel("Speed", "thousand tokens/s", "tokens_per_second", factor=1e-3, from_zero=True),
    _Panel(
        "Model FLOPs utilisation",
        "% of peak",
        "model_flops_utilisation",
        factor=100,
        from_zero=True,
    ),
)


class _Line(NamedTuple):
    """Numbers of one phase over steps or tokens; those that are missing are nan."""

    x: Floats
    y: Floats


class _Phase(NamedTuple):
    name: str
    curves: Curves
    begin: float  # on the common axis
    end: float


def draw_curves(
    phases: Sequence[tuple[str, Curves]],
    path: str | os.PathLike[str],
    *,
    x: XUnit = "steps",
    title: str = "",
) -> None:
    """Write a PNG: losses, accuracies, learning rate, gradient norm and speed over the training.

    Raw lines are faint, with a smoothed line above; held-out values are points. Nothing of
    matplotlib's global state is used or changed, no screen is needed, and equal curves give equal
    bytes with one version of matplotlib.

    Args:
        phases: names and records, in the order they were trained; each begins where the one before
            ends.
        path: local file to write.
        x: what the horizontal axis counts. Tokens compare phases with different batches.
        title: above it all.

    Raises:
        TrainingError: no phase has a line.
    """
    placed = _placed([(name, curves) for name, curves in phases if curves.steps], x=x)
    if not placed:
        raise TrainingError(
            f"{path}: found no line of training in {len(phases)} phases, expected at least one: "
            "draw the curves after the first steps are logged"
        )
    panels = [panel for panel in _PANELS if _has_values(panel, placed)]
    Path(path).write_bytes(_png(panels, placed, x=x, title=title))


def _placed(phases: Sequence[tuple[str, Curves]], *, x: XUnit) -> list[_Phase]:
    placed: list[_Phase] = []
    begin = 0.0
    for name, curves in phases:
        last: list[StepRecord | EvaluationRecord] = [curves.steps[-1], *curves.evaluations[-1:]]
        end = begin + max(record.step if x == "steps" else record.tokens for record in last)
        placed.append(_Phase(name, curves, begin, end))
        begin = end
    return placed


def _has_values(panel: _Panel, phases: Sequence[_Phase]) -> bool:
    return any(np.isfinite(_train_line(panel, phase, x="steps").y).any() for phase in phases)


def _train_line(panel: _Panel, phase: _Phase, *, x: XUnit) -> _Line:
    if panel.train in StepRecord._fields:
        return _line(panel.train, phase.curves.steps, phase, x=x, factor=panel.factor)
    return _line(panel.train, phase.curves.speeds, phase, x=x, factor=panel.factor)


def _line(
    field: str,
    records: Sequence[StepRecord | EvaluationRecord | SpeedRecord],
    phase: _Phase,
    *,
    x: XUnit,
    factor: float,
) -> _Line:
    """A field over the common axis; speeds know only their step, so tokens are looked up."""
    tokens = {record.step: record.tokens for record in phase.curves.steps}
    tokens |= {record.step: record.tokens for record in phase.curves.evaluations}
    shown = [record for record in records if x == "steps" or record.step in tokens]
    places = [record.step if x == "steps" else tokens[record.step] for record in shown]
    values = [getattr(record, field) for record in shown]
    y = np.array([np.nan if value is None else value for value in values], np.float64)
    return _Line(np.array(places, np.float64) + phase.begin, y * factor)


def smoothed(y: Floats, *, sigma: float) -> Floats:
    """The running mean of a line under a Gaussian of standard deviation `sigma`, in places.

    It looks to both sides, so it does not lag behind, and passes over what is not finite.
    """
    reach = min(len(y) - 1, int(np.ceil(3 * sigma)))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    finite = np.isfinite(y)
    middle = slice(reach, reach + len(y))
    sums = np.convolve(np.where(finite, y, 0.0), kernel)[middle]
    weights = np.convolve(finite.astype(np.float64), kernel)[middle]
    means: Floats = np.divide(sums, weights, out=np.full(len(y), np.nan), where=weights > 0)
    return means


def _png(panels: Sequence[_Panel], phases: Sequence[_Phase], *, x: XUnit, title: str) -> bytes:
    # Figure and canvas themselves, not pyplot, which would choose a backend for the whole process.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(_WIDTH, rows * _ROW_HEIGHT + 0.7), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, 2, squeeze=False)
    divisor, x_label = _x_unit(phases[-1].end, x=x)
    for number, axes in enumerate(grid.flat):
        if number >= len(panels):
            axes.set_axis_off()
            continue
        _draw_panel(panels[number], axes, phases, x=x)
        axes.set_xlim(0, phases[-1].end)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / divisor:,.10g}")
        if number >= len(panels) - 2:
            axes.set_xlabel(x_label)
        if number < 2 and len(phases) > 1:
            _name_phases(axes, phases)
    name = phases[0].name if len(phases) == 1 else ""
    if shown := ": ".join(part for part in (title, name) if part):
        figure.suptitle(shown, fontsize=12)
    data = io.BytesIO()
    figure.savefig(data, format="png", metadata={"Software": None})  # else it names the version
    return data.getvalue()


def _x_unit(end: float, *, x: XUnit) -> tuple[float, str]:
    """What numbers on the axis are divided by, and its label."""
    if x == "steps":
        return 1.0, "updates of the weights"
    divisor, word = (1e9, "billion") if end >= 2e9 else (1e6, "million")
    return divisor, f"{word} tokens read"


def _draw_panel(panel: _Panel, axes: Axes, phases: Sequence[_Phase], *, x: XUnit) -> None:
    sigma = _SIGMA_SHARE * sum(len(phase.curves.steps) for phase in phases)
    for phase in phases:
        _draw_phase(panel, axes, phase, x=x, sigma=sigma, is_labelled=phase is phases[0])
    if panel.chance is not None:
        axes.axhline(panel.chance, color=_GREY, linewidth=0.9, linestyle=":", label="guessing")
    for phase in phases[1:]:
        axes.axvline(phase.begin, color=_GREY, linewidth=0.8, linestyle="--")
    axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
    axes.set_ylabel(panel.unit or _use_power_of_ten(axes))
    if panel.is_log:
        _use_log_scale(axes)
    elif panel.from_zero:
        axes.set_ylim(bottom=0)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.held_out:
        axes.legend(loc=panel.legend, fontsize=8, framealpha=0.7, edgecolor="none")


def _draw_phase(
    panel: _Panel, axes: Axes, phase: _Phase, *, x: XUnit, sigma: float, is_labelled: bool
) -> None:
    trained = _train_line(panel, phase, x=x)
    is_smoothed = len(trained.y) >= _SMOOTHED_FROM and panel.is_noisy
    label = "training" if is_labelled else None
    if is_smoothed:
        axes.plot(trained.x, trained.y, color=_TRAIN, linewidth=0.6, alpha=0.3)
    sigma = min(max(1.0, sigma), len(trained.y) / 10)
    values = smoothed(trained.y, sigma=sigma) if is_smoothed else trained.y
    axes.plot(trained.x, values, color=_TRAIN, linewidth=1.6, label=label)
    evaluations = phase.curves.evaluations
    if panel.held_out and evaluations:
        held_out = _line(panel.held_out, evaluations, phase, x=x, factor=panel.factor)
        label = "held-out" if is_labelled else None
        axes.plot(held_out.x, held_out.y, color=_HELD_OUT, linewidth=1.0, zorder=3)
        # Points are not cut at the frame, where the evaluation at the end of training lies.
        points = axes.scatter(held_out.x, held_out.y, s=16, color=_HELD_OUT, label=label, zorder=4)
        points.set_clip_on(False)


def _use_power_of_ten(axes: Axes) -> str:
    """Give the numbers times a power of ten, which is returned; matplotlib's own hides in a corner.

    Its offset text lies where the title is.
    """
    exponent = int(np.floor(np.log10(max(axes.get_ylim()[1], 1e-300))))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 10.0**exponent:.3g}")
    return rf"$\times\,10^{{{exponent}}}$"


def _use_log_scale(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log", nonpositive="mask")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _name_phases(axes: Axes, phases: Sequence[_Phase]) -> None:
    """Each phase's name above its part of the diagram."""
    top = axes.secondary_xaxis("top")
    top.set_xticks([(phase.begin + phase.end) / 2 for phase in phases])
    top.set_xticklabels([phase.name for phase in phases], fontsize=8, color=_GREY)
    top.tick_params(length=0, pad=1)
    top.spines["top"].set_visible(False)
