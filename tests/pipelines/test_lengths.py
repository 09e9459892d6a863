"""Histograms of lengths, and how much the length of a pair says of its label."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from pipelines.lengths import LengthHistogram, PairCounts


def guess_accuracy(lengths: list[int], labels: list[int]) -> float | None:
    pairs = PairCounts.from_pairs(np.array(lengths), np.array(labels), max_seq_length=512)
    return pairs.guess_accuracy()


def test_merged_histograms_equal_the_histogram_of_all_lengths() -> None:
    lengths = np.random.default_rng(0).integers(1, 5000, 1000)
    parts = [LengthHistogram.from_lengths(part) for part in np.split(lengths, 10)]
    merged = LengthHistogram.merge(parts)
    assert merged == LengthHistogram.from_lengths(lengths)
    summary = merged.summary()
    assert (summary["records"], summary["longest"]) == (1000, lengths.max())
    assert summary["mean"] == pytest.approx(lengths.mean())
    for name, percent in (("median", 50), ("percentile_90", 90), ("percentile_99_5", 99.5)):
        assert summary[name] == np.percentile(lengths, percent, method="inverted_cdf")
    assert {int(length): count for length, count in summary["counts"].items()} == Counter(
        lengths.tolist()
    )


def test_histogram_of_nothing_has_no_records() -> None:
    assert LengthHistogram.from_lengths(np.array([], np.int64)).summary()["records"] == 0


@pytest.mark.parametrize(
    ("lengths", "labels", "expected"),
    [
        ([100, 100, 300, 300], [0, 0, 1, 1], 1.0),
        ([511, 511, 512, 512], [0, 0, 1, 1], 1.0),  # full pairs have their own bucket
        ([100, 300], [0, 1], 0.5),  # nothing is known of a length that occurs once
        ([100, 101, 100, 101], [0, 1, 0, 1], 0.0),
        ([100, 100, 100, 300], [0, 0, -1, 1], 5 / 6),
        ([100], [-1], None),
    ],
)
def test_guess_accuracy(lengths: list[int], labels: list[int], expected: float | None) -> None:
    accuracy = guess_accuracy(lengths, labels)
    assert accuracy == (expected if expected is None else pytest.approx(expected))


def test_guess_accuracy_is_half_when_labels_do_not_depend_on_lengths() -> None:
    rng = np.random.default_rng(0)
    lengths, labels = rng.integers(5, 512, (100, 20)), rng.integers(0, 2, (100, 20))
    parts = [
        PairCounts.from_pairs(*pair, max_seq_length=512)
        for pair in zip(lengths, labels, strict=True)
    ]
    rates = [part.guess_accuracy() for part in parts]
    assert np.mean(np.array(rates, float)) == pytest.approx(0.5, abs=0.03)
    merged = PairCounts.merge(parts)
    assert np.sum(merged.counts) == lengths.size
