"""Errors of recipes: which field of which file cannot be used, and why."""

from __future__ import annotations

import contextlib
import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from schemas.errors import ConfigError
from schemas.field_names import field_name
from schemas.redaction import redact

MAX_PROBLEMS = 100
_OTHER_NAMES = {"sep": "delimiter", "separator": "delimiter", "lr": "learning_rate",
                "epochs": "num_epochs", "num_train_epochs": "num_epochs",
                "max_length": "max_seq_length"}  # fmt: skip
"""Fields by the names that other tools give them."""

_FIELD_AND_MESSAGE = re.compile(r"([a-z0-9_.-]+): (.*)", re.DOTALL)


class Problem(NamedTuple):
    """Problem of one field."""

    message: str
    field: str = ""
    """Dotted path; "" for the file as a whole."""

    expected: str = ""
    value: str = ""
    """Value of the field, at most 80 characters, without secrets."""

    suggestion: str = ""
    """Name that is probably meant."""

    path: str = ""
    """File or option with the field."""

    line: int = 0
    """Line in the file, from 1; 0 for none."""

    def __str__(self) -> str:
        """Return the problem with its position."""
        position = f"{self.path}, line {self.line}" if self.line else self.path
        hint = f". Did you mean {self.suggestion!r}?" if self.suggestion else ""
        is_option = self.path.startswith("--")
        field = self.field if is_option or not self.field else field_name(self.field)
        return ": ".join(part for part in (position, field, self.message + hint) if part)


class RecipeError(ConfigError):
    """A recipe, or another YAML file of a user, that cannot be used.

    Attributes:
        problems: All problems, in the order of the files.
        path, line, field, expected, value, suggestion: Facts of the first problem.
    """

    def __init__(self, first: Problem, *others: Problem) -> None:
        self.problems = (first, *others)
        lines = [f"{len(self.problems)} problems:"] if others else []
        super().__init__("\n  ".join([*lines, *map(str, self.problems)]))
        self.path, self.line, self.field = first.path, first.line, first.field
        self.expected, self.value, self.suggestion = first.expected, first.value, first.suggestion

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle needs to rebuild the error."""
        return type(self), self.problems, vars(self)


def format_validation_error(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the problems of data that is no valid model as text, one line per field."""
    return str(RecipeError(*find_problems(error, model)))


def find_problems(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Return the first problems of data that is no valid model."""
    items = error.errors(include_url=False)[:MAX_PROBLEMS]
    return [problem for item in items for problem in _problems(item, model)]


@contextlib.contextmanager
def problems_at(field: str, path: str = "", line: int = 0) -> Iterator[None]:
    """Add a position to problems that the block raises without one."""
    try:
        yield
    except RecipeError as error:
        problems = [
            problem if problem.path else problem._replace(field=field, path=path, line=line)
            for problem in error.problems
        ]
        raise RecipeError(*problems) from error


def closest(name: Any, known: Iterable[str]) -> str:
    """Return the known name that is most similar to a name; "" where none is similar."""
    return next(iter(difflib.get_close_matches(str(name), sorted(set(known)), n=1)), "")


def quote(value: Any) -> str:
    """Return a value for a message: at most 80 characters, without secrets."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    return "nothing" if value is None else str(redact(repr(value)))[:80]


def _problems(item: Any, model: type[BaseModel]) -> Iterator[Problem]:
    """Yield the problems of one of pydantic's errors; our validators may report several."""
    kind, value = item["type"], item["input"]
    field, siblings = _locate(item["loc"], model)
    if kind == "too_short" and value:
        return  # the list has invalid items, which are reported too
    if kind == "value_error":
        for text in item["msg"].removeprefix("Value error, ").split("\n"):
            yield validator_problem(text, field, value)
    elif kind == "missing":
        yield Problem("field is missing", field)
    elif kind == "union_tag_not_found":
        yield Problem("field is missing", f"{field}.kind")
    elif kind == "extra_forbidden":
        other = _OTHER_NAMES.get(str(item["loc"][-1]))
        meant = other if other in siblings else closest(item["loc"][-1], siblings)
        advice = "" if meant else f". Choose from {', '.join(siblings)}"
        yield Problem(f"unknown field{advice}", field, suggestion=meant)
    else:
        yield _value_problem(field, item)


def validator_problem(text: str, field: str, value: Any) -> Problem:
    """Return the problem of a message, which may start with the name of a field below this one."""
    if match := _FIELD_AND_MESSAGE.fullmatch(text):
        field, text = f"{field}.{match[1]}".removeprefix("."), match[2]
        value = value.get(match[1], "") if isinstance(value, Mapping) else ""
    return Problem(text, field, value=quote(value))


def _value_problem(field: str, item: Any) -> Problem:
    """Return the problem of a value of the wrong type or outside the allowed range."""
    context, value = item.get("ctx", {}), item["input"]
    if "tag" in context:
        field, value = f"{field}.kind", context["tag"]
    choices = str(context.get("expected_tags") or context.get("expected", ""))
    wording = re.split(", unable| or instance of|, got", item["msg"])[0]
    expected = choices or wording.removeprefix("Input should be ")
    message = wording if expected == wording else f"expected {expected}"
    message += f", got {quote(value)}"
    if item["type"] == "string_type" and isinstance(value, (bool, int, float)):
        message += ". Put it in quotes"
    meant = closest(value, re.findall("'([^']*)'", choices))
    return Problem(message, field, expected, quote(value), meant)


def _locate(location: Sequence[str | int], model: type[BaseModel]) -> tuple[str, list[str]]:
    """Return the dotted path of pydantic's location, and the names of all fields next to it."""
    models = [model]
    path: list[str] = []
    siblings: list[str] = []
    for part in location:
        kinds = [model for model in models if "kind" in model.model_fields]
        if tagged := [model for model in kinds if model.model_fields["kind"].default == part]:
            models = tagged  # the kind of a source is no part of the path
            continue
        path.append(str(part))
        siblings = sorted({name for model in models for name in model.model_fields})
        fields = [model.model_fields[str(part)] for model in models if part in model.model_fields]
        models = [inner for field in fields for inner in _models(field.annotation)] or models
    return ".".join(path).removesuffix(".[key]"), siblings


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the configurations that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models(argument)
