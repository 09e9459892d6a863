"""Histograms of lengths: documents, sentences and instances."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flows.plots import Axis, Chart, linear_axis, log_axis
from flows.report.figures import Figure, Panel
from flows.report.run_steps import Built
from flows.store.artifacts import ArtifactStore

_LENGTHS_FILE = "__records__/lengths.json"
_BINS = 40
_LOG_RATIO = 20
"""Lengths that differ by more than this factor are shown on a logarithmic axis."""

_TITLES = {
    "documents": "Tokens per document",
    "sentences": "Sentences per document",
    "words": "Tokens per sentence",
}


def read_lengths(store: ArtifactStore, built: Built) -> dict[str, Any]:
    """Return the lengths that a step recorded (`pipelines.lengths`); empty if it recorded none.

    Raises:
        ArtifactCorruptError: The record is missing or damaged.
    """
    if built.manifest.file(_LENGTHS_FILE) is None:
        return {}
    with store.artifact(built.manifest).open(_LENGTHS_FILE) as source:
        lengths: dict[str, Any] = json.load(source)
    return lengths


def token_figure(store: ArtifactStore, tokens: Built) -> Figure:
    """Draw document length in tokens, sentences per document and tokens per sentence.

    Raises:
        ArtifactCorruptError: The record of the lengths is missing or damaged.
    """
    lengths = read_lengths(store, tokens)
    panels = [
        _histogram(title, lengths[key], is_log=key != "words")
        for key, title in _TITLES.items()
        if lengths[key]["records"]
    ]
    return Figure(panels=tuple(panels))


def instance_figure(store: ArtifactStore, instances: Sequence[Built]) -> Figure:
    """Draw tokens per instance, one panel for each artifact of instances.

    Raises:
        ArtifactCorruptError: The record of the lengths is missing or damaged.
    """
    panels = []
    for built in instances:
        lengths = read_lengths(store, built)
        if not lengths["instances"]["records"]:
            continue
        panel = _histogram(
            f"Tokens per instance, {built.name}",
            lengths["instances"],
            max_seq_length=built.statistics["max_seq_length"],
        )
        panels.append(panel)
    return Figure(panels=tuple(panels))


def _histogram(
    title: str,
    lengths: dict[str, Any],
    *,
    is_log: bool = False,
    max_seq_length: int = 0,
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
    shares = _shares(counts, edges)
    y = linear_axis(0.0, 1.05 * max(shares), "% of all")
    if max_seq_length:  # most instances are full: a linear axis would hide the others
        y = log_axis(min(0.1, min(filter(None, shares)) / 2), 160.0, "% of all (log)")
    x: Axis = (log_axis if is_log else linear_axis)(edges[0], edges[-1])
    chart = Chart(title, x=x, y=y)
    bars = zip(edges, edges[1:], shares, strict=False)
    chart.bars([bar for bar in bars if bar[2]], "series-1")
    chart.vertical(lengths["median"], "ink")
    return Panel(title, chart.svg(), summary)


def _shares(counts: Mapping[int, int], edges: Sequence[int]) -> list[float]:
    """Return the percentage of records between each edge and the next one, which the last includes.

    Longer and shorter records are in the last and the first bar.
    """
    lengths = np.clip(list(counts), edges[0], edges[-1])
    numbers, _ = np.histogram(lengths, bins=edges, weights=list(counts.values()))
    shares: list[float] = (100 * numbers / numbers.sum()).tolist()
    return shares


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
