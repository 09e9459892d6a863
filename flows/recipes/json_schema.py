"""A recipe's JSON Schema, by which editors complete, explain and check one while it is written.

It is made of the configurations themselves, and says what stands in the file: `${VARIABLES}` where
a number would, one path where there may be several, `extends`, the presets of models. What takes
two fields to be seen (`start_from` names a phase that there is) is seen when a recipe is read.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from pipelines.runners.launch import RUNNERS
from schemas.model_configs import PRESETS
from schemas.recipe import Recipe

SCHEMA_FILE = ".bertloom-recipe.schema.json"
"""What `bertloom init` calls it beside a recipe: so it is found offline, and by whoever gets the
folder."""

MODELINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n"
"""First line of a recipe that has it beside it."""

Schema = dict[str, Any]

_VARIABLE = {
    "title": "Variable of the environment",
    "description": "`${NAME}`, or `${NAME:-what stands there where NAME is not set}`.",
    "type": "string",
    "pattern": r"\$\{\w+(:-[^}]*)?\}",
}
_VARIABLE_REF = {"$ref": "#/$defs/Variable"}
_NOTES = ("title", "description", "default", "deprecated")
_VALUES = {"integer", "number", "boolean"}
_STRICT = ("enum", "pattern", "minLength", "maxLength")

_EXTENDS = {
    "title": "Extends",
    "description": "A packaged recipe, or a .yaml file relative to this one: all top-level keys "
    "that this one does not give itself are taken from it.",
    "type": "string",
}
_PRESET = {
    "title": "Preset",
    "description": "Stands for layers, hidden_size and heads.",
    "type": "string",
    "enum": list(PRESETS),
}

_ONE_OR_SEVERAL = {
    "FinetuneConfig": ("batch", "learning_rate", "epochs"),
    "WikipediaSource": ("paths",),
    "BooksSource": ("paths",),
    "BookCorpusSource": ("paths",),
    "TextSource": ("paths",),
}
"""Lists in whose place one value may stand, by the title of the configuration."""


def recipe_schema() -> Schema:
    """The JSON Schema (draft 2020-12) of a recipe's file."""
    from model.tasks import TASKS  # start-up: 300 ms, Arrow for the most part

    found = Recipe.model_json_schema()
    parts = found["$defs"]
    del found["properties"]["swept"], parts["SweptEntry"]  # which nobody writes
    for part in (found, *parts.values()):
        _as_written(part)
    for title, names in _ONE_OR_SEVERAL.items():
        for name in names:
            _or_one(parts[title]["properties"], name)
    files = parts["ExamplesConfig"]["properties"]["files"]
    _or_one(files, "additionalProperties")
    _name_one_of(parts["ExamplesConfig"], "task", TASKS)
    _name_one_of(parts["ExecutionConfig"], "runner", RUNNERS)
    _take_presets(parts["ModelConfig"])
    _tell_by_kind(parts["DocumentsConfig"]["properties"]["sources"]["items"])
    _take_nothing(parts["SweepAxis"]["properties"]["variants"])
    _take_nothing(found["properties"]["sweep"])
    found["properties"] = {"extends": _EXTENDS, **found["properties"]}
    parts["Variable"] = _VARIABLE
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        **found,
        "title": "bertloom recipe",
        "$defs": dict(sorted(parts.items())),
    }


def schema_text() -> str:
    """The schema as a file holds it."""
    return json.dumps(recipe_schema(), indent=1, ensure_ascii=False) + "\n"


def _as_written(part: Schema) -> None:
    """Change the schema of a configuration to what may stand in a file."""
    properties = part.get("properties", {})
    for name, of in properties.items():
        of.pop("identity", None)
        if "const" in of:  # the kind of a source, which tells which of them it is
            part["required"] = sorted({*part.get("required", ()), name})
            notes = {key: of.pop(key) for key in _NOTES if key in of}
            properties[name] = {**notes, "anyOf": [of, _VARIABLE_REF]}
        else:
            properties[name] = _with_variables(of)
    for of in (part, *properties.values()):
        if "description" in of:
            of["description"] = " ".join(of["description"].split())


def _with_variables(of: Schema) -> Schema:
    """The schema of a value, in whose place a variable may stand where it is no list or mapping."""
    for inner in ("items", "additionalProperties"):
        if isinstance(of.get(inner), dict):
            of[inner] = _with_variables(of[inner])
    if "patternProperties" in of:
        of["additionalProperties"] = False
    options = of.get("anyOf", [of])
    if not any(_is_narrow(option) for option in options):
        return of
    notes = {key: value for key, value in of.items() if key in _NOTES}
    plain = [{k: v for k, v in option.items() if k not in _NOTES} for option in options]
    return {**notes, "anyOf": [*plain, _VARIABLE_REF]}


def _is_narrow(of: Schema) -> bool:
    """Whether a text with a variable in it would not do where this is asked for."""
    kind = of.get("type")
    return kind in _VALUES or (kind == "string" and any(key in of for key in _STRICT))


def _or_one(within: Schema, name: str) -> None:
    """Let one value stand where a list of such is asked for."""
    several = within[name]
    notes = {key: several.pop(key) for key in _NOTES if key in several}
    one = several["items"]
    if {*one} == {"anyOf"}:  # a number, which no text with a variable stands for
        (one,) = (option for option in one["anyOf"] if option != _VARIABLE_REF)
    within[name] = {**notes, "anyOf": [several, one]}


def _name_one_of(part: Schema, name: str, known: Any) -> None:
    of = part["properties"][name]
    del of["type"]
    of["anyOf"] = [{"enum": list(known)}, _VARIABLE_REF]


def _tell_by_kind(of: Schema) -> None:
    """One of several by its kind; where a variable says which, any whose fields these are."""
    del of["discriminator"]
    of["anyOf"] = of.pop("oneOf")


def _take_presets(part: Schema) -> None:
    part["properties"] = {
        "preset": _with_variables(_PRESET),
        **part["properties"],
    }
    shape = part.pop("required")
    part["anyOf"] = [{"required": ["preset"]}, {"required": shape}]


def _take_nothing(of: Schema) -> None:
    """Entries after whose names nothing stands."""
    by_name = of["patternProperties"]
    of["patternProperties"] = {
        name: {"anyOf": [entry, {"type": "null"}]} for name, entry in by_name.items()
    }
