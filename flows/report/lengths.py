"""Histograms of lengths: documents, sentences and instances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flows.report.figures import Figure, Panel
from flows.report.plots import Axis, Plot
from flows.report.records import read_lengths
from flows.report.steps import Built
from flows.store.artifacts import ArtifactStore

_BINS = 40
_LOG_RATIO = 20
"""Lengths that differ by more than this factor are shown on a logarithmic axis."""

_TITLES = {
    "documents": "Tokens per document",
    "sentences": "Sentences per document",
    "words": "Tokens per sentence",
}


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


def instance_figure(store: ArtifactStore, instances: Sequence[Built], *, name: str) -> Figure:
    """Draw tokens per instance, one panel for each artifact of instances.

    Raises:
        ArtifactCorruptError: The record of the lengths is missing or damaged.
    """
    return Figure(panels=tuple(_instance_panels(store, instances, name)))


def _instance_panels(
    store: ArtifactStore, instances: Sequence[Built], name: str
) -> Iterator[Panel]:
    for number, built in enumerate(instances):
        lengths = read_lengths(store, built)
        if not lengths["instances"]["records"]:
            continue
        panel = _histogram(
            f"Tokens per instance, {built.name}",
            lengths["instances"],
            name=f"{name}-{number}",
            max_seq_length=int(built.statistics.get("max_seq_length", 0)),
        )
        if (accuracy := lengths.get("guess_accuracy")) is not None:
            note = f" Best guess of a pair's label from its length alone: accuracy {accuracy:.3f}."
            panel = panel.model_copy(update={"note": panel.note + note})
        yield panel


def _histogram(
    title: str, lengths: dict[str, Any], *, name: str, is_log: bool = False, max_seq_length: int = 0
) -> Panel:
    """Draw the percentage of records by length, on a linear or a logarithmic axis."""
    note = (
        f"Median {lengths['median']:,}, mean {lengths['mean']:,.1f}, 90 % up to "
        f"{lengths['percentile_90']:,}, longest {lengths['longest']:,}."
    )
    values = np.array([int(start) for start in lengths["counts"]])
    edges = _edges(values, lengths, is_log=is_log, max_seq_length=max_seq_length)
    shown = np.clip(values, edges[0], edges[-1])  # the last bar has everything above
    weights = np.array(list(lengths["counts"].values()))
    percentages = 100 * np.histogram(shown, edges, weights=weights)[0] / lengths["records"]
    if edges[-1] < lengths["longest"]:
        note += f" The last bar has everything above {edges[-1]:,.0f}."
    if max_seq_length:  # most instances are full: a linear axis would hide the others
        low = min(0.1, float(percentages[percentages > 0].min()) / 2)
        heights = Axis(low=low, high=160, label="% of all (log)", is_log=True)
    else:
        heights = Axis(low=0, high=1.05 * float(percentages.max()), label="% of all")
    plot = Plot(Axis(low=float(edges[0]), high=float(edges[-1]), is_log=is_log), heights)
    plot.bars(edges.tolist(), percentages.tolist(), look="series-1")
    plot.upright(float(lengths["median"]), look="dashed")
    svg = plot.svg(name=name, title=title, description=f"Histogram. {note}")
    return Panel(title=title, note=note, svg=svg)


def _edges(
    values: npt.NDArray[np.int64], lengths: dict[str, Any], *, is_log: bool, max_seq_length: int
) -> npt.NDArray[np.float64]:
    low, high = max(1, int(values.min())), int(lengths["longest"])
    if is_log and high > _LOG_RATIO * low:
        # Lengths are whole numbers: bars between two of them would be empty.
        return np.unique(np.round(np.geomspace(low, high + 1, _BINS + 1)))
    end = max_seq_length or max(int(lengths["percentile_99_5"]), low + 1)
    width = max(1, -(-end // _BINS))
    return np.arange(low if is_log else 0, end + 2 * width, width, dtype=np.float64)
