"""Where the instances of a batch lie, and which of them attention works on together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

_GROUP_COST = 10_000
"""What one more group costs (its calls), in attention scores that could be computed meanwhile."""

_GROUP_SCORES = 1 << 20
"""Attention scores of a group, at most: in larger ones, fewer calls save nothing that shows."""


class InstanceGroup(NamedTuple):
    """Instances that are worked on together, each in a row of the same length L.

    Attributes:
        rows: b, how many they are.
        length: L, the longest of them.
        first: index in T of the first token where they lie end to end and all have L tokens, or -1.
        tokens: int64 of shape (b * L,): the token at each place; in places past an instance's end
            its first token. Only where `first` is -1; so are the others.
        places: int64 of shape (n,): places that hold a token, ascending.
        place_tokens: int64 of shape (n,): those tokens.
        past_end: float32 of shape (b, 1, L): -inf in places past the end, 0 in others; None where
            all are equally long.
    """

    rows: int
    length: int
    first: int
    tokens: torch.Tensor | None = None
    places: torch.Tensor | None = None
    place_tokens: torch.Tensor | None = None
    past_end: torch.Tensor | None = None


class AttentionLayout(NamedTuple):
    """Where instances lie, made once a forward pass for all layers.

    Attributes:
        groups: on CPU, and on CUDA where there is no flash kernel: all instances, in groups.
        covered: whether every position of T belongs to an instance.
        place_of_token: int64 of shape (T,): where each token is among the places of all groups, one
            group after the other; None where that is where it lies. Padding has place 0.
        boundaries: int32 of shape (n + 1,) on the device: where instances, and runs of padding,
            begin and end.
        longest: the most tokens between two boundaries.
    """

    groups: tuple[InstanceGroup, ...]
    covered: bool
    place_of_token: torch.Tensor | None
    boundaries: torch.Tensor
    longest: int


def plan_groups(lengths: npt.NDArray[np.int64], *, heads: int) -> list[npt.NDArray[np.int64]]:
    """Instances that are worth working on together: their numbers, ascending in each group.

    From the longest down, a group takes instances in until what they would waste, being shorter
    than its first, costs as much as a group of their own.
    """
    order = np.argsort(-lengths, kind="stable")
    groups: list[npt.NDArray[np.int64]] = []
    begin, wasted, scores = 0, 0, 0
    for place, length in enumerate(lengths[order].tolist()):
        area = heads * int(lengths[order[begin]]) ** 2
        wasted += area - heads * length * length
        scores += area
        if place > begin and (wasted > _GROUP_COST or scores > _GROUP_SCORES):
            groups.append(np.sort(order[begin:place]))
            begin, wasted, scores = place, 0, heads * length * length
    groups.append(np.sort(order[begin:]))
    return groups


@torch.compiler.disable  # type: ignore[untyped-decorator]  # shapes here depend on data, and the work is that of numpy
def attention_layout(
    lengths: npt.NDArray[np.int64],
    *,
    padded_length: int | None,
    heads: int,
    device: torch.device,
    flash: bool,
) -> AttentionLayout:
    """The layout of instances of these lengths, end to end or in padded rows.

    With `flash` only boundaries are made, without it only groups.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    if padded_length is None:
        starts = np.cumsum(lengths) - lengths
        ends = [0, *np.cumsum(lengths).tolist()]
    else:
        starts = np.arange(len(lengths), dtype=np.int64) * padded_length
        # The rest of a row is an instance of its own, which nobody looks at.
        ends = np.stack([starts, starts + lengths], axis=1).ravel().tolist()
        ends.append(len(lengths) * padded_length)
    covered = padded_length is None or bool((lengths == padded_length).all())
    boundaries = torch.tensor(ends if flash else [0], dtype=torch.int32)
    groups = (
        ()
        if flash
        else tuple(
            _group(starts[numbers], lengths[numbers], device)
            for numbers in plan_groups(lengths, heads=heads)
        )
    )
    return AttentionLayout(
        groups,
        covered,
        _places_of_tokens(groups, tokens=ends[-1], device=device),
        boundaries.to(device, non_blocking=True),
        int(np.diff(ends).max()),
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
    if (lengths == length).all() and (np.diff(starts) == length).all():
        return InstanceGroup(rows, length, int(starts[0]))
    real = np.arange(length) < lengths[:, None]  # (b, L)
    tokens = starts[:, None] + np.where(real, np.arange(length), 0)  # (b, L)
    places = np.flatnonzero(real)
    past_end = None
    if not real.all():
        past_end = torch.from_numpy(np.where(real, np.float32(0), np.float32(-np.inf)))
        past_end = past_end[:, None, :].to(device)  # (b, 1, L)
    return InstanceGroup(
        rows,
        length,
        -1,
        torch.from_numpy(tokens.ravel()).to(device),
        torch.from_numpy(places).to(device),
        torch.from_numpy(tokens.ravel()[places]).to(device),
        past_end,
    )
