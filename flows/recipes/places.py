"""Where the values of a recipe were written: file, line and column, or an option of the command.

A fault of a recipe is a text that begins with the dotted path of a field, `build_tokens.seed: ...`.
The files are looked through only when there is one: a recipe that can be used costs nothing more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from schemas.errors import ConfigError

_MERGE = "tag:yaml.org,2002:merge"
_WITH = re.compile(r"with (sweep\..+?): (.*)", re.DOTALL)
_FIELD = re.compile(r"[a-z0-9_.-]+")
_OF_KEYS, _MISSING = "no such key", "is missing"
"""What is said of a key, and of one that is not there, and not of a value."""


class RecipeError(ConfigError):
    """All that is wrong with a recipe, a text each, which begins with the path of its field."""

    def __init__(self, faults: Iterable[str]) -> None:
        """Of one or more."""
        self.faults = tuple(faults)
        lines = "\n  ".join(("", *self.faults)) if len(self.faults) > 1 else self.faults[0]
        super().__init__(lines)


class _Found(NamedTuple):
    """Where a path leads in a file, as far as it does."""

    node: Node
    key: Node
    left: int
    """Parts of the path that are not there."""


class _Place(NamedTuple):
    """Where something stands; those of the recipe's own file come first, options last."""

    rank: int
    line: int
    column: int
    said: str


class Written:
    """The files that a recipe was read from, and the changes that options made to it."""

    def __init__(self) -> None:
        """Of nothing yet."""
        self._files: list[tuple[str, str]] = []
        self._changes: list[tuple[str, str]] = []

    def add_file(self, where: str, text: str) -> None:
        """A recipe's own file, then the one that it extends, and so on."""
        self._files.append((where, text))

    def add_change(self, path: str, said: str) -> None:
        """What an option has set, by the dotted path, after all before it."""
        self._changes.append((path, said))

    def error(self, faults: Iterable[str], *, where: str) -> ConfigError:
        """An error that says each fault with its place, in the order of the lines.

        Args:
            faults: each once.
            where: what to call the recipe.
        """
        found = sorted(((self._place(fault), fault) for fault in faults), key=lambda item: item[0])
        lines = [f"{place.said or where}: {fault}" for place, fault in found]
        if len(lines) == 1:
            return ConfigError(lines[0])
        return ConfigError("\n  ".join([f"{where}: {len(lines)} things cannot be used", *lines]))

    def _place(self, fault: str) -> _Place:
        for path in _paths(fault):
            for said in (said for at, said in reversed(self._changes) if _is_below(path, at)):
                return _Place(len(self._files), 0, 0, said)
        found = self._in_file(fault)
        changed = next((said for at, said in reversed(self._changes) for path in _paths(fault)
                        if _is_below(at, path)), "")  # fmt: skip
        if found is None:
            return _Place(-1, 0, 0, "")
        rank, place = found
        mark = place.key.start_mark
        if isinstance(place.node, ScalarNode) and not place.left and not _is_of_key(fault):
            mark = place.node.start_mark
        line, column = mark.line + 1, mark.column + 1
        said = f"{self._files[rank][0]}, line {line}, column {column}"
        return _Place(rank, line, column, f"{said}, with {changed}" if changed else said)

    def _in_file(self, fault: str) -> tuple[int, _Found] | None:
        """The file that has a fault's field, or most of the way to it, and the place in it."""
        best: tuple[int, _Found] | None = None
        for rank, (_, text) in enumerate(self._files):
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            for path in _paths(fault):
                found = _walked(root, path)
                if found is not None and (best is None or found.left < best[1].left):
                    best = rank, found
            if best is not None:  # a file gives whole sections, in place of the one it extends
                break
        return best


def _is_of_key(fault: str) -> bool:
    said = fault.partition(": ")[2]
    return said.startswith(_OF_KEYS)


def _is_below(path: str, other: str) -> bool:
    return f"{path}.".startswith(f"{other}.")


def _paths(fault: str) -> Iterator[str]:
    """The paths that a fault may be looked for by, the likeliest first."""
    if (combined := _WITH.match(fault)) is not None:
        path = combined[2].partition(": ")[0]
        for variant in combined[1].split(" and "):
            yield f"{variant}.{path}"
        return
    path, _, said = fault.partition(": ")
    if said.startswith(_MISSING):  # where it is looked for
        yield path.rpartition(".")[0]
        return
    inner, colon, _ = said.partition(": ")
    if colon and _FIELD.fullmatch(inner):  # of a configuration that was looked at as a whole
        yield f"{path}.{inner}"
    yield path


def _walked(root: Node | None, path: str) -> _Found | None:
    """Where a dotted path leads; None where not even its first part is there."""
    parts = path.split(".")
    found: _Found | None = None
    node = root
    while parts and node is not None and (step := _step(node, parts)) is not None:
        key, node, taken = step
        parts = parts[taken:]
        found = _Found(node, key, len(parts))
    return found


def _step(node: Node, parts: list[str]) -> tuple[Node, Node, int] | None:
    """The key, the value, and how many parts of a path named it."""
    if isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            name = _step(item, ["name"]) if isinstance(item, MappingNode) else None
            if parts[0] in (str(index), name and name[1].value):
                return item, item, 1
        return None
    if not isinstance(node, MappingNode):
        return None
    entries = dict(_entries(node))
    for end in range(len(parts), 0, -1):  # names of entries may have dots in them
        if (entry := entries.get(".".join(parts[:end]))) is not None:
            return *entry, end
    return None


def _entries(node: MappingNode) -> Iterator[tuple[str, tuple[Node, Node]]]:
    """Keys and values of a mapping, those that it merges first."""
    for key, value in node.value:
        if key.tag == _MERGE:
            for merged in value.value if isinstance(value, SequenceNode) else [value]:
                if isinstance(merged, MappingNode):
                    yield from _entries(merged)
    for key, value in node.value:
        if isinstance(key, ScalarNode) and key.tag != _MERGE:
            yield key.value, (key, value)
