"""Nested values by dotted paths."""

from __future__ import annotations

import doctest

import pytest

from flows import nested_values
from flows.nested_values import flatten


def test_the_examples_run() -> None:
    found = doctest.testmod(nested_values)
    assert (found.failed, found.attempted > 2) == (0, True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, {}),
        ({"a": {}}, {}),
        ({"a": []}, {"a": []}),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({"a": [[1], [2, 3]]}, {"a.0": [1], "a.1": [2, 3]}),
        ({"a": {"b": None}}, {"a.b": None}),
    ],
)
def test_leaves(value: object, expected: dict[str, object]) -> None:
    assert flatten(value) == expected
