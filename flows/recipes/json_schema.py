"""JSON Schema of recipe files, with which editors complete, explain and check a recipe.

It is generated from the configurations and adds what only files have: `${VARIABLES}` in place of
numbers, a single value in place of a list, `extends`, presets of models.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from model.tasks import TASKS
from pipelines.runners.registry import RUNNERS
from schemas.base_configs import Config
from schemas.model_configs import PRESETS
from schemas.recipe import Recipe

SCHEMA_FILE = ".bertloom-recipe.schema.json"
"""Name of the schema that `bertloom init` writes next to a recipe."""

MODELINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n"
"""First line of a recipe with a schema next to it."""

Schema = dict[str, Any]

_VARIABLE = {
    "title": "Variable of the environment",
    "description": "`${NAME}`, or `${NAME:-default}`.",
    "type": "string",
    "pattern": r"\$\{\w+(:-[^{}]*)?\}",
}
_VARIABLE_REF = {"$ref": "#/$defs/Variable"}
_NOTES = ("title", "description", "default", "deprecated")
_RESTRICTIONS = ("const", "enum", "pattern", "minLength", "maxLength")

_EXTENDS = {
    "title": "Extends",
    "description": "Packaged recipe, or recipe file relative to this one. Top-level fields that "
    "this recipe does not have are taken from it.",
    "type": "string",
}
_PRESET = {
    "title": "Preset",
    "description": "Values for num_hidden_layers, hidden_size and num_attention_heads.",
    "anyOf": [{"enum": list(PRESETS)}, _VARIABLE_REF],
}


def schema_text() -> str:
    """Return the JSON Schema (draft 2020-12) of recipe files as the text of a file."""
    schema: Schema = _for_files(Recipe.model_json_schema(schema_generator=_WithDescriptions))
    parts = schema["$defs"]
    del schema["properties"]["expanded_sweep"], parts["ExpandedEntry"]  # written by bertloom only
    for part in parts.values():
        if "kind" in part["properties"]:  # a source
            part["required"].append("kind")
            _allow_single(part["properties"], "paths")
    for name in ("batch_size", "learning_rate", "num_epochs"):
        _allow_single(parts["FinetuneConfig"]["properties"], name)
    _allow_single(parts["ExamplesConfig"]["properties"]["data_files"], "additionalProperties")
    for title, name, names in (
        ("ExamplesConfig", "task", TASKS),
        ("ExecutionConfig", "runner", RUNNERS),
    ):
        parts[title]["properties"][name]["anyOf"] = [{"enum": list(names)}, _VARIABLE_REF]
    model = parts["ModelConfig"]
    model["properties"]["preset"] = _PRESET
    model["anyOf"] = [{"required": ["preset"]}, {"required": model.pop("required")}]
    axis = parts["SweepAxis"]
    for empty in (axis, *axis["properties"]["variants"]["patternProperties"].values()):
        empty["type"] = ["object", "null"]
    schema["properties"]["extends"] = _EXTENDS
    parts["Variable"] = _VARIABLE
    dialect = GenerateJsonSchema.schema_dialect
    schema = {"$schema": dialect, **schema, "title": "bertloom recipe"}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def field_descriptions(model: type[Config]) -> dict[str, str]:
    """Return the docstring below each field of a configuration, by field name."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, Config):
            (definition,) = ast.parse(inspect.getsource(base)).body
            for field, below in itertools.pairwise(getattr(definition, "body", [])):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                        texts[name] = inspect.cleandoc(text)
    return texts


class _WithDescriptions(GenerateJsonSchema):
    """JSON Schema with the docstrings of fields."""

    def model_schema(self, schema: Any) -> Schema:
        """Return the schema of a configuration."""
        result = super().model_schema(schema)
        for name, text in field_descriptions(schema["cls"]).items():
            result["properties"][name]["description"] = text
        return result


def _for_files(schema: Any) -> Any:
    """Return a schema that allows variables in place of numbers and of restricted text."""
    if isinstance(schema, list):
        return [_for_files(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: _for_files(value) for key, value in schema.items() if key != "in_key"}
    if "patternProperties" in schema:
        schema["additionalProperties"] = False
    if isinstance(schema.get("description"), str):
        schema["description"] = " ".join(schema["description"].split())
    if "discriminator" in schema:  # a variable may name the kind of a source
        del schema["discriminator"]
        schema["anyOf"] = schema.pop("oneOf")
    is_text = schema.get("type") == "string"
    is_restricted = is_text and any(key in schema for key in _RESTRICTIONS)
    if is_restricted or schema.get("type") in ("integer", "number", "boolean"):
        notes = {key: schema.pop(key) for key in _NOTES if key in schema}
        return {**notes, "anyOf": [schema, _VARIABLE_REF]}
    return schema


def _allow_single(within: Schema, name: str) -> None:
    """Allow a single item in place of a list."""
    several = within[name]
    notes = {key: several.pop(key) for key in _NOTES if key in several}
    single = several["items"]
    if "anyOf" in single:  # a variable stands for text, and so not for a list of numbers
        single = next(option for option in single["anyOf"] if option != _VARIABLE_REF)
    within[name] = {**notes, "anyOf": [several, single]}
