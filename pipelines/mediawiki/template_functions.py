"""Functions of template rules: numbers, dates, units, names, and what else a template computes.

A function reads the arguments of a template and the words of the wiki's language, and returns text.
`pipelines.mediawiki.templates` has the rules that call them.
"""

# ruff: noqa: RUF001 - these templates write typographic characters
from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from pipelines.mediawiki.dates import format_date, month_name
from pipelines.mediawiki.expressions import evaluate
from pipelines.mediawiki.languages import LanguageFile
from pipelines.mediawiki.measures import convert_amount, unit_ratio, unit_symbol
from pipelines.mediawiki.roman_numbers import roman_number
from pipelines.mediawiki.ships import ship_name

PIPE = "\ufdd2"  # replaces a | that separates nothing ({{!}}) until the page is cleaned
APOSTROPHE = "\ufdd3"  # replaces an apostrophe that is text, not markup
EQUALS = "\ufdd8"  # replaces a = that separates no name from its value
SUPERSCRIPTS = str.maketrans("0123456789+-−=()n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ⁿ")

_NAMED = re.compile(r"\s*([^\W_][\w .-]{0,40}?)\s*=(.*)", re.DOTALL)
_PHONETIC_LABELS = frozenset(["lang", "local", "pron", "also", "ipa", "us", "uk", "au", "ca", "nz"])
_LAST_BRACKETS = re.compile(r"(?<! ) \([^()]*\)\Z")
_NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?")
_PLAIN_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_DECIMALS = re.compile(r"-?\d")
_GROUPED = re.compile(r"[-+−]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_LEADING_NUMBER = re.compile(r"([-+−]?\d[\d.,]*+)\s+(\D.*)", re.DOTALL)
_TIMESTAMP = re.compile(r"(\d{4})-(0[1-9]|1[0-2])-(\d\d)T(\d\d):(\d\d)")


class Arguments(NamedTuple):
    """Arguments of a template, without markup."""

    positional: list[str]
    named: dict[str, str]
    after_colon: str = ""
    """Argument of a parser function: `1234` in `{{formatnum:1234}}`."""

    title: str = ""
    """Title of the page."""

    timestamp: str = ""
    """Time of the page's revision, as in the dump: `2024-01-31T12:30:00Z`."""

    def at(self, number: int) -> str:
        """Return an argument by its number, from 1, or ""."""
        value = self.named.get(str(number))
        if value is not None:
            return value
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


class Call(NamedTuple):
    """Use of a function in a pattern."""

    words: list[str]
    """Words after the name of the function."""

    fields: list[Field]
    """Functions that select the arguments that the words name."""

    wording: LanguageWords

    def field(self, arguments: Arguments) -> str:
        """Return the argument that the first word names."""
        return self.fields[0](arguments)


def parse_arguments(content: str, *, title: str = "", timestamp: str = "") -> Arguments:
    """Split `name|a|b=c` at its pipes. What follows a colon in the name is kept as well."""
    name, *parts = content.split("|")
    positional, named = [], {}
    for part in parts:
        match = _NAMED.match(part) if "=" in part else None
        if match:
            named[match[1].lower()] = match[2].strip()
        else:
            positional.append(part.strip())
    return Arguments(positional, named, name.partition(":")[2].strip(), title, timestamp)


# Lists and characters


def _joined(call: Call, arguments: Arguments) -> str:
    """Write `{join SEPARATOR}`: all unnamed arguments."""
    separator = call.words[0] if call.words else ""
    return separator.join(filter(None, arguments.positional)) or arguments.at(1)


def _listed(call: Call, arguments: Arguments) -> str:
    """Write `{list SEPARATOR 2 3 extra}`: those of the arguments that are filled."""
    return call.words[0].join(filter(None, (field(arguments) for field in call.fields[1:])))


def _phonetic(call: Call, arguments: Arguments) -> str:
    """Write `{phonetic 1}`: a pronunciation; `{phonetic "-"}`: its parts are the arguments."""
    if call.words and call.words[0][0].isdecimal():
        return call.field(arguments)
    separator = call.words[0] if call.words else ""
    parts = (part for part in arguments.positional if part.lower() not in _PHONETIC_LABELS)
    return separator.join(parts).replace(f"{separator}_{separator}", " ")


def _space(call: Call, arguments: Arguments) -> str:
    """Write `{space 1}`: the argument, or a space where the template has none."""
    return call.field(arguments) if arguments.positional else " "


def _title(call: Call, arguments: Arguments) -> str:
    """Write `{title}` of the page; `{title plain}` without what its last brackets hold."""
    is_plain = call.words == ["plain"]
    return _LAST_BRACKETS.sub("", arguments.title) if is_plain else arguments.title


def _choice(call: Call, arguments: Arguments) -> str:
    """Write `{choice 1 flat=♭ sharp=♯}`: the text for the argument's value."""
    return dict(word.split("=", 1) for word in call.words[1:]).get(call.field(arguments), "")


def raised_text(text: str) -> str:
    """Return raised text: digits and signs as Unicode superscripts, words unchanged."""
    raised = text.strip()
    is_power = 0 < len(raised) <= 6 and all(ord(character) in SUPERSCRIPTS for character in raised)
    return raised.translate(SUPERSCRIPTS) if is_power else text


def _sic(call: Call, arguments: Arguments) -> str:
    """Write `{sic "[sic]" 1}`: words of a quotation and a mark, which the argument `hide` omits.

    Without fields the words are all unnamed arguments. A first argument `?` marks a doubt.
    """
    mark, *_ = call.words
    words = [field(arguments) for field in call.fields[1:]]
    words = words or arguments.positional or [arguments.at(1)]
    if words[0] == "?":
        words, mark = words[1:], mark.replace("]", "?]")
    text = "".join(words)
    parts = (text, "" if arguments.named.get("hide") else mark)
    return " ".join(filter(None, parts))


def _ship(call: Call, arguments: Arguments) -> str:
    """Write `{ship HMS 1 2 3}`: prefix (a word or an argument), name, number, format number."""
    is_word = call.words[0].isalpha()
    prefix = call.words[0] if is_word else call.field(arguments)
    name, number, choice = (field(arguments) for field in call.fields[1:])
    return ship_name(prefix, name, number, choice)


# Numbers


def format_number(number: str, language: LanguageFile, *, least: int = 0) -> str:
    """Return a number of English or of the language, grouped or not, with the separators of the
    language from `least` digits on (default: `numbers.least`). Other text is unchanged."""
    number = _with_point(number.strip(), language)
    if not _NUMBER.fullmatch(number):
        return number
    style = language.numbers
    whole, point, decimals = number.partition(".")
    sign = whole[0] if whole[0] in "-+−" else ""
    digits = whole[len(sign) :]
    if len(digits) >= (least or style.least):
        head = len(digits) % 3
        groups = [digits[:head], *(digits[i : i + 3] for i in range(head, len(digits), 3))]
        digits = style.group.join(filter(None, groups))
    return f"{sign}{digits}{style.mark if point else ''}{decimals}"


def _with_point(number: str, language: LanguageFile) -> str:
    """Return a number of English or of the language with a decimal point and without groups."""
    has_comma = number.count(",") == 1 and number.replace(",", "").isdecimal()
    if language.numbers.mark == "," and has_comma:
        return number.replace(",", ".")
    return number.replace(",", "") if _GROUPED.fullmatch(number) else number


def _formatnum(call: Call, arguments: Arguments) -> str:
    """Write `{formatnum :}`: a number as MediaWiki's parser function formats it."""
    own = call.wording.own
    return format_number(call.field(arguments), own, least=own.numbers.least_formatnum)


def _fraction(_call: Call, arguments: Arguments) -> str:
    match list(filter(None, arguments.positional)):
        case [denominator]:
            return f"1/{denominator}"
        case [numerator, denominator]:
            return f"{numerator}/{denominator}"
        case [whole, numerator, denominator, *_]:
            return f"{whole} {numerator}/{denominator}"
    return ""


def _power(_call: Call, arguments: Arguments) -> str:
    """Write `{power}` of ten: exponent, or factor and exponent."""
    *factor, exponent = [*filter(None, arguments.positional[:2])] or [""]
    raised = raised_text(exponent)
    return f"{factor[0] if factor else ''} × 10{raised}" if raised else ""


def _value(call: Call, arguments: Arguments) -> str:
    """Write `{value}`: number, e=exponent, u=unit (or ul=)."""
    number = arguments.at(1).replace("\N{MINUS SIGN}", "-")
    exponent = arguments.named.get("e", "")
    unit = arguments.named.get("u") or arguments.named.get("ul") or ""
    text = format_number(number, call.wording.own)
    if exponent:
        text += f" × 10{exponent.translate(SUPERSCRIPTS)}"
    return f"{text} {unit}".strip() if unit else text


def _roman(call: Call, arguments: Arguments) -> str:
    """Write `{roman 1}`: digits as a Roman number, other text as it is."""
    text = call.field(arguments)
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:5]) < 4000):
        return text
    return roman_number(int(text[:5]))


