"""Expansion of a recipe's `sweep`: entries are copied for the variants that change them.

Every combination of variants is a separate recipe, validated like any other; all of them are
merged into one. An entry that is the same in all combinations is kept once. An entry that differs
is copied once per difference, and so is every entry that reads it, so nothing that variants share
is trained twice. An entry that a variant does not change keeps its name, `mnli`; a copy adds the
variants of the axes that affect it, `mnli.no-nsp`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from flows.recipes.errors import Problem, RecipeError
from flows.recipes.overrides import SECTIONS, apply_variant
from schemas.base_configs import Config
from schemas.finetune_configs import ExpandedEntry
from schemas.recipe import REFERENCES, Recipe
from schemas.trial_names import grid_point

MAX_COMBINATIONS = 256
_MAX_NAME_LENGTH = 64  # of a SourceName

_PHASE = "pretrain."  # tables read phases under such names, next to evaluations by entry

Variants = dict[str, str]


class _Copies(NamedTuple):
    """Copies of an entry."""

    names: list[str]
    """Name by combination."""

    configs: list[Config]
    """Configuration by combination, with the copies' names of what it reads."""

    axes: list[str]
    """Axes that affect the entry."""


def expand_sweep(data: dict[str, Any], *, read: Callable[[dict[str, Any]], Recipe]) -> Recipe:
    """Return the recipe of raw data with its sweep expanded; `read` validates data without one.

    Raises:
        RecipeError: The sweep cannot be expanded, or a combination of variants is not valid.
    """
    if isinstance(data.get("sweep"), dict):  # `--set sweep.AXIS=null` removes an axis
        data = {**data, "sweep": {k: v for k, v in data["sweep"].items() if v is not None}}
    if data.get("sweep") in (None, {}):
        return read({key: value for key, value in data.items() if key != "sweep"})
    if data.get("expanded_sweep") is not None:
        return read(data)
    whole = read({**data, "expanded_sweep": []})
    return _Expansion(whole, _combinations(data, whole, read)).recipe()


def _combinations(
    data: dict[str, Any], whole: Recipe, read: Callable[[dict[str, Any]], Recipe]
) -> list[tuple[Variants, Recipe]]:
    """Return every combination of variants with its recipe; the last axis changes fastest."""
    number = math.prod(len(config.variants) for config in whole.sweep.values())
    if number > MAX_COMBINATIONS:
        message = f"expected at most {MAX_COMBINATIONS} combinations of variants, got {number}"
        raise RecipeError(Problem(message, "sweep"))
    combinations: list[tuple[Variants, Recipe]] = []
    valid: set[str] = set()
    for names in itertools.product(*(config.variants for config in whole.sweep.values())):
        variants = dict(zip(whole.sweep, names, strict=True))
        fields = [f"sweep.{axis}.variants.{variant}" for axis, variant in variants.items()]
        field = next((field for field in fields if field not in valid), fields[-1])
        raw = _changed_data(data, variants)
        try:
            recipe = read(raw)
        except RecipeError as error:
            problems = [item._replace(field=f"{field}.{item.field}") for item in error.problems]
            raise RecipeError(*problems) from error
        if any(recipe == other for _, other in combinations):
            message = "makes the same recipe as another variant. Change or remove it"
            raise RecipeError(Problem(message, field))
        combinations.append((variants, recipe))
        valid.update(fields)
    return combinations


def _changed_data(data: dict[str, Any], variants: Variants) -> dict[str, Any]:
    """Return the data with the changes of variants, which must not overlap."""
    raw = {key: value for key, value in data.items() if key != "sweep"}
    changed: list[tuple[str, ...]] = []
    for axis, variant in variants.items():
        where = f"sweep.{axis}.variants.{variant}"
        paths = apply_variant(raw, data["sweep"][axis]["variants"][variant] or {}, where=where)
        for path, other in itertools.product(paths, changed):
            if path[: len(other)] == other or other[: len(path)] == path:
                message = f"another axis changes {'.'.join(path)} too. Change it in one axis only"
                raise RecipeError(Problem(message, where))
        changed += paths
    return raw


