"""What is wrong with a recipe, by field, in the words of the file."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from flows.recipes.places import RecipeError
from schemas.model_configs import PRESETS
from schemas.recipe import Recipe


def explain(error: ValidationError, data: Mapping[str, Any]) -> str:
    """What is wrong with a recipe, a line a field: `build_tokens.memory_words: ...`."""
    return str(RecipeError(faults_of(error, data)))


def faults_of(error: ValidationError, data: Mapping[str, Any]) -> list[str]:
    """What is wrong with a recipe, a text a field: `build_tokens.memory_words: ...`."""
    found = []
    for item in error.errors(include_url=False):
        if item["type"] == "too_short" and item["input"]:
            continue  # of those that are sound; what is wrong with the others is said
        path = _position(item["loc"], data)
        if item["type"] == "extra_forbidden":
            messages = [_unknown_key(path, _kind_in(item["loc"]))]
        elif item["type"] == "missing":
            messages = ["is missing"]
        elif item["type"].startswith("union_tag"):
            path, messages = f"{path}.kind", [_wrong_kind(item.get("ctx", {}))]
        elif item["type"] == "value_error":  # the configurations' own words, perhaps several
            messages = item["msg"].removeprefix("Value error, ").split("\n")
        else:
            messages = [_wrong_value(item)]
        found += [f"{path}: {text}{_preset_hint(text)}" if path else text for text in messages]
    return found


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "dict": "keys with values",
    "model": "keys with values",
    "model_attributes": "keys with values",
    "tuple": "a list",
    "list": "a list",
}
"""What pydantic asks for, by the beginning of the name of its error."""

_BOUNDS = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "string_pattern_mismatch": "text of the form {pattern}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "too_short": "at least {min_length} of them",
    "literal_error": "{expected}",
}


def _wrong_value(item: Any) -> str:
    """What was expected, what was found, and what may have been meant."""
    kind, context, value = item["type"], item.get("ctx", {}), item["input"]
    words = _WORDS.get(re.sub("_(type|parsing|from_float|parsing_size)$", "", kind))
    if kind in _BOUNDS:
        words = _BOUNDS[kind].format(**context)
    if words is None:
        message = item["msg"].removeprefix("Input should be ")
        words = f"{message[:1].lower()}{message[1:]}"
    if isinstance(value, Mapping):
        return f"expected {words}, found keys with values"
    if isinstance(value, (list, tuple)):
        return f"expected {words}, found {'a list' if value else 'an empty list'}"
    known = re.findall("'([^']*)'", context["expected"]) if kind == "literal_error" else []
    quotes = ": put it in quotes" if kind == "string_type" and value is not None else ""
    found = "nothing" if value is None else f"{value!r:.80}"
    return f"expected {words}, found {found}{did_you_mean(value, known)}{quotes}"


def did_you_mean(value: Any, known: Iterable[str]) -> str:
    """`; did you mean ...?`, of names that are much like what was found; "" where none is."""
    close = difflib.get_close_matches(str(value), sorted(set(known)), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _wrong_kind(context: Mapping[str, Any]) -> str:
    kinds = sorted({kind for _, kind in _known_keys(Recipe) if kind})
    if "tag" not in context:
        return f"is missing: expected one of {', '.join(kinds)}"
    tag = context["tag"]
    return f"expected one of {', '.join(kinds)}, found {tag!r:.80}{did_you_mean(tag, kinds)}"


_PRESET = re.compile("preset: no model '([^']*)'")


def _preset_hint(text: str) -> str:
    found = _PRESET.match(text)
    return did_you_mean(found[1], PRESETS) if found else ""


def _kind_in(location: Sequence[str | int]) -> str:
    """The kind of a source: pydantic says it after the source's number."""
    return str(location[-2]) if len(location) > 2 and isinstance(location[-3], int) else ""


def _position(location: Sequence[str | int], data: Any) -> str:
    """The dotted path in the file; pydantic's own also names the kind of a source."""
    parts: list[str] = []
    here = data
    for index, part in enumerate(location):
        is_last = index == len(location) - 1
        if isinstance(here, dict) and part not in here and not is_last:
            continue
        parts.append(str(part))
        reaches = isinstance(here, dict) and part in here
        reaches = reaches or (isinstance(here, (list, tuple)) and isinstance(part, int))
        here = here[part] if reaches else None
    return ".".join(parts)


def _unknown_key(path: str, kind: str) -> str:
    """What may be meant instead of a key that there is not: beside it, or elsewhere.

    Args:
        path: as the file has it, `build_documents.split_bytes`.
        kind: of the source it is in, "" for none.
    """
    parent, _, key = path.rpartition(".")
    known = list(_known_keys(Recipe))
    beside = {at[-1] for at, of in known if of in ("", kind) and _leads_to(at[:-1], parent)}
    elsewhere = sorted({at[-1] for at, _ in known} - beside)
    if key not in elsewhere and (close := difflib.get_close_matches(key, sorted(beside), n=1)):
        return f"no such key; did you mean {close[0]!r}?"
    if not (close := difflib.get_close_matches(key, elsewhere, n=1)):
        return "no such key here; here may be " + ", ".join(sorted(beside))
    kinds: dict[str, list[str]] = {}
    for at, of in known:
        if at[-1] == close[0]:
            kinds.setdefault(".".join(at), []).append(of)
    places = [f"{at} (kind: {', '.join(of)})" if any(of) else at for at, of in kinds.items()]
    more = f" and {len(places) - _SHOWN_PLACES} more" if len(places) > _SHOWN_PLACES else ""
    return f"no such key here; there is {', '.join(places[:_SHOWN_PLACES])}{more}"


_SHOWN_PLACES = 3
_ANY = "NAME"
"""In the path of a key: a name of one's own, or a number."""


def _leads_to(path: Sequence[str], position: str) -> bool:
    """Whether a path of the schema stands for a dotted position in a file."""
    # A name of one's own may have dots in it.
    pattern = r"\.".join("[^ ]+" if part == _ANY else re.escape(part) for part in path)
    return re.fullmatch(pattern, position) is not None


def _known_keys(
    model: type[BaseModel], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """The path of each key that a recipe may have, and the kind of the source it is in."""
    kind = str(model.model_fields["kind"].default) if "kind" in model.model_fields else ""
    for name, field in model.model_fields.items():
        yield (*path, name), kind
        for inner, more in _models_in(field.annotation):
            yield from _known_keys(inner, (*path, name, *more))


def _models_in(annotation: Any) -> Iterator[tuple[type[BaseModel], tuple[str, ...]]]:
    """The configurations that a field may hold, each with the parts of a path that lead to it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, ()
        return
    is_many = typing.get_origin(annotation) in (dict, list, tuple)
    for argument in typing.get_args(annotation):
        for model, more in _models_in(argument):
            yield model, ((_ANY, *more) if is_many else more)
