"""What is wrong with a recipe, by field, in the words of the file."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from schemas.recipe import Recipe


def explain(error: ValidationError, data: Mapping[str, Any]) -> str:
    """What is wrong with a recipe, a line a field: `build_tokens.memory_words: ...`."""
    lines = []
    for item in error.errors(include_url=False):
        path = _position(item["loc"], data)
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = _unknown_key(path, _kind_in(item["loc"]))
        elif item["type"] == "missing":
            message = "is missing"
        elif not isinstance(item["input"], (dict, list)):
            message = f"{message[:1].lower()}{message[1:]}, found {item['input']!r}"
        lines.append(f"{path}: {message}" if path else message)
    return lines[0] if len(lines) == 1 else "\n  " + "\n  ".join(lines)


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
