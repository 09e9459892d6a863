"""Base of every configuration, and the field types that several share."""

from __future__ import annotations

import typing
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo


class Config(BaseModel):
    """Base of every configuration: frozen, no unknown keys, docstrings are the descriptions."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_booleans(cls, data: Any) -> Any:
        """Refuse true and false in numeric fields: pydantic converts them to 1 and 0."""
        for name, value in data.items() if isinstance(data, dict) else ():
            field = cls.model_fields.get(name)
            if field and _has_boolean(value) and not _accepts_boolean(field.annotation):
                raise ValueError(f"{name}: expected no true or false, got {value!r:.80}")
        return data

    def cache_key_fields(self) -> dict[str, Any]:
        """Return the fields that are part of cache keys, as plain JSON values."""
        fields: dict[str, Any] = _key_fields(self)
        return fields


def not_in_key(default: Any, **constraints: Any) -> Any:
    """Return a field for where or how a stage runs, which is not part of cache keys.

    Some of these fields change the order in which floating-point numbers are added or dropout is
    drawn, for example the micro-batch size. The results are then equivalent, but not equal bits.
    """
    return Field(default, json_schema_extra={"in_key": False}, **constraints)


def content_in_key(default: Any, **constraints: Any) -> Any:
    """Return a field that names files. Their contents are in cache keys, not the names."""
    return Field(default, json_schema_extra={"in_key": "content"}, **constraints)


def _has_boolean(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_boolean, value))
    return isinstance(value, bool)


def _accepts_boolean(annotation: Any) -> bool:
    arguments = typing.get_args(annotation)
    return annotation in (bool, Any) or any(map(_accepts_boolean, arguments))


def _key_fields(value: Any) -> Any:
    if isinstance(value, Config):
        fields = type(value).model_fields
        return {
            name: _key_fields(getattr(value, name))
            for name, field in fields.items()
            if _is_in_key(field)
        }
    if isinstance(value, dict):
        return {key: _key_fields(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_key_fields(item) for item in value]
    return value


def _is_in_key(field: FieldInfo) -> bool:
    extra = field.json_schema_extra
    return not isinstance(extra, dict) or "in_key" not in extra


Paths = Annotated[tuple[str, ...], Field(min_length=1)]
SourceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)]
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[a-z0-9]+)*$")]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
DropoutProb = Annotated[float, Field(ge=0.0, lt=1.0)]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["fp32", "bf16"]
