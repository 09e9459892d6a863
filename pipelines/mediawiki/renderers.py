"""Functions that the patterns of template rules can use.

A function gets the words after its name in the pattern, the words of the language, and a function
that selects an argument. It returns the function that writes the field. It raises `LookupError` if
the language lacks a word; the rule is then not used. Marks in the text are those of
`pipelines.mediawiki.cleaning`.
"""

# ruff: noqa: RUF001 - these templates write typographic characters

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from pipelines.mediawiki.languages import LanguageFile
from pipelines.mediawiki.units import unit_form, unit_symbol

PIPE = "\ufdd2"  # replaces a | that separates nothing ({{!}}) until the page is cleaned
APOSTROPHE = "\ufdd3"  # replaces an apostrophe that is text, not markup
SUPERSCRIPTS = str.maketrans("0123456789+-−=()n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ⁿ")

_NAMED = re.compile(r"\s*([^\W_][\w .-]{0,40}?)\s*=(.*)", re.DOTALL)
_PHONETIC_LABELS = frozenset(["lang", "local", "pron", "also", "ipa", "us", "uk", "au", "ca", "nz"])
_LAST_BRACKETS = re.compile(r"(?<! ) \([^()]*\)\Z")
_NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?")
_GROUPED = re.compile(r"[-+−]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_ISO_DATE = re.compile(r"([-−]?\d{1,4})-(\d{1,2})(?:-(\d{1,2}))?(?:T.*)?")
_ROMAN = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"),
          (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))  # fmt: skip


class Arguments(NamedTuple):
    """Arguments of a template, without markup."""

    positional: list[str]
    named: dict[str, str]
    after_colon: str = ""
    """Argument of a parser function: `1234` in `{{formatnum:1234}}`."""

    title: str = ""
    """Title of the page."""

    def at(self, number: int) -> str:
        """Return an argument by its number, from 1, or ""."""
        found = self.named.get(str(number))
        if found is not None:
            return found
        return self.positional[number - 1] if 0 < number <= len(self.positional) else ""

    def get(self, name: int | str) -> str:
        """Return the argument of that number or name (":" for that of a parser function), or ""."""
        if name == ":":
            return self.after_colon
        return self.at(name) if isinstance(name, int) else self.named.get(name, "")

    def are_filled(self) -> bool:
        """Return whether an unnamed argument is not empty."""
        return any(self.positional)

    def last(self) -> str:
        """Return the last unnamed argument that is not empty."""
        filled = [value for value in self.positional if value]
        return filled[-1] if filled else self.at(1)


class LanguageWords(NamedTuple):
    """The words of one language, and what is common to all."""

    code: str
    own: LanguageFile
    common: LanguageFile

    def word(self, name: str) -> str:
        """Return a word of the language. Raises LookupError if it has none."""
        return self.own.words[name]


Field = Callable[[Arguments], str]
Function = Callable[[list[str], LanguageWords, Callable[[str], Field]], Field]


def parse_arguments(content: str, *, title: str = "") -> Arguments:
    """Split `name|a|b=c` at its pipes. What follows a colon in the name is kept as well."""
    name, *parts = content.split("|")
    positional, named = [], {}
    for part in parts:
        match = _NAMED.match(part) if "=" in part else None
        if match:
            named[match[1].lower()] = match[2].strip()
        else:
            positional.append(part.strip())
    return Arguments(positional, named, name.partition(":")[2].strip(), title)


# Lists and characters


def _joined(words: list[str], _wording: LanguageWords, _select: Callable[[str], Field]) -> Field:
    """Compile `{join SEPARATOR}`: all unnamed arguments."""
    separator = words[0] if words else ""
    return lambda arguments: separator.join(filter(None, arguments.positional)) or arguments.at(1)


def _listed(words: list[str], _wording: LanguageWords, select: Callable[[str], Field]) -> Field:
    """Compile `{list SEPARATOR 2 3 extra}`: those of the arguments that are filled."""
    separator, fields = words[0], [select(word) for word in words[1:]]
    return lambda arguments: separator.join(filter(None, (f(arguments) for f in fields)))


