"""What is wrong with a recipe, by field, in the words of the file."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

import schemas.configs as configs
import schemas.model_configs as model_configs
import schemas.publish_configs as publish_configs
import schemas.recipe as recipe_configs
import schemas.task_configs as task_configs

_CONFIG_MODULES = (configs, model_configs, task_configs, publish_configs, recipe_configs)


def explain(error: ValidationError, data: Mapping[str, Any]) -> str:
    """What is wrong with a recipe, a line a field: `build_tokens.memory_words: ...`."""
    lines = []
    for item in error.errors(include_url=False):
        path = _place(item["loc"], data)
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = _unknown_key(str(item["loc"][-1]))
        elif item["type"] == "missing":
            message = "is missing"
        elif not isinstance(item["input"], (dict, list)):
            message = f"{message[:1].lower()}{message[1:]}, found {item['input']!r}"
        lines.append(f"{path}: {message}" if path else message)
    return lines[0] if len(lines) == 1 else "\n  " + "\n  ".join(lines)


def _place(location: Sequence[str | int], data: Any) -> str:
    """The dotted path in the file; pydantic's own also names the kind of a source."""
    parts: list[str] = []
    here = data
    for index, part in enumerate(location):
        is_last = index == len(location) - 1
        if isinstance(here, dict) and part not in here and not is_last:
            continue
        parts.append(str(part))
        reaches = isinstance(here, dict) and part in here
        reaches = reaches or (isinstance(here, (list, tuple)) and isinstance(part, int))
        here = here[part] if reaches else None
    return ".".join(parts)


def _unknown_key(key: str) -> str:
    models: list[type[BaseModel]] = [
        value
        for module in _CONFIG_MODULES
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, BaseModel)
    ]
    known = sorted({name for model in models for name in model.model_fields})
    close = difflib.get_close_matches(key, known, n=1)
    return f"no such key; did you mean {close[0]!r}?" if close else "no such key here"
