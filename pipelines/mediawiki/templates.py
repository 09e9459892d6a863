"""Rules of templates: what a template writes, by its name and the language of the wiki.

Templates cannot be expanded without the wiki that defines them. `pipelines/mediawiki/languages`
lists the templates that write words. A name is looked up in the language of the wiki, then among
the common names, then in English, because translated articles keep English names. A rule that needs
a word which the language lacks is not used, so that no English word is written into other text. All
other templates (infoboxes, notices, navigation) write nothing and are counted within sentences
(`pipelines.mediawiki.cleaning.UnknownTemplates`).

A rule is a pattern: text with fields in braces, and optional parts in square brackets:

    {1}                 the first argument
    {text|2}            the argument `text`, or the second one if it is empty
    {last}              the last unnamed argument that is not empty
    {:}                 the argument of a parser function, which follows a colon
    {$1}                the first group of a name's regular expression
    {word circa}        the word of the language
    {date 3 2 1}        a function (`FUNCTIONS`) with its arguments
    [ ({2})]            written only if no field in it is empty
    drop                the whole pattern: the template shows no text
    missing             the whole pattern: it shows data that the page does not hold

A backslash before one of {}[]\\ makes it plain. A pattern whose fields are all empty writes
nothing; one that is used without any arguments (`{{circa}}`) writes its words.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pipelines.mediawiki.languages import COMMON, FALLBACK, language_file
from pipelines.mediawiki.template_functions import (
    FUNCTIONS,
    NEEDED_WORDS,
    NEEDS_MONTHS,
    Arguments,
    Call,
    Field,
    LanguageWords,
)
from schemas.errors import ConfigError

DROP, MISSING = "drop", "missing"
_TOKEN = re.compile(r"\\(.)|\{([^{}]*)\}|([\[\]])|([^\\{}\[\]]+)", re.DOTALL)
_WORDS = re.compile(r'"([^"]*)"|(\S+)')
_BLOCK = "{block}"
_COMPUTED = re.compile(r"\{(?:now|expression)\b")
_MAY_BE_EMPTY = re.compile(r"\{(?:coordinates|block)\b")


class Rule(NamedTuple):
    """Rule for a template."""

    render: Callable[[Arguments], str]
    is_drop: bool = False
    """The template shows no text."""

    is_missing: bool = False
    """It shows data that the page does not hold: its sentence is dropped."""

    is_block: bool = False
    """It may hold several paragraphs."""

    may_be_empty: bool = False
    """Empty output does not mean missing text."""

    always_shows_text: bool = False
    """Empty output means missing text, even if the template has no arguments."""

    is_pronunciation: bool = False
    """Dropped in brackets."""


_Parts = list["str | Field | _Optional"]


class _Optional(NamedTuple):
    parts: _Parts


def compile_rule(pattern: str, wording: LanguageWords, groups: Sequence[str] = ()) -> Rule | None:
    """Compile a pattern with the words of a language. Return None if it lacks a word.

    Raises:
        ConfigError: The pattern is not well-formed.
    """
    if pattern == DROP:
        return Rule(lambda _: "", is_drop=True)
    if pattern == MISSING:
        return Rule(lambda _: "", is_missing=True)
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
        write,
        is_block=is_block,
        may_be_empty=may_be_empty,
        always_shows_text=_COMPUTED.search(pattern) is not None,
        is_pronunciation=is_pronunciation,
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
        if name in NEEDS_MONTHS and len(wording.own.months) != 12:
            raise LookupError("months")
        for word in NEEDED_WORDS.get(name, ()):
            wording.word(word)
        fields = [_selected(word, groups) for word in rest]
        return functools.partial(FUNCTIONS[name], Call(rest, fields, wording))
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


_PREFIXES = frozenset({"template", "subst", "safesubst", "msg", "msgnw", "raw"})
_FIELDS = re.compile(r"\{[^{}]*\}")
_LETTER = re.compile(r"[^\W\d_]")


class _Table(NamedTuple):
    """Rules of one file with the words of one language."""

    rules: Mapping[str, Rule]
    """Rules by the names of the file, also in lower case."""

    patterns: tuple[tuple[re.Pattern[str], str], ...]


@functools.cache
def language_words(language: str) -> LanguageWords:
    """Return the words of a language."""
    return LanguageWords(language, language_file(language), language_file(COMMON))


def is_neutral(pattern: str) -> bool:
    """Return whether a pattern writes no word, so that it is correct in any language."""
    return _LETTER.search(_FIELDS.sub("", pattern)) is None


@functools.cache
def _table(source: str, language: str) -> _Table:
    wording, file = language_words(language), language_file(source)
    is_own = source in (language, COMMON)
    rules: dict[str, Rule] = {}
    lowered: dict[str, Rule] = {}
    for pattern, names in file.templates.items():
        if not is_own and pattern != DROP and not is_neutral(pattern):
            continue
        rule = compile_rule(pattern, wording)
        if rule is not None:
            for name in names.split():
                spaced = first_lowered(name.replace("_", " ")) if name.strip("_") else name
                rules[spaced] = lowered[spaced.lower()] = rule
    patterns = tuple(
        (re.compile(expression), pattern)
        for expression, pattern in file.name_patterns.items()
        if is_own or is_neutral(pattern) or pattern == DROP
    )
    return _Table(lowered | rules, patterns)


def first_lowered(name: str) -> str:
    """Return a name with its first letter in lower case: MediaWiki ignores its case."""
    return name[:1].lower() + name[1:]


def counter_name(name: str, language: str) -> str:
    """Return the name that a template is counted by: its first letter in lower case, and a parser
    function without its argument."""
    plain = plain_name(name, language)
    if plain.startswith("#"):
        plain = plain.partition(":")[0]
    return plain if plain[1:2].isupper() else first_lowered(plain)


def plain_name(name: str, language: str) -> str:
    """Return the name of a template without `Template:` (in any of its names), `subst:` and
    the like, with single spaces for underscores."""
    name = " ".join(name.replace("_", " ").split())
    while ":" in name:
        prefix, _, rest = name.partition(":")
        if prefix.strip().lower() not in _PREFIXES | _local_prefixes(language):
            break
        name = rest.strip()
    return name


@functools.cache
def _local_prefixes(language: str) -> frozenset[str]:
    names = language_file(language).template_namespaces.lower().split()
    return frozenset(name.replace("_", " ") for name in names)


def rule_for(name: str, language: str) -> Rule | None:
    """Return the rule of a template, or None if it is unknown."""
    plain = plain_name(name, language)
    tables = [_table(source, language) for source in dict.fromkeys((language, COMMON, FALLBACK))]
    for key in (first_lowered(plain), plain.lower()):
        for table in tables:
            if (rule := table.rules.get(key)) is not None:
                return rule
    for table in tables:
        for expression, pattern in table.patterns:
            match = expression.fullmatch(plain) or expression.fullmatch(first_lowered(plain))
            if match:
                return compile_rule(pattern, language_words(language), match.groups(default=""))
    return None
