"""Nested values by dotted paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Return the single values of nested mappings and lists, by their dotted paths below `path`.

    A list of plain values is a value. The path of an item of another list has its `name`, or its
    index if it has none.

    >>> flatten({"a": {"b": 1}, "c": [2, 3], "d": [{"name": "x", "e": 4}, {"e": 5}]})
    {'a.b': 1, 'c': [2, 3], 'd.x.name': 'x', 'd.x.e': 4, 'd.1.e': 5}
    >>> flatten({"a": {}, "b": (1, 2), "c": [[1], [2, 3]]})
    {'b': [1, 2], 'c.0': [1], 'c.1': [2, 3]}
    """
    if isinstance(value, list | tuple) and any(isinstance(v, Mapping | list) for v in value):
        names = (v.get("name") if isinstance(v, Mapping) else None for v in value)
        value = {str(name or i): v for i, (name, v) in enumerate(zip(names, value, strict=True))}
    if not isinstance(value, Mapping):
        return {path: list(value) if isinstance(value, tuple) else value}
    leaves: dict[str, Any] = {}
    for name, item in value.items():
        leaves |= flatten(item, f"{path}.{name}" if path else str(name))
    return leaves


def numeric_leaves(value: Mapping[str, Any], path: str = "") -> dict[str, float]:
    """Return the numbers of nested mappings by their dotted paths, without those in lists.

    >>> numeric_leaves({"dev": {"f1": 0.5, "best": True}, "curve": [{"loss": 1}]})
    {'dev.f1': 0.5}
    """
    leaves: dict[str, float] = {}
    for name, item in value.items():
        full_name = f"{path}.{name}" if path else name
        if isinstance(item, Mapping):
            leaves |= numeric_leaves(item, full_name)
        elif isinstance(item, int | float) and not isinstance(item, bool):
            leaves[full_name] = item
    return leaves
