"""What a plan's steps will take: bytes read and written, time, core hours.

Amounts go through a chain: bytes of raw files, bytes of text, tokens, instances. Where a step's
artifact is there, its own counts are in the chain. Time is that of a table of measured rates
(`rates.yaml`), times what the store's own last artifacts of the stage took beside it.
"""

from __future__ import annotations

import functools
import importlib.resources
import os
import shutil
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from flows.engine.stages import Step
from flows.formats import byte_text, time_text
from schemas.configs import (
    DocumentsConfig,
    ExecutionConfig,
    InstancesConfig,
    VocabularyConfig,
)
from schemas.errors import ConfigError
from schemas.manifest import Manifest
from schemas.model_configs import ModelConfig, PretrainConfig

Basis = Literal["store", "table", "budget", ""]
_BYTES_A_PARAMETER = 12
"""Weights and two moments, 4 bytes each."""


class Expected(NamedTuple):
    """What a step will take. Estimates all: of inputs that are not there yet, rougher ones."""

    read_bytes: int = 0
    """From outside the store."""

    disk_bytes: int = 0
    """Of its artifact, in the store."""

    scratch_bytes: int = 0
    """Beside it in the store, until it is done."""

    seconds: float | None = None
    """On the clock; None where it is not known."""

    core_seconds: float | None = None
    basis: Basis = ""
    """Where the time is from: the store's own artifacts of the stage, the table of measured
    rates, or the recipe's budget in minutes; "" where it is not known."""

    is_rough: bool = False
    """Whether its inputs' counts are estimates themselves."""


class Amounts(NamedTuple):
    """What goes through a step, as far as it is known."""

    text_bytes: float = 0
    tokens: float = 0
    instances: float = 0
    length: float = 0
    """Tokens of an instance, on average."""

    vocab_size: int = 0
    shape: ModelConfig | None = None
    is_exact: bool = False


class Price(NamedTuple):
    """What all steps that are to be built will take."""

    read_bytes: int
    disk_bytes: int
    """Of the artifacts, and of what is beside them while they are built."""

    temporary_bytes: int
    """In the folder of temporary files."""

    seconds: float
    core_seconds: float
    unknown: int
    """Steps of which no time is known."""

    unknown_of: Mapping[str, int]
    """How many of them each stage has."""

    bases: tuple[str, ...]


@functools.cache
def rates() -> dict[str, Any]:
    """The table of measured rates."""
    file = importlib.resources.files("flows.engine") / "rates.yaml"
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def price_steps(
    steps: Sequence[Step],
    *,
    built: frozenset[str],
    manifests: Mapping[str, Manifest],
    raw_bytes: Mapping[str, int],
    execution: ExecutionConfig,
    earlier: Callable[[str], Sequence[Manifest]],
) -> dict[str, Expected]:
    """What each step that is to be built will take, by label.

    Args:
        steps: all, each after those it reads from.
        built: labels of those to be built.
        manifests: of those that are there.
        raw_bytes: sizes of the files that steps read from outside the store.
        execution: where they run.
        earlier: the store's newest artifacts of a stage; none where there is no store.
    """
    amounts: dict[str, Amounts] = {}
    found: dict[str, Expected] = {}
    for step in steps:
        given = [amounts[label] for label in step.inputs.values() if label in amounts]
        before = functools.reduce(_joined, given, Amounts(is_exact=True))
        read = raw_bytes.get(step.label, 0)
        if step.label not in built and step.label in manifests:
            amounts[step.label] = _counted(manifests[step.label], before, step.config)
            continue
        amounts[step.label] = after = _expected_amounts(step, before, read=read)
        found[step.label] = _expected(
            step, after, rough=not before.is_exact, read=read, execution=execution,
            own=earlier(step.stage.name),
        )  # fmt: skip
    return found


def _joined(one: Amounts, other: Amounts) -> Amounts:
    return Amounts(
        text_bytes=max(one.text_bytes, other.text_bytes),
        tokens=max(one.tokens, other.tokens),
        instances=max(one.instances, other.instances),
        length=max(one.length, other.length),
        vocab_size=max(one.vocab_size, other.vocab_size),
        shape=other.shape or one.shape,
        is_exact=one.is_exact and other.is_exact,
    )


# Amounts


def _counted(manifest: Manifest, before: Amounts, config: Any) -> Amounts:
    """Of a step whose artifact is there."""
    counters, after = manifest.counters, before
    if isinstance(config, DocumentsConfig):
        # A word of text and the space behind it.
        return after._replace(text_bytes=6.1 * counters.get("words", 0))
    if "vocab_size" in manifest.statistics:
        after = after._replace(vocab_size=int(manifest.statistics["vocab_size"]))
    if manifest.stage in ("build-tokens", "build-instances"):
        after = after._replace(tokens=counters.get("tokens", 0))
    if isinstance(config, InstancesConfig):
        number = max(1, counters.get("instances", 0))
        after = after._replace(instances=number, length=after.tokens / number)
    if isinstance(config, PretrainConfig):
        after = after._replace(shape=config.model or before.shape)
    return after


