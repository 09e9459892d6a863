"""Strict reading of YAML 1.2, and of its subset JSON, with line numbers; tags are refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.resolver import VersionedResolver

from flows.recipes.errors import Problem, RecipeError
from pipelines.io.local_files import check_regular

MAX_BYTES = 1 << 20
MAX_VALUES = 100_000
"""Maximum number of values in a document; an alias counts as all values that it stands for."""
MAX_DEPTH = 50
MAX_KEY_LENGTH = 200
MAX_TEXT_LENGTH = 10_000
MAX_NUMBER_LENGTH = 40

_PREFIX = "tag:yaml.org,2002:"
_MERGE = f"{_PREFIX}merge"
_TYPES = {"str", "int", "float", "bool", "null", "timestamp", "seq", "map"}


class _Resolver(VersionedResolver):
    """Resolver that ignores `%YAML` directives: in YAML 1.1 `5:00` is a number."""

    processing_version = (1, 2)


class _Constructor(SafeConstructor):
    """Constructor of plain values; a date is text."""


_Constructor.add_constructor(f"{_PREFIX}timestamp", SafeConstructor.construct_yaml_str)


@dataclass(frozen=True)
class YamlDocument:
    """Value of a YAML document, with the lines of its fields."""

    where: str
    """Name of the file or option in errors."""

    value: Any
    """Plain value; aliases share one object."""

    root: Node | None = None
    """Syntax tree. None: the value was not read from text."""

    folder: Path = field(default_factory=Path.cwd)
    """Folder that paths are relative to."""

    def find_line(self, path: str) -> int:
        """Return the line of a dotted path or of its nearest parent; 0 where there is neither."""
        node, line = self.root, 0
        while children := [one for one in _children(node) if f"{path}.".startswith(f"{one[0]}.")]:
            name, key, node = max(children, key=lambda one: len(one[0]))  # names may contain dots
            path, line = path[len(name) + 1 :], key.start_mark.line + 1
        return line


def read_yaml(file: str | Path, *, where: str) -> YamlDocument:
    """Read a YAML file; errors call it `where`.

    Raises:
        RecipeError: The file cannot be read, or `parse_yaml` refuses its text.
    """
    try:
        check_regular(file)
        with Path(file).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RecipeError(Problem(f"cannot be read: {reason}", path=where)) from error
    return replace(parse_yaml(text, where=where), folder=Path(file).parent.absolute())


def parse_yaml(text: str, *, where: str) -> YamlDocument:
    """Parse a YAML or JSON document; errors call it `where`.

    Raises:
        RecipeError: The text is not YAML, has tags or repeated keys, or exceeds a limit.
    """
    if len(text) > MAX_BYTES:
        raise RecipeError(Problem(f"expected at most {MAX_BYTES:,} bytes, got more", path=where))
    yaml = YAML(typ="safe", pure=True)
    yaml.Resolver, yaml.Constructor = _Resolver, _Constructor
    yaml.max_depth = MAX_DEPTH
    try:
        root = yaml.compose(text)
        if root is None:
            return YamlDocument(where, None)
        _check(root, yaml.constructor)
        return YamlDocument(where, yaml.constructor.construct_document(root), root)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"unexpected character U+{error.character:04X}"
        raise RecipeError(Problem(message, path=where, line=line)) from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = str(error.problem).partition(", if necessary increase")[0]
        message = f"{problem[:160]} (column {mark.column + 1})"
        raise RecipeError(Problem(message, path=where, line=mark.line + 1)) from error


def _check(root: Node, constructor: SafeConstructor) -> None:
    """Raise a MarkedYAMLError if a document exceeds a limit or has values that are not allowed."""
    stack = [(root, 0)]
    for count in itertools.count():
        if not stack:
            return
        node, depth = stack.pop()
        if count >= MAX_VALUES or depth > MAX_DEPTH:
            limits = f"{MAX_VALUES:,} values and {MAX_DEPTH} levels"
            raise _refusal(node, f"expected at most {limits}, got more after aliases")
        if str(node.tag).removeprefix(_PREFIX) not in _TYPES:
            raise _refusal(node, f"tag {node.tag!r:.80} is not supported")
        if isinstance(node, ScalarNode) and not _is_valid(node, constructor):
            raise _refusal(node, f"expected short text or a finite number, got {node.value!r:.80}")
        for _, key, value in _children(node):
            if key is not value and key.tag != _MERGE:
                if key.tag != f"{_PREFIX}str" or len(key.value) > MAX_KEY_LENGTH:
                    raise _refusal(key, f"expected a short text as key, got {key.value!r:.80}")
                stack.append((key, depth + 1))
            stack.append((value, depth + 1))


def _is_valid(node: ScalarNode, constructor: SafeConstructor) -> bool:
    """Return True if a scalar is short Unicode text, a finite number, true, false or null."""
    try:
        value = constructor.construct_object(node)
        if isinstance(value, str):
            data = value.encode()  # refuses half surrogate pairs
            return b"\0" not in data and len(value) <= MAX_TEXT_LENGTH
        return len(node.value) <= MAX_NUMBER_LENGTH and math.isfinite(value or 0)
    except (ValueError, LookupError):  # not a value of its explicit tag
        return False


def _refusal(node: Node, message: str) -> MarkedYAMLError:
    return MarkedYAMLError(problem=message, problem_mark=node.start_mark)


def _children(node: Node | None) -> Iterator[tuple[str, Node, Node]]:
    """Yield name, key and value of each entry of a list or mapping."""
    if isinstance(node, SequenceNode):
        yield from ((str(index), item, item) for index, item in enumerate(node.value))
    elif isinstance(node, MappingNode):
        yield from ((str(key.value), key, value) for key, value in node.value)
