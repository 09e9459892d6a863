"""Changes of raw recipes by dotted paths, as `--set` and the variants of a sweep say them.

`build_instances.length-128.seed` names a value; entries of lists are named by number or, where they
have one, by their `name`. Names of entries may have dots in them.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from flows.recipes.yaml_texts import MAX_NESTING, load_yaml
from schemas.errors import ConfigError, UsageError

SECTIONS = ("build_instances", "pretrain", "build_examples", "finetune", "ensembles")
"""What of a recipe a sweep may change: those that hold entries by name, readers after what they
read."""


EVERY = "*"
"""In the path of a variant's change: every entry of the section."""


class Placed(str):
    """A text that came from elsewhere than the recipe's file, with the folder a path in it is
    relative to."""

    folder: Path

    def __new__(cls, text: str, folder: Path) -> Self:
        """Of a text."""
        made = super().__new__(cls, text)
        made.folder = folder
        return made


def placed(value: Any, folder: Path) -> Any:
    """A raw value whose texts know the folder that they are relative to; those that do stay."""
    if isinstance(value, dict):
        return {key: placed(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [placed(item, folder) for item in value]
    is_new = isinstance(value, str) and not isinstance(value, Placed)
    return Placed(value, folder) if is_new else value


def set_by_text(data: dict[str, Any], change: str) -> str:
    """Apply one `KEY=VALUE` of `--set` in place.

    Returns:
        The dotted path that was set, with entries of lists by their numbers.

    Raises:
        UsageError: it is no such text.
        ConfigError: VALUE is not YAML, or KEY leads nowhere.
    """
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            f"--set {change:.200}: expected KEY=VALUE, e.g. build_instances.length-128.seed=1"
        )
    value = load_yaml(text, where=f"--set {change:.80}")
    parts = key.strip().split(".")
    if len(parts) > MAX_NESTING:
        raise ConfigError(f"--set {change:.80}: names more than {MAX_NESTING} levels")
    _see_that_entry_is_there(data, parts, change)
    return ".".join(_set(data, parts, placed(value, Path.cwd()), said=f"--set {change:.200}"))


def _see_that_entry_is_there(data: dict[str, Any], parts: list[str], change: str) -> None:
    """A field of an entry that is not there is that of another, with a slip in its name."""
    section = parts[0]
    entries = data.get(section) if section in SECTIONS else None
    if not isinstance(entries, dict) or not entries:
        return
    name, rest = _step_into(entries, parts[1:] or [""], said="")
    if rest and name not in entries:
        raise ConfigError(
            f"--set {change:.200}: {_no_entry(name, section, entries)} (a new entry is given as a "
            f"whole: --set '{section}.{name}={{...}}')"
        )


def set_by_variant(
    data: dict[str, Any], variant: Mapping[str, Any], *, said: str
) -> list[tuple[str, ...]]:
    """Apply the changes of a sweep's variant in place.

    Args:
        data: of a recipe; its entries are those that there are.
        variant: values by dotted paths; `*` names every entry of a section. Sections and entries
            may also be nested; what stands at a field's path is put in place of what was there.
        said: what to begin errors with.

    Returns:
        The paths of the values that were set: section, entry, and parts below it.

    Raises:
        ConfigError: a path names something that a sweep does not change, or an entry that there is
            not.
    """
    changed: list[tuple[str, ...]] = []
    for path, value in _by_entry(variant, said=said):
        parts = path.split(".")
        section = parts[0]
        entries = data.get(section) or {}
        name, rest = _step_into(entries, parts[1:], said=said)
        if name not in entries and (name != EVERY or not entries):
            raise ConfigError(f"{said}.{path}: {_no_entry(name, section, entries)}")
        fields = {".".join(rest): value} if rest else _mapping(value, said=f"{said}.{path}")
        for entry, field in itertools.product(list(entries) if name == EVERY else [name], fields):
            at = [section, entry, *field.split(".")]
            _set(data, at, copied(fields[field]), said=f"{said}.{path}")
            changed.append(tuple(at))
    return changed


def copied(value: Any) -> Any:
    """A copy of a raw value that can be changed by itself."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def _by_entry(variant: Mapping[str, Any], *, said: str) -> Iterator[tuple[str, Any]]:
    """The changes of a variant by paths that reach an entry at least."""
    for path, value in variant.items():
        section = path.partition(".")[0]
        if section not in SECTIONS:
            raise ConfigError(
                f"{said}.{path}: a sweep changes entries of {', '.join(SECTIONS)}; what else "
                "differs needs a recipe of its own (`extends` takes the rest from this one)"
            )
        if path != section:
            yield path, value
            continue
        for name, inner in _mapping(value, said=f"{said}.{path}").items():
            yield f"{path}.{name}", inner


def _mapping(value: Any, *, said: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise ConfigError(f"{said}: expected fields with values, found {value!r:.80}")


def _no_entry(name: str, section: str, entries: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, entries, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"no {name!r} in {section}, which has {', '.join(entries) or 'no entries'}{hint}"


def _set(data: Any, parts: list[str], value: Any, *, said: str) -> list[str]:
    """Set what a path names; what is on the way and not there is made. Returns the whole path."""
    here, walked = data, list[Any]()
    while True:
        if _is_variant(walked):
            here[".".join(parts)] = value
            return [*map(str, walked), *parts]
        name, parts = _step_into(here, parts, said=said)
        if not parts:
            here[name] = value
            return [*map(str, walked), str(name)]
        inner = here[name] if isinstance(here, list) else here.setdefault(name, {})
        if inner is None:
            inner = here[name] = {}
        here = inner
        walked.append(name)


def _is_variant(walked: list[Any]) -> bool:
    """Whether a path has led to a variant of a sweep, below which stand paths and no fields."""
    return len(walked) == 4 and (walked[0], walked[2]) == ("sweep", "variants")


def _step_into(here: Any, parts: list[str], *, said: str) -> tuple[Any, list[str]]:
    """The key or index that a path's next parts name, and the parts after them."""
    if isinstance(here, dict):
        for end in range(len(parts), 0, -1):  # names of entries may have dots in them
            if ".".join(parts[:end]) in here:
                return ".".join(parts[:end]), parts[end:]
        return parts[0], parts[1:]
    if isinstance(here, list):
        for index, item in enumerate(here):
            names = {str(index), str(item.get("name")) if isinstance(item, dict) else str(index)}
            if parts[0] in names:
                return index, parts[1:]
        raise ConfigError(
            f"{said}: no entry {parts[0]!r}; name it by its number, 0 to {len(here) - 1}, "
            "or by its name"
        )
    raise ConfigError(f"{said}: {parts[0]!r} is below {here!r}, which has no keys")