def _expected_amounts(step: Step, before: Amounts, *, read: int) -> Amounts:
    config, table = step.config, rates()
    if isinstance(config, DocumentsConfig):
        return Amounts(text_bytes=read * _text_share(config))
    after = before._replace(is_exact=False)
    if isinstance(config, VocabularyConfig):
        return after._replace(vocab_size=config.vocab_size)
    if step.stage.name == "build-tokens":
        return after._replace(tokens=before.text_bytes / table["bytes_of_text_in_a_token"])
    if isinstance(config, InstancesConfig):
        tokens = before.tokens * config.duplicates * (1 - config.held_out_share)
        length = 0.85 * config.max_seq_length
        return after._replace(tokens=tokens, length=length, instances=max(1.0, tokens / length))
    if isinstance(config, PretrainConfig):
        return after._replace(shape=config.model or before.shape)
    return after


def _text_share(config: DocumentsConfig) -> float:
    """Bytes of text in a byte of the raw files: by their endings, each as much as another."""
    table = rates()["text_in_a_byte"]
    shares = []
    for source in config.sources:
        for path in source.paths:
            ending = path.rstrip("*/").rpartition(".")[2].lower()
            if source.kind == "wikipedia":
                kind = ending if ending in ("bz2", "gz", "zst") else "xml"
            elif ending in ("zip", "tgz", "gz", "bz2", "xz", "zst"):
                kind = "archive"
            else:
                kind = "table" if ending in ("parquet", "pq") else "text"
            shares.append(float(table[kind]))
    return statistics.mean(shares)


# Steps


def _expected(
    step: Step,
    amounts: Amounts,
    *,
    rough: bool,
    read: int,
    execution: ExecutionConfig,
    own: Sequence[Manifest],
) -> Expected:
    if isinstance(step.config, PretrainConfig):
        return _expected_training(step.config, amounts, rough=rough, own=own)
    known = rates()["stages"].get(step.stage.name)
    if known is None:  # of tasks: as long as those before took
        seconds = _median([made.produced_by.seconds for made in own])
        size = _median([float(made.size) for made in own])
        basis: Basis = "store" if own else ""
        return Expected(read, int(size or 0), 0, seconds, seconds, basis, rough)
    amount = _amount(step.stage.name, amounts)
    # What one worker does alone is not shared; stores' own artifacts say how much slower it goes.
    seconds = known["start"] + amount / known["rate"] / max(1, execution.workers)
    factor = _own_factor(step.stage.name, own)
    return Expected(
        read,
        int(amount * known["disk"]) + 60_000,
        0,
        seconds * (factor or 1.0),
        seconds * (factor or 1.0) * max(1, execution.workers),
        "store" if factor else "table",
        rough,
    )


def _amount(stage: str, amounts: Amounts) -> float:
    return amounts.tokens if stage in ("build-tokens", "build-instances") else amounts.text_bytes


def _own_factor(stage: str, own: Sequence[Manifest]) -> float | None:
    """How many times the table's time the store's own artifacts of a stage took."""
    known, factors = rates()["stages"][stage], []
    for made in own:
        reuse = made.produced_by.reuse
        if reuse is not None and reuse.pieces_reused:
            continue
        counted = made.counters
        amounts = Amounts(6.1 * counted.get("words", 0), counted.get("tokens", 0))
        told = known["start"] + _amount(stage, amounts) / known["rate"]
        factors.append(made.produced_by.seconds / told)
    return _median(factors)


def _expected_training(
    config: PretrainConfig, amounts: Amounts, *, rough: bool, own: Sequence[Manifest]
) -> Expected:
    shape, table = amounts.shape, rates()
    cores = os.cpu_count() or 1
    start = float(table["training_start"])
    if shape is None:  # from a checkpoint of one's own
        disk, kept = 0, 0
    else:
        disk = _BYTES_A_PARAMETER * _parameters(shape, amounts.vocab_size)
        # While a checkpoint is written, the one that it replaces is still there.
        kept = disk * (config.checkpoints.keep_last + 1 + (config.keep == "best"))
        kept += len(config.kept_steps) * disk // 3
    if config.budget.minutes is not None:
        seconds = 60 * config.budget.minutes + start
        return Expected(0, disk, kept, seconds, seconds * cores, "budget")
    tokens = _tokens_read(config, amounts)
    if shape is None:
        return Expected(0, disk, kept)
    told = _training_seconds(shape, amounts.vocab_size, tokens, length=amounts.length)
    factors = [
        made.produced_by.seconds / max(1e-9, start + _training_seconds(shape_of, vocab, read))
        for made in own
        if (shape_of := _shape_of(made)) is not None
        and (vocab := int(made.statistics.get("vocab_size", 0)))
        and (read := made.counters.get("tokens", 0))
    ]
    factor = _median(factors)
    if factor is None and config.device != "cpu" and _has_gpu():
        return Expected(0, disk, kept)  # no rate of a GPU is in the table
    seconds = (start + told) * (factor or 1.0)
    basis: Basis = "store" if factor else "table"
    return Expected(0, disk, kept, seconds, seconds * cores, basis, rough)


