"""Collator of instances to batches, packed or padded."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch

from model.data.batches import PretrainingBatch, TokenBatch
from model.data.dataset import InstanceRows
from model.data.targets import next_tokens
from pipelines.arrays import Int64s, offsets_of, ranges
from schemas.model_configs import Objective

Layout = Literal["packed", "bucketed", "padded"]

IGNORE_INDEX = -100
"""Label that `torch.nn.CrossEntropyLoss`, and so transformers, ignores."""

_MULTIPLE = 8  # lengths for which matrix products are fast


class MicroBatchCollator(NamedTuple):
    """Collator of one process's instances of a step into micro-batches.

    Attributes:
        objective: `mlm+nsp`; `mlm`, without next sentence labels; or `left-to-right`.
        layout: `packed`, or rows of equal length: `bucketed` (per micro-batch) or `padded`.
        row_length: Row length of `padded`, and maximum of `bucketed`; no instance is longer.
        max_tokens: Maximum positions of a micro-batch, padding included; a longer instance is
            alone.
        pad_id: Id of [PAD].
    """

    objective: Objective
    layout: Layout
    row_length: int
    max_tokens: int
    pad_id: int

    def __call__(self, instances: InstanceRows) -> tuple[PretrainingBatch, ...]:
        """Collate instances, longest first. The tensors are views of shared arrays."""
        if self.objective == "left-to-right":
            instances = next_tokens(instances)
        lengths = np.diff(instances.offsets)
        bounds = self.split(lengths)
        longest = lengths[bounds[:-1]]
        tokens, starts = token_batches(
            instances.input_ids.astype(np.int64),
            lengths=lengths,
            b_starts=instances.segment_b_start,
            bounds=bounds,
            widths=None if self.layout == "packed" else self.widths(longest),
            pad_id=self.pad_id,
        )
        positions = np.repeat(starts, np.diff(instances.masked_offsets))
        positions += instances.masked_positions
        masked_ids = instances.masked_ids.astype(np.int64)
        labels = instances.next_sentence_label
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
                rows=instances.rows[rows],
            )

        return tuple(part(number) for number in range(len(tokens)))

    def widths(self, longest: Int64s) -> Int64s:
        """Return the positions per instance in micro-batches with these longest instances."""
        if self.layout == "packed":
            return longest
        if self.layout == "padded":
            return np.full(len(longest), self.row_length)
        return np.minimum(-(-longest // _MULTIPLE) * _MULTIPLE, self.row_length)

    def split(self, lengths: Int64s) -> Int64s:
        """Return the bounds of the fewest micro-batches, of about equal size.

        Args:
            lengths: Tokens of the instances, descending.

        Returns:
            Offsets of the micro-batches, int64 of shape (micro-batches + 1,).
        """
        widths = self.widths(lengths)
        ends = offsets_of(widths)

        def split(size: int) -> list[int]:
            bounds = [0]
            while (start := bounds[-1]) < len(lengths):
                if self.layout == "packed":
                    end = int(np.searchsorted(ends, ends[start] + size, side="right")) - 1
                else:  # all rows are as long as the first one
                    end = start + size // int(widths[start])
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
    input_ids: Int64s,
    *,
    lengths: Int64s,
    b_starts: Int64s,
    bounds: Int64s,
    widths: Int64s | None,
    pad_id: int,
) -> tuple[tuple[TokenBatch, ...], Int64s]:
    """Return batches of sequences, whose tensors are views of shared arrays.

    Args:
        input_ids: Concatenated ids of all sequences, without padding.
        lengths: Lengths of the sequences.
        b_starts: Position of segment B in each sequence; its length without B.
        bounds: Batch k has the sequences bounds[k] .. bounds[k + 1] - 1.
        widths: Row length of each batch; None if packed.
        pad_id: Id of [PAD].

    Returns:
        The batches, and the start of each sequence in its batch.
    """
    sizes = np.diff(bounds)
    own_widths = lengths if widths is None else np.repeat(widths, sizes)
    ends = offsets_of(own_widths)
    begins = ends[bounds]
    starts = ends[:-1] - np.repeat(begins[:-1], sizes)
    # Runs of 0 (A), 1 (B) and 0 (padding).
    runs = np.stack([b_starts, lengths - b_starts, own_widths - lengths], axis=1)
    segment_ids = np.repeat(np.tile([0, 1, 0], len(lengths)), runs.ravel())
    if widths is not None:
        unpadded, input_ids = input_ids, np.full(ends[-1], pad_id)
        input_ids[ranges(ends[:-1], lengths)] = unpadded
    position_ids = ranges(0, own_widths)

    def part(number: int) -> TokenBatch:
        sequences = slice(bounds[number], bounds[number + 1])
        tokens = slice(begins[number], begins[number + 1])
        return TokenBatch(
            input_ids=torch.from_numpy(input_ids[tokens]),
            segment_ids=torch.from_numpy(segment_ids[tokens]),
            position_ids=torch.from_numpy(position_ids[tokens]),
            starts=torch.from_numpy(starts[sequences]),
            lengths=lengths[sequences],
            padded_length=None if widths is None else int(widths[number]),
        )

    return tuple(part(number) for number in range(len(sizes))), starts
