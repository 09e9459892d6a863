"""Collator of instances to packed batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from model.data.batches import IGNORE_INDEX, PretrainingBatch, TokenBatch
from model.data.dataset import InstanceRows
from model.data.masks import next_tokens
from pipelines.arrays import Int64s, offsets_of, ranges
from schemas.model_configs import Objective


class MicroBatchCollator(NamedTuple):
    """Collator of one process's instances of a step into micro-batches.

    Attributes:
        objective: `mlm+nsp`; `mlm`, without next sentence labels; or `left-to-right`.
        max_tokens: Maximum tokens of a micro-batch; a longer instance is alone.
    """

    objective: Objective
    max_tokens: int

    def __call__(self, instances: InstanceRows) -> tuple[PretrainingBatch, ...]:
        """Collate instances, longest first. The tensors are views of shared arrays."""
        if self.objective == "left-to-right":
            instances = next_tokens(instances)
        headers, lengths = instances.headers, instances.headers.lengths
        bounds = self.split(lengths)
        tokens, starts = token_batches(
            instances.input_ids.astype(np.int64),
            lengths=lengths,
            b_starts=headers.segment_b_start,
            bounds=bounds,
        )
        positions = np.repeat(starts, headers.masked_counts)
        positions += instances.masked_positions
        masked_ids = instances.masked_ids.astype(np.int64)
        labels = headers.next_sentence_label
        is_ignored = (labels < 0) | (self.objective != "mlm+nsp")
        labels = np.where(is_ignored, IGNORE_INDEX, labels)
        masked_bounds = instances.masked_offsets[bounds]

        def part(number: int) -> PretrainingBatch:
            rows = slice(bounds[number], bounds[number + 1])
            masked = slice(masked_bounds[number], masked_bounds[number + 1])
            return PretrainingBatch(
                tokens=tokens[number],
                masked_positions=torch.from_numpy(positions[masked]),
                masked_ids=torch.from_numpy(masked_ids[masked]),
                next_sentence_labels=torch.from_numpy(labels[rows]),
                rows=headers.rows[rows],
            )

        return tuple(part(number) for number in range(len(tokens)))

    def split(self, lengths: Int64s) -> Int64s:
        """Return the bounds of the fewest micro-batches, of about equal size.

        Args:
            lengths: Tokens of the instances, descending.

        Returns:
            Offsets of the micro-batches, int64 of shape (micro-batches + 1,).
        """
        ends = offsets_of(lengths)

        def split(size: int) -> list[int]:
            bounds = [0]
            while (start := bounds[-1]) < len(lengths):
                end = int(np.searchsorted(ends, ends[start] + size, side="right")) - 1
                bounds.append(min(len(lengths), max(start + 1, end)))
            return bounds

        bounds = split(self.max_tokens)
        # Bisection: as many micro-batches with a smaller largest one.
        low, high = int(ends[-1]) // (len(bounds) - 1), self.max_tokens
        while len(bounds) > 2 and high - low > max(1, self.max_tokens // 64):
            size = (low + high) // 2
            smaller = split(size)
            if len(smaller) == len(bounds):
                bounds, high = smaller, size
            else:
                low = size
        return np.array(bounds, np.int64)


def token_batches(
    input_ids: Int64s, *, lengths: Int64s, b_starts: Int64s, bounds: Int64s
) -> tuple[tuple[TokenBatch, ...], Int64s]:
    """Return batches of sequences, whose tensors are views of shared arrays.

    Args:
        input_ids: Concatenated ids of all sequences.
        lengths: Lengths of the sequences.
        b_starts: Position of segment B in each sequence; its length without B.
        bounds: Batch k has the sequences bounds[k] .. bounds[k + 1] - 1.

    Returns:
        The batches, and the start of each sequence in its batch.
    """
    sizes = np.diff(bounds)
    ends = offsets_of(lengths)
    begins = ends[bounds]
    starts = ends[:-1] - np.repeat(begins[:-1], sizes)
    runs = np.stack([b_starts, lengths - b_starts], axis=1)  # of 0 (A) and 1 (B)
    segment_ids = np.repeat(np.tile([0, 1], len(lengths)), runs.ravel())
    position_ids = ranges(0, lengths)

    def part(number: int) -> TokenBatch:
        sequences = slice(bounds[number], bounds[number + 1])
        tokens = slice(begins[number], begins[number + 1])
        return TokenBatch(
            input_ids=torch.from_numpy(input_ids[tokens]),
            segment_ids=torch.from_numpy(segment_ids[tokens]),
            position_ids=torch.from_numpy(position_ids[tokens]),
            starts=torch.from_numpy(starts[sequences]),
            lengths=lengths[sequences],
        )

    return tuple(part(number) for number in range(len(sizes))), starts
