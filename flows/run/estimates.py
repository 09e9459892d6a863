"""Estimates of the time and disk space that a run needs.

Volumes go from step to step: bytes of raw files, bytes of text, tokens. A step that is in the store
counts with its own counters. Time comes from earlier artifacts of the stage in the same store, or
from measured rates (`cost_rates.yaml`).
"""

from __future__ import annotations

import functools
import importlib.resources
import os
import shutil
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from flows.formatting import format_bytes, format_duration
from flows.run.graph import Step
from schemas.configs import DocumentsConfig, ExecutionConfig, InstancesConfig, VocabularyConfig
from schemas.errors import ConfigError
from schemas.manifest import Manifest
from schemas.model_configs import ModelConfig, PretrainConfig

_BYTES_PER_WORD = 6.1
_STATE_BYTES_PER_PARAMETER = 12
"""Weights and two moments, 4 bytes each."""


class StepEstimate(NamedTuple):
    """What one step needs."""

    seconds: float | None = None
    """Wall time; None if it is not known."""

    disk_bytes: int = 0
    """In the store, with checkpoints."""

    temporary_bytes: int = 0
    """In the folder of temporary files."""


class RunEstimate(NamedTuple):
    """What all steps need that are to be built, one after the other."""

    seconds: float
    disk_bytes: int
    temporary_bytes: int
    unknown: Mapping[str, int]
    """Number of steps without an estimate of the time, by stage."""


class _Volume(NamedTuple):
    """What goes through a step; 0 where it is not known."""

    text_bytes: float = 0
    tokens: float = 0
    length: float = 0
    """Mean number of tokens of an instance."""

    vocab_size: int = 0
    shape: ModelConfig | None = None


@functools.cache
def cost_rates() -> dict[str, Any]:
    """Return the table of measured rates."""
    file = importlib.resources.files("flows.run") / "cost_rates.yaml"
    rates: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return rates


