"""Rows of a sweep beneath the paper's ablations, and which variants are better by a test."""

from __future__ import annotations

import pytest
from support.evaluation_builder import BASE, written
from support.sweep_builder import FAIR, GOOD, POOR, entry, source, steps_sweep, sweep_of

from flows.report.rendering import section
from flows.report.results import show_results
from flows.report.sweep_charts import read_lines, sweep_figure
from model.tables.compare import MEAN
from model.tables.filled_tables import FilledTable
from model.tables.render import Tables
from schemas.finetune_configs import ExpandedAxis

TASKS_SWEEP = {
    "bert-base": {"sst-2": GOOD, "qnli": GOOD},
    "no-nsp": {"sst-2": FAIR, "qnli": POOR},
    "mine": {"sst-2": POOR, "qnli": GOOD},
}


def table_of(tables: Tables, key: str) -> FilledTable:
    (table,) = [one for one in tables.tables if one.key == key]
    return table


def verdicts(table: FilledTable, column: str) -> dict[tuple[str, str], str]:
    return {
        (one.first, one.second): one.verdict for one in table.comparisons if one.title == column
    }


def test_a_variant_stands_beneath_the_papers_row_and_ones_own_beside_them() -> None:
    tables = sweep_of("table-5", TASKS_SWEEP)
    table = table_of(tables, "table-5")
    assert [(row.name, row.key) for row in table.systems][:2] == [
        ("BERT_BASE", "bert-base"),
        ("no NSP", "no-nsp"),
    ]
    assert [(row.name, row.variant) for row in table.rows] == [
        (variant, variant) for variant in TASKS_SWEEP
    ]
    assert table.rows[1].cells["QNLI"].text == "70.4 ± 1.1"
    assert "MNLI-m" not in table.rows[0].cells
    assert [one.key for one in tables.tables if one.rows] == ["table-5"]


def test_a_direction_is_said_where_the_test_says_it() -> None:
    table = table_of(sweep_of("table-5", TASKS_SWEEP), "table-5")
    assert verdicts(table, "QNLI") == {
        ("bert-base", "no-nsp"): "better",
        ("bert-base", "mine"): "within noise",
    }
    (qnli,) = [c for c in table.comparisons if (c.title, c.second) == ("QNLI", "no-nsp")]
    assert qnli.paper == 3.5
    assert qnli.difference == pytest.approx(0.204)
    assert qnli.adjusted == pytest.approx(len(table.comparisons) * qnli.p)  # the least of all
    assert len(table.comparisons) == 6  # columns and means are one family
    (mean,) = [c for c in table.comparisons if (c.title, c.second) == (MEAN, "no-nsp")]
    assert set(mean.columns) == {"SST-2", "QNLI"}
    assert mean.difference == pytest.approx((0.204 + 0.004) / 2)
    assert mean.paper == pytest.approx((3.5 + 0.1) / 2)
    turned = {"bert-base": {"qnli": POOR}, "no-nsp": {"qnli": GOOD}, "mine": {"qnli": [0.9]}}
    assert verdicts(table_of(sweep_of("table-5", turned), "table-5"), "QNLI") == {
        ("bert-base", "no-nsp"): "worse",
        ("bert-base", "mine"): "not tested",
    }


def test_a_task_of_ones_own_has_a_column_and_the_paper_none() -> None:
    runs = {"1-64-2": {"cola": POOR}, "2-64-2": {"cola": FAIR}, "3-768-12": {"cola": GOOD}}
    perplexities = {"1-64-2": 2.5, "2-64-2": 3.5, "3-768-12": 4.5}
    table = table_of(sweep_of("table-6", runs, perplexities=perplexities), "table-6")
    assert [column.key for column in table.columns][-1] == "cola"
    assert [row.cells["LM perplexity"].text for row in table.rows] == ["2.50", "3.50", "4.50"]
    assert table.systems[0].values["LM perplexity"] == 5.84
    assert "cola" not in table.systems[0].values
    # The largest with the smallest, then each with the one before.
    assert list(verdicts(table, "cola").items()) == [
        (("3-768-12", "1-64-2"), "better"),
        (("2-64-2", "1-64-2"), "better"),
        (("3-768-12", "2-64-2"), "within noise"),
    ]


