"""What inline templates do with their arguments: the functions that write them.

The marks in the text are those of `pipelines.cleaning`.
"""

# ruff: noqa: RUF001 - typographic characters are what these templates are for

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from pipelines.cleaning import PHONETIC
from pipelines.wikitext_units import unit_words

PIPE = "\ufdd2"  # stands for a | that separates nothing ({{!}}) until the page is done
APOSTROPHE = "\ufdd3"  # the same for one that is neither bold nor italics
SUPERSCRIPTS = str.maketrans("0123456789+-−=()n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ⁿ")

_NAMED = re.compile(r"\s*([^\W_][\w .-]{0,40}?)\s*=(.*)", re.DOTALL)
_NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?")
_MONTH_NAMES = (
    "January February March April May June July August September October November December"
)
_MONTHS = tuple(_MONTH_NAMES.split())


class Arguments(NamedTuple):
    """What stands between a template's braces after its name, already free of markup."""

    positional: list[str]
    named: dict[str, str]
    language: str

    def at(self, number: int) -> str:
        """The argument of that number, counted from 1; "" where there is none."""
        found = self.named.get(str(number))
        if found is not None:
            return found
        return self.positional[number - 1] if number <= len(self.positional) else ""

    def last(self) -> str:
        """The last unnamed argument that is not empty."""
        filled = [value for value in self.positional if value]
        return filled[-1] if filled else self.at(1)


Renderer = Callable[[Arguments], str]


def parse_arguments(content: str, language: str) -> Arguments:
    """Split `name|a|b=c` (the name is ignored) at its pipes."""
    positional, named = [], {}
    for part in content.split("|")[1:]:
        match = _NAMED.match(part) if "=" in part else None
        if match:
            named[match[1].lower()] = match[2].strip()
        else:
            positional.append(part.strip())
    return Arguments(positional, named, language)


def constant(value: str) -> Renderer:
    return lambda _: value


def argument(number: int) -> Renderer:
    return lambda arguments: arguments.at(number)


def around(before: str, after: str) -> Renderer:
    return lambda arguments: f"{before}{arguments.at(1)}{after}" if arguments.at(1) else ""


def joined(separator: str) -> Renderer:
    return lambda arguments: separator.join(filter(None, arguments.positional)) or arguments.at(1)


def last_argument(arguments: Arguments) -> str:
    return arguments.last()


def in_language(arguments: Arguments) -> str:
    return arguments.named.get("text") or arguments.at(2)


def linked(arguments: Arguments) -> str:
    for name in ("lt", "label", "display"):
        if arguments.named.get(name):
            return arguments.named[name]
    return arguments.at(1)


def pronounced(before: str, after: str) -> Renderer:
    """Phonetic signs, marked so that a paragraph keeps them only in its running text."""

    def render(arguments: Arguments) -> str:
        signs = "".join(f"{before}{value}{after}" for value in arguments.positional[:1] if value)
        return f"{PHONETIC}{signs}{PHONETIC}" if signs else ""

    return render


def with_reading(arguments: Arguments) -> str:
    word, reading = arguments.at(1), arguments.at(2)
    return f"{word}（{reading}）" if reading else word


def nihongo(arguments: Arguments) -> str:
    extra = arguments.named.get("extra") or arguments.at(4)
    inside = ", ".join(filter(None, (arguments.at(2), arguments.at(3), extra)))
    if not arguments.at(1):
        return inside
    return f"{arguments.at(1)} ({inside})" if inside else arguments.at(1)


def fraction(arguments: Arguments) -> str:
    match list(filter(None, arguments.positional)):
        case [denominator]:
            return f"1/{denominator}"
        case [numerator, denominator]:
            return f"{numerator}/{denominator}"
        case [whole, numerator, denominator]:
            return f"{whole} {numerator}/{denominator}"
    return ""


def format_number(number: str, language: str) -> str:
    """Digits grouped by threes and a decimal mark, as `language` writes them."""
    number = number.strip()
    if not _NUMBER.fullmatch(number):
        return number
    group, mark = {"en": (",", "."), "ja": (",", "."), "zh": (",", "."), "ko": (",", ".")}.get(
        language,
        (" ", ",") if language in {"fr", "pl", "ru", "uk", "sv", "cs", "fi"} else (".", ","),
    )
    whole, point, decimals = number.partition(".")
    sign = whole[0] if whole[0] in "-+−" else ""
    digits = whole[len(sign) :]
    if len(digits) > 4 or (len(digits) == 4 and language == "en"):
        head = len(digits) % 3
        groups = [digits[:head], *(digits[i : i + 3] for i in range(head, len(digits), 3))]
        digits = group.join(filter(None, groups))
    return f"{sign}{digits}{mark if point else ''}{decimals}"


def number(arguments: Arguments) -> str:
    return format_number(arguments.at(1), arguments.language)


def scientific(arguments: Arguments) -> str:
    exponent = arguments.named.get("e", "")
    unit = arguments.named.get("u") or arguments.named.get("ul") or ""
    value = arguments.at(1).replace("\N{MINUS SIGN}", "-")
    power = f" × 10{exponent.translate(SUPERSCRIPTS)}" if exponent else ""
    text = format_number(value, arguments.language) + power
    return f"{text} {unit}" if unit else text


def power_of_ten(arguments: Arguments) -> str:
    if arguments.at(2):
        return f"{arguments.at(1)} × 10{arguments.at(2).translate(SUPERSCRIPTS)}"
    return f" × 10{arguments.at(1).translate(SUPERSCRIPTS)}"


_BETWEEN = {
    "-": "–",
    "–": "–",
    "to": " to ",
    "to(-)": " to ",
    "and": " and ",
    "and(-)": " and ",
    "or": " or ",
    "by": " by ",
    "x": " × ",
    "×": " × ",
    "+/-": " ± ",
    "±": " ± ",
}