def _character(value: str) -> Function:
    return lambda _words, _wording, _select: lambda _: value


def _phonetic(words: list[str], _wording: LanguageWords, select: Callable[[str], Field]) -> Field:
    """Compile `{phonetic 1}`: a pronunciation; `{phonetic "-"}`: its parts are the arguments."""
    if words and words[0][0].isdecimal():
        return select(words[0])
    separator = words[0] if words else ""

    def write(arguments: Arguments) -> str:
        parts = (part for part in arguments.positional if part.lower() not in _PHONETIC_LABELS)
        return separator.join(parts).replace(f"{separator}_{separator}", " ")

    return write


def _space(words: list[str], _wording: LanguageWords, select: Callable[[str], Field]) -> Field:
    """Compile `{space 1}`: the argument, or a space where the template has none."""
    field = select(words[0])
    return lambda arguments: field(arguments) if arguments.positional else " "


def _title(words: list[str], _wording: LanguageWords, _select: Callable[[str], Field]) -> Field:
    """Compile `{title}` of the page; `{title plain}` without what its last brackets hold."""
    if words == ["plain"]:
        return lambda arguments: _LAST_BRACKETS.sub("", arguments.title)
    return lambda arguments: arguments.title


def _choice(words: list[str], _wording: LanguageWords, select: Callable[[str], Field]) -> Field:
    """Compile `{choice 1 flat=♭ sharp=♯}`: the text for the argument's value."""
    field = select(words[0])
    values = dict(word.split("=", 1) for word in words[1:])
    return lambda arguments: values.get(field(arguments), "")


def raised_text(text: str) -> str:
    """Return raised text: digits and signs as Unicode superscripts, words unchanged."""
    raised = text.strip()
    is_power = 0 < len(raised) <= 6 and all(ord(character) in SUPERSCRIPTS for character in raised)
    return raised.translate(SUPERSCRIPTS) if is_power else text


def _raised(words: list[str], _wording: LanguageWords, select: Callable[[str], Field]) -> Field:
    field = select(words[0])
    return lambda arguments: raised_text(field(arguments))


# Numbers


def format_number(number: str, language: LanguageFile) -> str:
    """Return a number with the separators of the language. Other text is unchanged.

    Args:
        number: Number in the format of English or of the language, grouped or not.
    """
    number = number.strip()
    style = language.numbers
    if style.mark == "," and number.count(",") == 1 and number.replace(",", "").isdecimal():
        number = number.replace(",", ".")
    elif _GROUPED.fullmatch(number):
        number = number.replace(",", "")
    if not _NUMBER.fullmatch(number):
        return number
    whole, point, decimals = number.partition(".")
    sign = whole[0] if whole[0] in "-+−" else ""
    digits = whole[len(sign) :]
    if len(digits) >= style.least:
        head = len(digits) % 3
        groups = [digits[:head], *(digits[i : i + 3] for i in range(head, len(digits), 3))]
        digits = style.group.join(filter(None, groups))
    return f"{sign}{digits}{style.mark if point else ''}{decimals}"


def _number(words: list[str], wording: LanguageWords, select: Callable[[str], Field]) -> Field:
    field = select(words[0])
    return lambda arguments: format_number(field(arguments), wording.own)


def _fraction(_words: list[str], _wording: LanguageWords, _select: Callable[[str], Field]) -> Field:
    def write(arguments: Arguments) -> str:
        match list(filter(None, arguments.positional)):
            case [denominator]:
                return f"1/{denominator}"
            case [numerator, denominator]:
                return f"{numerator}/{denominator}"
            case [whole, numerator, denominator, *_]:
                return f"{whole} {numerator}/{denominator}"
        return ""

    return write


