"""Units of measurement: symbols, and amounts in other units, as `{{convert}}` writes them."""

from __future__ import annotations

import math
import re

from pipelines.mediawiki.languages import LanguageFile

_WORD = re.compile(r"[a-z]{4,}")  # parsec, league: no symbol is so long and in lower case
_METRES = re.compile(r"(?<=m)[23]\b")  # square and cubic metres
_POWERS = {"2": "²", "3": "³"}
_ENGLISH = "English"


def unit_symbol(code: str, language: LanguageFile, common: LanguageFile) -> str:
    """Return the symbol of a unit. An unknown code is its own symbol, except for an English word in
    another language: then it is ""."""
    symbol = language.symbols.get(code) or common.symbols.get(code)
    if symbol is None and _WORD.fullmatch(code) and language.name != _ENGLISH:
        return ""
    return symbol or _METRES.sub(lambda digit: _POWERS[digit[0]], code)


def unit_ratio(source: str, target: str, common: LanguageFile) -> float | None:
    """Return how many units of `target` a unit of `source` has. None: they have no common size."""
    for units in common.sizes.values():
        sizes = [
            units.get(code) or units.get(common.symbols.get(code, "")) for code in (source, target)
        ]
        if sizes[0] and sizes[1]:
            return sizes[0] / sizes[1]
    return None


def convert_amount(amount: str, ratio: float, *, decimals: int | None = None) -> str:
    """Return an amount in another unit, rounded as `{{convert}}` rounds.

    The result is as precise as the amount, with at least two significant digits.

    >>> convert_amount("5", 0.621371)
    '3.1'
    >>> convert_amount("1000", 3.28084)
    '3300'

    Args:
        amount: Number with a decimal point and without separators.
        ratio: Factor, above 0.
        decimals: Number of decimals. None: from the amount. Negative: zeros before the point.
    """
    value = float(amount) * ratio
    if decimals is None:
        whole, _, fraction = amount.partition(".")
        precision = len(fraction) or len(whole.rstrip("0")) - len(whole)
        decimals = precision - math.floor(math.log10(5 * ratio))
        if value:
            decimals = max(decimals, 1 - math.floor(math.log10(abs(value))))
    return f"{round(value, decimals):.{max(decimals, 0)}f}"