class _Expansion:
    """Recipe of all combinations of a sweep."""

    def __init__(self, whole: Recipe, combinations: list[tuple[Variants, Recipe]]) -> None:
        self._whole = whole
        self._variants, self._recipes = zip(*combinations, strict=True)
        self._copies: dict[str, dict[str, _Copies]] = {}

    def recipe(self) -> Recipe:
        """Return the recipe with the copies of all entries."""
        fields = {name: getattr(self._whole, name) for name in Recipe.model_fields}
        for section in SECTIONS:
            self._copies[section] = {}
            for entry in fields[section]:
                self._copies[section][entry] = self._copy(section, entry)
            fields[section] = self._section(section)
        return self._whole.expand({**fields, "expanded_sweep": self._swept_entries()})

    def _copy(self, section: str, entry: str) -> _Copies:
        """Return the copies of an entry, after those of all entries that it may read."""
        configs: list[Config] = []
        for at, recipe in enumerate(self._recipes):
            config = getattr(recipe, section)[entry]
            reads = {
                field: self._copy_name(at, read_section, getattr(config, field))
                for field, read_section in REFERENCES.get(section, {}).items()
            }
            configs.append(config.model_copy(update=reads))
        first = [configs.index(config) for config in configs]
        axes = [axis for axis in self._whole.sweep if self._affects(axis, first)]
        own = getattr(self._whole, section)[entry]
        names = []
        for config, at in zip(configs, first, strict=True):
            variants = [self._variants[at][axis] for axis in axes] if config != own else []
            names.append(".".join([entry, *variants]))
        return _Copies(names, configs, axes)

    def _copy_name(self, at: int, section: str, name: Any) -> Any:
        """Return the name of an entry's copy in a combination; for several names, all of them."""
        if isinstance(name, tuple):
            return tuple(self._copy_name(at, section, item) for item in name)
        return None if name is None else self._copies[section][name].names[at]

    def _affects(self, axis: str, first: list[int]) -> bool:
        """Return True if an axis changes an entry; `first` has equal numbers for equal copies."""
        seen: dict[tuple[str, ...], int] = {}
        for at, variants in zip(first, self._variants, strict=True):
            others = tuple(variant for name, variant in variants.items() if name != axis)
            if seen.setdefault(others, at) != at:
                return True
        return False

    def _section(self, section: str) -> dict[str, Config]:
        """Return the configurations of a section by the names of the copies."""
        configs: dict[str, Config] = {}
        entry_of: dict[str, str] = {}
        for entry, copies in self._copies[section].items():
            for name, config in zip(copies.names, copies.configs, strict=True):
                is_taken = entry_of.setdefault(name, entry) != entry
                is_reserved = grid_point(name) != name or name.startswith(_PHASE)
                if is_taken or is_reserved or len(name) > _MAX_NAME_LENGTH:
                    message = f"{name!r} cannot name a copy of {section}.{entry}: it is too long, "
                    message += "taken, or looks like a trial or phase. Rename the variant"
                    raise RecipeError(Problem(message, "sweep"))
                configs[name] = config
        return configs

    def _swept_entries(self) -> tuple[ExpandedEntry, ...]:
        """Return the variants that each evaluated copy stands for."""
        swept: dict[tuple[str, ...], ExpandedEntry] = {}
        finetune = self._copies["finetune"]
        for entry, of in {**finetune, **self._copies["ensembles"]}.items():
            for at, recipe in enumerate(self._recipes):
                variants = {axis: self._variants[at][axis] for axis in of.axes}
                members = [entry] if entry in finetune else recipe.ensembles[entry].members
                configs: list[Any] = [finetune[member].configs[at] for member in members]
                phases = {config.init_from_phase or "" for config in configs}
                phase = phases.pop() if len(phases) == 1 else ""
                if variants:
                    name = of.names[at]
                    swept[(entry, *variants.values())] = ExpandedEntry(
                        entry=name, of=entry, variants=variants, phase=phase
                    )
        return tuple(swept.values())