def estimate_steps(
    steps: Sequence[Step],
    *,
    built: frozenset[str],
    manifests: Mapping[str, Manifest],
    raw_bytes: Mapping[str, int],
    execution: ExecutionConfig,
    earlier: Callable[[str], Sequence[Manifest]],
) -> dict[str, StepEstimate]:
    """Return the estimate of each step that is to be built, by label.

    Args:
        steps: all steps, each after its inputs.
        built: labels of the steps to be built.
        manifests: artifacts of the steps that are in the store.
        raw_bytes: bytes that steps read from outside the store.
        execution: where the steps run.
        earlier: returns the newest artifacts of a stage in the store.
    """
    volumes: dict[str, _Volume] = {}
    estimates: dict[str, StepEstimate] = {}
    for step in steps:
        before = _join(volumes[label] for label in step.inputs.values() if label in volumes)
        read = raw_bytes.get(step.label, 0)
        if step.label not in built and step.label in manifests:
            volumes[step.label] = _counted_volume(manifests[step.label], step.config, before)
            continue
        volume = volumes[step.label] = _estimate_volume(step, before, read=read)
        own = earlier(step.stage.name)
        if isinstance(step.config, PretrainConfig):
            estimates[step.label] = _estimate_training(step.config, volume, own)
        else:
            estimate = _estimate_step(step.stage.name, volume, own, workers=execution.workers)
            # Keys of duplicates, and unpacked parts of archives.
            estimates[step.label] = estimate._replace(temporary_bytes=read // 10)
    return estimates


def _join(volumes: Iterable[_Volume]) -> _Volume:
    """Return the largest volume of each kind."""
    each = [_Volume(), *volumes]
    return _Volume(
        text_bytes=max(one.text_bytes for one in each),
        tokens=max(one.tokens for one in each),
        length=max(one.length for one in each),
        vocab_size=max(one.vocab_size for one in each),
        shape=next((one.shape for one in reversed(each) if one.shape), None),
    )


def _counted_volume(manifest: Manifest, config: Any, before: _Volume) -> _Volume:
    counters, volume = manifest.counters, before
    if isinstance(config, DocumentsConfig):
        return _Volume(text_bytes=_BYTES_PER_WORD * counters.get("words", 0))
    if "vocab_size" in manifest.statistics:
        volume = volume._replace(vocab_size=int(manifest.statistics["vocab_size"]))
    if manifest.stage in ("build-tokens", "build-instances"):
        volume = volume._replace(tokens=counters.get("tokens", 0))
    if isinstance(config, InstancesConfig):
        volume = volume._replace(length=volume.tokens / max(1, counters.get("instances", 0)))
    if isinstance(config, PretrainConfig):
        volume = volume._replace(shape=config.model or before.shape)
    return volume


def _estimate_volume(step: Step, before: _Volume, *, read: int) -> _Volume:
    config = step.config
    if isinstance(config, DocumentsConfig):
        return _Volume(text_bytes=read * _text_share(config))
    if isinstance(config, VocabularyConfig):
        return before._replace(vocab_size=config.vocab_size)
    if step.stage.name == "build-tokens":
        return before._replace(tokens=before.text_bytes / cost_rates()["bytes_of_text_in_a_token"])
    if isinstance(config, InstancesConfig):
        tokens = before.tokens * config.dupe_factor * (1 - config.held_out_fraction)
        return before._replace(tokens=tokens, length=0.85 * config.max_seq_length)
    if isinstance(config, PretrainConfig):
        return before._replace(shape=config.model or before.shape)
    return before


def _text_share(config: DocumentsConfig) -> float:
    """Return bytes of text per byte of the raw files, by their suffixes."""
    shares = []
    for source in config.sources:
        for path in source.paths:
            suffix = path.rstrip("*/").rpartition(".")[2].lower()
            if source.kind == "wikipedia":
                kind = suffix if suffix in ("bz2", "gz", "zst") else "xml"
            elif suffix in ("zip", "tgz", "gz", "bz2", "xz", "zst"):
                kind = "archive"
            else:
                kind = "table" if suffix in ("parquet", "pq") else "text"
            shares.append(float(cost_rates()["text_in_a_byte"][kind]))
    return statistics.mean(shares)


def _estimate_step(
    stage: str, volume: _Volume, own: Sequence[Manifest], *, workers: int
) -> StepEstimate:
    rates = cost_rates()["stages"].get(stage)
    if rates is None:  # a stage of a task: as long as earlier ones
        if not own:
            return StepEstimate()
        disk_bytes = int(statistics.median(made.size for made in own))
        return StepEstimate(statistics.median(made.produced_by.seconds for made in own), disk_bytes)
    amount = _amount(stage, volume)
    seconds = rates["start"] + amount / rates["rate"] / max(1, workers)
    factors = [
        made.produced_by.seconds / (rates["start"] + _amount(stage, counted) / rates["rate"])
        for made in own
        if not (made.produced_by.reuse and made.produced_by.reuse.pieces_reused)
        for counted in [_counted_volume(made, None, _Volume())]
    ]
    factor = statistics.median(factors) if factors else 1.0
    return StepEstimate(seconds * factor, int(amount * rates["disk"]) + 60_000)


def _amount(stage: str, volume: _Volume) -> float:
    return volume.tokens if stage in ("build-tokens", "build-instances") else volume.text_bytes


def _estimate_training(
    config: PretrainConfig, volume: _Volume, own: Sequence[Manifest]
) -> StepEstimate:
    start, disk_bytes = float(cost_rates()["training_start"]), 0
    if volume.shape is not None:
        state = _STATE_BYTES_PER_PARAMETER * _parameters(volume.shape, volume.vocab_size)
        # While a checkpoint is written, the one that it replaces is still there.
        checkpoints = config.checkpoints.save_total_limit + 2 + (config.keep == "best")
        disk_bytes = state * checkpoints + len(config.kept_steps) * state // 3
    if config.budget.max_minutes is not None:
        return StepEstimate(60 * config.budget.max_minutes + start, disk_bytes)
    batch = (
        config.batch.global_batch_tokens or (config.batch.global_batch_size or 256) * volume.length
    )
    tokens = config.budget.max_tokens or (config.budget.max_steps or 0) * batch
    model = config.model.model_dump(mode="json") if config.model else None
    speeds = [
        made.counters["tokens"] / made.produced_by.seconds
        for made in own
        if made.config.get("model") == model and made.counters.get("tokens")
    ]
    if speeds:
        return StepEstimate(tokens / statistics.median(speeds), disk_bytes)
    has_gpu = config.device != "cpu" and Path("/dev/nvidia0").exists()  # torch would take 2 s
    if volume.shape is None or has_gpu:
        return StepEstimate(None, disk_bytes)
    seconds = _training_seconds(volume.shape, volume, float(tokens))
    return StepEstimate(start + seconds, disk_bytes)


def _training_seconds(shape: ModelConfig, volume: _Volume, tokens: float) -> float:
    """Return the time of forward and backward passes on this machine's cores."""
    rates, hidden = cost_rates(), shape.hidden_size
    layer = 4 * hidden * hidden + 2 * hidden * shape.feed_forward_size + 2 * hidden * volume.length
    head = 0.15 * hidden * (hidden + volume.vocab_size)
    flops = 6 * tokens * (shape.num_hidden_layers * layer + head)
    speed = rates["training"][max(size for size in rates["training"] if size <= hidden)]
    return float(flops / speed * rates["cores_measured"] / (os.cpu_count() or 1))


def _parameters(shape: ModelConfig, vocab_size: int) -> int:
    hidden, inner = shape.hidden_size, shape.feed_forward_size
    embedded = vocab_size + shape.max_position_embeddings + shape.type_vocab_size
    layer = 4 * hidden * hidden + 2 * hidden * inner + 9 * hidden + inner
    return embedded * hidden + shape.num_hidden_layers * layer + 2 * hidden * hidden + vocab_size


def sum_estimates(estimates: Mapping[str, StepEstimate]) -> RunEstimate:
    """Return the estimate of a run, given those of its steps by label."""
    each = estimates.values()
    return RunEstimate(
        seconds=sum(one.seconds or 0.0 for one in each),
        disk_bytes=sum(one.disk_bytes for one in each),
        temporary_bytes=sum(one.temporary_bytes for one in each),
        unknown=Counter(k.partition(".")[0] for k, one in estimates.items() if one.seconds is None),
    )


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


def check_disk_space(estimate: RunEstimate, *, store: str) -> None:
    """Raise ConfigError if the disk cannot hold the artifacts or the temporary files."""
    temporary = tempfile.gettempdir()
    for folder, needed, remedy in (
        (store, estimate.disk_bytes, "choose another --store"),
        (temporary, estimate.temporary_bytes, "choose another folder by TMPDIR"),
    ):
        free = free_bytes(folder)
        if free is not None and needed > free:
            raise ConfigError(
                f"{folder}: not enough disk space: need about {format_bytes(needed)}, "
                f"{format_bytes(free)} free. Free space with `bertloom gc`, {remedy}, or pass "
                "--force"
            )
