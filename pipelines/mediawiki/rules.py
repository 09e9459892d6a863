"""Compile the pattern of a template rule to a function.

A pattern is text with fields in braces, and optional parts in square brackets:

    {1}                 the first argument
    {text|2}            the argument `text`, or the second one if it is empty
    {last}              the last unnamed argument that is not empty
    {:}                 the argument of a parser function, which follows a colon
    {$1}                the first group of a name's regular expression
    {word circa}        the word of the language
    {date 3 2 1}        a function of `pipelines.mediawiki.renderers` with its arguments
    [ ({2})]            written only if no field in it is empty
    drop                the whole pattern: the template shows no text

A backslash before one of {}[]\\ makes it plain. A pattern whose fields are all empty writes
nothing; one that is used without any arguments (`{{circa}}`) writes its words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pipelines.mediawiki.renderers import FUNCTIONS, Arguments, Field, LanguageWords
from schemas.errors import ConfigError

DROP = "drop"
_TOKEN = re.compile(r"\\(.)|\{([^{}]*)\}|([\[\]])|([^\\{}\[\]]+)", re.DOTALL)
_WORDS = re.compile(r'"([^"]*)"|(\S+)')
_BLOCK = "{block}"
_MAY_BE_EMPTY = re.compile(r"\{(?:coordinates|block)\b")


class Rule(NamedTuple):
    """Rule for a template."""

    render: Callable[[Arguments], str]
    is_drop: bool = False
    """The template shows no text."""

    is_block: bool = False
    """It may hold several paragraphs."""

    may_be_empty: bool = False
    """Empty output does not mean missing text."""

    is_pronunciation: bool = False
    """Dropped in brackets."""


_Parts = list["str | Field | _Optional"]


class _Optional(NamedTuple):
    parts: _Parts


def compile_rule(pattern: str, wording: LanguageWords, groups: Sequence[str] = ()) -> Rule | None:
    """Compile a pattern with the words of a language. Return None if it lacks a word.

    Args:
        pattern: Pattern of a rule, see above.
        wording: Words of the language of the text.
        groups: Values of `{$1}` and following.

    Raises:
        ConfigError: The pattern is not well-formed.
    """
    if pattern == DROP:
        return Rule(lambda _: "", is_drop=True)
    try:
        parts = _parse(pattern, wording, {f"${n}": value for n, value in enumerate(groups, 1)})
    except LookupError:
        return None
    if all(isinstance(part, str) for part in parts):
        text = "".join(map(str, parts))
        return Rule(lambda _: text, may_be_empty=not text)
    only = parts[0] if len(parts) == 1 else None
    write = only if callable(only) else _writer(parts)
    is_block = _BLOCK in pattern
    is_optional = all(isinstance(part, _Optional) for part in parts)
    may_be_empty = is_optional or _MAY_BE_EMPTY.search(pattern) is not None
    is_pronunciation = "{phonetic" in pattern
    return Rule(
        write, is_block=is_block, may_be_empty=may_be_empty, is_pronunciation=is_pronunciation
    )


def _parse(pattern: str, wording: LanguageWords, groups: Mapping[str, str]) -> _Parts:
    stack: list[_Parts] = [[]]
    position = 0
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            raise ConfigError(f"the pattern {pattern!r} has a brace that is not closed")
        position = token.end()
        if token[3] == "[":
            stack.append([])
        elif token[3] == "]":
            if len(stack) == 1:
                raise ConfigError(f"the pattern {pattern!r} closes a bracket that is not open")
            inner = stack.pop()
            stack[-1].append(_Optional(inner))
        elif token[2] is not None:
            stack[-1].append(_field(token[2], wording, groups, pattern=pattern))
        else:
            stack[-1].append(token[1] or token[4])
    if len(stack) > 1:
        raise ConfigError(f"the pattern {pattern!r} has a bracket that is not closed")
    return stack[0]


def _field(
    text: str, wording: LanguageWords, groups: Mapping[str, str], *, pattern: str
) -> str | Field:
    words = [quoted or plain for quoted, plain in _WORDS.findall(text)]
    if not words:
        raise ConfigError(f"the pattern {pattern!r} has an empty field")
    name, *rest = words
    if name == "word":
        return wording.word(" ".join(rest))
    if name in FUNCTIONS:
        return FUNCTIONS[name](rest, wording, lambda word: _selected(word, groups))
    if rest:
        raise ConfigError(f"the pattern {pattern!r} uses {name!r}; known are {sorted(FUNCTIONS)}")
    return groups[name] if name in groups else _selected(name, groups)


def _selected(word: str, groups: Mapping[str, str]) -> Field:
    """Return the function that selects an argument: a number, a name, `last`, or several with |."""
    if word in groups:
        value = groups[word]
        return lambda _: value
    names = [int(name) if name.isdecimal() else name for name in word.split("|")]
    if names == ["last"]:
        return Arguments.last
    if len(names) == 1 and isinstance(number := names[0], int):
        return lambda arguments: arguments.at(number)

    def first_filled(arguments: Arguments) -> str:
        for name in names:
            if value := arguments.get(name):
                return value
        return ""

    return first_filled


def _writer(parts: _Parts) -> Field:
    words = "".join(part for part in parts if isinstance(part, str)).strip()
    has_words = any(c.isalpha() or unicodedata.category(c) == "Sc" for c in words)

    def write(arguments: Arguments) -> str:
        text, filled, empty = _write(parts, arguments)
        if filled or not empty:
            return text
        return words if has_words and not arguments.positional and not arguments.named else ""

    return write


def _write(parts: _Parts, arguments: Arguments) -> tuple[str, int, int]:
    """Return the text and the numbers of filled and empty fields."""
    written: list[str] = []
    filled = empty = 0
    for part in parts:
        if isinstance(part, str):
            written.append(part)
        elif isinstance(part, _Optional):
            text, inner, missing = _write(part.parts, arguments)
            if not missing:
                written.append(text)
                filled += inner
        else:
            value = part(arguments)
            written.append(value)
            if value:
                filled += 1
            else:
                empty += 1
    return "".join(written), filled, empty
