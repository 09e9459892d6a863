"""What a fine-tuned model says of the sequences of a split. Loads torch."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from tqdm import tqdm

from model.finetuning.batches import lay_out_units
from model.processes.stopping import StopRequest
from model.task_types.features import Features, Int64s
from schemas.errors import TrainingError

Float32s = npt.NDArray[np.float32]


def predict(
    model: nn.Module,
    features: Features,
    *,
    micro_batch_tokens: int,
    device: torch.device | str,
    pad_id: int,
    progress: str = "",
    stop: StopRequest | None = None,
) -> Float32s:
    """Raw outputs of all sequences, end to end in the order of the features.

    Nothing is padded. Long units come first: those of a micro-batch are then nearly equally long,
    which attention likes, and what does not fit into memory fails at once.

    Args:
        model: such as a `TaskModel`, on `device`; left in the mode it was in.
        features: of one split; labels are not looked at.
        micro_batch_tokens: tokens that are worked on at once; bounds memory.
        device: what the model is on.
        pad_id: not used, as there is no padding; every layout has one.
        progress: what to call this in a terminal's progress bar; "" for none.
        stop: looked at between micro-batches.

    Returns:
        float32 by kind: classification (U, labels), regression (U,), choice (U, choices), span
        (T, 2), tagging (positions, labels).

    Raises:
        TrainingError: it was asked to stop, or a sequence is longer than the model's positions.
    """
    was_training = model.training
    model.eval()
    outputs: Float32s | None = None
    sizes = np.diff(features.offsets[:: features.per_unit])  # tokens of each unit
    bar = tqdm(
        total=int(sizes.sum()),
        desc=progress,
        unit="token",
        unit_scale=True,
        leave=False,
        disable=not (progress and sys.stderr.isatty()),
    )
    try:
        with bar, torch.inference_mode():
            for units in _groups(sizes, limit=micro_batch_tokens):
                if stop is not None and stop.reason:
                    raise TrainingError(f"{progress or 'prediction'}: stopped ({stop.reason})")
                step = lay_out_units(
                    features,
                    units,
                    layout="packed",
                    micro_batch_tokens=1 << 62,
                    pad_id=pad_id,
                )
                (batch,) = step.micro_batches
                said = model(batch._replace(labels=None).to(device)).logits.float().cpu().numpy()
                rows = _rows(features, units)
                if outputs is None:
                    outputs = np.empty((_size(features), *said.shape[1:]), np.float32)
                outputs[rows] = said
                bar.update(step.tokens)
    finally:
        model.train(was_training)
    return _nothing(model, features) if outputs is None else outputs


def _groups(sizes: Int64s, *, limit: int) -> list[Int64s]:
    """Units that are worked on together, the longest first; each group in ascending order."""
    order = np.argsort(-sizes, kind="stable")
    ends = np.cumsum(sizes[order])
    groups: list[Int64s] = []
    begin = 0
    while begin < len(order):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + limit, side="right")))
        groups.append(np.sort(order[begin:end]))
        begin = end
    return groups


def _size(features: Features) -> int:
    """Rows of the outputs."""
    if features.kind == "span":
        return int(features.offsets[-1])
    if features.positions is not None:
        return len(features.positions)
    return features.units


def _rows(features: Features, units: Int64s) -> Int64s:
    """Where the outputs of these units belong among all."""
    offsets = features.offsets if features.kind == "span" else features.position_offsets
    if offsets is None:
        return units
    sources = offsets[units]
    counts = offsets[units + 1] - sources
    firsts = np.cumsum(counts) - counts
    rows: Int64s = np.arange(int(counts.sum())) + np.repeat(sources - firsts, counts)
    return rows


def _nothing(model: nn.Module, features: Features) -> Float32s:
    """The outputs of no units at all."""
    if features.kind == "regression":
        return np.empty(0, np.float32)
    width = features.per_unit if features.kind == "choice" else int(getattr(model, "outputs", 0))
    return np.empty((0, width), np.float32)
