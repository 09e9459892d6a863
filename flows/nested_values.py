"""Nested values by dotted paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flatten(value: Any, *, name_items: bool = False, keep_empty: bool = False) -> dict[str, Any]:
    """Return the single values of nested mappings and lists, by their dotted paths.

    Lists of plain values are values; those that hold mappings or lists are walked by index.

    >>> flatten({"a": {"b": 1}, "c": [2, 3], "d": [{"name": "x", "e": 4}]})
    {'a.b': 1, 'c': [2, 3], 'd.0.name': 'x', 'd.0.e': 4}
    >>> flatten({"d": [{"name": "x", "e": 4}]}, name_items=True)
    {'d.x.name': 'x', 'd.x.e': 4}

    Args:
        value: mappings, lists and tuples within each other.
        name_items: walk lists by the `name` of their items where they have one.
        keep_empty: an empty mapping is a value, and not nothing.
    """
    return dict(_walk(value, "", name_items=name_items, keep_empty=keep_empty))


def numeric_leaves(value: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of nested mappings by their dotted paths, without those in lists.

    >>> numeric_leaves({"dev": {"f1": 0.5, "best": True}, "curve": [{"loss": 1}]})
    {'dev.f1': 0.5}
    """
    return dict(_numbers(value, ""))


def _walk(
    value: Any, path: str, *, name_items: bool, keep_empty: bool
) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list | tuple) and any(isinstance(v, Mapping | list) for v in value):
        names = (v.get("name") if name_items and isinstance(v, Mapping) else None for v in value)
        value = {str(name or at): v for at, (name, v) in enumerate(zip(names, value, strict=True))}
    if isinstance(value, Mapping) and (value or not keep_empty or not path):
        for name, item in value.items():
            where = f"{path}.{name}" if path else str(name)
            yield from _walk(item, where, name_items=name_items, keep_empty=keep_empty)
    else:
        yield path, list(value) if isinstance(value, tuple) else value


def _numbers(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, float]]:
    for name, item in value.items():
        where = f"{path}.{name}" if path else name
        if isinstance(item, Mapping):
            yield from _numbers(item, where)
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield where, item