def _ordinal(call: Call, arguments: Arguments) -> str:
    """Write `{ordinal 1}`: a number and its ending."""
    number = call.field(arguments)
    return f"{number}{_ending_of(number, call.wording)}" if number[-1:].isdecimal() else number


def _ending(call: Call, arguments: Arguments) -> str:
    """Write `{ending 1 2}`: the ending of a number, or the second argument if it is filled."""
    number, ending = (field(arguments) for field in call.fields)
    return ending or (number and _ending_of(number, call.wording))


def _ending_of(number: str, wording: LanguageWords) -> str:
    """Return the word `ordinal` of a number (also a Roman one) or of its last digits."""
    words = wording.own.words
    if number in {"1", "I", "i"} and "ordinal first" in words:
        return words["ordinal first"]
    ending = words.get(f"ordinal {number[-2:]}") or words.get(f"ordinal {number[-1:]}")
    return ending or words["ordinal"]


def _expression(call: Call, arguments: Arguments) -> str:
    """Write `{expression :}`: the value of `{{#expr:...}}`."""
    return evaluate(call.field(arguments))


def _coordinates(_call: Call, arguments: Arguments) -> str:
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


# Measures

_BETWEEN = {"-": "–", "–": "–", "to": "to", "to(-)": "to", "and": "and", "and(-)": "and",
            "or": "or", "by": "by", "x": " × ", "×": " × ", "xx": " × ", "+/-": " ± ", "±": " ± ",
            "+": " + ", "to about": "to"}  # fmt: skip
