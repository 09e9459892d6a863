"""YAML that a person wrote, read with care: recipes, values of `--set`, lists of sources.

Safe YAML is not safe enough. Nine lines of aliases can stand for a billion values, a nesting of
500 is deeper than Python's own stack, a number of 5,000 digits is refused by Python in the middle
of the reading. So size, nesting and the number of values, aliases written out, are looked at before
anything is built; and whatever cannot be used is one error that names the line.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from pipelines.io.local_files import check_regular
from schemas.errors import ConfigError

MAX_BYTES = 1 << 20
MAX_VALUES = 100_000
MAX_NESTING = 50
_MAX_NUMBER = 40
"""Characters of a number; more is none that anybody meant."""

_CORE = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ["str", "int", "float", "bool", "null", "seq", "map", "timestamp"]
)
_MERGE = "tag:yaml.org,2002:merge"
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_yaml(path: str | Path, *, where: str) -> str:
    """The text of a YAML file.

    Args:
        where: what to call it in messages.

    Raises:
        ConfigError: it cannot be read, is too large, or is not UTF-8.
    """
    try:
        check_regular(path)
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{where}: is larger than {MAX_BYTES:,} bytes: is it a YAML file?")
    if data.startswith(_WIDE_MARKS):
        raise ConfigError(f"{where}: is UTF-16: expected UTF-8, save it as that")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{where}, line {line}: expected UTF-8, found the byte 0x{data[error.start]:02x}: "
            "save the file as UTF-8"
        ) from error


def load_yaml(text: str, *, where: str) -> Any:
    """The value of a YAML text, of text, numbers, true and false, dates, lists, keys with values.

    Args:
        where: what to call it in messages, which go on with the line.

    Raises:
        ConfigError: it is not YAML, gives a key twice, is too large or nested too deeply, refers to
            itself, or holds something that a configuration has no use for.
    """
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{where}: is longer than {MAX_BYTES:,} characters")
    try:
        _check_size(text)
        loader = _Loader(text)
        try:
            return _written_out(loader.get_single_data())
        finally:
            loader.dispose()
    except ConfigError as error:
        raise ConfigError(f"{where}, {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        said = [part for part in (error.context, error.problem) if part]
        text = f"{', '.join(said)}{_remedy(error.problem or '')}"
        raise ConfigError(f"{where}{position}: is not YAML: {text}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        raise ConfigError(
            f"{where}, line {line}, column {column}: is not YAML: the character "
            f"U+{ord(text[error.position]):04X} may not stand in it"
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: is not YAML: {error}") from error


_REMEDIES = {
    "found character '\\t'": "indent with spaces, not with tabs",
    "mapping values are not allowed here": "begin the line where those beside it begin; a text "
    "with a colon in it stands in quotes",
    "expected <block end>": "begin the line where those beside it begin",
    "that cannot start any token": "a text that begins so stands in quotes",
    "found unexpected end of stream": "the quotes are not closed",
    "expected ',' or": "a bracket is not closed, or a comma is missing",
    "found undefined alias": "it has to stand before, as &NAME",
}
"""What to do about what PyYAML says, by a part of it; the first that fits."""


def _remedy(problem: str) -> str:
    return next((f": {text}" for part, text in _REMEDIES.items() if part in problem), "")


def _fail(node: Any, problem: str) -> ConfigError:
    """What is wrong at a node or an event; `load_yaml` puts the file's name before it."""
    mark = node.start_mark
    return ConfigError(f"line {mark.line + 1}, column {mark.column + 1}: {problem}")


def _check_size(text: str) -> None:
    """Count values, what an alias stands for each time it does, before any is built."""
    sizes: dict[str, int] = {}  # of what each anchor names
    open_nodes: list[tuple[str | None, int]] = []  # anchor, and the count where it began
    count = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_nodes):
                raise _fail(event, f"*{event.anchor} stands inside of what &{event.anchor} names")
            count += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, count))
            count += 1
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = count - before
        if len(open_nodes) > MAX_NESTING:
            raise _fail(event, f"is nested more than {MAX_NESTING} levels deep")
        if count > MAX_VALUES:
            raise _fail(event, f"has more than {MAX_VALUES:,} values, aliases written out")


def _written_out(value: Any) -> Any:
    """The value with a copy of its own wherever an alias stood: one may be changed by itself."""
    if isinstance(value, dict):
        return {key: _written_out(item) for key, item in value.items()}
    return [_written_out(item) for item in value] if isinstance(value, list) else value


_SCALARS = {
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": ("[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F]+)", "-+0123456789"),
    "float": (
        r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
}
"""Booleans and numbers of YAML 1.2, with their first characters. PyYAML reads YAML 1.1; there `yes`
is true and `5:00` is 300."""


class _Loader(yaml.SafeLoader):
    """Safe YAML with the scalars of YAML 1.2, which refuses a key that is given twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in the base class
        first: [(tag, found) for tag, found in resolvers if tag.rpartition(":")[2] not in _SCALARS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[Any, Node] = {}
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _fail(
                    key_node, f"expected text as a key, found {key!r:.80}: put it in quotes"
                )
            if key in seen:
                first = seen[key].start_mark.line + 1
                raise _fail(key_node, f"the key {key!r:.80} is there already in line {first}")
            seen[key] = key_node
        return dict(super().construct_mapping(node, deep=deep))

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        if node.tag not in _CORE:
            raise _fail(node, f"the tag {node.tag!r:.80} means nothing here: leave it out")
        if isinstance(node, ScalarNode):
            return self._scalar(node)
        return super().construct_object(node, deep=deep)

    def _scalar(self, node: ScalarNode) -> Any:
        number = node.tag.endswith((":int", ":float"))
        if number and len(node.value) > _MAX_NUMBER:
            raise _fail(node, f"expected a number of at most {_MAX_NUMBER} characters")
        try:
            value = super().construct_object(node)
        except (ValueError, KeyError, IndexError, AttributeError) as error:
            # What PyYAML's own converters raise for `2001-99-99`, `!!int abc` or `!!bool perhaps`.
            kind = node.tag.rpartition(":")[2]
            raise _fail(
                node,
                f"expected a value of YAML's {kind}, found {node.value!r:.80}: if it is "
                "text, put it in quotes",
            ) from error
        if isinstance(value, float) and not math.isfinite(value):
            raise _fail(node, f"expected a finite number, found {node.value!r:.80}")
        if isinstance(value, str) and _NO_TEXT.search(value):
            raise _fail(node, "a text has the character U+0000 or half of a surrogate pair in it")
        return value


for _name, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(f"(?:{_pattern})\\Z"), list(_first)
    )
