"""Histograms of lengths, which stages record for the report of a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from pipelines.arrays import Int64s
from pipelines.io.files import write_text_file
from schemas.manifest import FileEntry

LENGTHS_FILE = "__records__/lengths.json"

_PAIR_BUCKETS = 64


class LengthHistogram(BaseModel):
    """Number of records by length."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    counts: dict[int, int]
    """Number of records by length, ascending."""

    @classmethod
    def from_lengths(cls, lengths: npt.NDArray[np.integer[Any]]) -> LengthHistogram:
        """Count lengths."""
        # `bincount` would take memory for every length up to the longest.
        occurring, numbers = np.unique(lengths, return_counts=True)
        return cls(counts=dict(zip(occurring.tolist(), numbers.tolist(), strict=True)))

    @classmethod
    def merge(cls, histograms: Iterable[LengthHistogram]) -> LengthHistogram:
        """Add histograms."""
        counts = Counter[int]()
        for histogram in histograms:
            counts.update(histogram.counts)
        return cls(counts=dict(sorted(counts.items())))

    def percentile(self, percent: float) -> int:
        """Return the length that `percent` of the records do not exceed; 0 without records."""
        if not self.counts:
            return 0
        lengths, numbers = list(self.counts), np.cumsum(list(self.counts.values()))
        return lengths[int(np.searchsorted(numbers, percent / 100 * numbers[-1]))]

    def summary(self) -> dict[str, Any]:
        """Return the counts with the figures that a reader looks for, as JSON values."""
        num_records = sum(self.counts.values())
        total = sum(length * number for length, number in self.counts.items())
        return {
            "counts": {str(length): number for length, number in self.counts.items()},
            "records": num_records,
            "mean": total / max(1, num_records),
            "median": self.percentile(50),
            "percentile_90": self.percentile(90),
            "percentile_99_5": self.percentile(99.5),
            "longest": max(self.counts, default=0),
        }


class PairCounts(BaseModel):
    """Number of sentence pairs by length and next-sentence label, in two halves."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    counts: tuple[tuple[tuple[int, ...], ...], ...]
    """Counts by half, label and bucket: 64 equal buckets up to the full length, and one for it."""

    @classmethod
    def from_pairs(cls, lengths: Int64s, labels: Int64s, *, max_seq_length: int) -> PairCounts:
        """Count the instances with a B. Instances alternate between the halves."""
        pairs = np.flatnonzero(labels >= 0)
        buckets = lengths[pairs] * _PAIR_BUCKETS // max_seq_length
        return cls(
            counts=tuple(
                tuple(
                    tuple(_count(buckets[half::2][labels[pairs][half::2] == label]))
                    for label in (0, 1)
                )
                for half in (0, 1)
            )
        )

    @classmethod
    def merge(cls, parts: Iterable[PairCounts]) -> PairCounts:
        """Add counts."""
        total = np.zeros((2, 2, _PAIR_BUCKETS + 1), np.int64)
        for part in parts:
            total += np.asarray(part.counts)
        return cls(counts=tuple(tuple(map(tuple, half)) for half in total.tolist()))

    def guess_accuracy(self) -> float | None:
        """Return the accuracy of the best guess of a pair's label from its length alone.

        The guess is the label that most pairs of the same length have. It is learned from one half
        and measured on the other, and the other way round, so that the accuracy of labels that do
        not depend on the length is 0.5 however few pairs there are. A tie counts half.

        Returns:
            A value from 0 to 1, or None if there is no pair.
        """
        counts = np.asarray(self.counts)
        if not counts.sum():
            return None
        correct = 0.0
        for learned, measured in (counts, counts[::-1]):
            guesses = np.sign(learned[1] - learned[0])
            correct += float(((1 + guesses) * measured[1] + (1 - guesses) * measured[0]).sum()) / 2
        return correct / float(counts.sum())


class LengthsRecord(BaseModel):
    """Lengths of an artifact's records."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    histograms: dict[str, LengthHistogram]
    """Histograms of `documents`, `sentences`, `words` or `instances`."""

    pairs: PairCounts | None = None

    @classmethod
    def merge(cls, records: Sequence[Mapping[str, Any]]) -> LengthsRecord:
        """Add the records of work items, given as JSON values."""
        parts = [cls.model_validate(record) for record in records]
        names = dict.fromkeys(name for part in parts for name in part.histograms)
        pairs = [part.pairs for part in parts if part.pairs is not None]
        return cls(
            histograms={
                name: LengthHistogram.merge(
                    part.histograms[name] for part in parts if name in part.histograms
                )
                for name in names
            },
            pairs=PairCounts.merge(pairs) if pairs else None,
        )

    def write(self, *, output: str) -> FileEntry:
        """Write a summary of the lengths to a stage's output folder."""
        record: dict[str, Any] = {name: item.summary() for name, item in self.histograms.items()}
        if self.pairs is not None:
            record["guess_accuracy"] = self.pairs.guess_accuracy()
        text = json.dumps(record, sort_keys=True)
        return write_text_file(LENGTHS_FILE, text, output=output, excluded_from_digest=True)


def _count(buckets: Int64s) -> list[int]:
    counts: list[int] = np.bincount(buckets, minlength=_PAIR_BUCKETS + 1).tolist()
    return counts
