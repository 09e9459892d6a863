"""Proposal of a recipe whose vocabulary, model and budget suit the texts and the machine.

The settings gave the lowest held-out perplexity per CPU time on small corpora (docs/quickstart.md):
a model of two layers learns faster on sequences of 32 tokens than on longer ones.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from flows.formatting import format_bytes, format_count
from flows.quickstart.folder_scan import FileGroup, FolderScan
from flows.quickstart.vocab_size import choose_vocab_size
from flows.recipes.json_schema import MODELINE
from flows.recipes.safe_yaml import parse_yaml, read_yaml
from pipelines.io.local_files import create_file
from schemas.errors import BertloomError, ConfigError
from schemas.model_configs import PretrainConfig

MIN_TEXT_BYTES = 40_000
SMALL_TEXT_BYTES = 300_000
_SHORT_RATIO = 0.8
"""Fraction of the training time for short sequences."""

_SHORT_LENGTH, _LONG_LENGTH = 32, 64
"""Tokens of a sequence in each phase."""

_MEASURED_SECONDS = 1.5
"""Time for which the speed of each phase is measured."""

_BYTES_PER_TOKEN = 4.2
_TOKENS_PER_CORE_SECOND, _TOKENS_PER_GPU_SECOND = 11_000, 4_000_000
"""Measured speed of the model `tiny`."""


class _Preset(NamedTuple):
    """Model size."""

    name: str
    relative_cost: float
    """Time per token as a multiple of `tiny`."""

    min_tokens: float
    """Minimum number of tokens in the budget."""

    learning_rate: str
    initializer_range: float


_PRESETS = (
    _Preset("medium", 50.0, 1e9, "5.0e-4", 0.02),
    _Preset("small", 25.0, 3e8, "5.0e-4", 0.02),
    _Preset("mini", 7.0, 2e7, "1.0e-3", 0.04),
    _Preset("tiny", 1.0, 0.0, "2.0e-3", 0.08),
)


class Machine(NamedTuple):
    """Hardware for the training."""

    cores: int
    gpu: str
    """Name of the GPU; "" for none."""

    def __str__(self) -> str:
        """Return the hardware that trains the model."""
        return self.gpu or format_count(self.cores, "core")


class Budget(NamedTuple):
    """Number of training steps of each phase."""

    short: int
    longer: int


class Proposal(NamedTuple):
    """A proposed recipe."""

    text: str
    """YAML text."""

    summary: str
    warnings: tuple[str, ...]


def this_machine() -> Machine:
    """Return the available cores and the first GPU."""
    import torch  # lazy import: keeps `bertloom --help` fast

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Machine(cores or 1, gpu)


def recipe_name(folder: Path) -> str:
    """Return a recipe name made from the name of a folder."""
    ascii_name = unicodedata.normalize("NFKD", folder.name.casefold()).encode("ascii", "ignore")
    return re.sub(r"[^a-z0-9_.-]+", "-", ascii_name.decode()).strip("-._")[:48] or "texts"


def written_budget(recipe: Path) -> Budget | None:
    """Return the steps of a recipe that `write_recipe` wrote; None if there is no such file."""
    try:
        phases = read_yaml(recipe, where=str(recipe)).value["pretrain"]
        return Budget(*(phases[name]["budget"]["max_steps"] for name in Budget._fields))
    except (OSError, BertloomError, KeyError, TypeError, ValueError):
        return None  # `write_recipe` refuses to replace another file


def propose(
    scan: FolderScan,
    machine: Machine,
    *,
    minutes: float,
    name: str,
    budget: Budget | None = None,
) -> Proposal:
    """Return a recipe for the texts in a folder.

    The speed of a training step is measured, and the recipe has the number of steps that fit into
    `minutes`. The load of the machine during training does not change the model.

    Args:
        scan: Content of the folder.
        machine: Hardware for the training.
        minutes: Duration of pretraining.
        name: Name of the recipe.
        budget: Number of steps. None: measure the speed.

    Raises:
        ConfigError: The folder has too little text.
    """
    text_bytes, size = scan.text_bytes, format_bytes(scan.text_bytes)
    if text_bytes < MIN_TEXT_BYTES:
        raise ConfigError(
            f"{scan.folder}: expected at least {format_bytes(MIN_TEXT_BYTES)} of text, got {size}. "
            "Add texts to the folder; good models need several MB"
        )
    warning = f"{size} is little text: the model will learn only its most frequent words"
    vocab_size, alphabet = choose_vocab_size(scan.sample, text_bytes=text_bytes, guess=scan.guess)
    speed = _TOKENS_PER_GPU_SECOND if machine.gpu else machine.cores * _TOKENS_PER_CORE_SECOND
    tiny_tokens = minutes * 60 * speed
    preset = next(
        preset
        for preset in _PRESETS
        if tiny_tokens / preset.relative_cost >= preset.min_tokens
        and text_bytes > preset.min_tokens / 10
    )
    text_tokens = text_bytes / _BYTES_PER_TOKEN
    max_passes = tiny_tokens / preset.relative_cost / text_tokens
    lowercase, language = scan.guess.lowercase, scan.guess.language
    fields = {
        "name": name,
        "folder": scan.folder,
        "text_bytes": size,
        "text_tokens": text_tokens,
        "machine": machine,
        "sources": [_source(group, language) for group in scan.groups],
        "vocab_size": vocab_size,
        "lowercase": str(lowercase).lower(),
        "language": language,
        "case": "lower-cased without accents" if lowercase else "case and accents kept",
        "limit_alphabet": alphabet,
        "held_out": _held_out_fraction(scan),
        "preset": preset.name,
        "initializer_range": preset.initializer_range,
        "learning_rate": preset.learning_rate,
        "dropout": 0.1 if max_passes > 40 else 0.0,
        "minutes": f"{minutes:g}",
        "short_length": _SHORT_LENGTH,
        "long_length": _LONG_LENGTH,
        "batch_tokens": 16_384 if machine.gpu else 2_048,
        "device_tokens": 16_384 if machine.gpu else 4_096,
        "precision": "bf16" if machine.gpu else "fp32",
    }
    budget = budget or _measure_budget(fields, minutes=minutes)
    text = _render(fields, budget)
    steps = f"{budget.short:,} and {budget.longer:,} steps"
    casing = "uncased" if lowercase else "cased"
    summary = (
        f"vocabulary of {vocab_size:,} word pieces ({casing}), model {preset.name}, sequences of "
        f"{_SHORT_LENGTH} then {_LONG_LENGTH} tokens, {steps}: about {minutes:g} min of training "
        f"on {machine}"
    )
    warnings = (warning,) if text_bytes < SMALL_TEXT_BYTES else ()
    return Proposal(MODELINE + text, summary, warnings)


def _render(fields: Mapping[str, Any], budget: Budget) -> str:
    """Return the text of a recipe with these steps."""
    passes = sum(budget) * fields["batch_tokens"] / fields["text_tokens"]
    return _template().render(**fields, budget=budget, passes=f"{passes:,.1f}")


def _measure_budget(fields: Mapping[str, Any], *, minutes: float) -> Budget:
    """Return the number of steps of each phase that take `minutes` on this machine."""
    from model.pretraining.speed import measure_step_seconds  # loads torch

    phases = parse_yaml(_render(fields, Budget(1, 1)), where="proposed recipe").value["pretrain"]
    config = PretrainConfig.model_validate(phases["short"])
    shares = {_SHORT_LENGTH: _SHORT_RATIO, _LONG_LENGTH: 1 - _SHORT_RATIO}
    steps = []
    for length, share in shares.items():
        seconds = measure_step_seconds(
            config,
            vocab_size=fields["vocab_size"],
            seq_length=length,
            seconds=_MEASURED_SECONDS,
        )
        steps.append(max(1, round(60 * minutes * share / seconds)))
    return Budget(*steps)


def write_recipe(proposal: Proposal, path: Path) -> bool:
    """Write a recipe. Return False if the file has the same content already.

    Raises:
        ConfigError: The file has other content.
    """
    try:
        create_file(path, proposal.text.encode())
    except FileExistsError as error:
        if path.is_file() and path.read_bytes() == proposal.text.encode():
            return False
        raise ConfigError(
            f"{path}: exists and differs from the generated recipe. Run it with `bertloom run "
            f"{path}`, pass --recipe FILE, or delete it"
        ) from error
    return True


def _held_out_fraction(scan: FolderScan) -> float:
    documents = sum(group.documents for group in scan.groups)
    if documents >= 2_000:
        return 0.01
    return 0.1 if 0 < documents < 200 else 0.05


def _source(group: FileGroup, language: str) -> dict[str, object]:
    source = {"kind": group.kind, **group.fields}
    return source if group.kind == "wikipedia" else {**source, "language": language}


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("flows.quickstart", ""),
        autoescape=jinja2.select_autoescape(),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    # Recipes expand ${NAME}, and $$ to a dollar sign.
    environment.filters["quote"] = lambda text: json.dumps(
        text.replace("$", "$$"), ensure_ascii=False
    )
    return environment.get_template("recipe.yaml.j2")
