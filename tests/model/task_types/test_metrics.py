"""Metrics, against values worked out by hand."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from support.paths import ROOT

from model.task_types.metrics import METRICS
from schemas.errors import PredictionsError


def value(name: str, gold: list[float], predicted: list[float]) -> float:
    found = METRICS[name](np.array(gold), np.array(predicted))
    assert type(found) is float
    return found


GOLD = [1, 1, 1, 0, 0, 0, 0, 1]
SAID = [1, 1, 0, 0, 1, 0, 0, 1]  # 3 true and 1 false positive, 1 false and 3 true negatives


@pytest.mark.parametrize(
    ("name", "gold", "said", "expected"),
    [
        ("accuracy", GOLD, SAID, 6 / 8),
        ("f1", GOLD, SAID, 2 * 3 / (2 * 3 + 1 + 1)),
        ("matthews", GOLD, SAID, (3 * 3 - 1 * 1) / math.sqrt(4 * 4 * 4 * 4)),
        # F1 is of class 1.
        ("f1", [1, 0, 0, 0], [1, 1, 0, 0], 2 * 1 / (2 * 1 + 1 + 0)),
        ("f1", [0, 1, 1, 1], [0, 0, 1, 1], 2 * 2 / (2 * 2 + 1 + 0)),
        # F1 of several classes is of class 1 against the others.
        ("f1", [1, 1, 2, 0], [1, 2, 2, 1], 2 * 1 / (2 * 1 + 1 + 1)),
        # Gorodkin's form: (c s - sum p t) / sqrt((s^2 - sum p^2)(s^2 - sum t^2)).
        ("matthews", [0, 1, 2, 0, 1, 2], [0, 1, 1, 0, 2, 2], (4 * 6 - 3 * 2 * 2) / (6**2 - 12)),
        # Without positives.
        ("f1", [0, 0], [0, 0], 0.0),
        ("f1", [1, 0], [0, 0], 0.0),
        ("matthews", GOLD, [0] * 8, 0.0),
        ("matthews", [0, 0], [0, 0], 0.0),
        # Both have mean 2.5 and squared deviations 5; products of deviations: 4 x 0.75.
        ("pearson", [1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 4.0, 3.0], 3 / 5),
        ("pearson", [1.0, 2.0, 3.0, 4.0], [-1.0, -2.0, -3.0, -4.0], -1.0),
        # Ranks 1 2 3 4 and 1 4 2 3: 1 - 6 (0 + 4 + 1 + 1) / (4 * 15).
        ("spearman", [0.5, 1.0, 2.0, 5.0], [10.0, 1000.0, 20.0, 30.0], 1 - 6 * 6 / 60),
        # Ranks 1 2.5 2.5 4 and 1 2 3 4; Pearson of those: 4.5 / sqrt(4.5 * 5).
        ("spearman", [1.0, 2.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0], 4.5 / math.sqrt(4.5 * 5)),
    ],
)
def test_metric_by_hand(name: str, gold: Any, said: Any, expected: float) -> None:
    assert value(name, gold, said) == pytest.approx(expected)


@pytest.mark.parametrize("name", METRICS)
def test_metric_of_equal_constant_and_missing_answers(name: str) -> None:
    assert value(name, GOLD, GOLD) == pytest.approx(1.0)
    if name in ("pearson", "spearman"):
        assert value(name, [1.0, 2.0, 3.0], [2.5, 2.5, 2.5]) == 0.0
        assert value(name, [1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) == 0.0
        assert value(name, [1.0], [1.0]) == 0.0
    with pytest.raises(PredictionsError, match="at least one row"):
        value(name, [], [])
    with pytest.raises(PredictionsError, match=r"shape \(2,\) for \(1,\)"):
        value(name, [1], [1, 0])


@pytest.mark.parametrize("module", ["metrics", "classification", "task_type", "qa"])
def test_loading_is_light(module: str) -> None:
    heavy = "{'torch', 'sklearn', 'scipy', 'transformers', 'apache_beam', 'prefect'}"
    code = f"import sys, model.task_types.{module}; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