def _power(_words: list[str], _wording: LanguageWords, _select: Callable[[str], Field]) -> Field:
    """Compile `{power}` of ten: exponent, or factor and exponent."""

    def write(arguments: Arguments) -> str:
        *factor, exponent = [*filter(None, arguments.positional[:2])] or [""]
        raised = raised_text(exponent)
        return f"{factor[0] if factor else ''} × 10{raised}" if raised else ""

    return write


def _value(_words: list[str], wording: LanguageWords, _select: Callable[[str], Field]) -> Field:
    """Compile `{value}`: number, e=exponent, u=unit (or ul=)."""

    def write(arguments: Arguments) -> str:
        number = arguments.at(1).replace("\N{MINUS SIGN}", "-")
        exponent = arguments.named.get("e", "")
        unit = arguments.named.get("u") or arguments.named.get("ul") or ""
        text = format_number(number, wording.own)
        if exponent:
            text += f" × 10{exponent.translate(SUPERSCRIPTS)}"
        return f"{text} {unit}".strip() if unit else text

    return write


def _roman(words: list[str], _wording: LanguageWords, select: Callable[[str], Field]) -> Field:
    """Compile `{roman 1}`: digits as a Roman number, other text as it is."""
    field = select(words[0])

    def write(arguments: Arguments) -> str:
        text = field(arguments)
        if not (text.isascii() and text.isdecimal() and 0 < int(text[:5]) < 4000):
            return text
        number, letters = int(text[:5]), []
        for value, letter in _ROMAN:
            letters.append(letter * (number // value))
            number %= value
        return "".join(letters)

    return write


def _ordinal(words: list[str], wording: LanguageWords, select: Callable[[str], Field]) -> Field:
    """Compile `{ordinal 1}`: a number and the word `ordinal` of its last digits."""
    field, endings = select(words[0]), wording.own.words
    other = endings["ordinal"]

    def write(arguments: Arguments) -> str:
        number = field(arguments)
        if not number[-1:].isdecimal():
            return number
        ending = endings.get(f"ordinal {number[-2:]}") or endings.get(f"ordinal {number[-1:]}")
        return f"{number}{ending or other}"

    return write


def _coordinates(
    _words: list[str], _wording: LanguageWords, _select: Callable[[str], Field]
) -> Field:
    def write(arguments: Arguments) -> str:
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

    return write


# Measures

_BETWEEN = {"-": "–", "–": "–", "to": "to", "to(-)": "to", "and": "and", "and(-)": "and",
            "or": "or", "by": "by", "x": " × ", "×": " × ", "xx": " × ", "+/-": " ± ", "±": " ± ",
            "+": " + ", "to about": "to"}  # fmt: skip
_NEUTRAL = {"to": "–", "and": ", ", "or": "/", "by": " × "}


def _between(sign: str, wording: LanguageWords) -> str:
    """Return the text between two amounts; a sign if the language has no word."""
    name = _BETWEEN[sign]
    if name not in _NEUTRAL:
        return name
    word = wording.own.words.get(name)
    if word is None:
        return _NEUTRAL[name]
    return word if wording.own.spaceless else f" {word} "


def _convert(words: list[str], wording: LanguageWords, _select: Callable[[str], Field]) -> Field:
    """Write amounts with their unit, in full or as a symbol ({convert symbol}), without the
    converted amounts: "5 to 10 kilometres"."""
    always_symbol = words == ["symbol"]

    def write(arguments: Arguments) -> str:
        values, named = arguments.positional, arguments.named
        if len(values) < 2:
            return " ".join(format_number(value, wording.own) for value in values)
        parts, last, index = [format_number(values[0], wording.own)], values[0], 1
        while index + 1 < len(values) and values[index] in _BETWEEN:
            last = values[index + 1]
            parts += [_between(values[index], wording), format_number(last, wording.own)]
            index += 2
        code = values[index] if index < len(values) else ""
        symbol = named.get("abbr", "on" if always_symbol else "") in {"on", "in", "unit"}
        adjective = named.get("adj", "") in {"on", "mid", "1"} or "sing" in named
        if len(parts) > 1:
            last = f"{last} "  # several amounts are never one
        text = _measure("".join(parts), last, code, wording, symbol=symbol, adjective=adjective)
        if index + 2 < len(values) and _NUMBER.fullmatch(values[index + 1]):  # 5|ft|10|in
            second, code = values[index + 1 : index + 3]
            text += " " + _measure(second, second, code, wording, symbol=symbol, adjective=False)
        return text

    return write


def _measure(
    shown: str, amount: str, code: str, wording: LanguageWords, *, symbol: bool, adjective: bool
) -> str:
    """Return an amount and its unit. An adjective ("6-foot") is singular."""
    form = "" if symbol else unit_form(code, amount, wording.own, singular=adjective)
    name = form or unit_symbol(code, wording.own, wording.common)
    if code and not name:
        return ""  # the language has no word for it: count an unknown template
    joint = " "
    if name.startswith("/"):
        joint = ""
    elif form and adjective:
        joint = wording.own.words.get("adjective joint", " ")
    elif form and wording.own.spaceless:
        joint = ""
    return f"{shown}{joint}{name}".rstrip()


def _quantity(_words: list[str], wording: LanguageWords, _select: Callable[[str], Field]) -> Field:
    """Compile `{quantity}`: a number, then units with optional exponents."""

    def write(arguments: Arguments) -> str:
        number, *units = arguments.positional or [arguments.at(1)]
        parts = [format_number(number, wording.own)]
        if exponent := arguments.named.get("e"):
            parts.append(f"× 10{exponent.translate(SUPERSCRIPTS)}")
        for value in filter(None, units):
            if _NUMBER.fullmatch(value):
                parts[-1] += raised_text(value)
            else:
                parts.append(value)
        return " ".join(filter(None, parts))

    return write


_GAUGE = re.compile(r"(\d+(?:[.,]\d+)?) ?(mm|ft|in|m)")


def _gauge(words: list[str], wording: LanguageWords, select: Callable[[str], Field]) -> Field:
    """Compile `{gauge 1}`: width of a railway's track, from `1435mm`, `3ft6in` or a short name."""
    field = select(words[0])
    named = dict.fromkeys(("sg", "ussg", "uksg", "standard"), "1435mm") | {"mg": "1000mm"}

    def write(arguments: Arguments) -> str:
        text = field(arguments).lower()
        found = _GAUGE.findall(named.get(text, text))
        return " ".join(f"{format_number(number, wording.own)} {unit}" for number, unit in found)

    return write


# Dates


def _month(text: str, wording: LanguageWords, *, in_date: bool) -> str:
    names = wording.own.months
    if text.isascii() and text.isdecimal() and 1 <= int(text[-4:]) <= 12:
        names = (wording.own.months_in_dates or names) if in_date else names
        return names[int(text[-4:]) - 1]
    if in_date and text.lower() in names and wording.own.months_in_dates:
        return wording.own.months_in_dates[names.index(text.lower())]
    return text


def date_words(parts: tuple[str, str, str], wording: LanguageWords, *, day_first: bool) -> str:
    """Return a date in the words and order of a language.

    Args:
        parts: Year, month (a number or a name) and day; "" if missing.
        wording: Words of the language.
        day_first: Write the day first in any language.
    """
    year, month, day = parts
    dates = wording.own.dates
    if (iso := _ISO_DATE.fullmatch(year)) and not month and not day:
        year, month, day = iso[1], iso[2], iso[3] or ""
    month_name = _month(month, wording, in_date=bool(day))
    if not month_name:
        return day if day and not year else year
    if day.isdecimal() and day.isascii():
        day = day.lstrip("0") or day
        day = dates.first_day if day == "1" else day
    if not day:
        return dates.month.format(month=month_name, year=year) if year else month_name
    form = dates.day if year else dates.day_of_year
    if day_first and year:
        form = "{day} {month} {year}"
    return form.format(day=day, month=month_name, year=year)


def _date(words: list[str], wording: LanguageWords, select: Callable[[str], Field]) -> Field:
    """Compile `{date YEAR MONTH DAY}`: which arguments they are; 0 for none."""
    if len(wording.own.months) != 12:
        raise LookupError("months")
    year, month, day = [select(word) for word in (*words, "0", "0")][:3]

    def write(arguments: Arguments) -> str:
        day_first = arguments.named.get("df", "") in {"y", "yes", "true", "1"}
        parts = (year(arguments), month(arguments), day(arguments))
        return date_words(parts, wording, day_first=day_first)

    return write


def _month_name(words: list[str], wording: LanguageWords, select: Callable[[str], Field]) -> Field:
    """Compile `{month 1}`: the name of a month from its number."""
    if len(wording.own.months) != 12:
        raise LookupError("months")
    field = select(words[0])
    return lambda arguments: _month(field(arguments), wording, in_date=False)


def _age(words: list[str], _wording: LanguageWords, select: Callable[[str], Field]) -> Field:
    """Compile `{age Y M D Y M D}`: whole years from the first date to the second."""
    fields = [select(word) for word in words]

    def write(arguments: Arguments) -> str:
        values = [field(arguments) for field in fields]
        if not all(value.isascii() and value.isdecimal() and len(value) < 5 for value in values):
            return ""
        numbers = [int(value) for value in values]
        years = numbers[3] - numbers[0] - (numbers[4:] < numbers[1:3])
        return str(years) if years >= 0 else ""

    return write


def _as_of(_words: list[str], wording: LanguageWords, _select: Callable[[str], Field]) -> Field:
    as_of, since = wording.word("as of"), wording.word("since")

    def write(arguments: Arguments) -> str:
        named = arguments.named
        if named.get("alt"):
            return named["alt"]
        parts = (arguments.at(1), arguments.at(2), arguments.at(3))
        date = date_words(parts, wording, day_first=True)
        if named.get("bare"):
            return date
        word = since if named.get("since") else as_of
        return f"{word if named.get('lc') else word.capitalize()} {date}"

    return write


# Names


def _authors(_words: list[str], wording: LanguageWords, _select: Callable[[str], Field]) -> Field:
    joint = wording.word("and")

    def write(arguments: Arguments) -> str:
        *names, year = [*filter(None, arguments.positional)] or [""]
        if not names:
            return year
        listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {joint} {names[-1]}"
        return f"{listed} ({year})"

    return write


def _verse(_words: list[str], _wording: LanguageWords, _select: Callable[[str], Field]) -> Field:
    def write(arguments: Arguments) -> str:
        numbers = [value for value in arguments.positional[1:] if value[:1].isdecimal()]
        return " ".join((arguments.at(1), *numbers[:1])).strip()

    return write


FUNCTIONS: dict[str, Function] = {
    "age": _age,
    "apostrophe": _character(APOSTROPHE),
    "as_of": _as_of,
    "authors": _authors,
    "block": _character("\n\n"),
    "choice": _choice,
    "convert": _convert,
    "coordinates": _coordinates,
    "date": _date,
    "fraction": _fraction,
    "gauge": _gauge,
    "join": _joined,
    "list": _listed,
    "month": _month_name,
    "number": _number,
    "ordinal": _ordinal,
    "phonetic": _phonetic,
    "pipe": _character(PIPE),
    "power": _power,
    "quantity": _quantity,
    "raised": _raised,
    "roman": _roman,
    "space": _space,
    "title": _title,
    "value": _value,
    "verse": _verse,
}
"""Functions by their name in patterns."""


def subpage_word(arguments: Arguments) -> str:
    """Return the word of templates such as `{{Ada/kw|for}}` of English Wikibooks."""
    return arguments.at(1) if len(arguments.positional) == 1 and not arguments.named else ""
