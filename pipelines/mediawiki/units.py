"""Select the form of a unit for a number, and its symbol.

Codes are those of `{{convert}}` of English Wikipedia, which other wikis use as well. The plural
rules are those of Unicode's CLDR for units of measurement.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pipelines.mediawiki.languages import LanguageFile

_WORD = re.compile(r"[a-z]{4,}")  # furlong, acre: no symbol is so long and in lower case
_ENGLISH = "English"


def _one_other(whole: int, is_whole: bool) -> int:
    return 0 if whole == 1 and is_whole else 1


def _below_two(whole: int, _is_whole: bool) -> int:
    return 0 if whole < 2 else 1


def _slavic(whole: int, is_whole: bool) -> int:
    """Return the index of the form: one, few, many; "few" for decimals."""
    if not is_whole:
        return 1
    if whole % 10 == 1 and whole % 100 != 11:
        return 0
    return 1 if whole % 10 in (2, 3, 4) and whole % 100 not in (12, 13, 14) else 2


def _polish(whole: int, is_whole: bool) -> int:
    """Return the index of the form: one, few, many, and the genitive that goes with decimals."""
    if not is_whole:
        return 3
    if whole == 1:
        return 0
    return 1 if whole % 10 in (2, 3, 4) and whole % 100 not in (12, 13, 14) else 2


def _czech(whole: int, is_whole: bool) -> int:
    """Return the index of the form: one, two to four, more; genitive for decimals."""
    if not is_whole:
        return 3
    return 0 if whole == 1 else 1 if whole in (2, 3, 4) else 2


def _romanian(whole: int, is_whole: bool) -> int:
    """Return the index of the form: one, few, and those from twenty on, which take "de"."""
    if whole == 1 and is_whole:
        return 0
    return 1 if not is_whole or whole == 0 or 1 < whole % 100 < 20 else 2


def _arabic(whole: int, is_whole: bool) -> int:
    """Return the index of the form: one, two, three to ten, more."""
    if not is_whole:
        return 3
    if whole in (1, 2):
        return whole - 1
    return 2 if 3 <= whole % 100 <= 10 else 3


def _slovene(whole: int, is_whole: bool) -> int:
    """Return the index of the form: one, two, three and four, more."""
    if not is_whole:
        return 2
    return {1: 0, 2: 1, 3: 2, 4: 2}.get(whole % 100, 3)


PLURALS: dict[str, tuple[int, Callable[[int, bool], int]]] = {
    "none": (1, lambda _whole, _is_whole: 0),
    "one-other": (2, _one_other),
    "below-two": (2, _below_two),
    "slavic": (3, _slavic),
    "polish": (4, _polish),
    "czech": (4, _czech),
    "romanian": (3, _romanian),
    "arabic": (4, _arabic),
    "slovene": (4, _slovene),
}
"""Number of forms of a unit, and the index of the form for a number's whole part."""


def unit_form(code: str, amount: str, language: LanguageFile, *, singular: bool) -> str:
    """Return the name of a unit in the form for `amount`, or "" if it has no name."""
    forms = language.units.get(code)
    if forms is None:
        return ""
    listed = forms.split(" / ")
    if singular or amount in {"one", "a"}:
        return listed[0]
    whole, _, decimals = amount.lstrip("-+\N{MINUS SIGN}").replace(",", "").partition(".")
    if not (whole.isascii() and whole.isdecimal()):
        return listed[-1]
    return listed[PLURALS[language.plural][1](int(whole[-9:]), not decimals)]


def unit_symbol(code: str, language: LanguageFile, common: LanguageFile) -> str:
    """Return the symbol of a unit. An unknown code is its own symbol, except for an English word in
    another language: then it is ""."""
    symbol = language.symbols.get(code) or common.symbols.get(code)
    if symbol is None and _WORD.fullmatch(code) and language.name != _ENGLISH:
        return ""
    return symbol or code
