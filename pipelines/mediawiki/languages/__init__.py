"""What differs from one wiki's language to the next, as data: a readable file a language.

`common.yaml` holds what means the same everywhere, `en.yaml` and the others what belongs to one
language: words of the markup, how dates, numbers and units are written, and what templates write.
docs/languages.md describes the files; `tests/pipelines/mediawiki/test_languages.py` checks them.
They are read once per process. Raise the version of `build-documents` when an edit changes text.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.errors import ConfigError

FOLDER = Path(__file__).parent
COMMON, FALLBACK = "common", "en"

Plural = Literal[
    "none", "one-other", "below-two", "slavic", "polish", "czech", "romanian", "arabic", "slovene"
]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Numbers(_Part):
    """How numbers are written."""

    group: str = " "
    """Between groups of three digits."""

    mark: str = ","
    """Before decimals."""

    least: int = 5
    """Digits from which on they are grouped."""


class Dates(_Part):
    """How dates are written; {day}, {month} and {year} stand for their parts."""

    day: str = "{day} {month} {year}"
    month: str = "{month} {year}"
    day_of_year: str = "{day} {month}"
    """A day without a year."""

    first_day: str = "1"
    """How the first of a month is written."""


class LanguageFile(_Part):
    """One file."""

    name: str
    """English name of the language."""

    like: str = ""
    """Code of a language whose file is read first; what stands here is added or replaces it."""

    spaceless: bool = False
    """Written without spaces between words."""

    namespaces: str = ""
    """Names of the namespaces File (and its aliases), Media, Category; underscores for blanks."""

    template_namespaces: str = ""
    """Names of the namespace Template."""

    closing_sections: tuple[str, ...] = ()
    """Titles of sections that hold references and links, lower-cased."""

    numbers: Numbers = Numbers()
    dates: Dates = Dates()
    months: tuple[str, ...] = Field(default=(), max_length=12)
    """As they stand alone, January first."""

    months_in_dates: tuple[str, ...] = Field(default=(), max_length=12)
    """As they stand after a day, where that differs."""

    words: dict[str, str] = {}
    """Words that rules write, such as `to` between two numbers."""

    plural: Plural = "one-other"
    """How many forms a unit has, and which goes with which number (`pipelines.mediawiki.units`)."""

    units: dict[str, str] = {}
    """Code of `{{convert}}` to the unit's forms, separated by " / "."""

    symbols: dict[str, str] = {}
    """Code to symbol, where that is not the code itself."""

    templates: dict[str, str] = {}
    """What a template writes (`pipelines.mediawiki.rules`) to names of such templates."""

    name_patterns: dict[str, str] = {}
    """The same for names by regular expression: expression to what the template writes."""


class _Loader(yaml.CSafeLoader):
    """Refuses two equal keys in one mapping: the first would be lost in silence."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in found:
            line = key_node.start_mark.line + 1
            raise ConfigError(f"line {line}: the key {key!r} stands twice. Join the two")
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def codes() -> list[str]:
    """Return the languages with a file."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != COMMON)


def read_file(path: Path) -> LanguageFile:
    """Read the file of a language.

    Raises:
        ConfigError: it is not as `LanguageFile` says.
    """
    try:
        with path.open(encoding="utf-8") as stream:
            return LanguageFile.model_validate(yaml.load(stream, _Loader))  # noqa: S506 - a safe one
    except (yaml.YAMLError, ValidationError, ConfigError) as error:
        raise ConfigError(f"{path}: not a valid file of a language: {error}") from error


@functools.cache
def language_file(code: str) -> LanguageFile:
    """Return the file of a language, merged with its base language; empty if it has no file."""
    path = FOLDER / f"{code}.yaml"
    if not path.is_file():
        return LanguageFile(name=code)
    own = read_file(path)
    return _joined(language_file(own.like), own) if own.like else own


def _joined(base: LanguageFile, own: LanguageFile) -> LanguageFile:
    values: dict[str, Any] = {}
    for field in own.model_fields_set:
        ours, theirs = getattr(own, field), getattr(base, field)
        if isinstance(ours, dict):
            ours = theirs | {key: f"{theirs.get(key, '')} {value}".strip() if field == "templates"
                             else value for key, value in ours.items()}  # fmt: skip
        elif field in ("namespaces", "template_namespaces"):
            ours = f"{theirs} {ours}"
        elif field == "closing_sections":
            ours = (*theirs, *ours)
        values[field] = ours
    return base.model_copy(update=values)