def convert(arguments: Arguments) -> str:
    """`{{convert|5|to|10|km|mi}}`: "5 to 10 kilometres"; what it is converted to is left out."""
    values = arguments.positional
    if len(values) < 2:
        return " ".join(values)
    amount, index = values[0], 1
    while index + 1 < len(values) and values[index] in _BETWEEN:
        amount += _BETWEEN[values[index]] + values[index + 1]
        index += 2
    unit = values[index] if index < len(values) else ""
    adjective = arguments.named.get("adj", "") in {"on", "mid", "1"} or "sing" in arguments.named
    symbol = arguments.named.get("abbr", "") in {"on", "in", "unit"}
    name = unit_words(unit, amount=amount, symbol=symbol, adjective=adjective)
    if index + 2 < len(values) and _NUMBER.fullmatch(values[index + 1]):  # 5|ft|10|in
        second = values[index + 2]
        rest = unit_words(second, amount=values[index + 1], symbol=symbol, adjective=adjective)
        return f"{amount} {name} {values[index + 1]} {rest}"
    joint = "-" if adjective and not symbol else "" if name.startswith("/") else " "
    return f"{_grouped(amount)}{joint}{name}"


def _grouped(amount: str) -> str:
    return format_number(amount, "en") if _NUMBER.fullmatch(amount) else amount


def cvt(arguments: Arguments) -> str:
    return convert(arguments._replace(named={"abbr": "on", **arguments.named}))


def as_of(arguments: Arguments) -> str:
    if arguments.named.get("alt"):
        return arguments.named["alt"]
    date = _date_words(arguments.at(1), arguments.at(2), arguments.at(3), day_first=True)
    word = "since" if arguments.named.get("since") else "as of"
    if arguments.named.get("bare"):
        return date
    return f"{word if arguments.named.get('lc') else word.capitalize()} {date}"


def _date_words(year: str, month: str, day: str, *, day_first: bool) -> str:
    if month.isdecimal() and 1 <= int(month[-4:]) <= 12:
        month = _MONTHS[int(month[-4:]) - 1]
    if not month:
        return year
    if not day:
        return f"{month} {year}"
    return f"{day} {month} {year}" if day_first else f"{month} {day}, {year}"


def date(arguments: Arguments) -> str:
    if arguments.language == "ja":
        marks = zip(arguments.positional[:3], "年月日", strict=False)
        return "".join(f"{value}{mark}" for value, mark in marks if value)
    day_first = arguments.named.get("df", "") in {"y", "yes", "true", "1"}
    return _date_words(arguments.at(1), arguments.at(2), arguments.at(3), day_first=day_first)


def approximate(word: str) -> Renderer:
    def render(arguments: Arguments) -> str:
        years = list(filter(None, arguments.positional))
        return f"{word} " + " – ".join(years) if years else word

    return render


def year(era: str) -> Renderer:
    return lambda arguments: f"{arguments.last()} {era}".lstrip()


def authors(arguments: Arguments) -> str:
    *names, year = [*filter(None, arguments.positional)] or [""]
    if not names:
        return year
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{listed} ({year})"


def ship(prefix: str) -> Renderer:
    def render(arguments: Arguments) -> str:
        name, pennant = arguments.at(1), arguments.at(2)
        return f"{prefix} {name} ({pennant})" if pennant else f"{prefix} {name}"

    return render


def money(symbol: str) -> Renderer:
    return lambda arguments: f"{symbol}{format_number(arguments.at(1), 'en')}"


def coordinates(arguments: Arguments) -> str:
    if "inline" not in arguments.named.get("display", "inline"):
        return ""
    text, marks = "", iter("°′″°′″")
    for value in arguments.positional[:8]:
        if value in {"N", "S"}:
            text, marks = f"{text}{value} ", iter("°′″")
        elif value in {"E", "W"}:
            return text + value
        elif _NUMBER.fullmatch(value):
            text += value + next(marks, "")
    return text.strip() if "N" in text or "S" in text else ""


def quoted(arguments: Arguments) -> str:
    text = arguments.named.get("text") or arguments.named.get("quote") or arguments.at(1)
    return f"\n\n{text}\n\n"


def verse(arguments: Arguments) -> str:
    numbers = [value for value in arguments.positional[1:] if value[:1].isdecimal()]
    return " ".join((arguments.at(1), *numbers[:1]))


def metric(arguments: Arguments) -> str:
    return " ".join(filter(None, (arguments.at(1), arguments.at(2) + arguments.at(3))))


def units(arguments: Arguments) -> str:
    return f"{arguments.at(1)} ({arguments.at(2)})" if arguments.at(2) else arguments.at(1)


def superscript(arguments: Arguments) -> str:
    return raised_text(arguments.at(1))


def raised_text(text: str) -> str:
    """Raised text: digits and signs as the characters Unicode has for them, words as they are."""
    raised = text.strip()
    is_power = 0 < len(raised) <= 6 and all(ord(character) in SUPERSCRIPTS for character in raised)
    return raised.translate(SUPERSCRIPTS) if is_power else text


def accidental(arguments: Arguments) -> str:
    """`{{music|flat}}`: a sharp or flat sign."""
    return {"b": "♭", "flat": "♭", "#": "♯", "sharp": "♯"}.get(arguments.at(1), "")


def formatted(number_text: str) -> Renderer:
    """`{{formatnum:1234}}`, whose argument is part of its name."""
    return lambda arguments: format_number(number_text, arguments.language)


def subpage_word(arguments: Arguments) -> str:
    """`{{Ada/kw|for}}` and its like on Wikibooks: one word set in a book's own style."""
    return arguments.at(1) if len(arguments.positional) == 1 and not arguments.named else ""
