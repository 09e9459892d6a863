"""Instances as the tensors of micro-batches: end to end, or in rows of equal length."""

from __future__ import annotations

import numpy as np
import torch

from model.data.batches import PretrainingBatch, TokenBatch
from model.data.batching import Layout, padded_length
from model.data.instances import InstanceRows
from pipelines.arrays import Int64s, offsets_of, ranges

IGNORED = -100
"""Label of what no loss is taken of."""


def lay_out(
    instances: InstanceRows,
    bounds: Int64s,
    *,
    layout: Layout,
    row_length: int,
    pad_id: int,
    has_pairs: bool,
) -> tuple[PretrainingBatch, ...]:
    """Micro-batches of these instances, whose tensors are parts of arrays they share.

    Args:
        instances: with what is to be predicted of them.
        bounds: micro-batch k has the instances bounds[k] .. bounds[k + 1] - 1; in `binned`, its
            longest instance comes first.
        layout: `packed`, `binned` or `padded`.
        row_length: S of `padded`, and the most of `binned`; no instance is longer.
        pad_id: what fills up rows.
        has_pairs: whether next sentences are predicted.
    """
    lengths = np.diff(instances.offsets)
    sizes = np.diff(bounds)
    widths = _widths(lengths, bounds, layout=layout, row_length=row_length)
    ends = offsets_of(lengths if widths is None else np.repeat(widths, sizes))
    input_ids, segment_ids, position_ids = token_columns(
        instances.input_ids.astype(np.int64),
        lengths=lengths,
        b_starts=instances.segment_b_start,
        ends=ends,
        pad_id=pad_id,
    )
    begins = ends[bounds]  # of the micro-batches
    starts = ends[:-1] - np.repeat(begins[:-1], sizes)
    counts = np.diff(instances.masked_offsets)
    positions = np.repeat(starts, counts)
    positions += instances.masked_positions
    masked_ids = instances.masked_ids.astype(np.int64)
    labels = np.full(len(starts), IGNORED)
    if has_pairs:
        labels = np.where(instances.next_sentence_label < 0, IGNORED, instances.next_sentence_label)
    masked_bounds = instances.masked_offsets[bounds]

    def part(number: int) -> PretrainingBatch:
        rows = slice(bounds[number], bounds[number + 1])
        tokens = slice(begins[number], begins[number + 1])
        chosen = slice(masked_bounds[number], masked_bounds[number + 1])
        return PretrainingBatch(
            tokens=TokenBatch(
                input_ids=torch.from_numpy(input_ids[tokens]),
                segment_ids=torch.from_numpy(segment_ids[tokens]),
                position_ids=torch.from_numpy(position_ids[tokens]),
                starts=torch.from_numpy(starts[rows]),
                lengths=lengths[rows],
                padded_length=None if widths is None else int(widths[number]),
            ),
            masked_positions=torch.from_numpy(positions[chosen]),
            masked_ids=torch.from_numpy(masked_ids[chosen]),
            next_sentence_labels=torch.from_numpy(labels[rows]),
            rows=instances.rows[rows],
        )

    return tuple(part(number) for number in range(len(sizes)))


def _widths(lengths: Int64s, bounds: Int64s, *, layout: Layout, row_length: int) -> Int64s | None:
    """Row length of each micro-batch; None where instances lie end to end."""
    if layout == "packed":
        return None
    if layout == "padded":
        return np.full(len(bounds) - 1, row_length)
    widths: Int64s = padded_length(lengths[bounds[:-1]], row_length=row_length)
    return widths


def token_columns(
    input_ids: Int64s, *, lengths: Int64s, b_starts: Int64s, ends: Int64s, pad_id: int
) -> tuple[Int64s, Int64s, Int64s]:
    """input_ids, segment_ids and position_ids of all positions, padding among them.

    Args:
        input_ids: of all sequences, end to end without padding.
        lengths: of the sequences.
        b_starts: where segment B begins in each; its length where there is none.
        ends: sequence i has the positions ends[i] .. ends[i + 1] - 1, of which the first ones are
            real and the others padding.
        pad_id: what is in the padding.
    """
    widths = np.diff(ends)
    position_ids = ranges(0, widths)
    # Runs of 0 (A), 1 (B) and, with padding, 0 again.
    runs = np.stack([b_starts, lengths - b_starts, widths - lengths], axis=1)
    segment_ids = np.repeat(np.tile([0, 1, 0], len(lengths)), runs.ravel())
    if len(input_ids) == len(position_ids):
        return input_ids, segment_ids, position_ids
    padded = np.full(len(position_ids), pad_id)
    padded[ranges(ends[:-1], lengths)] = input_ids
    return padded, segment_ids, position_ids
