"""Instances as the tensors of micro-batches: end to end, or in rows of equal length."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from model.data.batches import PretrainingBatch, TokenBatch
from model.data.batching import Layout, padded_length
from model.data.instances import InstanceRows

Int64s = npt.NDArray[np.int64]

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
    offsets = instances.offsets
    lengths = np.diff(offsets)
    sizes = np.diff(bounds)
    widths = _widths(lengths, bounds, layout=layout, row_length=row_length)
    ends = np.append(0, np.cumsum(lengths if widths is None else np.repeat(widths, sizes)))
    input_ids, segment_ids, position_ids = _token_columns(
        instances, ends, is_padded=widths is not None, pad_id=pad_id
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


def _token_columns(
    instances: InstanceRows, ends: Int64s, *, is_padded: bool, pad_id: int
) -> tuple[Int64s, Int64s, Int64s]:
    """input_ids, segment_ids and position_ids of all places, padding among them."""
    offsets, total = instances.offsets, int(ends[-1])
    lengths, widths = np.diff(offsets), np.diff(ends)
    position_ids = np.arange(total)
    position_ids -= np.repeat(ends[:-1], widths)
    # Runs of 0 (A), 1 (B) and, with padding, 0 again.
    b_start = instances.segment_b_start
    runs = [b_start, lengths - b_start, *([widths - lengths] if is_padded else [])]
    values = np.tile([0, 1, 0][: len(runs)], len(lengths))
    segment_ids = np.repeat(values, np.stack(runs, axis=1).ravel())
    if not is_padded:
        return instances.input_ids.astype(np.int64), segment_ids, position_ids
    places = np.repeat(ends[:-1] - offsets[:-1], lengths)
    places += np.arange(len(places))
    input_ids = np.full(total, pad_id)
    input_ids[places] = instances.input_ids
    return input_ids, segment_ids, position_ids
