"""Overrides of recipe values by dotted paths: `--set` options and the variants of a sweep.

`build_instances.length-128.seed` names a value. An item of a list is named by its number or, where
it has one, by its `name`. Names of entries may contain dots.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.recipes.errors import Problem, RecipeError, closest, problems_at, quote
from flows.recipes.safe_yaml import MAX_DEPTH, parse_yaml
from schemas.errors import UsageError
from schemas.redaction import redact

SECTIONS = ("build_instances", "pretrain", "build_examples", "finetune", "ensembles")
"""Sections with named entries, which a sweep may change; each reads only earlier ones."""


class RebasedText(str):
    """Text that, if it is a path, is relative to another folder than the recipe's own."""

    base_dir: Path


def with_base_dir(value: Any, base_dir: Path) -> Any:
    """Return a raw value whose texts know their folder; texts that have one keep it."""
    if isinstance(value, dict):
        return {key: with_base_dir(item, base_dir) for key, item in value.items()}
    if isinstance(value, list):
        return [with_base_dir(item, base_dir) for item in value]
    if not isinstance(value, str) or isinstance(value, RebasedText):
        return value
    text = RebasedText(value)
    text.base_dir = base_dir
    return text


def apply_override(data: dict[str, Any], override: str) -> tuple[str, str]:
    """Apply a `KEY=VALUE` override to raw data in place; return the exact path and the option.

    Raises:
        UsageError: The override has no key or no equals sign.
        RecipeError: The value is not YAML, or the key cannot be set.
    """
    key, equals, text = override.partition("=")
    origin = str(redact(f"--set {override}"))[:80]
    if not equals or not key.strip():
        raise UsageError(f"{origin}: expected KEY=VALUE, e.g. build_instances.length-128.seed=1")
    value = with_base_dir(parse_yaml(text, where=origin).value, Path.cwd())
    with problems_at(key.strip()[:80], origin):
        return ".".join(_set(data, key.strip().split("."), value)), origin


def apply_variant(
    data: dict[str, Any], variant: Mapping[str, Any], *, where: str
) -> list[tuple[str, ...]]:
    """Apply a variant to raw data in place; return the paths of the values that were set.

    Args:
        data: Raw data of a recipe.
        variant: Values by dotted path, where `*` is every entry of a section. Sections and entries
            may also be nested mappings.
        where: Dotted path of the variant, for errors.

    Raises:
        RecipeError: A path names a section that sweeps cannot change, or an unknown entry.
    """
    changed = []
    for path, value in variant.items():
        section, _, below = path.partition(".")
        with problems_at(f"{where}.{path}"):
            if section not in SECTIONS:
                message = f"a sweep changes entries of {', '.join(SECTIONS)} only"
                raise RecipeError(Problem(message))
            entries = data.get(section) or {}
            for inner, change in ({below: value} if below else _mapping(value)).items():
                name, rest = _next_key(entries, inner.split("."))
                fields = {".".join(rest): change} if rest else _mapping(change)
                names = list(entries) if name == "*" else [name]
                for entry, field in itertools.product(names, fields):
                    keys = [section, entry, *field.split(".")]
                    changed.append(tuple(_set(data, keys, fields[field])))
    return changed


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise RecipeError(Problem(f"expected a mapping of fields, got {quote(value)}"))


def _set(data: dict[str, Any], parts: list[str], value: Any) -> list[str]:
    """Set the value at a path, adding mappings on the way; return the path by exact keys."""
    if len(parts) > MAX_DEPTH:
        raise RecipeError(Problem(f"expected at most {MAX_DEPTH} levels, got {len(parts)}"))
    here: Any = data
    keys: list[str] = []
    while True:
        if len(keys) == 4 and (keys[0], keys[2]) == ("sweep", "variants"):
            parts = [".".join(parts)]  # keys of a variant are dotted paths themselves
        key, parts = _next_key(here, parts)
        if parts and len(keys) == 1 and keys[0] in SECTIONS and key not in here:
            known = f"no {key!r} in {keys[0]}, which has {', '.join(here) or 'no entries'}"
            advice = f"To add an entry, set all of it: --set '{keys[0]}.{key}={{...}}'"
            raise RecipeError(Problem(f"{known}. {advice}", suggestion=closest(key, here)))
        keys.append(str(key))
        if not parts:
            here[key] = value
            return keys
        inner = here[key] if isinstance(here, list) else here.get(key)
        inner = {} if inner is None else copy.copy(inner)  # aliases and variants share it
        here[key] = inner
        here = inner


def _next_key(here: Any, parts: list[str]) -> tuple[Any, list[str]]:
    """Return the key or index that the first parts of a path name, and the other parts."""
    if isinstance(here, dict):
        for end in range(len(parts), 0, -1):
            if ".".join(parts[:end]) in here:
                return ".".join(parts[:end]), parts[end:]
        return parts[0], parts[1:]
    if isinstance(here, list):
        for index, item in enumerate(here):
            name = item.get("name") if isinstance(item, dict) else None
            if parts[0] in (str(index), name):
                return index, parts[1:]
        message = f"no item {parts[0]!r}. Name it by a number below {len(here)} or by its name"
        raise RecipeError(Problem(message))
    raise RecipeError(Problem(f"expected a mapping around {parts[0]!r}, got {quote(here)}"))