_MAX_TARGETS = 3
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


class _Amounts(NamedTuple):
    """Amounts in one unit, with the text between them."""

    values: list[str]
    signs: list[str]
    code: str

    def write(self, wording: LanguageWords) -> str:
        """Return the amounts and the symbol of their unit, or "" if the language has none."""
        symbol = unit_symbol(self.code, wording.own, wording.common)
        if self.code and not symbol:
            return ""
        text = format_number(self.values[0], wording.own)
        for sign, value in zip(self.signs, self.values[1:], strict=True):
            text += _between(sign, wording) + format_number(value, wording.own)
        is_word = wording.own.spaceless and self.code in wording.own.symbols
        joint = "" if is_word or symbol.startswith("/") else " "
        return f"{text}{joint}{symbol}".rstrip()

    def convert(
        self, code: str, wording: LanguageWords, *, decimals: int | None = None
    ) -> _Amounts | None:
        """Return the amounts in another unit; None if they have no such amounts."""
        ratio = unit_ratio(self.code, code, wording.common)
        values = [
            _with_point(value, wording.own).replace("\N{MINUS SIGN}", "-") for value in self.values
        ]
        if ratio is None or not all(map(_PLAIN_NUMBER.fullmatch, values)):
            return None
        converted = [convert_amount(value, ratio, decimals=decimals) for value in values]
        return _Amounts(converted, self.signs, code)


