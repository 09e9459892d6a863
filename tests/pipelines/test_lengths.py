"""Histograms of lengths."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from pipelines.lengths import count_lengths, merge_lengths, summarize_lengths


def test_merged_histograms_equal_the_histogram_of_all_lengths() -> None:
    lengths = np.random.default_rng(0).integers(1, 5000, 1000)
    parts = [{"words": count_lengths(part)} for part in np.split(lengths, 10)]
    merged = merge_lengths([*parts, {}, {"documents": {"7": 1}}])
    assert merged == {"words": count_lengths(lengths), "documents": {"7": 1}}
    summary = summarize_lengths(merged["words"])
    assert (summary["records"], summary["longest"]) == (1000, lengths.max())
    assert summary["mean"] == pytest.approx(lengths.mean())
    for name, percent in (("median", 50), ("percentile_90", 90), ("percentile_99_5", 99.5)):
        assert summary[name] == np.percentile(lengths, percent, method="inverted_cdf")
    assert {int(length): count for length, count in summary["counts"].items()} == Counter(
        lengths.tolist()
    )


def test_histogram_of_nothing_has_no_records() -> None:
    assert summarize_lengths(count_lengths(np.array([], np.int64)))["records"] == 0