def _shape_of(made: Manifest) -> ModelConfig | None:
    shape = made.config.get("model")
    return ModelConfig.model_validate(shape) if shape else None


def _tokens_read(config: PretrainConfig, amounts: Amounts) -> float:
    if config.budget.tokens is not None:
        return float(config.budget.tokens)
    batch = config.batch.tokens or (config.batch.instances or 256) * amounts.length
    return (config.budget.steps or 0) * batch


def _training_seconds(
    shape: ModelConfig, vocab_size: int, tokens: float, *, length: float = 32
) -> float:
    """Of forward and backward passes on this machine's cores, by the table."""
    table = rates()
    hidden = shape.hidden_size
    layer = 4 * hidden * hidden + 2 * hidden * shape.feed_forward_size + 2 * hidden * length
    head = 0.15 * hidden * (hidden + vocab_size)
    flops = 6 * tokens * (shape.layers * layer + head)
    least = max(size for size in table["training"] if size <= hidden)
    speed = table["training"][least] * (os.cpu_count() or 1) / table["cores_measured"]
    return float(flops / speed)


def _parameters(shape: ModelConfig, vocab_size: int) -> int:
    hidden, inner = shape.hidden_size, shape.feed_forward_size
    embedded = vocab_size + shape.max_position_embeddings + shape.type_vocab_size
    layer = 4 * hidden * hidden + 2 * hidden * inner + 9 * hidden + inner
    return embedded * hidden + shape.layers * layer + 2 * hidden * hidden + vocab_size


def _has_gpu() -> bool:
    # Asking torch would take two seconds.
    return Path("/dev/nvidia0").exists()


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


# All of them


def total(found: Mapping[str, Expected]) -> Price:
    """What all of them take together, one after the other."""
    each = list(found.values())
    return Price(
        read_bytes=sum(one.read_bytes for one in each),
        disk_bytes=sum(one.disk_bytes for one in each)
        + max((one.scratch_bytes for one in each), default=0),
        # Keys of duplicates, and what of an archive is unpacked to be read in parts.
        temporary_bytes=sum(one.read_bytes for one in each) // 10,
        seconds=sum(one.seconds or 0.0 for one in each),
        core_seconds=sum(one.core_seconds or 0.0 for one in each),
        unknown=sum(one.seconds is None for one in each),
        unknown_of=Counter(
            label.partition(".")[0] for label, one in found.items() if one.seconds is None
        ),
        bases=tuple(sorted({one.basis for one in each if one.basis})),
    )


_BASES = {
    "budget": "the recipe's minutes",
    "store": "this store's own runs",
    "table": "measured rates elsewhere",
}


def price_lines(price: Price, *, store: str) -> list[str]:
    """What it takes, for a person: one line on time, one on disk."""
    hours = price.core_seconds / 3600
    from_what = " and ".join(_BASES[basis] for basis in price.bases)
    known = f"about {time_text(price.seconds)}, {hours:,.2f} core hours (by {from_what})"
    lines = [f"expected: {known if from_what else 'nothing is known of the time'}"]
    if price.unknown:
        each = ", ".join(f"{number:,} of {stage}" for stage, number in price.unknown_of.items())
        lines.append(f"  besides, of a time that this store has not measured yet: {each}")
    free = free_bytes(store)
    has = "" if free is None else f" of {byte_text(free)} free"
    lines.append(
        f"reads {byte_text(price.read_bytes)} of raw files, "
        f"writes about {byte_text(price.disk_bytes)}{has}"
    )
    return lines


def free_bytes(folder: str) -> int | None:
    """Free in the file system of a folder, which need not be there yet; None of a URL."""
    if "://" in folder:
        return None
    path = Path(folder).absolute()
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def check_room(price: Price, *, store: str) -> None:
    """Refuse what the disk cannot hold.

    Raises:
        ConfigError: there is too little room for the artifacts, or for temporary files.
    """
    temporary = tempfile.gettempdir()
    for where, needed, what, remedy in (
        (store, price.disk_bytes, "the store", "another store by --store"),
        (temporary, price.temporary_bytes, "temporary files", "another folder by TMPDIR"),
    ):
        free = free_bytes(where)
        if free is not None and needed > free:
            raise ConfigError(
                f"{where}: {byte_text(free)} free for {what}, and the steps to be built need "
                f"about {byte_text(needed)}: free some space (`bertloom gc`), give {remedy}, or "
                "`bertloom run --force` to begin all the same"
            )