def _convert(call: Call, arguments: Arguments) -> str:
    """Write amounts with the symbol of their unit, and converted: "5 to 10 km (3.1 to 6.2 mi)"."""
    values, wording = arguments.positional, call.wording
    if len(values) < 2:
        return " ".join(format_number(value, wording.own) for value in values)
    amounts, rest = _read_amounts(values)
    text = amounts.write(wording)
    if len(rest) > 1 and _NUMBER.fullmatch(rest[0]):  # 5|ft|10|in
        second = _Amounts(rest[:1], [], rest[1]).write(wording)
        return f"{text} {second}" if text and second else ""
    if "disp" in arguments.named:
        return text
    is_rounded = bool(rest) and _DECIMALS.fullmatch(rest[-1]) is not None
    decimals = int(rest.pop()) if is_rounded else None
    targets = " ".join(rest[:1]) or wording.common.counterparts.get(amounts.code, "")
    others = [
        converted.write(wording)
        for target in targets.split()[:_MAX_TARGETS]
        if (converted := amounts.convert(target, wording, decimals=decimals))
    ]
    return f"{text} ({'; '.join(others)})" if text and all(others) and others else text


def _read_amounts(values: list[str]) -> tuple[_Amounts, list[str]]:
    """Return the amounts at the beginning of the arguments, and what follows their unit."""
    amounts, signs, index = [values[0]], list[str](), 1
    while index + 1 < len(values) and values[index] in _BETWEEN:
        signs.append(values[index])
        amounts.append(values[index + 1])
        index += 2
    code, *rest = [*values[index:], ""] if index == len(values) else values[index:]
    return _Amounts(amounts, signs, code), rest


def _quantity(call: Call, arguments: Arguments) -> str:
    """Write `{quantity}`: a number, then units with optional exponents."""
    number, *units = arguments.positional or [arguments.at(1)]
    if with_unit := _LEADING_NUMBER.fullmatch(number):  # {{unité|8700471 habitants}}
        number, units = with_unit[1], [with_unit[2], *units]
    parts = [format_number(number, call.wording.own)]
    if exponent := arguments.named.get("e"):
        parts.append(f"× 10{exponent.translate(SUPERSCRIPTS)}")
    for value in filter(None, units):
        if _NUMBER.fullmatch(value):
            parts[-1] += raised_text(value)
        else:
            parts.append(value)
    return " ".join(filter(None, parts))


_GAUGE = re.compile(r"(\d+(?:[.,]\d+)?) ?(mm|ft|in|m)")
_GAUGE_NAMES = dict.fromkeys(("sg", "ussg", "uksg", "standard"), "1435mm") | {"mg": "1000mm"}


def _gauge(call: Call, arguments: Arguments) -> str:
    """Write `{gauge 1}`: width of a railway's track, from `1435mm`, `3ft6in` or a short name."""
    text = call.field(arguments).lower()
    text = f"{text}mm" if text.isdecimal() else _GAUGE_NAMES.get(text, text)
    sizes = _GAUGE.findall(text)
    return " ".join(f"{format_number(number, call.wording.own)} {unit}" for number, unit in sizes)


# Dates


def _date(call: Call, arguments: Arguments) -> str:
    """Write `{date YEAR MONTH DAY}`: which arguments they are; 0 for none."""
    day_first = arguments.named.get("df", "") in {"y", "yes", "true", "1"}
    year, month, day = [*(field(arguments) for field in call.fields), "", ""][:3]
    return format_date((year, month, day), call.wording.own, day_first=day_first)


def _age(call: Call, arguments: Arguments) -> str:
    """Write `{age Y M D Y M D}`: whole years from the first date to the second, or to the time of
    the page if that is missing."""
    values = [field(arguments) for field in call.fields]
    if not any(values[3:]):
        values[3:] = arguments.timestamp[:10].split("-")
    if len(values) != 6 or not all(map(_is_short_number, values)):
        return ""
    numbers = [int(value) for value in values]
    years = numbers[3] - numbers[0] - (numbers[4:] < numbers[1:3])
    return str(years) if years >= 0 else ""


