"""Numbers, tables, nested values and record counts as text."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from flows import formatting, nested_values
from flows.formatting import align_columns, format_statistic
from flows.nested_values import flatten
from flows.record_counts import record_counts


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


def test_columns_are_aligned() -> None:
    assert align_columns([("a", "1"), ("bcd", "22")], right=(1,)) == ["a     1", "bcd  22"]


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("metrics.dev.accuracy", 0.5, "50.0"),
        ("cells.0.metrics.test.f1", 0.25, "25.0"),
        ("held_out.mlm_accuracy", 0.5, "50.0"),
        ("held_out.perplexity", 1234.5678, "1,234.57"),
        ("entries.squad-1.1.mean", 0.5, "50.0"),
        ("points.0.sd", 0.01, "1.0"),
        ("entries.squad-1.1.runs", 3, "3"),
        ("vocab_size", 30522, "30,522"),
        ("mean_fill", 0.954588, "95.5"),
        ("cell.learning_rate", 0.0005, "0.0005"),
    ],
)
def test_statistics_format_metrics_by_their_path(path: str, value: float, text: str) -> None:
    assert format_statistic(path, value) == text


def test_record_counts_list_reasons_most_frequent_first() -> None:
    counters = {
        "pages-in": 1000,
        "pages-kept": 990,
        "pages-dropped-redirect": 9,
        "pages-dropped-empty": 1,
        "pages-dropped-never": 0,
        "pages-in@wiki": 5,
        "pages-kept@wiki": 5,
        "sentences": 4,
    }
    of_all, of_wiki = record_counts(counters)
    assert of_all.row == ("pages", "1,000", "990", "10", "redirect 9, empty 1")
    assert (of_wiki.source, of_wiki.row) == ("wiki", ("pages", "5", "5", "0", ""))
