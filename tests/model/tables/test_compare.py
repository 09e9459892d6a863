"""Verdicts on simulated systems, and metrics of resampled rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import model.tables.compare
from benchmarks.bench_verdicts import POPULATIONS, RTE, SST_2, Population, verdict_rates
from model.tables.compare import LEVEL, Pair, Sample, Side, compare, draw_means, holm_adjust
from model.tasks.row_terms import (
    METRICS,
    Float64s,
    RowTerms,
    answer_terms,
    mean_terms,
    metric_value,
    weighted_values,
)

Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.tables.compare, "DRAWS", 600)


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("restarts", [1, 3, 5])
@pytest.mark.parametrize("kind", POPULATIONS)
@pytest.mark.parametrize(
    "number", [0, pytest.param(1, marks=pytest.mark.slow)], ids=["277 rows", "872 rows"]
)
def test_equally_good_systems_are_rarely_called_different(
    kind: str, number: int, restarts: int
) -> None:
    false, _ = verdict_rates(POPULATIONS[kind][number], restarts=restarts, repeats=100)
    assert false <= 0.07


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(
    ("population", "gap", "least", "most"),
    [
        (RTE, 0.02, 0.02, 0.3),
        (RTE, 0.08, 0.6, 1.0),
        pytest.param(SST_2, 0.04, 0.9, 1.0, marks=pytest.mark.slow),
    ],
)
def test_better_system_is_seen_when_the_rows_suffice(
    population: Population, gap: float, least: float, most: float
) -> None:
    seen, _ = verdict_rates(population, restarts=5, repeats=50, gap=gap)
    assert least <= seen <= most


def test_dev_set_is_not_taken_for_all_rows() -> None:
    # Restarts that all agree: a test of restarts alone is certain of a difference of two rows.
    first, second = np.arange(200) < 150, np.arange(200) < 148
    one, other = (
        Side(float(right.mean()), 5, Sample(name, "rows", (mean_terms(right),) * 5))
        for name, right in (("first", first), ("second", second))
    )
    (item,) = compare([[Pair("first", "second", "task", (one, other))]])
    assert item.p > LEVEL
    assert item.low < 0 < item.high


# Resampled metrics


def answers(metric: str, rng: np.random.Generator, *, rows: int) -> tuple[Numbers, Numbers]:
    """Return right and predicted answers: classes, or values with ties."""
    if metric in ("pearson", "spearman"):
        gold = rng.integers(0, 11, rows) / 2.0
        return gold, np.round(gold + rng.normal(0, 1.5, rows), 1)
    classes = 3 if metric in ("accuracy", "matthews") else 2
    gold = rng.integers(0, classes, rows)
    return gold, np.where(rng.random(rows) < 0.7, gold, rng.integers(0, classes, rows))


@pytest.mark.parametrize("metric", METRICS)
def test_metric_of_weighted_rows_is_that_of_repeated_rows(metric: str) -> None:
    rng = np.random.default_rng(3)
    gold, predicted = answers(metric, rng, rows=60)
    weights = rng.multinomial(60, [1 / 60] * 60, size=20).astype(np.float64)
    weights[0] = 1.0
    values = weighted_values(answer_terms(metric, gold, predicted), weights)
    expected = [
        metric_value(answer_terms(metric, np.repeat(gold, counts), np.repeat(predicted, counts)))
        for counts in weights.astype(int)
    ]
    assert values == pytest.approx(expected)


@pytest.mark.parametrize("metric", METRICS)
def test_metric_without_a_value_is_0(metric: str) -> None:
    gold, predicted = np.array([0, 1, 0, 1]), np.zeros(4, np.int64)
    expected = {"accuracy": 0.5}.get(metric, 0.0)
    terms = answer_terms(metric, gold, predicted)
    assert weighted_values(terms, np.ones((1, 4))) == pytest.approx([expected])
    only_zeros = weighted_values(terms, np.array([[2.0, 0.0, 2.0, 0.0]]))
    assert only_zeros == pytest.approx([{"accuracy": 1.0}.get(metric, 0.0)])


def drawn(sample: Sample) -> Float64s:
    (means,) = draw_means([sample], draws=500)
    return means


@pytest.mark.parametrize(
    ("terms", "low"),
    [
        (mean_terms(np.ones(30)), 0.0),
        (mean_terms(np.zeros(30)), 0.0),
        (answer_terms("pearson", np.arange(30.0), -np.arange(30.0)), -1.0),
    ],
)
def test_means_stay_in_the_range_of_the_metric(terms: RowTerms, low: float) -> None:
    wild = mean_terms(np.arange(30) < 15) if low == 0.0 else terms
    means = drawn(Sample("entry", "rows", (terms, wild)))
    assert low <= means.min() <= means.max() <= 1.0


def test_draws_depend_on_rows_and_entry_only() -> None:
    rng = np.random.default_rng(0)
    runs = tuple(mean_terms(rng.random(50) < 0.5) for _ in range(3))
    one = drawn(Sample("a", "rows", runs))
    assert drawn(Sample("a", "rows", runs)).tolist() == one.tolist()
    assert drawn(Sample("b", "rows", runs)).tolist() != one.tolist()
    assert drawn(Sample("a", "other rows", runs)).tolist() != one.tolist()


def test_large_families_have_enough_draws_for_a_verdict() -> None:
    right, wrong = (mean_terms(np.full(40, value)) for value in (1.0, 0.0))
    family = []
    for number in range(60):
        one = Side(1.0, 3, Sample(f"a{number}", f"rows {number}", (right,) * 3))
        other = Side(0.0, 3, Sample(f"b{number}", f"rows {number}", (wrong,) * 3))
        family.append([Pair("a", "b", "task", (one, other))])
    assert all(item.adjusted < LEVEL for item in compare(family))


def test_holm_adjustment() -> None:
    assert holm_adjust([0.01, 0.04, None, 0.03]) == pytest.approx(
        [0.03, 0.06, None, 0.06], nan_ok=True
    )
    assert holm_adjust([0.6, 0.7]) == [1.0, 1.0]
