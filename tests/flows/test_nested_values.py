"""Nested values by dotted paths."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from flows import formatting, nested_values
from flows.nested_values import flatten


@pytest.mark.parametrize("module", [formatting, nested_values])
def test_examples_of_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert (result.failed, result.attempted > 1) == (0, True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, {}),
        ({"a": {}}, {}),
        ({"a": []}, {"a": []}),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({"a": [{"name": "x", "b": 1}]}, {"a.x.name": "x", "a.x.b": 1}),
        ({"a": [[1], [2, 3]]}, {"a.0": [1], "a.1": [2, 3]}),
        ({"a": {"b": None}}, {"a.b": None}),
    ],
)
def test_leaves(value: object, expected: dict[str, object]) -> None:
    assert flatten(value) == expected
