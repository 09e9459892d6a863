"""Estimates of the time and disk space that a run needs.

Volumes (bytes of text, tokens) go from step to step. Times come from earlier artifacts of a stage
in the store, or from measured rates (docs/measured.md).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from flows.formatting import format_bytes, format_duration
from flows.run.graph import Step
from schemas.corpus_configs import DocumentsConfig, InstancesConfig, VocabularyConfig
from schemas.manifest import Manifest
from schemas.model_configs import PretrainConfig

_BYTES_PER_WORD, _BYTES_PER_TOKEN = 6.1, 4.2
_BYTES_PER_PARAMETER = 12
"""Bytes of a weight and its two moments in a checkpoint."""

_TEXT_RATIO = {"xml": 0.3, "parquet": 0.7, "bz2": 1.2, "gz": 1.2, "tgz": 2.4, "zip": 2.4}
"""Bytes of text per byte of a raw file, by suffix; 1.0 for others."""

_STAGE_RATES = {
    "build-documents": (1.5, 1e6, 0.5),
    "build-vocabulary": (1.0, 5e6, 0.05),
    "find-near-duplicates": (1.0, 3e6, 0.01),
    "build-tokens": (0.3, 3e6, 2.3),
    "build-instances": (0.2, 3e6, 3.2),
}
"""Start in seconds; bytes of text or tokens per second of one worker; bytes written per each."""

TRAINING_START = 8.0
"""Seconds before the first and after the last training step."""

_TRAINING_FLOPS = {0: 1.0e10, 128: 3.0e10, 256: 9.5e10, 768: 1.1e11}
"""Floating-point operations per second of one core, by minimum hidden size."""


class StepEstimate(NamedTuple):
    """Time and disk space of one step."""

    seconds: float | None = None
    """Wall time; None if it is not known."""

    disk_bytes: int = 0
    """Bytes in the store, checkpoints included."""


class RunEstimate(NamedTuple):
    """Time and disk space of all steps that are to be built, one after the other."""

    seconds: float
    disk_bytes: int
    unknown: Mapping[str, int]
    """Number of steps without an estimate of the time, by stage."""


class _Volume(NamedTuple):
    """Amount of data that a step passes on; 0 where it is not known."""

    text_bytes: float = 0
    tokens: float = 0
    tokens_per_instance: float = 0
    vocab_size: int = 0
    hidden_size: int = 0
    encoder_parameters: int = 0


def estimate_steps(
    steps: Iterable[Step],
    *,
    manifests: Mapping[str, Manifest],
    raw_bytes: Mapping[str, int],
    workers: int,
    earlier: Callable[[str], Sequence[Manifest]],
) -> dict[str, StepEstimate]:
    """Return an estimate of each step that is to be built, by label.

    Args:
        steps: All steps, each after its inputs.
        manifests: Artifacts of the steps that are in the store, by label.
        raw_bytes: Bytes that steps read from outside the store, by label.
        workers: Number of worker processes of a job.
        earlier: Returns the newest artifacts of a stage in the store.
    """
    volumes: dict[str, _Volume] = {}
    estimates: dict[str, StepEstimate] = {}
    for step in steps:
        upstream = (volumes[label] for label in step.inputs.values() if label in volumes)
        before = _Volume(*map(max, zip(_Volume(), *upstream, strict=True)))
        manifest = manifests.get(step.label)
        counters = manifest.counters if manifest is not None else {}
        volume = _pass_on(step, before, counters, raw_bytes=raw_bytes.get(step.label, 0))
        volumes[step.label] = volume
        if manifest is None:
            own = earlier(step.stage.name)
            estimates[step.label] = (
                _estimate_training(step.config, volume, own)
                if isinstance(step.config, PretrainConfig)
                else _estimate_job(step, volume, own, workers=workers)
            )
    return estimates


def _pass_on(
    step: Step, before: _Volume, counters: Mapping[str, int], *, raw_bytes: int
) -> _Volume:
    """Return the volume after a step: counted if its artifact is in the store."""
    config = step.config
    if isinstance(config, DocumentsConfig):
        paths = [path for source in config.sources for path in source.paths]
        ratio = mean(_TEXT_RATIO.get(path.rpartition(".")[2].lower(), 1.0) for path in paths)
        return _Volume(text_bytes=_amount(counters) or raw_bytes * ratio)
    if isinstance(config, VocabularyConfig):
        return before._replace(vocab_size=counters.get("vocabulary-size", config.vocab_size))
    if step.stage.name == "build-tokens":
        tokens = before.text_bytes / _BYTES_PER_TOKEN
        return before._replace(tokens=counters.get("tokens", tokens))
    if isinstance(config, InstancesConfig):
        tokens = before.tokens * config.dupe_factor * (1 - config.held_out_fraction)
        tokens = counters.get("tokens", tokens)
        return before._replace(tokens=tokens, tokens_per_instance=0.85 * config.max_seq_length)
    if isinstance(config, PretrainConfig) and (model := config.model) is not None:
        hidden, inner = model.hidden_size, model.feed_forward_size
        encoder = model.num_hidden_layers * (4 * hidden * hidden + 2 * hidden * inner)
        return before._replace(hidden_size=hidden, encoder_parameters=encoder)
    return before


def _amount(counters: Mapping[str, int]) -> float:
    """Return what the time of a stage is proportional to: tokens, or bytes of text without them."""
    return counters.get("tokens", _BYTES_PER_WORD * counters.get("words", 0))


def _estimate_job(
    step: Step, volume: _Volume, own: Sequence[Manifest], *, workers: int
) -> StepEstimate:
    if step.stage.name not in _STAGE_RATES:  # a stage of a task: as long as earlier ones
        seconds = median(manifest.produced_by.seconds for manifest in own) if own else None
        return StepEstimate(seconds, int(median(item.size for item in own)) if own else 0)
    start, rate, disk = _STAGE_RATES[step.stage.name]
    amount, rate = volume.tokens or volume.text_bytes, rate * max(1, workers)
    ratios = [
        manifest.produced_by.seconds / (start + _amount(manifest.counters) / rate)
        for manifest in own
        if not (manifest.produced_by.reuse and manifest.produced_by.reuse.pieces_reused)
    ]
    seconds = (start + amount / rate) * (median(ratios) if ratios else 1.0)
    return StepEstimate(seconds, int(amount * disk) + 60_000)


def _estimate_training(
    config: PretrainConfig, volume: _Volume, own: Sequence[Manifest]
) -> StepEstimate:
    hidden, encoder, vocab_size = volume.hidden_size, volume.encoder_parameters, volume.vocab_size
    # While a checkpoint is written, the one that it replaces is still there.
    checkpoints = config.checkpoints.save_total_limit + 2 + len(config.kept_steps) / 3
    disk_bytes = int(_BYTES_PER_PARAMETER * (encoder + hidden * vocab_size) * checkpoints)
    budget, batch = config.budget, config.batch
    if budget.max_minutes is not None:
        return StepEstimate(60 * budget.max_minutes + TRAINING_START, disk_bytes)
    instances = batch.global_batch_size or 256
    batch_tokens = batch.global_batch_tokens or instances * volume.tokens_per_instance
    tokens = budget.max_tokens or (budget.max_steps or 0) * batch_tokens
    model = config.model and config.model.model_dump(mode="json")
    same = [manifest for manifest in own if manifest.config.get("model") == model]
    if same:
        speed = median(item.counters["tokens"] / item.produced_by.seconds for item in same)
        return StepEstimate(tokens / speed, disk_bytes)
    if config.device != "cpu" and Path("/dev/nvidia0").exists():  # torch takes seconds to load
        return StepEstimate(None, disk_bytes)
    flops = 6 * tokens * (encoder + 0.15 * hidden * (hidden + vocab_size))
    speed = max(rate for size, rate in _TRAINING_FLOPS.items() if size <= hidden)
    return StepEstimate(TRAINING_START + flops / speed / (os.cpu_count() or 1), disk_bytes)


def format_estimate(estimate: RunEstimate, *, store: str) -> str:
    """Return one line: time, steps without an estimate, and disk space."""
    time = f"about {format_duration(estimate.seconds)}" if estimate.seconds else "unknown duration"
    stages = ", ".join(f"{count:,} {stage}" for stage, count in estimate.unknown.items())
    more = f" (no time estimate for {stages})" if stages and estimate.seconds else ""
    free = free_bytes(store)
    space = "" if free is None else f" ({format_bytes(free)} free)"
    return f"estimate: {time}{more}; writes about {format_bytes(estimate.disk_bytes)}{space}"


def free_bytes(folder: str) -> int | None:
    """Return the free bytes where a folder is or would be; None for a URL."""
    if "://" in folder:
        return None
    path = Path(folder).absolute()
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
