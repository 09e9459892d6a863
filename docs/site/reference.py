"""Writes docs/reference.md: every field of a recipe, from the configurations in `schemas/`.

python docs/site/reference.py        # also `make docs`; a test checks that the page is current
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from flows.recipes.json_schema import field_descriptions
from schemas.base_configs import Config
from schemas.recipe import Recipe

PAGE = Path(__file__).parents[1] / "reference.md"
HEAD = """\
# Every field of a recipe

Made from the configurations in `schemas/` by `docs/site/reference.py`: edit those.

A name in capitals (`build_instances.NAME`) is one that you choose. `--set PATH=VALUE` sets a field
from the command line, by the path in its heading:
`--set build_instances.length-32.masking.strategy=whole-word`.

**In the key** says whether a field decides what a stage makes, and so is part of its cache key
([concepts](concepts.md#cache-keys)):

- **yes**: another value makes another artifact.
- **content**: the content of the file is part of the key; its name or path is not.
- **no**: the field sets where, how or how fast a stage runs, and does not change its output.
"""
UNITS = {
    "eval_steps init_from_step logging_steps max_steps save_steps snapshot_steps": "steps",
    "attention_probs_dropout_prob dropout hidden_dropout_prob masked_lm_prob"
    " short_seq_prob": "probability",
    "augmentation_epochs num_epochs": "epochs",
    "batch_size max_samples": "examples",
    "adam_beta1 adam_beta2 adam_epsilon initializer_range layer_norm_eps learning_rate"
    " max_grad_norm power seed span_geometric_p threshold weight_decay": "a number",
    "columns": "column",
    "disk_size_gb": "GB",
    "held_out_fraction mask_token_prob max_documents_decrease max_documents_increase"
    " max_drop_rate_change max_instances_decrease max_instances_increase"
    " dev_fraction max_invalid_fraction max_tokens_decrease max_tokens_increase max_unk_rate_change"
    " min_lr_ratio min_overlap random_next_prob random_token_prob unchanged_prob"
    " warmup_ratio": "share",
    "dupe_factor": "passes",
    "ensemble_size": "models",
    "max_minutes save_minutes": "minutes",
    "num_attention_heads": "heads",
    "hidden_size intermediate_size lstm_hidden_size": "units",
    "global_batch_size max_eval_samples": "instances",
    "save_total_limit": "checkpoints",
    "num_hidden_layers": "layers",
    "min_sentences": "sentences",
    "rows_per_document": "rows",
    "limit_alphabet max_sentence_characters": "characters",
    "doc_stride max_answer_length max_position_embeddings"
    " max_predictions_per_seq max_query_length max_seq_length max_tokens"
    " per_device_max_tokens": "tokens",
    "max_document_bytes max_shard_bytes negative_pool_bytes target_split_bytes": "bytes",
    "max_document_frequency": "documents",
    "divergence_threshold": "nats",
    "max_span_words max_training_words min_text_words min_words ngram_size"
    " word_cache_size": "words",
    "max_num_workers": "machines",
    "min_frequency": "occurrences",
    "n_best_size": "places",
    "namespaces": "namespace numbers",
    "max_parallel_steps": "steps of the plan",
    "parallelism": "pieces",
    "num_perm": "hashes",
    "num_processes workers": "processes",
    "restarts": "trainings",
    "keep_versions": "versions",
    "num_threads number_of_worker_harness_threads": "threads",
    "total_budget": "as the budget",
    "type_vocab_size": "segments",
    "vocab_size": "word pieces",
}
UNIT = {name: unit for names, unit in UNITS.items() for name in names.split()}
KEYLESS = ("publish", "execution", "sweep")
"""Sections that no stage gets."""

UNWRITTEN = {"expanded_sweep"}
"""Sections that bertloom fills in."""

HOMES: dict[type[Config], str] = {}
"""Anchor of the section of each configuration."""


def reference() -> str:
    """The page, as Markdown."""
    parts = [HEAD]
    for path, model in list(sections()):
        parts.append(f"## {_heading(path)}")
        parts.append(_one_line(model.__doc__))
        parts.append("\n".join(_rows(path, model)))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def sections() -> Iterator[tuple[str, type[Config]]]:
    """Each configuration that a recipe can hold, under the path where it is met first."""
    pending: list[tuple[str, type[Config]]] = [("", Recipe)]
    HOMES.clear()
    while pending:
        path, model = pending.pop(0)
        if model not in HOMES:
            HOMES[model] = path
            yield path, model
            fields = {k: v for k, v in model.model_fields.items() if k not in UNWRITTEN}
            pending[:0] = [one for k, v in fields.items() for one in _inner(path, k, v)]


def _configs_in(annotation: Any, step: str) -> Iterator[tuple[type[Config], str]]:
    if isinstance(annotation, type) and issubclass(annotation, Config):
        kind = annotation.model_fields.get("kind")
        yield annotation, f"{step} (kind: {kind.default})" if kind else step
        return
    arguments = [item for item in get_args(annotation) if item is not type(None)]
    is_table = getattr(annotation, "__origin__", None) is dict
    for argument in arguments:
        yield from _configs_in(argument, f"{step}.NAME" if is_table else step)


def _heading(path: str) -> str:
    return path or "A recipe"


def _link(path: str) -> str:
    """To a section, by the name that GitHub and MkDocs give its heading."""
    return "#" + re.sub(r"[^\w\- ]", "", _heading(path)).lower().replace(" ", "-")


def _kind(path: str) -> str:
    return path.partition("(")[2].rstrip(")") or "a section"


def numeric_fields(model: type[Config]) -> list[str]:
    """Fields that hold numbers, and so have a unit."""
    properties = _schema(model)["properties"]
    is_number = re.compile(r'"type": "(integer|number)"').search
    return [name for name in model.model_fields if is_number(json.dumps(properties[name]))]


def _rows(path: str, model: type[Config]) -> Iterator[str]:
    yield "| field | meaning | type | default | in the key |"
    yield "| --- | --- | --- | --- | --- |"
    numbers, properties = numeric_fields(model), _schema(model)["properties"]
    descriptions = field_descriptions(model)
    for name, field in model.model_fields.items():
        if name in UNWRITTEN:
            continue
        inner = [where for where, _config in _inner(path, name, field)]
        kind = _type(properties[name], inner)
        unit = UNIT[name] if name in numbers else ""
        kind += f"; {unit}" if unit and unit != "a number" else ""
        in_key = "no" if path.startswith(KEYLESS) else _in_key(model, name, field, bool(inner))
        meaning = _one_line(descriptions[name])
        cells = (f"`{name}`", meaning, kind, _default(field), in_key)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _inner(path: str, name: str, field: FieldInfo) -> list[tuple[str, type[Config]]]:
    """The configurations that a field holds, each with the path of its section."""
    found = _configs_in(field.annotation, name)
    return [(HOMES.get(one, f"{path}.{step}" if path else step), one) for one, step in found]


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


@functools.cache
def _schema(model: type[Config]) -> dict[str, Any]:
    return model.model_json_schema()


def _type(schema: dict[str, Any], inner: list[str]) -> str:
    """Return the type of a field as text; `inner` are the paths of the sections that it accepts."""
    if "oneOf" in schema or "$ref" in schema:
        return " or ".join(f"[{_kind(path)}]({_link(path)})" for path in inner)
    if "anyOf" in schema:
        kinds = [_type(one, inner) for one in schema["anyOf"]]
        return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "none"))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum") or [schema["const"]]
        return ", ".join(f"`{value}`" if value else '`""`' for value in values)
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return ("whole number" if kind == "integer" else "number") + _range(schema)
    if kind == "array":
        return f"list of: {_type(schema['items'], inner)}"
    if kind == "object":
        named = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
        held = next((one for one in named if isinstance(one, dict)), {})
        return f"by name: {_type(held, inner)}"
    return {"string": "text", "boolean": "`true`, `false`", "null": "none"}.get(str(kind), "values")


def _range(schema: dict[str, Any]) -> str:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    parts = [
        f"from {_number(low)}" if low is not None else "",
        f"above {_number(above)}" if above is not None else "",
        f"to {_number(high)}" if high is not None else "",
        f"below {_number(below)}" if below is not None else "",
    ]
    said = " ".join(part for part in parts if part)
    return f", {said}" if said else ""


def _number(value: float) -> str:
    if isinstance(value, int) and value >= 1 << 20 and value & (value - 1) == 0:
        power = value.bit_length() - 1
        return f"2^{power}"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "its own"
    if isinstance(value, dict) and value:
        return ", ".join(f"`{name}`" for name in value)
    return _plain(value)


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, (bool, tuple, dict)):
        return f"`{json.dumps(value)}`"
    if isinstance(value, int) and value > 1 << 20 and value % (1 << 20) == 0:
        return f"`{value}` ({value >> 20} MiB)"
    if isinstance(value, str):
        is_text_in_yaml = yaml.safe_load(value) == value
        return f"`{value}`" if is_text_in_yaml else f"`{json.dumps(value)}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _in_key(model: type[Config], name: str, field: FieldInfo, is_section: bool) -> str:
    extra = field.json_schema_extra
    said = extra.get("in_key") if isinstance(extra, dict) else None
    if said == "content":
        return "content"
    if said is False or (model is Recipe and (name in KEYLESS or not is_section)):
        return "no"
    return "by its fields" if is_section else "yes"


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
