"""The `sweep` of a recipe: its entries once for each variant that makes a difference to them.

Every combination of variants is a recipe by itself, read and checked as any other. Of these one is
made: an entry that all have alike is there once, one that differs is there once for each way it
does, and so is all that reads it. So nothing that variants share is trained twice. What a variant
leaves as the recipe has it keeps its name, `mnli`; other copies add the names of the variants,
`mnli.no-nsp`, of the axes alone that make a difference to the entry.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flows.recipes.changes import SECTIONS, copied, set_by_variant
from flows.recipes.places import RecipeError
from schemas.configs import Config
from schemas.errors import ConfigError
from schemas.recipe import Recipe
from schemas.task_configs import SweptEntry
from schemas.trial_names import grid_point

MAX_COMBINATIONS = 256
_MAX_NAME = 64  # characters of a SourceName

_READS: dict[str, dict[str, str]] = {
    "build_instances": {},
    "pretrain": {"instances": "build_instances", "start_from": "pretrain"},
    "build_examples": {},
    "finetune": {"examples": "build_examples", "start_from": "pretrain"},
    "ensembles": {"members": "finetune"},
}
"""Fields of entries that name others, and the sections of those."""

_PHASE = "pretrain."
"""Begins the names under which tables read phases, beside evaluations by entry."""


class _Combination(NamedTuple):
    variants: dict[str, str]
    """By axis."""

    recipe: Recipe
    """That they make."""


class _Copies(NamedTuple):
    """What has become of an entry of the recipe."""

    names: list[str]
    """Its name by combination."""

    configs: list[Config]
    """Its configuration by combination, with the names of what it reads."""

    axes: list[str]
    """Those that make a difference to it."""


def swept_recipe(data: dict[str, Any], *, read: Callable[[dict[str, Any]], Recipe]) -> Recipe:
    """The recipe of raw data, with its sweep carried out where it has one that is not yet.

    Args:
        data: raw; they stay as they are.
        read: reads raw data that have no sweep to carry out.

    Raises:
        ConfigError: the sweep cannot be carried out, or a combination of variants is no recipe.
    """
    if isinstance(data.get("sweep"), dict):  # null stands for no axis
        data = {**data, "sweep": {k: v for k, v in data["sweep"].items() if v is not None}}
    if data.get("sweep") in (None, {}):
        return read({key: value for key, value in data.items() if key != "sweep"})
    if data.get("swept") is not None:
        return read(data)
    whole = read({**data, "swept": []})
    combinations = _combinations(data, whole, read=read)
    copies: dict[str, dict[str, _Copies]] = {}
    for section in SECTIONS:
        copies[section] = {}
        for entry in getattr(whole, section):
            copies[section][entry] = _copies(section, entry, whole, combinations, before=copies)
    _see_that_variants_differ(whole, combinations, copies)
    _see_that_names_differ(copies)
    made = {
        section: {
            name: config
            for of in entries.values()
            for name, config in zip(of.names, of.configs, strict=True)
        }
        for section, entries in copies.items()
    }
    fields = {name: getattr(whole, name) for name in Recipe.model_fields}
    return Recipe(**{**fields, **made, "swept": _swept(combinations, copies)})


def _combinations(
    data: dict[str, Any], whole: Recipe, *, read: Callable[[dict[str, Any]], Recipe]
) -> list[_Combination]:
    """Every combination of variants with its recipe, the last axis changing fastest."""
    sizes = {axis: len(config.variants) for axis, config in whole.sweep.items()}
    if (number := math.prod(sizes.values())) > MAX_COMBINATIONS:
        found = " x ".join(f"{size} of {axis}" for axis, size in sizes.items())
        raise ConfigError(
            f"sweep: {found} make {number:,} combinations: expected at most {MAX_COMBINATIONS}; "
            "make several recipes of it"
        )
    _see_that_axes_are_apart(data, whole)
    combinations = []
    for chosen in itertools.product(*(config.variants for config in whole.sweep.values())):
        variants = dict(zip(whole.sweep, chosen, strict=True))
        raw = {key: copied(value) for key, value in data.items() if key != "sweep"}
        for axis, variant in variants.items():
            changes = data["sweep"][axis]["variants"][variant]
            set_by_variant(raw, changes or {}, said=_place(axis, variant))
        try:
            recipe = read(raw)
        except RecipeError as error:
            places = " and ".join(_place(axis, variant) for axis, variant in variants.items())
            raise RecipeError(f"with {places}: {fault}" for fault in error.faults) from error
        combinations.append(_Combination(variants, recipe))
    return combinations


def _place(axis: str, variant: str) -> str:
    return f"sweep.{axis}.variants.{variant}"


def _copies(
    section: str,
    entry: str,
    whole: Recipe,
    combinations: Sequence[_Combination],
    *,
    before: Mapping[str, Mapping[str, _Copies]],
) -> _Copies:
    """What becomes of an entry, of which those that it may read have been dealt with."""

    def renamed(at: int, value: Any, of: str) -> Any:
        if isinstance(value, tuple):
            return tuple(renamed(at, item, of) for item in value)
        return value if value is None else before[of][value].names[at]

    configs: list[Config] = []
    for at, (_, recipe) in enumerate(combinations):
        config = getattr(recipe, section)[entry]
        read = {
            field: renamed(at, getattr(config, field), of) for field, of in _READS[section].items()
        }
        configs.append(config.model_copy(update=read))
    kinds = [configs.index(config) for config in configs]
    axes = [axis for axis in whole.sweep if _matters(axis, kinds, combinations)]
    own = getattr(whole, section)[entry]
    names = []
    for config, kind in zip(configs, kinds, strict=True):
        added = [combinations[kind].variants[axis] for axis in axes if config != own]
        names.append(".".join([entry, *added]))
    return _Copies(names, configs, axes)


def _matters(axis: str, kinds: Sequence[int], combinations: Sequence[_Combination]) -> bool:
    """Whether combinations that differ in one axis alone are of different kinds."""
    seen: dict[tuple[str, ...], int] = {}
    for kind, (variants, _) in zip(kinds, combinations, strict=True):
        others = tuple(variant for name, variant in variants.items() if name != axis)
        if seen.setdefault(others, kind) != kind:
            return True
    return False


def _swept(
    combinations: Sequence[_Combination], copies: Mapping[str, Mapping[str, _Copies]]
) -> tuple[SweptEntry, ...]:
    found: dict[tuple[str, ...], SweptEntry] = {}
    for section in ("finetune", "ensembles"):
        for entry, of in copies[section].items():
            for at, (variants, recipe) in enumerate(combinations):
                own = {axis: variants[axis] for axis in of.axes}
                phases = {
                    copies["finetune"][member].configs[at].start_from or ""  # type: ignore[attr-defined]
                    for member in (
                        [entry] if section == "finetune" else recipe.ensembles[entry].members
                    )
                }
                if own:
                    found[(entry, *own.values())] = SweptEntry(
                        entry=of.names[at],
                        of=entry,
                        variants=own,
                        phase=phases.pop() if len(phases) == 1 else "",
                    )
    return tuple(found.values())


# What cannot be meant


def _see_that_axes_are_apart(data: dict[str, Any], whole: Recipe) -> None:
    """No value is changed by two axes, of which one would be lost."""
    changed: dict[tuple[str, ...], str] = {}
    for axis, config in whole.sweep.items():
        paths: dict[tuple[str, ...], str] = {}
        for variant in config.variants:
            raw = {key: copied(value) for key, value in data.items() if key in SECTIONS}
            said = _place(axis, variant)
            changes = data["sweep"][axis]["variants"][variant]
            paths |= dict.fromkeys(set_by_variant(raw, changes or {}, said=said), said)
        for path, said in paths.items():
            for other, by in changed.items():
                if path[: len(other)] == other or other[: len(path)] == path:
                    raise ConfigError(
                        f"{by} and {said} change the same, {'.'.join(max(path, other))}: expected "
                        "axes of which each changes something else"
                    )
        changed |= paths


def _see_that_variants_differ(
    whole: Recipe,
    combinations: Sequence[_Combination],
    copies: Mapping[str, Mapping[str, _Copies]],
) -> None:
    for axis, config in whole.sweep.items():
        made: dict[tuple[tuple[str, ...], ...], str] = {}
        for variant in config.variants:
            chosen = [at for at, one in enumerate(combinations) if one.variants[axis] == variant]
            names = tuple(
                tuple(of.names[at] for entries in copies.values() for of in entries.values())
                for at in chosen
            )
            if (other := made.setdefault(names, variant)) != variant:
                raise ConfigError(
                    f"sweep.{axis}.variants: {other} and {variant} make the same recipe: leave one "
                    "out, or change something in one of them that the other leaves"
                )


def _see_that_names_differ(copies: Mapping[str, Mapping[str, _Copies]]) -> None:
    """Copies have names that no other entry has, and that can be told from names of trials."""
    for section, entries in copies.items():
        taken: dict[str, str] = {}
        for entry, of in entries.items():
            for name in dict.fromkeys(of.names):
                where = f"sweep: the copy {name!r} of {section}.{entry}"
                if (other := taken.setdefault(name, entry)) != entry:
                    raise ConfigError(
                        f"{where} has the name of one of {section}.{other}: rename an entry or a "
                        "variant"
                    )
                if len(name) > _MAX_NAME:
                    raise ConfigError(
                        f"{where} has a name of {len(name)} characters: expected at most "
                        f"{_MAX_NAME}; shorten the names of variants"
                    )
                if grid_point(name) != name:
                    raise ConfigError(f"{where} has a name as trials have them: rename the variant")
                if name.startswith(_PHASE) and section in ("finetune", "ensembles"):
                    raise ConfigError(
                        f"{section}.{entry}: in a recipe with a sweep, expected a name that does "
                        f"not begin with {_PHASE!r}, by which tables know phases: rename it"
                    )
