"""Tensors of micro-batches: packed, or in rows of equal length."""

from __future__ import annotations

import numpy as np
import torch

from model.data.batches import PretrainingBatch, TokenBatch
from model.data.batching import Layout, padded_length
from model.data.instances import InstanceRows
from pipelines.arrays import Int64s, offsets_of, ranges

IGNORED = -100
"""Label of positions without loss."""


def lay_out(
    instances: InstanceRows,
    bounds: Int64s,
    *,
    layout: Layout,
    row_length: int,
    pad_id: int,
    has_pairs: bool,
) -> tuple[PretrainingBatch, ...]:
    """Return micro-batches of instances, whose tensors are views of shared arrays.

    Args:
        instances: Instances with their targets.
        bounds: Micro-batch k has the instances bounds[k] .. bounds[k + 1] - 1; in `bucketed`, the
            longest comes first.
        layout: `packed`, `bucketed` or `padded`.
        row_length: S of `padded`, and the maximum of `bucketed`; no instance is longer.
        pad_id: Id of [PAD].
        has_pairs: Whether next sentences are predicted.
    """
    lengths = np.diff(instances.offsets)
    tokens, starts = token_batches(
        instances.input_ids.astype(np.int64),
        lengths=lengths,
        b_starts=instances.segment_b_start,
        bounds=bounds,
        widths=_widths(lengths, bounds, layout=layout, row_length=row_length),
        pad_id=pad_id,
    )
    positions = np.repeat(starts, np.diff(instances.masked_offsets))
    positions += instances.masked_positions
    masked_ids = instances.masked_ids.astype(np.int64)
    labels = np.full(len(starts), IGNORED)
    if has_pairs:
        labels = np.where(instances.next_sentence_label < 0, IGNORED, instances.next_sentence_label)
    masked_bounds = instances.masked_offsets[bounds]

    def part(number: int) -> PretrainingBatch:
        rows = slice(bounds[number], bounds[number + 1])
        chosen = slice(masked_bounds[number], masked_bounds[number + 1])
        return PretrainingBatch(
            tokens=tokens[number],
            masked_positions=torch.from_numpy(positions[chosen]),
            masked_ids=torch.from_numpy(masked_ids[chosen]),
            next_sentence_labels=torch.from_numpy(labels[rows]),
            rows=instances.rows[rows],
        )

    return tuple(part(number) for number in range(len(tokens)))


def _widths(lengths: Int64s, bounds: Int64s, *, layout: Layout, row_length: int) -> Int64s | None:
    """Return the row length of each micro-batch; None if packed."""
    if layout == "packed":
        return None
    if layout == "padded":
        return np.full(len(bounds) - 1, row_length)
    widths: Int64s = padded_length(lengths[bounds[:-1]], row_length=row_length)
    return widths


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
        real, input_ids = input_ids, np.full(ends[-1], pad_id)
        input_ids[ranges(ends[:-1], lengths)] = real
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
