"""The verdict under each table: what was compared, on which data, with which result."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.evaluation_builder import BASE, SCRATCH, written
from support.sweep_builder import source, steps_sweep, sweep_of

from flows.report.result_charts import spread
from flows.report.results import show_results
from model.tables.document import Tables

GOOD, POOR = [0.99, 1.0, 1.0], [0.42, 0.44, 0.43]
GENERATED = {"data": "generated sample"}


def verdict_of(tables: Tables, key: str) -> str:
    (table,) = [table for table in tables.tables if table.key == key]
    return table.verdict


def twins(task: str, pretrained: Sequence[float], scratch: Sequence[float], **data: str) -> Tables:
    return source(
        written(task, task, pretrained, model=BASE | data),
        written(f"{task}-scratch", task, scratch, model=SCRATCH | data),
    )


def test_own_scores_are_not_tested_against_the_papers() -> None:
    verdict = verdict_of(twins("sst-2", GOOD, POOR), "table-1")
    assert verdict == (
        "Compared on dev (the tasks' own data), 3 restarts, 1,000 rows: pretraining helps on "
        "SST-2. Not tested against the paper's rows: ours are on dev, the paper's on test."
    )
    assert verdict_of(twins("sst-2", GOOD, POOR), "table-2") == ""  # no rows of bertloom


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ((POOR, GOOD), "pretraining hurts on SST-2"),
        ((GOOD, GOOD), "pretraining makes no visible difference on SST-2"),
        (([0.9], [0.1]), "pretraining was not tested on SST-2"),
    ],
)
def test_verdict_says_what_was_not_shown(runs: tuple[list[float], list[float]], words: str) -> None:
    assert words in verdict_of(twins("sst-2", *runs), "table-1")


def test_variants_are_compared_with_the_papers_direction() -> None:
    runs = {"bert-base": GOOD, "no-nsp": POOR, "left-to-right": [0.7, 0.71, 0.72], "mine": GOOD}
    both = {name: {"qnli": scores, "mnli": scores} for name, scores in runs.items()}
    verdict = verdict_of(sweep_of("table-5", both), "table-5")
    assert "bert-base is better than no-nsp by 56.7 points, as in the paper" in verdict
    assert "no-nsp is worse than left-to-right by 28.0 points, unlike the paper" in verdict
    assert "bert-base and mine are within noise (0.0 points)" in verdict
    steps = {
        "masked-lm": {"600": POOR, "1200": GOOD},
        "left-to-right": {"600": POOR, "1200": [0.7]},
    }
    verdict = verdict_of(steps_sweep(steps), "figure-5")
    assert "1,200 steps is better than 600 steps (masked-lm) by 56.7 points, as in" in verdict
    assert "masked-lm and left-to-right (at 1,200 steps) were not tested" in verdict


def test_generated_data_is_named_wherever_a_result_is() -> None:
    tables = twins("sst-2", GOOD, POOR, **GENERATED)
    label = "SST-2 (generated sample)"
    for sentence in (tables.headline, *(verdict.sentence for verdict in tables.verdicts)):
        assert "SST-2 (generated sample" in sentence
        assert ") (" not in sentence
    assert "(generated sample)" in verdict_of(tables, "table-1")
    assert "Not compared with the paper's rows" in verdict_of(tables, "table-1")
    results = show_results(tables)
    assert results.overview is not None
    assert results.overview.title.endswith("(generated sample)")
    titles = [view.rows.title for view in results.paper]
    assert titles == ["Table 1: GLUE (ours: generated sample)"]
    for grid in results.grids:
        assert {row[0] for row in grid.rows} == {label}
    assert results.overview_figure is not None
    assert all("(generated sample)" in panel.title for panel in results.overview_figure.panels)


def test_generated_data_of_several_tasks_is_named_in_the_headline() -> None:
    given = [
        written(f"{task}{end}", task, runs, model=start | GENERATED)
        for task in ("sst-2", "cola")
        for end, runs, start in (("", GOOD, BASE), ("-scratch", POOR, SCRATCH))
    ]
    assert source(*given).headline.startswith(
        "Pretraining helps on all 2 tasks (generated sample): +57 points on average"
    )


@pytest.mark.parametrize(
    ("mean", "sd", "ends"),
    [(99.5, 2.0, (97.5, 100.0)), (1.0, 3.0, (0.0, 4.0)), (-5.0, 4.0, (-9.0, -1.0))],
)
def test_whiskers_stay_where_scores_can_be(
    mean: float, sd: float, ends: tuple[float, float]
) -> None:
    start, end = spread(mean, sd)
    assert (max(start, -9.0), end) == ends
