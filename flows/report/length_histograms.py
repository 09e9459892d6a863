"""Histograms of lengths: documents, sentences and instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flows.plots import COLORS, SERIES, figure_svg, format_ticks, new_figure, plot_style
from flows.report.figure_cache import Figure, Panel
from flows.report.records import read_lengths
from flows.report.run_steps import Built
from flows.store.artifacts import ArtifactStore
from model.monitoring.formatting import format_percent

_BINS = 40
_LOG_RATIO = 20
"""Lengths that differ by more than this factor are shown on a logarithmic axis."""

_TITLES = {
    "documents": "Tokens per document",
    "sentences": "Sentences per document",
    "words": "Tokens per sentence",
}


@plot_style()
def token_figure(store: ArtifactStore, tokens: Built, *, name: str) -> Figure:
    """Draw document length in tokens, sentences per document and tokens per sentence.

    Raises:
        ArtifactCorruptError: The record of the lengths is missing or damaged.
    """
    lengths = read_lengths(store, tokens)
    panels = [
        _histogram(title, lengths[key], name=f"{name}-{key}", is_log=key != "words")
        for key, title in _TITLES.items()
        if lengths[key]["records"]
    ]
    return Figure(panels=tuple(panels))


@plot_style()
def instance_figure(store: ArtifactStore, instances: Sequence[Built], *, name: str) -> Figure:
    """Draw tokens per instance, one panel for each artifact of instances.

    Raises:
        ArtifactCorruptError: The record of the lengths is missing or damaged.
    """
    panels = []
    for number, built in enumerate(instances):
        lengths = read_lengths(store, built)
        if not lengths["instances"]["records"]:
            continue
        note = ""
        if (accuracy := lengths.get("guess_accuracy")) is not None:
            percent = format_percent(accuracy)
            note = f" Accuracy of labels guessed from the pair's length: {percent} %."
        panel = _histogram(
            f"Tokens per instance, {built.name}",
            lengths["instances"],
            name=f"{name}-{number}",
            max_seq_length=built.statistics["max_seq_length"],
            note=note,
        )
        panels.append(panel)
    return Figure(panels=tuple(panels))


def _histogram(
    title: str,
    lengths: dict[str, Any],
    *,
    name: str,
    is_log: bool = False,
    max_seq_length: int = 0,
    note: str = "",
) -> Panel:
    """Draw the percentage of records by length, on a linear or a logarithmic axis."""
    counts = {int(length): count for length, count in lengths["counts"].items()}
    edges = _edges(counts, lengths, is_log=is_log, max_seq_length=max_seq_length)
    summary = (
        f"Median {lengths['median']:,}, mean {lengths['mean']:,.1f}, 90 % up to "
        f"{lengths['percentile_90']:,}, longest {lengths['longest']:,}."
    )
    if edges[-1] < lengths["longest"]:
        summary += f" The last bar has everything above {edges[-1]:,.0f}."
    figure, axes = new_figure()
    percentages, _, _ = axes.hist(
        [min(max(length, edges[0]), edges[-1]) for length in counts],
        bins=edges,
        weights=[100 * count / lengths["records"] for count in counts.values()],
        rwidth=0.92,
        color=SERIES[0],
        log=bool(max_seq_length),  # most instances are full: a linear axis would hide the others
    )
    axes.set_ylabel("% of all")
    if is_log:
        axes.set_xscale("log")
        format_ticks(axes.xaxis)
    if max_seq_length:
        format_ticks(axes.yaxis)
        axes.set_ylim(min(0.1, min(filter(None, percentages)) / 2), 160)
        axes.set_ylabel("% of all (log)")
    axes.set_xlim(edges[0], edges[-1])
    axes.axvline(lengths["median"], color=COLORS["ink"], linestyle=(0, (4, 3)))
    svg = figure_svg(figure, name=name, title=title)
    return Panel(name, title, svg, summary + note)


def _edges(
    counts: dict[int, int], lengths: dict[str, Any], *, is_log: bool, max_seq_length: int
) -> list[int]:
    low, high = max(1, min(counts)), lengths["longest"]
    if is_log and high > _LOG_RATIO * low:
        # Lengths are whole numbers: bars between two of them would be empty.
        return sorted({round(low * ((high + 1) / low) ** (n / _BINS)) for n in range(_BINS + 1)})
    end = max_seq_length or max(lengths["percentile_99_5"], low + 1)
    width = max(1, -(-end // _BINS))
    return list(range(low if is_log else 0, end + 2 * width, width))
