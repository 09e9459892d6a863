"""A recipe of the size that texts and machine bear, as commented YAML that its reader owns.

Sizes are those that gave the lowest held-out perplexity for their CPU time on small corpora
(docs/quickstart.md): a model of two layers leaves the masked LM's plateau on sequences of 32 tokens
and not, in minutes, on longer ones; so most of the time goes to those.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from pathlib import Path
from typing import Any, NamedTuple

from flows.formatting import format_bytes
from flows.quickstart.survey import Survey
from flows.quickstart.vocabulary import vocabulary_size
from flows.recipes.json_schema import MODELINE
from schemas.errors import ConfigError

LEAST_TEXT = 40_000
"""Bytes. Of less, a vocabulary is a list of letters, and a model learns them by heart."""

LITTLE_TEXT = 300_000
_SHORT_SHARE = 0.8
"""Of the training time goes to the short sequences."""

_BYTES_PER_TOKEN = 4.2
_TOKENS_PER_CORE_SECOND = 11_000
"""Of the model `tiny`: 23,000 on two quiet cores, docs/measured.md."""

_NAME = re.compile(r"[^a-z0-9_.-]+")


class Machine(NamedTuple):
    """What there is to work with."""

    cores: int
    gpu: str
    """Its name; "" for none."""


class Proposal(NamedTuple):
    """A recipe."""

    name: str
    text: str
    """Its YAML."""

    summary: str
    """In a line: vocabulary, model, budget."""

    warnings: tuple[str, ...]


def this_machine() -> Machine:
    """Cores that this process may use, and the first GPU."""
    import torch  # slow: only this function needs it

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
    return Machine(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        gpu,
    )


def recipe_name(folder: Path) -> str:
    """A name for the run that a folder's own gives."""
    plain = unicodedata.normalize("NFKD", folder.name.casefold()).encode("ascii", "ignore").decode()
    return _NAME.sub("-", plain).strip("-._")[:48] or "texts"


def propose(found: Survey, machine: Machine, *, minutes: float, name: str) -> Proposal:
    """The recipe for what was found.

    Args:
        found: what is in the folder.
        machine: where it will run.
        minutes: of pretraining.
        name: of the recipe.

    Raises:
        ConfigError: there is too little text for any model.
    """
    text = found.text_bytes
    if text < LEAST_TEXT:
        raise ConfigError(
            f"{found.folder}: about {format_bytes(text)} of text, too little for any model: "
            f"expected at least {format_bytes(LEAST_TEXT)} "
            f"(some {LEAST_TEXT // 6:,} words), and several MB for one that knows anything. Put "
            "more texts into the folder"
        )
    vocab_size, alphabet = vocabulary_size(found.sample, text_bytes=text, guess=found.guess)
    preset, tokens = _model(found, machine, minutes=minutes)
    epochs = tokens / max(1.0, text / _BYTES_PER_TOKEN)
    warnings = []
    if text < LITTLE_TEXT:
        warnings.append(
            f"about {format_bytes(text)} of text is little: the model will know its most frequent "
            "words and hardly more"
        )
    values = {
        "name": name,
        "sources": "\n".join(_source(form.fields, form.kind, found) for form in found.forms),
        "vocab_size": vocab_size,
        "lowercase": str(found.guess.lowercase).lower(),
        "limit_alphabet": alphabet,
        "held_out": _held_out(found),
        "preset": preset,
        "dropout": 0.1 if epochs > 40 else 0.0,
        "range": 0.08 if preset == "tiny" else 0.04 if preset == "mini" else 0.02,
        "rate": {"tiny": "2.0e-3", "mini": "1.0e-3"}.get(preset, "5.0e-4"),
        "minutes": f"{minutes:g}",
        "short": f"{minutes * _SHORT_SHARE:g}",
        "longer": f"{minutes - minutes * _SHORT_SHARE:g}",
        "batch": 16_384 if machine.gpu else 2_048,
        "micro": 16_384 if machine.gpu else 4_096,
        "precision": "bf16" if machine.gpu else "fp32",
        "about": format_bytes(text),
        "folder": found.folder,
        "language": found.guess.language,
        "case": "as it is written" if not found.guess.lowercase else "lower-cased, no accents",
        "machine": machine.gpu or f"{machine.cores} core{'s' if machine.cores > 1 else ''}",
        "epochs": f"{epochs:,.0f}",
    }
    case = "uncased" if found.guess.lowercase else "cased"
    summary = (
        f"vocabulary of {vocab_size:,} pieces ({case}), model {preset}, sequences of 32 and then "
        f"64 tokens, {minutes:g} min of pretraining on {values['machine']}"
    )
    return Proposal(name, MODELINE + _YAML.format(**values), summary, tuple(warnings))


