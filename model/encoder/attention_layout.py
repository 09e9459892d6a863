"""Layout of a batch: offsets of its instances, and the groups that attention computes together."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from model.data.batches import to_device
from model.encoder.compilation import eager
from pipelines.arrays import offsets_of

_GROUP_COST = 10_000
"""Overhead of one more group, in attention scores that take the same time."""

_GROUP_SCORES = 1 << 20
"""Maximum number of attention scores per group with dropout, whose probabilities stay in the caches
of a CPU. Without dropout, torch's flash kernel reads any number of scores in small blocks."""


class InstanceGroup(NamedTuple):
    """Instances that are computed together, each in a row of length L.

    Attributes:
        rows: Number of instances, b.
        length: Length of the longest instance, L.
        first: Index in T of the first token if the instances are contiguous and all have L tokens;
            otherwise -1. The fields below are set only if it is -1.
        tokens: Token at each position, int64 of shape (b * L,); past the end of an instance, its
            first token.
        places: Positions that hold a token, ascending; int64 of shape (n,).
        place_tokens: Tokens at `places`, int64 of shape (n,).
        past_end: float32 of shape (b, 1, L): -inf past the end of an instance, otherwise 0; None if
            all instances have the same length.
    """

    rows: int
    length: int
    first: int
    tokens: torch.Tensor | None = None
    places: torch.Tensor | None = None
    place_tokens: torch.Tensor | None = None
    past_end: torch.Tensor | None = None


class AttentionLayout(NamedTuple):
    """Layout of a batch, built once per forward pass for all layers.

    Attributes:
        groups: All instances: in groups on the CPU, in one group on a GPU; empty with the flash
            kernel.
        place_of_token: Position of each token in the concatenation of all groups, int64 of shape
            (T,); None if the order is the same.
        boundaries: Offsets of instances, int32 of shape (B + 1,) on the device.
        longest: Tokens of the longest instance.
    """

    groups: tuple[InstanceGroup, ...]
    place_of_token: torch.Tensor | None
    boundaries: torch.Tensor
    longest: int


def plan_groups(
    lengths: npt.NDArray[np.int64], *, heads: int, has_dropout: bool
) -> list[npt.NDArray[np.int64]]:
    """Return groups of instances of similar length: their numbers, ascending in each group.

    Instances join a group from the longest down until the padding that they add costs as much as
    starting another group.
    """
    max_scores = _GROUP_SCORES if has_dropout else sys.maxsize
    order = np.argsort(-lengths, kind="stable")
    groups: list[npt.NDArray[np.int64]] = []
    begin, wasted, scores = 0, 0, 0
    for place, length in enumerate(lengths[order].tolist()):
        area = heads * int(lengths[order[begin]]) ** 2
        wasted += area - heads * length * length
        scores += area
        if place > begin and (wasted > _GROUP_COST or scores > max_scores):
            groups.append(np.sort(order[begin:place]))
            begin, wasted, scores = place, 0, heads * length * length
    groups.append(np.sort(order[begin:]))
    return groups


@eager  # shapes here depend on data, and the work is that of numpy
def attention_layout(
    lengths: npt.NDArray[np.int64],
    *,
    heads: int,
    device: torch.device,
    flash: bool,
    has_dropout: bool,
) -> AttentionLayout:
    """Return the layout of packed instances of these lengths.

    With `flash` it has only boundaries, otherwise only groups. `has_dropout` says whether attention
    drops probabilities.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    ends = offsets_of(lengths)
    starts = ends[:-1]
    boundaries = torch.from_numpy(ends if flash else ends[:1]).to(torch.int32)
    groups: tuple[InstanceGroup, ...] = ()
    if not flash:
        # A GPU computes padding faster than it starts kernels for more groups.
        plan = [np.arange(len(lengths))]
        if device.type == "cpu":
            plan = plan_groups(lengths, heads=heads, has_dropout=has_dropout)
        groups = tuple(_group(starts[numbers], lengths[numbers], device) for numbers in plan)
    return AttentionLayout(
        groups,
        _places_of_tokens(groups, tokens=int(ends[-1]), device=device),
        to_device(boundaries, device),
        int(lengths.max()),
    )


def _places_of_tokens(
    groups: tuple[InstanceGroup, ...], *, tokens: int, device: torch.device
) -> torch.Tensor | None:
    if not groups or (groups[0].tokens is None and groups[0].rows * groups[0].length == tokens):
        return None
    places = torch.zeros(tokens, dtype=torch.int64, device=device)
    done = 0
    for group in groups:
        size = group.rows * group.length
        if group.places is None or group.place_tokens is None:
            places[group.first : group.first + size] = torch.arange(
                done, done + size, device=device
            )
        else:
            places[group.place_tokens] = done + group.places
        done += size
    return places


def _group(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], device: torch.device
) -> InstanceGroup:
    rows, length = len(lengths), int(lengths.max())
    # On a GPU every batch has all fields, so that compiled code fits batches of any fill.
    is_cpu = device.type == "cpu"
    if is_cpu and (lengths == length).all() and (np.diff(starts) == length).all():
        return InstanceGroup(rows, length, int(starts[0]))
    real = np.arange(length) < lengths[:, None]  # (b, L)
    tokens = starts[:, None] + np.where(real, np.arange(length), 0)  # (b, L)
    places = np.flatnonzero(real)
    past_end = None
    if not (is_cpu and real.all()):
        past_end = torch.from_numpy(np.where(real, np.float32(0), np.float32(-np.inf)))
        past_end = to_device(past_end[:, None, :], device)  # (b, 1, L)
    return InstanceGroup(
        rows,
        length,
        -1,
        to_device(torch.from_numpy(tokens.ravel()), device),
        to_device(torch.from_numpy(places), device),
        to_device(torch.from_numpy(tokens.ravel()[places]), device),
        past_end,
    )