def _is_short_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 5


def _now(call: Call, arguments: Arguments) -> str:
    """Write `{now YEAR}`: a part of the time of the page's revision, by MediaWiki's name for it."""
    match = _TIMESTAMP.match(arguments.timestamp)
    if not match:
        return ""
    year, month, day, hour, minute = match.groups()
    parts = {
        "YEAR": year,
        "MONTH": month,
        "MONTH1": month.lstrip("0"),
        "MONTHNAME": month_name(month, call.wording.own, in_date=False),
        "MONTHNAMEGEN": month_name(month, call.wording.own, in_date=True),
        "DAY": day.lstrip("0"),
        "DAY2": day,
        "HOUR": hour,
        "TIME": f"{hour}:{minute}",
    }
    name = call.field(arguments) or call.words[0]
    is_known = call.wording.own.months or not name.startswith("MONTHNAME")
    return parts.get(name, "") if is_known else ""


def _as_of(call: Call, arguments: Arguments) -> str:
    named = arguments.named
    if named.get("alt"):
        return named["alt"]
    parts = (arguments.at(1), arguments.at(2), arguments.at(3))
    date = format_date(parts, call.wording.own, day_first=True)
    if named.get("bare"):
        return date
    word = call.wording.word("since" if named.get("since") else "as of")
    return f"{word if named.get('lc') else word.capitalize()} {date}"


# Names


def _authors(call: Call, arguments: Arguments) -> str:
    *names, year = [*filter(None, arguments.positional)] or [""]
    if not names:
        return year
    joint = call.wording.word("and")
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {joint} {names[-1]}"
    return f"{listed} ({year})"


def _verse(_call: Call, arguments: Arguments) -> str:
    numbers = [value for value in arguments.positional[1:] if value[:1].isdecimal()]
    return " ".join((arguments.at(1), *numbers[:1])).strip()


FUNCTIONS: dict[str, Callable[[Call, Arguments], str]] = {
    "age": _age,
    "apostrophe": lambda _call, _arguments: APOSTROPHE,
    "as_of": _as_of,
    "authors": _authors,
    "block": lambda _call, _arguments: "\n\n",
    "choice": _choice,
    "convert": _convert,
    "coordinates": _coordinates,
    "date": _date,
    "ending": _ending,
    "equals": lambda _call, _arguments: EQUALS,
    "expression": _expression,
    "formatnum": _formatnum,
    "fraction": _fraction,
    "gauge": _gauge,
    "join": _joined,
    "list": _listed,
    "month": lambda call, arguments: month_name(
        call.field(arguments), call.wording.own, in_date=False
    ),
    "now": _now,
    "number": lambda call, arguments: format_number(call.field(arguments), call.wording.own),
    "ordinal": _ordinal,
    "phonetic": _phonetic,
    "pipe": lambda _call, _arguments: PIPE,
    "power": _power,
    "quantity": _quantity,
    "raised": lambda call, arguments: raised_text(call.field(arguments)),
    "roman": _roman,
    "ship": _ship,
    "sic": _sic,
    "space": _space,
    "title": _title,
    "value": _value,
    "verse": _verse,
}
"""Functions of patterns by name. Marks that they write are those of `cleaning`."""

NEEDED_WORDS = {"as_of": ("as of", "since"), "authors": ("and",), "ordinal": ("ordinal",),
                 "ending": ("ordinal",)}  # fmt: skip
"""Words that the language must have for a rule with the function to be used."""

NEEDS_MONTHS = frozenset({"date", "month"})


def subpage_word(arguments: Arguments) -> str:
    """Return the word of templates such as `{{Ada/kw|for}}` of English Wikibooks."""
    return arguments.at(1) if len(arguments.positional) == 1 and not arguments.named else ""