def test_steps_have_lines_and_are_compared_at_the_end() -> None:
    tables = steps_sweep(
        {
            "masked-lm": {"10": POOR, "20": FAIR, "40": GOOD},
            "left-to-right": {"10": POOR, "20": POOR, "40": POOR},
        }
    )
    assert [table.key for table in tables.tables if table.rows] == ["figure-5"]
    table = table_of(tables, "figure-5")
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
    swept = [entry("cola", rate=rate, seed=seed) for rate in ("low", "high") for seed in "ab"]
    # No difference between the seeds: the axis does not affect this entry.
    shared = [entry("mrpc", rate=rate) for rate in ("low", "high")]
    entries = [
        written(one.entry, one.of, GOOD if one.variants["rate"] == "low" else POOR)
        for one in (*swept, *shared)
    ]
    tables = source(*entries, axes=axes, swept=[*swept, *shared])
    table = table_of(tables, "sweep-rate")
    assert (table.title, table.systems) == ("Sweep: rate", ())
    assert [row.name for row in table.rows] == ["low, a", "high, a", "low, b", "high, b"]
    assert [row.cells["mrpc"].entry for row in table.rows] == ["mrpc.low", "mrpc.high"] * 2
    assert {(c.first, c.second, c.context, c.verdict) for c in table.comparisons} == {
        ("low", "high", "a", "better"),
        ("low", "high", "b", "better"),
    }
    assert table_of(tables, "sweep-seed").rows


def test_features_are_compared_with_fine_tuning_in_table_7() -> None:
    axes = {"layers": ExpandedAxis(table="table-7", variants=("fine-tuned", "concat-last-4"))}
    swept = [entry("ner", layers=layers) for layers in axes["layers"].variants]
    frozen = {**BASE, "method": "feature-based", "feature_layers": "concat-last-4"}
    entries = [
        written(one.entry, "conll-2003", runs, model=model)
        for one, runs, model in zip(swept, (GOOD, POOR), (BASE, frozen), strict=True)
    ]
    table = table_of(source(*entries, axes=axes, swept=swept), "table-7")
    (one,) = table.comparisons
    assert (one.first, one.second, one.verdict) == ("fine-tuned", "concat-last-4", "better")
    assert one.paper == 0.3
    assert len(table.rows) == 2


# What is drawn.


def sizes(**model: str) -> FilledTable:
    runs = {"1-64-2": {"mnli": POOR}, "3-768-12": {"mnli": GOOD}}
    perplexities = dict.fromkeys(runs, 7.5)
    return table_of(sweep_of("table-6", runs, perplexities=perplexities, **model), "table-6")


def test_only_figure_5_is_drawn() -> None:
    steps = steps_sweep({"masked-lm": {"20": GOOD, "5": POOR}, "left-to-right": {"5": POOR}})
    table = table_of(steps, "figure-5")
    lines = read_lines(table)["MNLI"]
    assert [(p.step, round(p.mean, 1)) for p in lines["masked-lm"]] == [(5, 70.4), (20, 90.8)]
    figure = sweep_figure(table)
    assert figure is not None
    assert [key.label for key in figure.legend] == ["masked-lm", "left-to-right"]
    assert figure.panels[0].svg.count("<polyline") == 2
    assert sweep_figure(sizes()) is None
    assert sweep_figure(table_of(sweep_of("table-5", TASKS_SWEEP), "table-5")) is None


def test_the_page_shows_a_sweep_first_and_its_entries_folded() -> None:
    tables = Tables(results=(), comparisons=(), tables=(sizes(),))
    page = section("tasks", results=show_results(tables))
    assert page.index("Table 6: model size") < page.index("<details>")
    assert "90.8 ± 0.8" in page
    assert "Table 6: model size: differences" in page