def write_recipe(proposal: Proposal, path: Path) -> bool:
    """Write it where nothing is; False where the same is there already.

    Raises:
        ConfigError: another file is there.
    """
    try:
        with path.open("x", encoding="utf-8") as sink:
            sink.write(proposal.text)
    except FileExistsError as error:
        if path.is_file() and path.read_bytes() == proposal.text.encode():
            return False
        raise ConfigError(
            f"{path} is there already, and is not what would be written (it was edited, or the "
            f"texts or options are others): run it as it is with `bertloom run {path}`, write "
            "another by --recipe FILE, or remove it to have a new one"
        ) from error
    return True


def _model(found: Survey, machine: Machine, *, minutes: float) -> tuple[str, float]:
    """Preset, and tokens that it will read in its minutes."""
    flops = minutes * 60 * (machine.cores * _TOKENS_PER_CORE_SECOND if not machine.gpu else 4e6)
    # By parameters of the encoder beside `tiny`: 8, 32 and 64 times the work a token.
    choices = (("tiny", 1.0, 0.0), ("mini", 7.0, 2e7), ("small", 25.0, 3e8), ("medium", 50.0, 1e9))
    best = "tiny", flops
    for preset, work, least in choices:
        if flops / work > max(least, 1.0) and found.text_bytes > least / 10:
            best = preset, flops / work
    return best


def _held_out(found: Survey) -> float:
    """As many documents as say something, and no more text than must be."""
    documents = sum(form.documents for form in found.forms)
    if documents and documents < 200:
        return 0.1
    return 0.05 if not documents or documents < 2_000 else 0.01


def _source(fields: dict[str, Any], kind: str, found: Survey) -> str:
    """A source as YAML, a field a line."""
    told = {"kind": kind, **fields}
    if kind != "wikipedia" or "language" in fields:
        told["language"] = found.guess.language
    lines = []
    for key, value in told.items():
        if isinstance(value, list) and len(value) > 1:
            lines.append(f"      {key}:")
            lines += [f"        - {_quoted(item)}" for item in value]
        elif isinstance(value, list):
            lines.append(f"      {key}: [{_quoted(value[0])}]")
        else:
            lines.append(f"      {key}: {value}")
    return "    - " + "\n".join(lines).lstrip()


def _quoted(text: str) -> str:
    """A path in YAML, in which `${NAME}` is of the environment and `$$` a dollar."""
    return json.dumps(text.replace("$", "$$"), ensure_ascii=False)


_YAML = """\
# {name}: a small BERT of the texts in
# {folder}
# about {about} of text, for {machine}. Written by `bertloom quickstart`; it is yours to edit.
#
#   bertloom run THIS_FILE --dry-run     says what would be done
#   bertloom run THIS_FILE               does it; what is there already is not done again
name: {name}

build_documents:
  sources:
{sources}

build_vocabulary:
  vocab_size: {vocab_size}             # word pieces; more for more text (BERT: 30522)
  lowercase: {lowercase}              # {language}: {case}
  limit_alphabet: {limit_alphabet}           # letters that get a piece of their own

# Texts without a second segment: with so little time the masked words alone are learnt.
build_instances:
  length-32: &short
    max_seq_length: 32
    pairing: none
    held_out_fraction: {held_out}        # of the documents are kept apart, to measure with
    masking: {{max_predictions_per_seq: 5}}
  length-64:
    <<: *short
    max_seq_length: 64
    masking: {{max_predictions_per_seq: 10}}

# Short sequences first: a model as small as this learns to look at the words around from those.
# About {epochs} passes over all texts. For a better model set `max_minutes` higher in both, and
# `total_budget`; with `max_steps` in their place the training can be repeated to the bit.
pretrain:
  short: &phase
    instances: length-32
    model:
      preset: {preset}                # then mini, small, medium, base
      max_position_embeddings: 64
      hidden_dropout_prob: {dropout}
      attention_probs_dropout_prob: {dropout}
      initializer_range: {range}
    objective: mlm
    masking: dynamic              # drawn anew each time a text is read
    dynamic_masking: {{max_predictions_per_seq: 5}}
    budget: {{max_minutes: {short}}}
    batch: {{global_batch_tokens: {batch}, per_device_max_tokens: {micro}}}
    optimizer: {{name: adamw, learning_rate: {rate}}}
    schedule: {{total_budget: {minutes}, warmup_ratio: 0.05}}
    evaluation: {{max_eval_samples: 1000}}
    precision: {precision}
  longer:
    <<: *phase
    instances: length-64
    model: null
    init_from_phase: short
    dynamic_masking: {{max_predictions_per_seq: 10}}
    budget: {{max_minutes: {longer}}}
"""
