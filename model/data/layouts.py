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
        bounds: micro-batch k has the instances bounds[k] .. bounds[k + 1] - 1; in `bucketed`, its
            longest instance comes first.
        layout: `packed`, `bucketed` or `padded`.
        row_length: S of `padded`, and the most of `bucketed`; no instance is longer.
        pad_id: what fills up rows.
        has_pairs: whether next sentences are predicted.
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
    """Row length of each micro-batch; None where instances lie end to end."""
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
    """Sequences as the tokens of batches, whose tensors are parts of arrays they share.

    Args:
        input_ids: of all sequences, end to end without padding.
        lengths: of the sequences.
        b_starts: where segment B begins in each; its length where there is none.
        bounds: batch k has the sequences bounds[k] .. bounds[k + 1] - 1.
        widths: positions of a row in each batch; None where sequences lie end to end.
        pad_id: what is in the padding.

    Returns:
        The batches, and where in its batch each sequence begins.
    """
    sizes = np.diff(bounds)
    own_widths = lengths if widths is None else np.repeat(widths, sizes)
    ends = offsets_of(own_widths)
    begins = ends[bounds]
    starts = ends[:-1] - np.repeat(begins[:-1], sizes)
    # Runs of 0 (A), 1 (B) and, with padding, 0 again.
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
