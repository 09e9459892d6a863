"""Plot of the curves of a pretraining phase."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from model.monitoring.palette import COLORS, GRAY, GRID
from model.monitoring.training_log import Curves, EvaluationRecord, StepRecord, ThroughputRecord
from schemas.errors import TrainingError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]
Series = tuple[Floats, Floats]
"""Steps and values."""

_TRAIN, _HELD_OUT = COLORS[:2]
_MIN_SMOOTHED_LINES = 40
_WIDTH, _ROW_HEIGHT, _DPI = 11.0, 2.5, 120


class Panel(NamedTuple):
    """Diagram of one training value, and of its held-out value if there is one."""

    title: str
    unit: str
    train: str  # field of StepRecord or ThroughputRecord
    held_out: str = ""  # field of EvaluationRecord
    factor: float = 1.0
    is_log: bool = False
    is_smoothed: bool = True
    starts_at_zero: bool = False
    chance: float | None = None
    legend: Literal["upper right", "lower right"] = "upper right"


PANELS = (
    Panel("LM loss", "nats per predicted token", "mlm_loss", "held_out_mlm_loss"),
    Panel(
        "LM accuracy",
        "%",
        "mlm_accuracy",
        "held_out_mlm_accuracy",
        factor=100,
        starts_at_zero=True,
        legend="lower right",
    ),
    Panel("Next sentence loss", "nats per pair", "nsp_loss", "held_out_nsp_loss"),
    Panel(
        "Next sentence accuracy",
        "%",
        "nsp_accuracy",
        "held_out_nsp_accuracy",
        factor=100,
        chance=50,
        legend="lower right",
    ),
    Panel(
        "Learning rate", r"$10^{-6}$", "learning_rate", "", 1e6, is_smoothed=False,
        starts_at_zero=True,
    ),
    Panel("Gradient norm before clipping", "Euclidean norm", "gradient_norm", is_log=True),
    Panel(
        "Throughput", "thousand tokens/s", "tokens_per_second", factor=1e-3, starts_at_zero=True
    ),
    Panel(
        "Model FLOPs utilization",
        "% of peak",
        "model_flops_utilization",
        factor=100,
        starts_at_zero=True,
    ),
)  # fmt: skip


def plot_curves(name: str, curves: Curves, path: Path) -> None:
    """Write a PNG of losses, accuracies, learning rate, gradient norm and throughput.

    Training values are plotted raw and smoothed, held-out values as points. Equal curves give
    equal bytes with one version of matplotlib.

    Args:
        name: Title of the plot.
        curves: Log of the phase.
        path: Local file to write.

    Raises:
        TrainingError: The log has no step.
    """
    if not curves.steps:
        raise TrainingError(f"{path}: expected at least one logged step, got none.")
    # Figure and canvas, not pyplot, which chooses a backend for the whole process.
    # lazy: loads matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [panel for panel in PANELS if np.isfinite(_training_values(panel, curves)[1]).any()]
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
    steps = [record.step for record in curves.steps]
    steps += [record.step for record in curves.evaluations]
    for axes, panel in zip(grid.flat, panels, strict=False):
        held_out = _values(panel.held_out, curves.evaluations, panel.factor)
        plot_panel(axes, panel, training=_training_values(panel, curves), held_out=held_out)
        axes.set_title(panel.title, loc="left", y=1.02, fontsize=10, fontweight="bold")
        axes.set_xlim(0, max(steps))
        axes.locator_params(axis="x", nbins=6)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.grid(color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        if panel.held_out:
            axes.legend(loc=panel.legend, fontsize=8, framealpha=0.7, edgecolor="none")
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes in grid.flat[len(panels) - 2 : len(panels)]:
        axes.set_xlabel("steps")
        axes.tick_params(labelbottom=True)
    figure.suptitle(name, fontsize=12)
    figure.savefig(path, format="png", metadata={"Software": None})  # no version in the file


def _training_values(panel: Panel, curves: Curves) -> Series:
    """Return steps and values, with NaN for missing values."""
    if panel.train in StepRecord._fields:
        return _values(panel.train, curves.steps, panel.factor)
    return _values(panel.train, curves.throughput, panel.factor)


def _values(
    field: str,
    records: Sequence[StepRecord | EvaluationRecord | ThroughputRecord],
    factor: float,
) -> Series:
    """Return steps and values of a field, with NaN for None; nothing for the field ""."""
    records = records if field else ()
    y = np.array([getattr(record, field) for record in records], np.float64)
    return np.array([record.step for record in records], np.float64), y * factor


def smooth(y: Floats, *, sigma: float) -> Floats:
    """Return the centered Gaussian running mean of the finite values; sigma in positions."""
    # lazy: loads scipy
    from scipy.ndimage import gaussian_filter1d

    is_finite = np.isfinite(y)
    sums = gaussian_filter1d(np.where(is_finite, y, 0.0), sigma, mode="constant", truncate=3)
    weights = gaussian_filter1d(is_finite.astype(float), sigma, mode="constant", truncate=3)
    means: Floats = np.divide(sums, weights, out=np.full(len(y), np.nan), where=weights > 0)
    return means


def plot_panel(axes: Axes, panel: Panel, *, training: Series, held_out: Series) -> None:
    """Plot the training values as a line, and the held-out values as points.

    Args:
        axes: Axes to plot on.
        panel: What the values are.
        training: Steps, and values times the factor of the panel.
        held_out: The same of held-out documents; empty if nothing was evaluated.
    """
    x, y = training
    if panel.is_smoothed and len(y) >= _MIN_SMOOTHED_LINES:
        axes.plot(x, y, color=_TRAIN, linewidth=0.6, alpha=0.3)
        y = smooth(y, sigma=max(1.0, len(y) / 100))
    axes.plot(
        x, y, color=_TRAIN, linewidth=1.6, marker="o" if len(y) == 1 else "", label="training"
    )
    x, y = held_out
    if len(y):
        axes.plot(x, y, color=_HELD_OUT, linewidth=1.0, zorder=3)
        # The evaluation after the last step is on the frame: do not clip its point.
        points = axes.scatter(x, y, s=16, color=_HELD_OUT, label="held-out", zorder=4)
        points.set_clip_on(False)
    if panel.chance is not None:
        axes.axhline(panel.chance, color=GRAY, linewidth=0.9, linestyle=":", label="chance")
    axes.set_ylabel(panel.unit, parse_math=True)
    if panel.is_log:
        _use_log_scale(axes)
    elif panel.starts_at_zero:
        axes.set_ylim(bottom=0)


def _use_log_scale(axes: Axes) -> None:
    # lazy: loads matplotlib
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log", nonpositive="mask")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())
