"""Histograms of the lengths of an artifact's records: the number of records by length."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.io.files import write_text_file
from schemas.manifest import FileEntry

LENGTHS_FILE = "__records__/lengths.json"

Histograms = dict[str, dict[str, int]]
"""Number of records by length, as a JSON object, of `documents`, `sentences`, `words` or
`instances`."""


def count_lengths(lengths: npt.NDArray[np.integer[Any]]) -> dict[str, int]:
    """Return the number of records by length."""
    # `bincount` would take memory for every length up to the longest.
    occurring, numbers = np.unique(lengths, return_counts=True)
    return dict(zip(map(str, occurring.tolist()), numbers.tolist(), strict=True))


def merge_lengths(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> Histograms:
    """Add the histograms of batches or work items by name."""
    sums: dict[str, Counter[str]] = {}
    for part in parts:
        for name, counts in part.items():
            sums.setdefault(name, Counter()).update(counts)
    return {name: dict(counts) for name, counts in sums.items()}


def summarize_lengths(histogram: Mapping[str, int]) -> dict[str, Any]:
    """Return a histogram with the figures that a reader looks for, as JSON values."""
    lengths = np.array(sorted(map(int, histogram)), np.int64)
    numbers = np.array([histogram[str(length)] for length in lengths], np.int64)
    num_records = int(numbers.sum())

    def percentile(percent: float) -> int:
        """Return the length that `percent` of the records do not exceed; 0 without records."""
        if not num_records:
            return 0
        return int(lengths[np.searchsorted(numbers.cumsum(), percent / 100 * num_records)])

    return {
        "counts": dict(histogram),
        "records": num_records,
        "mean": int(lengths @ numbers) / max(1, num_records),
        "median": percentile(50),
        "percentile_90": percentile(90),
        "percentile_99_5": percentile(99.5),
        "longest": max(lengths.tolist(), default=0),
    }


def write_lengths(histograms: Mapping[str, Mapping[str, int]], *, output: str) -> FileEntry:
    """Write a summary of the lengths to a stage's output folder."""
    record = {name: summarize_lengths(histogram) for name, histogram in histograms.items()}
    text = json.dumps(record, sort_keys=True)
    return write_text_file(LENGTHS_FILE, text, output=output, excluded_from_digest=True)
