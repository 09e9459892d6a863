"""Find the rule of a template by its name and the language of the wiki.

Templates cannot be expanded without the wiki that defines them. `pipelines/mediawiki/languages`
lists the templates that write words. A name is looked up in the language of the wiki, then among
the common names, then in English, because translated articles keep English names. A rule that needs
a word which the language lacks is not used, so that no English word is written into other text. All
other templates (infoboxes, notices, navigation) write nothing and are counted within sentences
(`pipelines.mediawiki.holes`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

from pipelines.mediawiki.languages import COMMON, FALLBACK, language_file
from pipelines.mediawiki.renderers import LanguageWords
from pipelines.mediawiki.rules import Rule, compile_rule

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
        if not is_own and pattern != "drop" and not is_neutral(pattern):
            continue
        rule = compile_rule(pattern, wording)
        if rule is not None:
            for name in names.split():
                spaced = first_lowered(name.replace("_", " ")) if name.strip("_") else name
                rules[spaced] = lowered[spaced.lower()] = rule
    patterns = tuple(
        (re.compile(expression), pattern)
        for expression, pattern in file.name_patterns.items()
        if is_own or is_neutral(pattern) or pattern == "drop"
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
    """Return the rule of a template, or None if it is unknown.

    Args:
        name: Text between the braces and the first pipe.
        language: ISO 639 code of the wiki.
    """
    plain = plain_name(name, language)
    tables = [_table(source, language) for source in dict.fromkeys((language, COMMON, FALLBACK))]
    for key in (first_lowered(plain), plain.lower()):
        for table in tables:
            if (found := table.rules.get(key)) is not None:
                return found
    for table in tables:
        for expression, pattern in table.patterns:
            match = expression.fullmatch(plain) or expression.fullmatch(first_lowered(plain))
            if match:
                return compile_rule(pattern, language_words(language), match.groups(default=""))
    return None
