"""The curves of a training as a picture."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from model.telling.curves import Curves, EvaluationRecord, SpeedRecord, StepRecord
from schemas.errors import TrainingError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]
Record = StepRecord | EvaluationRecord | SpeedRecord

# Okabe and Ito's palette, which the colour-blind can tell apart.
_TRAIN, _HELD_OUT, _GREY = "#0072B2", "#D55E00", "#666666"
_SMOOTHED_FROM = 40  # lines; fewer are drawn as they are
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


def draw_curves(name: str, curves: Curves, path: str | os.PathLike[str]) -> None:
    """Write a PNG: losses, accuracies, learning rate, gradient norm and speed over the training.

    Raw lines are faint, with a smoothed line above; held-out values are points. Nothing of
    matplotlib's global state is used or changed, no screen is needed, and equal curves give equal
    bytes with one version of matplotlib.

    Args:
        name: of the training, above it all.
        curves: its record.
        path: local file to write.

    Raises:
        TrainingError: there is no line yet.
    """
    if not curves.steps:
        raise TrainingError(
            f"{path}: found no line of training, expected at least one: draw the curves after the "
            "first steps are logged"
        )
    panels = [panel for panel in _PANELS if np.isfinite(_trained(panel, curves)[1]).any()]
    Path(path).write_bytes(_png(name, panels, curves))


def _trained(panel: _Panel, curves: Curves) -> tuple[Floats, Floats]:
    """A panel's numbers of training by step; those that are missing are nan."""
    records = curves.steps if panel.train in StepRecord._fields else curves.speeds
    return _line(panel.train, records, factor=panel.factor)


def _line(field: str, records: Sequence[Record], *, factor: float) -> tuple[Floats, Floats]:
    values = [getattr(record, field) for record in records]
    y = np.array([np.nan if value is None else value for value in values], np.float64)
    return np.array([record.step for record in records], np.float64), y * factor


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


def _png(name: str, panels: Sequence[_Panel], curves: Curves) -> bytes:
    # Figure and canvas themselves, not pyplot, which would choose a backend for the whole process.
    # start-up: 500 ms
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(panels) // 2)
    height = rows * _ROW_HEIGHT + 0.7
    figure = Figure(figsize=(_WIDTH, height), dpi=_DPI)
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, 2, squeeze=False, sharex=True)
    # Margins in inches: a layout engine would draw everything twice.
    figure.subplots_adjust(
        left=0.7 / _WIDTH, right=1 - 0.3 / _WIDTH, bottom=0.5 / height, top=1 - 0.75 / height,
        wspace=0.2, hspace=0.3,
    )  # fmt: skip
    last = [curves.steps[-1].step, *(record.step for record in curves.evaluations[-1:])]
    for number, axes in enumerate(grid.flat):
        if number >= len(panels):
            axes.set_axis_off()
            continue
        _draw_panel(panels[number], axes, curves)
        axes.set_xlim(0, max(last))
        axes.locator_params(axis="x", nbins=6)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        if number >= len(panels) - 2:
            axes.set_xlabel("updates of the weights")
            axes.tick_params(labelbottom=True)
    figure.suptitle(name, fontsize=12)
    data = io.BytesIO()
    figure.savefig(data, format="png", metadata={"Software": None})  # else it names the version
    return data.getvalue()


def _draw_panel(panel: _Panel, axes: Axes, curves: Curves) -> None:
    x, y = _trained(panel, curves)
    is_smoothed = len(y) >= _SMOOTHED_FROM and panel.is_noisy
    if is_smoothed:
        axes.plot(x, y, color=_TRAIN, linewidth=0.6, alpha=0.3)
        sigma = min(max(1.0, _SIGMA_SHARE * len(curves.steps)), len(y) / 10)
        y = smoothed(y, sigma=sigma)
    axes.plot(x, y, color=_TRAIN, linewidth=1.6, label="training")
    if panel.held_out and curves.evaluations:
        x, y = _line(panel.held_out, curves.evaluations, factor=panel.factor)
        axes.plot(x, y, color=_HELD_OUT, linewidth=1.0, zorder=3)
        # Points are not cut at the frame, where the evaluation at the end of training lies.
        points = axes.scatter(x, y, s=16, color=_HELD_OUT, label="held-out", zorder=4)
        points.set_clip_on(False)
    if panel.chance is not None:
        axes.axhline(panel.chance, color=_GREY, linewidth=0.9, linestyle=":", label="guessing")
    axes.set_title(panel.title, loc="left", y=1.02, fontsize=10, fontweight="bold")
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


def _use_power_of_ten(axes: Axes) -> str:
    """Give the numbers times a power of ten, which is returned; matplotlib's own hides in a corner.

    Its offset text lies where the title is.
    """
    exponent = int(np.floor(np.log10(max(axes.get_ylim()[1], 1e-300))))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 10.0**exponent:.3g}")
    return rf"$\times\,10^{{{exponent}}}$"


def _use_log_scale(axes: Axes) -> None:
    # start-up: as in _png
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log", nonpositive="mask")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
