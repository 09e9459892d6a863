"""Error rates of verdicts: how often two systems are called different, next to Welch's test.

    python -m benchmarks.bench_verdicts [--repeat 400]

Simulates two systems that answer the same dev rows. The difficulty of a row has three parts: one
for both systems, one for each system, and one for each restart. Restarts differ in accuracy. In the
first lines both systems are equally good on all possible rows, so that each verdict is false
(5 % are allowed). In the others the first is better by 1, 2 or 4 points of accuracy.

* ours: `model.tables.compare.compare`, which resamples rows and restarts;
* Welch: SciPy's t test of the restarts' scores, which takes the dev set for all possible rows.

Prints the share of verdicts "better" or "worse" at p < 0.05, in percent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, ttest_ind

from benchmarks.timing import parser_for
from model.tables.compare import LEVEL, Pair, Sample, Side, compare
from model.tasks.row_terms import mean_terms

Answers = npt.NDArray[np.bool_]
"""Right answers, shape (restarts, rows)."""


class Population(NamedTuple):
    """Systems of one kind; standard deviations are relative to that of the shared difficulty."""

    rows: int
    accuracy: float
    restart_sd: float
    """Standard deviation of the accuracy of restarts on all possible rows."""

    own_difficulty: float
    """Standard deviation of a row's difficulty for one system."""

    restart_difficulty: float
    """Standard deviation of a row's difficulty for one restart."""


RTE = Population(277, 0.66, 0.02, 0.7, 0.3)
SST_2 = Population(872, 0.92, 0.005, 0.7, 0.3)
POPULATIONS = {
    "typical": (RTE, SST_2),
    "restarts equal": tuple(
        item._replace(restart_sd=0.0, own_difficulty=1.0, restart_difficulty=0.2)
        for item in (RTE, SST_2)
    ),
    "restarts differ": (
        RTE._replace(restart_sd=0.04, own_difficulty=0.35),
        SST_2._replace(restart_sd=0.015, own_difficulty=0.35),
    ),
}


def draw_systems(
    population: Population, rng: np.random.Generator, *, restarts: int, gap: float = 0.0
) -> tuple[Answers, Answers]:
    """Return the right answers of two systems on the same rows; the first is better by `gap`."""
    size, shared = population.rows, rng.standard_normal(population.rows)
    difficulties = 1.0, population.own_difficulty, population.restart_difficulty
    spread = float(np.linalg.norm(difficulties))
    answers = []
    for accuracy in (population.accuracy + gap, population.accuracy):
        restart_sd = population.restart_sd / norm.pdf(norm.ppf(accuracy)) * spread
        ability = norm.ppf(accuracy) * np.hypot(spread, restart_sd)
        own = population.own_difficulty * rng.standard_normal(size)
        noise = population.restart_difficulty * rng.standard_normal((restarts, size))
        shift = restart_sd * rng.standard_normal((restarts, 1))
        answers.append(ability + shared + own + shift + noise > 0)
    return answers[0], answers[1]


def p_value(first: Answers, second: Answers, *, name: str) -> float | None:
    """Return p of bertloom's comparison; `name` seeds the draws."""
    one, other = (
        Side(
            float(answers.mean()),
            len(answers),
            Sample(f"{name} {side}", name, tuple(mean_terms(row) for row in answers)),
        )
        for side, answers in (("first", first), ("second", second))
    )
    return compare([[Pair("first", "second", "task", (one, other))]])[0].p


def verdict_rates(
    population: Population, *, restarts: int, repeats: int, gap: float = 0.0
) -> tuple[float, float]:
    """Return the shares of verdicts of bertloom and of Welch's test, from 0 to 1."""
    ours = welch = 0
    for number in range(repeats):
        rng = np.random.default_rng([number, restarts, population.rows])
        first, second = draw_systems(population, rng, restarts=restarts, gap=gap)
        p = p_value(first, second, name=str(number))
        ours += p is not None and p < LEVEL
        if restarts > 1:
            scores = first.mean(axis=1), second.mean(axis=1)
            is_constant = all(np.ptp(side) == 0 for side in scores)
            welch += not is_constant and ttest_ind(*scores, equal_var=False).pvalue < LEVEL
    return ours / repeats, welch / repeats


def main() -> None:
    """Print the error rates and the power."""
    repeats = parser_for(__doc__, repeat=400).parse_args().repeat
    print(f"{'systems':16}{'rows':>5}{'restarts':>10}{'points':>8}{'ours':>8}{'Welch':>8}")
    lines = [(name, item, 0.0) for name, pair in POPULATIONS.items() for item in pair]
    lines += [("typical", item, gap) for item in (RTE, SST_2) for gap in (0.01, 0.02, 0.04)]
    for name, population, gap in lines:
        for restarts in (1, 3, 5):
            ours, welch = verdict_rates(population, restarts=restarts, repeats=repeats, gap=gap)
            print(
                f"{name:16}{population.rows:5}{restarts:10}{100 * gap:8.0f}{100 * ours:8.1f}"
                f"{100 * welch:8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
