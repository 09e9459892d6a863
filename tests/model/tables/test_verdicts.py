"""Verdicts: what is compared, what is claimed, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.evaluation_builder import BASE, SCRATCH, written
from support.sweep_builder import source, steps_sweep, sweep_of

from flows.report.result_charts import spread
from flows.report.results import show_results
from model.tables.render import paper_table
from model.tables.verdicts import Verdict

GOOD, POOR = [0.99, 1.0, 1.0], [0.42, 0.44, 0.43]


def verdicts(*entries: dict[str, Any]) -> list[Verdict]:
    return list(source(*entries).verdicts)


def twins(
    task: str, pretrained: Sequence[float], scratch: Sequence[float], *, data: str = ""
) -> list[dict[str, Any]]:
    """A pretrained entry and one from scratch."""
    return [
        written(task, task, pretrained, model=BASE | {"data": data}),
        written(f"{task}-scratch", task, scratch, model=SCRATCH | {"data": data}),
    ]


def sentences(claims: Sequence[Verdict]) -> list[str]:
    return [verdict.sentence for verdict in claims]


# Pretraining


@pytest.mark.parametrize(
    ("cola", "data", "sentence", "outcomes"),
    [
        (
            (GOOD, POOR), "",
            "Pretraining helps: +57 points on average over 2 tasks "
            "(95 % interval 54 to 59, 3 restarts, 1,000 dev rows each)",
            ["better"] * 3,
        ),
        (
            (GOOD, POOR), "generated sample",
            "Pretraining helps: +57 points on average over 2 tasks "
            "(generated sample, 95 % interval 54 to 59, 3 restarts, 1,000 dev rows each)",
            ["better"] * 3,
        ),
        (
            ([0.1, 0.5, 0.3], [0.2, 0.3, 0.1]), "",
            "Pretraining helps: +33 points on average over 2 tasks "
            "(95 % interval 15 to 59, 3 restarts, 1,000 dev rows each)",
            ["better", "within noise", "better"],
        ),
    ],
)  # fmt: skip
def test_pretraining_on_average_comes_before_each_task(
    cola: tuple[list[float], list[float]], data: str, sentence: str, outcomes: list[str]
) -> None:
    tables = source(*twins("sst-2", GOOD, POOR, data=data), *twins("cola", *cola, data=data))
    assert tables.headline == sentence
    assert [verdict.task for verdict in tables.verdicts] == ["", "cola", "sst-2"]
    assert [verdict.outcome for verdict in tables.verdicts] == outcomes
    assert (tables.verdicts[0].test.runs, tables.verdicts[0].test.rows) == ((3, 3), 1_000)


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ((GOOD, POOR), "Pretraining helps: +57 points on SST-2"),
        ((POOR, GOOD), "Pretraining hurts: -57 points on SST-2"),
        ((GOOD, GOOD), "No difference visible on SST-2"),
        (([0.9], [0.1]), "Not tested on SST-2"),
    ],
)
def test_table_begins_its_notes_with_the_verdicts_on_its_rows(
    runs: tuple[list[float], list[float]], words: str
) -> None:
    tables = source(*twins("sst-2", *runs))
    shown = {table.key: table for table in tables.tables if table.rows}
    assert list(shown) == ["table-1"]
    verdict, *notes = paper_table(shown["table-1"], tables).notes
    assert verdict.startswith(f"Verdict. {words}")
    assert any("not tested against the paper's rows" in note for note in notes)
    alone = source(written("sst-2", "sst-2", GOOD))
    assert alone.verdict_on(alone.tables[0]) == "No two of our rows were compared."


def test_table_of_a_sweep_has_the_verdicts_on_its_variants_only() -> None:
    runs = {"bert-base": GOOD, "no-nsp": POOR, "left-to-right": [0.7, 0.71, 0.72]}
    tables = sweep_of("table-5", {name: {"qnli": scores} for name, scores in runs.items()})
    texts = {table.key: tables.verdict_on(table) for table in tables.tables}
    assert texts["table-5"] == ". ".join([*sentences(tables.verdicts), ""]).rstrip()
    assert set(texts.values()) == {texts["table-5"], "No two of our rows were compared."}


def test_pretraining_is_compared_with_twin_of_same_shape_and_method() -> None:
    wide = SCRATCH | {"hidden_size": 256}
    features = written("f", "conll-2003", GOOD, model=BASE | {"method": "feature-based"})
    other = written("ner-scratch", "conll-2003", POOR, model=SCRATCH)
    claims = verdicts(
        written("sst-2", "sst-2", GOOD), written("w", "sst-2", POOR, model=wide), features, other
    )
    assert [verdict for verdict in claims if verdict.kind == "pretraining"] == []


@pytest.mark.parametrize(
    ("task", "pretrained", "scratch", "outcome", "sentence"),
    [
        (
            "sst-2", GOOD, POOR, "better",
            "Pretraining helps: +57 points on SST-2 "
            "(95 % interval 52 to 61, 3 restarts, 1,000 dev rows)",
        ),
        (
            "sst-2", POOR, GOOD, "worse",
            "Pretraining hurts: -57 points on SST-2 "
            "(95 % interval -60 to -52, 3 restarts, 1,000 dev rows)",
        ),
        (
            "cola", [0.9], [0.1], "not tested",
            "Not tested on CoLA: pretrained minus from scratch is +80 points with one restart; "
            "set restarts: 3 or more",
        ),
        (
            "sst-2", [1.0, 1.0], [1.0, 1.0], "within noise",
            "No difference visible on SST-2 between pretrained and from scratch: 0.0 points "
            "(p 1, 95 % interval -0.1 to 0.1, 2 restarts, 1,000 dev rows)",
        ),
        # Restarts without spread: the rows decide.
        (
            "sst-2", [1.0] * 3, [0.5] * 3, "better",
            "Pretraining helps: +50 points on SST-2 "
            "(95 % interval 47 to 53, 3 restarts, 1,000 dev rows)",
        ),
    ],
)  # fmt: skip
def test_pretraining_on_one_task(
    task: str, pretrained: list[float], scratch: list[float], outcome: str, sentence: str
) -> None:
    (claims,) = verdicts(*twins(task, pretrained, scratch))
    assert claims.sentence == sentence
    assert (claims.kind, claims.outcome, claims.task) == ("pretraining", outcome, task)
    assert (claims.test.first, claims.test.second) == (task, f"{task}-scratch")


def test_p_is_corrected_for_all_comparisons_of_the_table() -> None:
    tasks = ("cola", "sst-2", "mrpc", "rte")
    runs = ([0.69, 0.70, 0.71], [0.66, 0.64, 0.65])
    alone = verdicts(*twins("cola", *runs))
    together = verdicts(*(entry for task in tasks for entry in twins(task, *runs)))
    assert alone[0].outcome == "better"
    assert [verdict.outcome for verdict in together[1:]] == ["within noise"] * 4
    assert together[0].sentence.startswith("Pretraining helps: +5.0 points on average over 4 tasks")


# Entries


def test_best_entry_is_compared_with_each_other() -> None:
    entries = [
        written(
            name,
            "cola",
            [mean, mean + 0.01, mean + 0.02],
            model=BASE | {"num_hidden_layers": layers},
        )
        for layers, (name, mean) in enumerate({"a": 0.2, "b": 0.24, "c": 0.9}.items(), start=1)
    ]
    claims = verdicts(*entries)
    assert [(verdict.test.first, verdict.test.second) for verdict in claims] == [
        ("c", "a"),
        ("c", "b"),
    ]
    assert claims[1].sentence == (
        "c is better than b: +66 points on CoLA "
        "(95 % interval 62 to 71, 3 restarts, 1,000 dev rows)"
    )


def test_entries_on_other_data_are_not_compared() -> None:
    other = written("mine", "cola", POOR, model=BASE | {"data": "my rows"})
    assert verdicts(written("cola", "cola", GOOD), other) == []
    assert verdicts(written("sst-2", "sst-2", [None, 0.9], baseline=0.5)) == []
    third = written("third", "cola", [0.1, 0.11, 0.12], model=BASE | {"data": "my rows"})
    (claim,) = verdicts(written("cola", "cola", GOOD), other, third)
    assert (claim.test.first, claim.test.second) == ("mine", "third")


# The majority class


def test_entry_at_majority_is_bad_news_when_pretrained() -> None:
    claims = verdicts(
        written("sst-2", "sst-2", [0.51, 0.53, 0.49], baseline=0.509),
        written("cola", "cola", GOOD, baseline=0.0),
        written("cola-scratch", "cola", [0.0, 0.0], model=SCRATCH, baseline=0.0),
    )
    assert [verdict.kind for verdict in claims] == ["baseline", "pretraining", "baseline"]
    first, _, last = claims
    assert first.sentence == "SST-2 pretrained: not clearly better than the majority class (50.9)"
    assert first.outcome == "not better than majority"
    assert last.sentence == "CoLA from scratch: not better than the majority class (0.0)"


@pytest.mark.parametrize(
    ("means", "about"),
    [
        ([0.0], "CoLA pretrained"),
        ([0.0, 0.5, 0.6], "CoLA pretrained (e0)"),
        ([0.5, 0.0, 0.0], "CoLA pretrained (e1, e2)"),
        ([0.0, 0.0, 0.5, 0.0, 0.0], "CoLA pretrained (4 of 5 entries)"),
    ],
)
def test_entries_of_a_task_at_majority_are_one_verdict(means: list[float], about: str) -> None:
    entries = [
        written(f"e{number}", "cola", [mean] * 3, baseline=0.0) for number, mean in enumerate(means)
    ]
    (claim,) = (claim for claim in verdicts(*entries) if claim.kind == "baseline")
    assert claim.sentence == f"{about}: not better than the majority class (0.0)"


@pytest.mark.parametrize(
    ("runs", "is_above"),
    [
        ([0.6, 0.61, 0.62], True),
        ([0.52, 0.5, 0.51], False),
        ([0.6, 0.6], True),
        ([0.509, 0.509, 0.509], False),
        ([0.4], False),
        ([0.9], True),  # one restart is no bad news
    ],
)
def test_runs_against_majority(runs: list[float], is_above: bool) -> None:
    claims = verdicts(written("sst-2", "sst-2", runs, baseline=0.509))
    assert (claims == []) is is_above


# Variants


def test_variants_of_table_5_are_named_by_their_change() -> None:
    full, without = [0.98, 1.0, 0.99], [0.8, 0.82, 0.84]
    runs = {"bert-base": full, "no-nsp": without, "left-to-right": without}
    both = {name: {"qnli": scores, "mnli": scores} for name, scores in runs.items()}
    claims = sweep_of("table-5", both).verdicts
    assert sentences(claims) == [
        "Without next-sentence prediction: -17 points on average over 2 columns "
        "(95 % interval -21 to -12, 3 restarts, 1,000 dev rows each), as in the paper",
        "No difference visible on average over 2 columns between left-to-right and no-nsp: "
        "0.0 points (p 1, 95 % interval -5.6 to 5.2, 3 restarts, 1,000 dev rows each)",
    ]
    assert [(one.test.first, one.outcome) for one in claims] == [
        ("no-nsp", "worse"),
        ("left-to-right", "within noise"),
    ]


def test_steps_are_compared_between_objectives_and_half_way() -> None:
    runs = {
        "masked-lm": {"600": [0.5, 0.51, 0.52], "1200": [0.9, 0.91, 0.92]},
        "left-to-right": {"600": POOR, "1200": POOR},
    }
    assert sentences(steps_sweep(runs).verdicts) == [
        "masked-lm instead of left-to-right (at 1,200 steps): +48 points on MNLI "
        "(95 % interval 43 to 53, 3 restarts, 1,000 dev rows), as in the paper",
        "1,200 steps instead of 600 steps (masked-lm): +40 points on MNLI "
        "(95 % interval 35 to 44, 3 restarts, 1,000 dev rows), as in the paper",
        "No difference visible on MNLI between 1,200 steps and 600 steps (left-to-right): "
        "0.0 points (p 0.99, 95 % interval -3.7 to 3.8, 3 restarts, 1,000 dev rows)",
    ]


def test_variants_at_majority_are_one_verdict_at_the_end() -> None:
    chance = {"mnli": [0.4, 0.41, 0.39]}
    runs = {"a": chance, "b": chance, "c": {"mnli": GOOD}}
    claims = sweep_of("table-6", runs, baseline=0.4).verdicts
    about = "MNLI variants (mnli.a, mnli.b)"
    assert claims[-1].sentence == f"{about}: not better than the majority class (40.0)"
    assert [one.kind for one in claims] == ["variants"] * 3 + ["baseline"]


def test_variants_are_compared_with_the_papers_direction() -> None:
    runs = {"bert-base": GOOD, "no-nsp": POOR, "left-to-right": [0.7, 0.71, 0.72], "mine": POOR}
    both = {name: {"qnli": scores, "mnli": scores} for name, scores in runs.items()}
    claims = sentences(sweep_of("table-5", both).verdicts)
    agreements = [claim.rpartition(")")[2] for claim in claims]
    # The paper has no variant "mine".
    assert agreements[:3] == [", as in the paper", ", unlike the paper", ""]
    assert claims[2].startswith("mine instead of bert-base: -57 points")
    steps = {
        "masked-lm": {"600": GOOD, "1200": POOR},
        "left-to-right": {"600": POOR, "1200": [0.7]},
    }
    objectives, masked, *_ = sentences(steps_sweep(steps).verdicts)
    assert masked.startswith("1,200 steps instead of 600 steps (masked-lm): -57 points")
    assert masked.endswith(", unlike the paper")
    assert objectives.startswith(
        "Not tested on MNLI: masked-lm minus left-to-right (at 1,200 steps)"
    )


def test_generated_data_is_named_wherever_a_result_is() -> None:
    tables = source(*twins("sst-2", GOOD, POOR, data="generated sample"))
    label = "SST-2 (generated sample)"
    for sentence in (tables.headline, *(verdict.sentence for verdict in tables.verdicts)):
        assert "SST-2 (generated sample" in sentence
        assert ") (" not in sentence
    results = show_results(tables)
    assert results.overview is not None
    assert results.overview.title.endswith("(generated sample)")
    titles = [view.rows.title for view in results.paper]
    assert titles == ["Table 1: GLUE (ours: generated sample)"]
    for grid in results.grids:
        assert {row[0] for row in grid.rows} == {label}
    assert results.overview_figure is not None
    assert all("(generated sample)" in panel.title for panel in results.overview_figure.panels)


@pytest.mark.parametrize(
    ("mean", "sd", "ends"),
    [(99.5, 2.0, (97.5, 100.0)), (1.0, 3.0, (0.0, 4.0)), (-5.0, 4.0, (-9.0, -1.0))],
)
def test_whiskers_stay_where_scores_can_be(
    mean: float, sd: float, ends: tuple[float, float]
) -> None:
    start, end = spread(mean, sd)
    assert (max(start, -9.0), end) == ends
