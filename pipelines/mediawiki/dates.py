"""Dates in the words and the order of a language."""

from __future__ import annotations

import re

from pipelines.mediawiki.languages import LanguageFile

_ISO_DATE = re.compile(r"([-−]?\d{1,4})-(\d{1,2})(?:-(\d{1,2}))?(?:T.*)?")  # noqa: RUF001
_YEAR_FIRST = re.compile(r"(\d{3,4})[ ./](\d{1,2})[ ./](\d{1,2})")
_DAY_FIRST = re.compile(r"(\d{1,2})[ ./-]{1,2}([^\W\d_]+|\d{1,2})(?:[ ./-]{1,2}(\d{3,4}))?")

DateParts = tuple[str, str, str]
"""Year, month as number or name, and day; "" for a missing one."""


def month_name(text: str, language: LanguageFile, *, in_date: bool) -> str:
    """Return the name of a month, in the form that it has after a day if `in_date`."""
    names = language.months
    if names and text.isascii() and text.isdecimal() and 1 <= int(text[-4:]) <= 12:
        names = (language.months_in_dates or names) if in_date else names
        return names[int(text[-4:]) - 1]
    if in_date and text.lower() in names and language.months_in_dates:
        return language.months_in_dates[names.index(text.lower())]
    return text


def format_date(parts: DateParts, language: LanguageFile, *, day_first: bool) -> str:
    """Return a date in the words and order of a language."""
    year, month, day = _parse_date(parts, language) or parts
    dates = language.dates
    name = month_name(month, language, in_date=bool(day))
    if not name:
        return day if day and not year else year
    if day.isdecimal() and day.isascii():
        day = day.lstrip("0") or day
        day = dates.first_day if day == "1" else day
    if not day:
        return dates.month.format(month=name, year=year) if year else name
    form = dates.day if year else dates.day_of_year
    if day_first and year:
        form = "{day} {month} {year}"
    return form.format(day=day, month=name, year=year)


def _parse_date(parts: DateParts, language: LanguageFile) -> DateParts | None:
    """Return the parts of the first argument that holds a whole date: "2019-09-29", "29 9 2019",
    "1 janvier 1995". The arguments after it belong to no date then."""
    is_only = sum(map(bool, parts)) == 1
    for part in parts:
        if (iso := _ISO_DATE.fullmatch(part)) and (iso[3] or is_only):
            return iso[1], iso[2], iso[3] or ""
        if match := _YEAR_FIRST.fullmatch(part):
            return match[1], match[2], match[3]
        match = _DAY_FIRST.fullmatch(part)
        if match and (match[3] or is_only) and _is_month(match[2], language):
            return match[3] or "", match[2], match[1]
    return None


def _is_month(text: str, language: LanguageFile) -> bool:
    """Return whether a text is the number of a month, or the name where dates begin with the day:
    elsewhere its editor wrote the date in another order."""
    if text.isascii() and text.isdecimal():
        return 1 <= int(text) <= 12
    names = (*language.months, *language.months_in_dates)
    return language.dates.day.startswith("{day}") and text.lower() in map(str.lower, names)
