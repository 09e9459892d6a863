"""Base of every configuration, and the field types that several share."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo


class Config(BaseModel):
    """Base of every configuration: frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_booleans(cls, data: Any) -> Any:
        """Refuse true and false in numeric fields: pydantic converts them to 1 and 0."""
        for name, field in cls.model_fields.items() if isinstance(data, dict) else ():
            kind, value = field.annotation, data.get(name)
            values = value if isinstance(value, (list, tuple)) else [value]
            has_boolean = any(isinstance(item, bool) for item in values)
            if has_boolean and bool not in (kind, *typing.get_args(kind)):
                raise ValueError(f"{name}: expected no true or false, got {value!r:.80}")
        return data

    @model_validator(mode="after")
    def _check(self) -> Self:
        if problems := list(self._problems()):
            raise ValueError("\n".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        """Yield `FIELD: PROBLEM` for fields that do not fit together."""
        yield from ()

    def cache_key_fields(self) -> dict[str, Any]:
        """Return the fields that are part of cache keys, as plain JSON values."""
        return {
            name: _key_value(getattr(self, name))
            for name, field in type(self).model_fields.items()
            if _is_in_key(field)
        }


def not_in_key(default: Any, **constraints: Any) -> Any:
    """Return a field for where or how a stage runs, which is not part of cache keys.

    Some of these fields change the order in which floating-point numbers are added or dropout is
    drawn, for example the micro-batch size. The results are then equivalent, but not equal bits.
    """
    return Field(default, json_schema_extra={"in_key": False}, **constraints)


def content_in_key(default: Any, **constraints: Any) -> Any:
    """Return a field that names files. Their contents are in cache keys, not the names."""
    return Field(default, json_schema_extra={"in_key": "content"}, **constraints)


def expect_one(config: Config, *names: str) -> Iterator[str]:
    """Yield a problem unless exactly one of these fields is set."""
    provided = [name for name in names if getattr(config, name) is not None]
    if len(provided) != 1:
        yield f"expected one of {', '.join(names)}, got {' and '.join(provided) or 'none'}"


def _is_in_key(field: FieldInfo) -> bool:
    """Return True unless a field is marked by `not_in_key` or `content_in_key`."""
    extra = field.json_schema_extra
    return not (isinstance(extra, dict) and "in_key" in extra)


def _check_distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise ValueError(f"expected distinct values, got {list(values)}")
    return values


def _key_value(value: Any) -> Any:
    if isinstance(value, Config):
        return value.cache_key_fields()
    if isinstance(value, dict):
        return {key: _key_value(item) for key, item in value.items()}
    return [_key_value(item) for item in value] if isinstance(value, tuple) else value


Distinct = AfterValidator(_check_distinct)
"""Marks a tuple whose values are all different."""

Paths = Annotated[tuple[str, ...], Field(min_length=1)]
SourceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)]
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[a-z0-9]+)*$")]
Seed = Annotated[int, Field(ge=0, lt=1 << 53)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
DropoutProb = Annotated[float, Field(ge=0.0, lt=1.0)]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "fp32", "bf16"]
