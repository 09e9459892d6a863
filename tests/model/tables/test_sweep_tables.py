"""Rows of a sweep beneath the paper's ablations, and which variants are better by a test."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.evaluation_builder import BASE, results, written
from support.sweep_builder import FAIR, GOOD, POOR, entry

from flows.report.page import section
from flows.report.results import show_results
from model.tables.charts import chart_of
from model.tables.document import Tables
from model.tables.filled_tables import FilledTable
from model.tables.paper_results import ABLATIONS
from model.tables.pictures import draw_chart
from model.tables.significance import (
    MEAN,
    VariantComparison,
    holm_adjust,
    mean_difference,
    welch_test,
)
from model.tables.sweeps import Sweep, all_tables
from model.tasks import TASKS as REAL_TASKS
from schemas.finetune_configs import ExpandedAxis, ExpandedEntry, TabulateConfig
from schemas.manifest import StageInput

TASKS_AXIS = {"tasks": ExpandedAxis(table="table-5", variants=("bert-base", "no-nsp", "mine"))}


def tables(
    axes: dict[str, ExpandedAxis],
    given: dict[str, tuple[ExpandedEntry, Sequence[float], dict[str, Any]]],
    phases: dict[str, float] | None = None,
    others: Sequence[dict[str, Any]] = (),
) -> dict[str, FilledTable]:
    """Return values by key; `given` has the written evaluations by task."""
    items = [
        written(one.entry, task.partition("/")[0], runs, **more)
        for task, (one, runs, more) in given.items()
    ]
    config = TabulateConfig(axes=axes, expanded_sweep=tuple(one for one, _, _ in given.values()))
    held_out = {
        name: StageInput(
            name=name,
            artifact_id="0" * 16,
            data="",
            files=(),
            statistics={"held_out": {"perplexity": perplexity}},
        )
        for name, perplexity in (phases or {}).items()
    }
    sweep = Sweep(config, results(*items, *others), held_out)
    return {table.key: table for table in all_tables(sweep)}


def of_tasks() -> dict[str, Any]:
    found = {}
    for variant, sst, qnli in (
        ("bert-base", GOOD, GOOD),
        ("no-nsp", FAIR, POOR),
        ("mine", POOR, GOOD),
    ):
        for task, runs in (("sst-2", sst), ("qnli", qnli)):
            found[f"{task}/{variant}"] = (entry(task, variant, tasks=variant), runs, {})
    return found


def verdicts(table: FilledTable, column: str) -> dict[tuple[str, str], str]:
    return {
        (one.first, one.second): one.verdict for one in table.comparisons if one.column == column
    }


def test_tables_5_6_and_8_are_those_asked_for() -> None:
    assert list(ABLATIONS) == ["table-5", "table-6", "table-8", "figure-5"]
    sums = {
        # Added up by column from the paper's pages, so that a changed digit is noticed.
        "table-5": [332.5, 341.7, 326.4, 369.0, 339.1],
        "table-6": [26.52, 497.1, 508.2, 550.3],
        "table-8": [504.3, 570.4, 567.4],
        "figure-5": [],
    }
    for key, ablation in ABLATIONS.items():
        columns = [
            sum(column) for column in zip(*(row.values for row in ablation.systems), strict=True)
        ]
        assert columns == pytest.approx(sums[key])
        assert {name for pair in ablation.pairs for name in pair} <= {
            row.key for row in ablation.systems
        }
        for column in ablation.columns:
            assert not column.task or column.metric in REAL_TASKS[column.task].metrics


def test_what_the_paper_says_of_its_ablations_in_words() -> None:
    five, six, eight = (ABLATIONS[key] for key in ("table-5", "table-6", "table-8"))
    # 5.1: no NSP hurts QNLI, MNLI and SQuAD; left-to-right is worse on all, by far on MRPC, SQuAD.
    lost = [five.difference("bert-base", "no-nsp", c.key) for c in five.columns]
    assert lost == [0.5, 3.5, 0.2, 0.1, 0.6]
    one_way = [five.difference("no-nsp", "left-to-right", c.key) for c in five.columns]
    assert one_way == [1.8, 0.6, 9.0, 0.5, 10.1]
    # 5.2: larger is strictly better on all tasks, and in perplexity.
    for smaller, larger in itertools.pairwise(row.values for row in six.systems):
        assert larger[0] < smaller[0]
        assert all(b > a for a, b in zip(smaller[1:], larger[1:], strict=True))
    # C.2: 100 % [MASK] costs the features most.
    features = {row.key: row.values[2] for row in eight.systems}
    assert min(features, key=features.__getitem__) == "100-0-0"
    assert max(features, key=features.__getitem__) == "80-10-10"


def test_a_variant_stands_beneath_the_papers_row_and_ones_own_beside_them() -> None:
    table = tables(TASKS_AXIS, of_tasks())["table-5"]
    assert [row.name for row in table.paper][:2] == ["BERT_BASE", "no NSP"]
    assert [(row.name, row.variant) for row in table.rows] == [
        ("bert-base", "bert-base"),
        ("no-nsp", "no-nsp"),
        ("mine", "mine"),
    ]
    assert [row.variant for row in table.paper][:2] == ["bert-base", "no-nsp"]
    assert table.rows[1].cells["QNLI"].text == "70.4 ± 1.1"
    assert "MNLI-m" not in table.rows[0].cells


def test_swept_entries_are_in_no_other_table() -> None:
    found = tables(TASKS_AXIS, of_tasks(), others=[written("cola", "cola", [0.5])])
    assert [row.entries for row in found["table-1"].rows] == [("cola",)]
    assert list(found) == [*(f"table-{number}" for number in range(1, 9)), "figure-5"]


def test_a_direction_is_said_where_the_test_says_it() -> None:
    table = tables(TASKS_AXIS, of_tasks())["table-5"]
    assert verdicts(table, "QNLI") == {
        ("bert-base", "no-nsp"): "better",
        ("bert-base", "mine"): "within noise",
    }
    assert verdicts(table, "SST-2") == {
        ("bert-base", "no-nsp"): "within noise",
        ("bert-base", "mine"): "better",
    }
    (qnli,) = [c for c in table.comparisons if (c.column, c.second) == ("QNLI", "no-nsp")]
    assert qnli.paper == 3.5
    assert qnli.difference == pytest.approx(0.204)
    assert qnli.p == pytest.approx(stats.ttest_ind(GOOD, POOR, equal_var=False).pvalue)
    assert qnli.adjusted == pytest.approx(4 * qnli.p)  # the least of four
    (mean,) = [c for c in table.comparisons if (c.column, c.second) == (MEAN, "no-nsp")]
    assert set(mean.columns) == {"SST-2", "QNLI"}
    assert mean.difference == pytest.approx((0.204 + 0.004) / 2)
    assert mean.paper == pytest.approx((3.5 + 0.1) / 2)


def test_worse_and_untested_are_said_too() -> None:
    turned = of_tasks()
    turned["qnli/bert-base"] = (turned["qnli/bert-base"][0], POOR, {})
    turned["qnli/no-nsp"] = (turned["qnli/no-nsp"][0], GOOD, {})
    turned["qnli/mine"] = (turned["qnli/mine"][0], [0.9], {})
    found = verdicts(tables(TASKS_AXIS, turned)["table-5"], "QNLI")
    assert found == {("bert-base", "no-nsp"): "worse", ("bert-base", "mine"): "not tested"}


def test_a_task_of_ones_own_has_a_column_and_the_paper_none() -> None:
    axes = {"size": ExpandedAxis(table="table-6", variants=("1-64-2", "2-64-2", "3-768-12"))}
    given = {
        f"cola/{variant}": (entry("cola", variant, size=variant), runs, {})
        for variant, runs in zip(axes["size"].variants, (POOR, FAIR, GOOD), strict=True)
    }
    phases = {variant: n + 2.5 for n, variant in enumerate(axes["size"].variants)}
    table = tables(axes, given, phases)["table-6"]
    assert [column.key for column in table.columns][-1] == "cola"
    assert [row.cells["LM perplexity"].text for row in table.rows] == ["2.50", "3.50", "4.50"]
    assert table.paper[0].values["LM perplexity"] == 5.84
    assert table.paper[0].values["cola"] is None
    # The largest with the smallest, then each with the one before.
    assert list(verdicts(table, "cola").items()) == [
        (("3-768-12", "1-64-2"), "better"),
        (("2-64-2", "1-64-2"), "better"),
        (("3-768-12", "2-64-2"), "within noise"),
    ]


def test_steps_have_lines_and_are_compared_at_the_end() -> None:
    axes = {
        "objective": ExpandedAxis(table="figure-5", variants=("masked-lm", "left-to-right")),
        "steps": ExpandedAxis(table="figure-5", variants=("10", "20", "40")),
    }
    given = {}
    for objective, runs in (
        ("masked-lm", (POOR, FAIR, GOOD)),
        ("left-to-right", (POOR, POOR, POOR)),
    ):
        for steps, scores in zip(("10", "20", "40"), runs, strict=True):
            one = entry("mnli", objective, objective=objective, steps=steps)
            given[f"mnli/{objective}{steps}"] = (one, scores, {})
    found = tables(axes, given)
    table = found["figure-5"]
    assert [key for key in found if found[key].rows] == ["figure-5"]
    assert [(row.variant, row.context["objective"]) for row in table.rows] == [
        (steps, objective)
        for objective in ("masked-lm", "left-to-right")
        for steps in ("10", "20", "40")
    ]
    assert [(c.first, c.second, c.context, c.verdict) for c in table.comparisons] == [
        ("masked-lm", "left-to-right", "at 40 steps", "better"),
        ("40 steps", "20 steps", "masked-lm", "within noise"),
        ("40 steps", "20 steps", "left-to-right", "within noise"),
    ]


def test_an_axis_of_ones_own_has_a_table_within_each_variant_of_the_others() -> None:
    axes = {
        "rate": ExpandedAxis(variants=("low", "high")),
        "seed": ExpandedAxis(variants=("a", "b")),
    }
    given = {
        f"cola/{rate}{seed}": (
            entry("cola", rate=rate, seed=seed),
            GOOD if rate == "low" else POOR,
            {},
        )
        for rate in ("low", "high")
        for seed in ("a", "b")
    }
    found = tables(axes, given)
    table = found["sweep-rate"]
    assert table.title == "Sweep: rate"
    assert table.paper == ()
    assert [row.name for row in table.rows] == ["low, a", "high, a", "low, b", "high, b"]
    assert [(c.first, c.second, c.context, c.verdict) for c in table.comparisons] == [
        ("low", "high", "a", "better"),
        ("low", "high", "b", "better"),
    ]
    assert "sweep-seed" in found


def test_an_axis_that_makes_no_difference_to_an_entry_shares_it() -> None:
    axes = {"tasks": TASKS_AXIS["tasks"], "rate": ExpandedAxis(variants=("low", "high"))}
    given = of_tasks()
    for rate in ("low", "high"):
        one = entry("mrpc", rate=rate, tasks="bert-base")
        given[f"mrpc/{rate}"] = (one, GOOD, {})
    table = tables(axes, given)["table-5"]
    shared = [row.cells["QNLI"].entry for row in table.rows if row.variant == "bert-base"]
    assert shared == ["qnli.bert-base", "qnli.bert-base"]


def test_features_are_compared_with_fine_tuning_in_table_7() -> None:
    axes = {"layers": ExpandedAxis(table="table-7", variants=("fine-tuned", "concat-last-4"))}
    frozen = {**BASE, "method": "feature-based", "feature_layers": "concat-last-4"}
    given = {
        "conll-2003/a": (entry("ner", layers="fine-tuned"), GOOD, {}),
        "conll-2003/b": (entry("ner", layers="concat-last-4"), POOR, {"model": frozen}),
    }
    found = tables(axes, given)
    (one,) = found["table-7"].comparisons
    assert (one.first, one.second, one.verdict) == ("fine-tuned", "concat-last-4", "better")
    assert one.paper == 0.3
    assert len(found["table-7"].rows) == 2


# The test itself.


def test_holm_adjustment() -> None:
    assert holm_adjust([0.01, 0.04, None, 0.03]) == pytest.approx(
        [0.03, 0.06, None, 0.06], nan_ok=True
    )
    assert holm_adjust([0.6, 0.7]) == [1.0, 1.0]
    assert holm_adjust([]) == []


def test_a_mean_over_tasks_is_satterthwaites() -> None:
    draws = np.random.Generator(np.random.Philox(5))
    wrong = 0
    for _ in range(2_000):
        pairs = [
            (draws.normal(0.8, sd, 5).tolist(), draws.normal(0.8, 2 * sd, 5).tolist())
            for sd in (0.01, 0.02, 0.03)
        ]
        wrong += mean_difference(pairs).p < 0.05
    assert 0.03 <= wrong / 2_000 <= 0.06


def test_runs_that_do_not_differ_are_judged_by_their_permutations() -> None:
    found = mean_difference([([0.9] * 5, [0.5] * 5)])
    assert (found.test, found.p) == ("permutation", 2 / 252)
    assert found.p_greater == 1 / 252
    exact = stats.permutation_test(
        ([0.9] * 5, [0.5] * 5), lambda a, b: np.mean(a) - np.mean(b), n_resamples=np.inf
    )
    assert found.p == pytest.approx(exact.pvalue)
    assert mean_difference([([0.9] * 5, [0.9] * 5)]).p == 1.0
    assert mean_difference([([0.9], [0.8, 0.7])]).p is None


def test_the_one_sided_p_is_that_of_the_greater() -> None:
    expected = stats.ttest_ind(FAIR, GOOD, equal_var=False, alternative="greater")
    assert welch_test([FAIR, GOOD], [1.0, -1.0]).p_greater == pytest.approx(expected.pvalue)


def test_comparisons_are_the_same_read_back() -> None:
    table = tables(TASKS_AXIS, of_tasks())["table-5"]
    back = FilledTable.model_validate_json(table.model_dump_json())
    assert back.comparisons == table.comparisons
    assert all(isinstance(one, VariantComparison) for one in back.comparisons)


# What is drawn.


def sizes() -> FilledTable:
    axes = {"size": ExpandedAxis(table="table-6", variants=("1-64-2", "3-768-12"))}
    given = {
        f"mnli/{variant}": (entry("mnli", variant, size=variant), runs, {})
        for variant, runs in zip(axes["size"].variants, (POOR, GOOD), strict=True)
    }
    phases = dict.fromkeys(axes["size"].variants, 7.5)
    return tables(axes, given, phases)["table-6"]


def test_sizes_are_drawn_in_their_order_beside_the_papers() -> None:
    chart = chart_of(sizes())
    assert chart is not None
    assert chart.names == ["1-64-2 (7.50)", "3-768-12 (7.50)"]
    (panel,) = chart.panels
    (points,) = panel.lines.values()
    assert [(point.x, round(point.mean, 1)) for point in points] == [(0, 70.4), (1, 90.8)]
    assert panel.paper == [(1.0, 77.9)]
    elsewhere = sizes().model_copy(update={"data": "the sample world"})
    assert chart_of(elsewhere).panels[0].paper == []  # type: ignore[union-attr]
    assert draw_chart(chart) == draw_chart(chart)
    assert draw_chart(chart)[:8] == b"\x89PNG\r\n\x1a\n"


def test_only_steps_and_sizes_are_drawn_as_lines() -> None:
    found = tables(TASKS_AXIS, of_tasks())
    assert [key for key, table in found.items() if chart_of(table)] == []


def test_the_page_shows_a_sweep_first_and_its_entries_folded() -> None:
    found = Tables(results=(), comparisons=(), tables=(sizes(),))
    page = section("tasks", results=show_results(found))
    assert page.index("Table 6: model size") < page.index("<details>")
    assert "3-768-12 (7.50)" in page
    assert "90.8 ± 0.8" in page
    assert "Table 6: model size: differences" in page
