"""Proposal of a recipe whose vocabulary, model and budget suit the texts and the machine.

The settings gave the lowest held-out perplexity per CPU time on small corpora
(docs/tutorial/2-own-texts.md): a model of two layers learns faster on sequences of 32 tokens than
on longer ones.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import pyarrow.compute as pc

from flows.formatting import format_bytes
from flows.quickstart.folder_scan import FolderScan
from flows.recipes.json_schema import MODELINE
from flows.recipes.safe_yaml import parse_yaml
from pipelines.vocabulary.training import MAX_TRAINING_CHARACTERS, count_words
from pipelines.wordpiece.vocab_files import FIXED_TOKENS
from schemas.errors import ConfigError
from schemas.model_configs import PretrainConfig

MIN_TEXT_BYTES, SMALL_TEXT_BYTES = 40_000, 300_000
_PHASES = {32: 0.8, 64: 0.2}
"""Fraction of the training time by the length of the sequences."""

_MEASURED_SECONDS = 1.5
"""Time for which the speed of each phase is measured."""

_BYTES_PER_TOKEN = 4.2
_VOCAB_SIZES = ((100_000, 500), (300_000, 1_000), (1_000_000, 2_500), (8_000_000, 4_000),
                (math.inf, 8_000))  # fmt: skip
"""Number of word pieces of several characters, by upper limit of the bytes of text."""

_MIN_ALPHABET, _MAX_ALPHABET = 100, 8_000
_GPU_PRESETS = ((30_000_000, "small"), (2_000_000, "mini"))
"""Model by the least bytes of text. Less text and CPUs get the model `tiny`."""

_HELD_OUT_DOCUMENTS, _HELD_OUT_BYTES = 40, 200 * max(_PHASES) * _BYTES_PER_TOKEN
"""Twice what an evaluation needs, because documents are held out by their ids."""

_MIN_HELD_OUT, _MAX_HELD_OUT = 0.01, 0.3


class Proposal(NamedTuple):
    """A proposed recipe."""

    text: str
    """YAML text."""

    summary: str


def gpu_name() -> str:
    """Return the name of the first GPU; "" for none."""
    import torch  # lazy import: keeps `bertloom --help` fast

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""


def recipe_name(folder: Path) -> str:
    """Return a recipe name made from the name of a folder."""
    ascii_name = unicodedata.normalize("NFKD", folder.name.casefold()).encode("ascii", "ignore")
    return re.sub(r"[^a-z0-9_.-]+", "-", ascii_name.decode()).strip("-._")[:48] or "texts"


def propose(
    scan: FolderScan, *, gpu: str, minutes: float, name: str, language: str = ""
) -> Proposal:
    """Return a recipe for the texts in a folder.

    The speed of a training step is measured, and the recipe has the number of steps that fit into
    `minutes`. The load of the machine during training does not change the model.

    Args:
        scan: Content of the folder.
        gpu: Name of the GPU that trains. "": the cores of this machine train.
        minutes: Duration of pretraining.
        name: Name of the recipe.
        language: ISO 639 code of the texts' language. "": unknown.

    Raises:
        ConfigError: The folder has too little text.
    """
    size, lowercase = format_bytes(scan.text_bytes), language == "en"
    if scan.text_bytes < MIN_TEXT_BYTES:
        raise ConfigError(
            f"{scan.folder}: expected at least {format_bytes(MIN_TEXT_BYTES)} of text, got {size}. "
            "Add texts to the folder; good models need several MB"
        )
    vocab_size, alphabet = choose_vocab_size(scan, lowercase=lowercase)
    presets = _GPU_PRESETS if gpu else ()
    preset = next((preset for limit, preset in presets if scan.text_bytes >= limit), "tiny")
    fields = {
        "name": name,
        "folder": scan.folder,
        "text_bytes": size,
        "gpu": gpu,
        "sources": [_add_language(group.source, language) for group in scan.groups],
        "vocab_size": vocab_size,
        "lowercase": lowercase,
        "language": language or "unknown language",
        "limit_alphabet": alphabet,
        "held_out": held_out_fraction(scan),
        "preset": preset,
        "minutes": f"{minutes:g}",
    }
    template = _template()
    draft = parse_yaml(template.render(**fields, budget=(1, 1), passes=1), where="draft").value
    budget = _measure_budget(draft, minutes=minutes)
    batch_bytes = _batch_tokens(draft) * _BYTES_PER_TOKEN
    passes = sum(budget) * batch_bytes / scan.text_bytes
    summary = (
        f"vocabulary of {vocab_size:,} word pieces ({'uncased' if lowercase else 'cased'}), model "
        f"{preset}, sequences of {' then '.join(map(str, _PHASES))} tokens, "
        f"{' and '.join(f'{steps:,}' for steps in budget)} steps: about {minutes:g} min of training"
    )
    return Proposal(MODELINE + template.render(**fields, budget=budget, passes=passes), summary)


def choose_vocab_size(scan: FolderScan, *, lowercase: bool) -> tuple[int, int]:
    """Return `vocab_size` and `limit_alphabet` that the texts reach: the learner fails otherwise.

    Each repeated word can become a piece, so there are at least as many pieces as such words.
    """
    counts = count_words(scan.sample.split("\n"), lowercase=lowercase)
    fits = pc.less_equal(pc.utf8_length(counts["word"]), MAX_TRAINING_CHARACTERS)
    repeated = counts.filter(pc.and_(fits, pc.greater_equal(counts["count"], 2)))
    words: list[str] = repeated["word"].to_pylist()
    letters = min(len(set().union(*words)), _MAX_ALPHABET)
    inner = min(len({letter for word in words for letter in word[1:]}), letters)
    size = next(size for limit, size in _VOCAB_SIZES if scan.text_bytes < limit)
    pieces = min(size, sum(len(word) > 1 for word in words))
    return len(FIXED_TOKENS) + letters + inner + pieces, max(_MIN_ALPHABET, letters)


def held_out_fraction(scan: FolderScan) -> float:
    """Return a fraction that holds out enough documents and text to evaluate a model."""
    fraction = max(_HELD_OUT_DOCUMENTS / scan.documents, _HELD_OUT_BYTES / scan.text_bytes)
    return min(max(math.ceil(100 * fraction) / 100, _MIN_HELD_OUT), _MAX_HELD_OUT)


def _batch_tokens(recipe: Mapping[str, Any]) -> int:
    """Return the number of tokens of a step, equal in both phases, if all instances are full."""
    return int(recipe["pretrain"]["short"]["batch"]["global_batch_size"]) * min(_PHASES)


def _measure_budget(recipe: Mapping[str, Any], *, minutes: float) -> list[int]:
    """Return the number of steps of each phase that take `minutes` on this machine."""
    from model.training.throughput import measure_step_seconds  # loads torch

    config = PretrainConfig.model_validate(recipe["pretrain"]["short"])
    vocab_size = recipe["build_vocabulary"]["vocab_size"]
    seconds = {
        length: measure_step_seconds(
            config,
            vocab_size=vocab_size,
            instances=_batch_tokens(recipe) // length,
            seq_length=length,
            seconds=_MEASURED_SECONDS,
        )
        for length in _PHASES
    }
    return [
        max(1, round(60 * minutes * share / seconds[length])) for length, share in _PHASES.items()
    ]


def _add_language(source: Mapping[str, Any], language: str) -> dict[str, Any]:
    """Return a source with the language of its texts. A dump names its own."""
    needs_language = language and source["kind"] != "wikipedia"
    return {**source, "language": language} if needs_language else {**source}


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
