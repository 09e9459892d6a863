"""Verdicts: what is compared, what is claimed, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.evaluation_builder import BASE, SCRATCH, majority, results, written

from model.tables.filled_tables import fill_tables
from model.tables.significance import compare_entries, mean_difference
from model.tables.sweeps import Sweep, all_tables
from model.tables.verdicts import Verdict, find_verdicts
from schemas.finetune_configs import ExpandedAxis, ExpandedEntry, TabulateConfig

GOOD, POOR = [0.99, 1.0, 1.0], [0.42, 0.44, 0.43]
FEATURES = {**BASE, "method": "feature-based", "feature_layers": "concat-last-4"}


def verdicts(*given: dict[str, Any]) -> list[Verdict]:
    rows = results(*given)
    return list(find_verdicts(rows, compare_entries(rows), fill_tables(rows), swept=()))


def of_sweep(
    axes: dict[str, ExpandedAxis], entries: Sequence[ExpandedEntry], *given: dict[str, Any]
) -> list[Verdict]:
    rows = results(*given)
    sweep = Sweep(TabulateConfig(axes=axes, expanded_sweep=tuple(entries)), rows)
    comparisons = compare_entries(rows, swept=sweep.entries)
    return list(find_verdicts(rows, comparisons, all_tables(sweep), swept=sweep.entries))


def twins(task: str, pretrained: Sequence[float], scratch: Sequence[float]) -> list[dict[str, Any]]:
    """A pretrained entry and one from scratch."""
    return [
        written(task, task, pretrained),
        written(f"{task}-scratch", task, scratch, model=SCRATCH),
    ]


def sentences(found: Sequence[Verdict]) -> list[str]:
    return [verdict.sentence for verdict in found]


# Pretraining


def test_pretraining_on_one_task() -> None:
    (found,) = verdicts(*twins("sst-2", GOOD, POOR))
    assert found.sentence == (
        "Pretraining helps: +57 points on SST-2 (95 % interval 55 to 59, 3 restarts)"
    )
    assert (found.kind, found.outcome, found.task) == ("pretraining", "better", "sst-2")
    assert (found.first, found.second, found.restarts) == ("sst-2", "sst-2-scratch", 3)
    assert found.difference == pytest.approx(0.5667, abs=1e-3)
    assert found.p is not None
    assert found.p < 0.05


def test_pretraining_on_all_tasks_is_summarized_first() -> None:
    found = verdicts(*twins("sst-2", GOOD, POOR), *twins("cola", GOOD, POOR))
    assert sentences(found)[0] == (
        "Pretraining helps on all 2 tasks: +57 points on average "
        "(95 % interval 56 to 58, 3 restarts each)"
    )
    assert [verdict.task for verdict in found] == ["", "sst-2", "cola"]
    pairs = [(GOOD, POOR), (GOOD, POOR)]
    assert (found[0].difference, found[0].low) == pytest.approx(mean_difference(pairs)[:2])


def test_pretraining_on_some_tasks_is_counted() -> None:
    found = verdicts(*twins("sst-2", GOOD, POOR), *twins("cola", [0.1, 0.5, 0.3], [0.2, 0.3, 0.1]))
    assert found[0].sentence.startswith(
        "Pretraining helps on 1 of 2 tasks: +33 points on average over all 2 (95 % interval"
    )
    assert found[0].outcome == "better"
    assert found[2].outcome == "no difference"
    assert found[2].sentence == (
        "No difference visible on CoLA between pretrained and from scratch: +10 points (p 0.5); "
        "more restarts are needed"
    )


def test_pretraining_that_hurts_is_said() -> None:
    (found,) = verdicts(*twins("sst-2", POOR, GOOD))
    assert (found.outcome, found.sentence.partition(":")[0]) == ("worse", "Pretraining hurts")
    assert found.difference < 0
    mixed = verdicts(*twins("sst-2", GOOD, POOR), *twins("cola", POOR, [0.7, 0.71, 0.72]))
    assert mixed[0].sentence.startswith("Pretraining helps on 1 and hurts on 1 of 2 tasks: +14")


def test_pretraining_is_compared_with_twin_of_same_shape_and_method() -> None:
    wide = SCRATCH | {"hidden_size": 256}
    features = written("f", "conll-2003", GOOD, model=FEATURES)
    other = written("ner-scratch", "conll-2003", POOR, model=SCRATCH)
    found = verdicts(
        written("sst-2", "sst-2", GOOD), written("w", "sst-2", POOR, model=wide), features, other
    )
    assert [verdict for verdict in found if verdict.kind == "pretraining"] == []


# Without a test, no claim


def test_one_restart_is_not_tested() -> None:
    (found,) = verdicts(*twins("cola", [0.9], [0.1]))
    assert (found.outcome, found.p, found.low) == ("untested", None, None)
    assert found.sentence == (
        "Not tested on CoLA: pretrained minus from scratch is +80 points with one restart; "
        "set restarts: 3 or more"
    )


@pytest.mark.parametrize(("restarts", "outcome"), [(3, "untested"), (4, "better")])
def test_restarts_without_spread_are_dealt_out(restarts: int, outcome: str) -> None:
    (found,) = verdicts(*twins("sst-2", [1.0] * restarts, [0.5] * restarts))
    assert found.outcome == outcome  # 2 of 20 ways are as far apart, and 2 of 70
    assert found.p == pytest.approx(0.1 if restarts == 3 else 2 / 70)


def test_summary_of_samples_without_spread_has_no_interval() -> None:
    high, low = [1.0] * 5, [0.4] * 5
    found = verdicts(*twins("sst-2", high, low), *twins("cola", low, high))
    assert found[0].sentence == (
        "Pretraining helps on 1 and hurts on 1 of 2 tasks: 0.0 points on average over all 2 "
        "(p 1, 5 restarts without spread each)"
    )


def test_equal_restarts_are_no_difference() -> None:
    (found,) = verdicts(*twins("sst-2", [1.0, 1.0], [1.0, 1.0]))
    assert (found.outcome, found.difference) == ("no difference", 0.0)
    assert "more restarts" not in found.sentence


def test_p_is_corrected_for_all_pairs_of_entries() -> None:
    tasks = ("cola", "sst-2", "mrpc", "rte")
    runs = ([0.60, 0.64, 0.62], [0.50, 0.54, 0.57])
    alone = verdicts(*twins("cola", *runs))
    together = verdicts(*(entry for task in tasks for entry in twins(task, *runs)))
    assert alone[0].outcome == "better"
    assert [verdict.outcome for verdict in together[1:]] == ["no difference"] * 4
    assert together[1].p == pytest.approx(4 * (alone[0].p or 0.0))
    assert together[0].sentence.startswith("Pretraining helps: +8.3 points on average over 4 tasks")


def test_means_of_samples_without_spread_are_tested_together() -> None:
    pair = ([1.0] * 3, [0.5] * 3)
    assert mean_difference([pair, pair]).p == pytest.approx(2 / 400)
    assert mean_difference([pair, ([0.5] * 3, [0.5] * 3)]).p == mean_difference([pair]).p
    assert mean_difference([pair, ([0.5] * 3, [0.9] * 3)]).p is None  # of opposite signs


# Entries


def test_best_entry_is_compared_with_each_other() -> None:
    given = [
        written(
            name,
            "cola",
            [mean, mean + 0.01, mean + 0.02],
            model=BASE | {"num_hidden_layers": layers},
        )
        for layers, (name, mean) in enumerate({"a": 0.2, "b": 0.24, "c": 0.9}.items(), start=1)
    ]
    found = verdicts(*given)
    assert [(verdict.first, verdict.second) for verdict in found] == [("c", "b"), ("c", "a")]
    assert found[0].sentence == (
        "c is better than b: +66 points on CoLA (95 % interval 64 to 68, 3 restarts)"
    )


def test_entries_on_other_data_are_not_compared() -> None:
    other = written("mine", "cola", POOR, model=BASE | {"data": "my rows"})
    assert verdicts(written("cola", "cola", GOOD), other) == []


# The majority class


def test_entry_at_majority_is_bad_news_when_pretrained() -> None:
    found = verdicts(
        written("sst-2", "sst-2", [0.51, 0.53, 0.49], baseline=0.509),
        written("cola", "cola", GOOD, baseline=0.0),
        written("cola-scratch", "cola", [0.0, 0.0], model=SCRATCH, baseline=0.0),
        majority("rule", "sst-2", 0.509),
    )
    assert [verdict.kind for verdict in found] == ["baseline", "pretraining", "baseline"]
    first, _, last = found
    assert first.sentence == "SST-2 pretrained: not clearly better than the majority class (50.9)"
    assert (first.outcome, first.majority) == ("not better than majority", 0.509)
    assert last.sentence == "CoLA from scratch: not better than the majority class (0.0)"


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
    found = verdicts(written("sst-2", "sst-2", runs, baseline=0.509))
    assert (found == []) is is_above


# Variants


def swept(axis: str, table: str, variants: dict[str, dict[str, list[float]]]) -> list[Verdict]:
    """Verdicts of a sweep: the runs by variant and task."""
    tasks = {task: None for runs in variants.values() for task in runs}
    entries = [
        ExpandedEntry(entry=f"{task}/{name}", of=task, variants={axis: name}, phase=name)
        for task in tasks
        for name in variants
    ]
    given = [
        written(one.entry, one.of, variants[one.phase][one.of], baseline=0.4) for one in entries
    ]
    return of_sweep({axis: ExpandedAxis(table=table, variants=tuple(variants))}, entries, *given)


def test_variants_of_table_5_are_named_by_their_change() -> None:
    full, without = [0.98, 1.0, 0.99], [0.8, 0.82, 0.84]
    found = swept(
        "tasks",
        "table-5",
        {
            "bert-base": {"qnli": full, "mnli": full},
            "no-nsp": {"qnli": without, "mnli": without},
            "left-to-right": {"qnli": without, "mnli": without},
        },
    )
    assert sentences(found) == [
        "Without next-sentence prediction: -17 points on average over 2 tasks "
        "(95 % interval -19 to -15, 3 restarts)",
        "No difference visible on average over 2 tasks between left-to-right and no-nsp: "
        "0.0 points (p 1); more restarts are needed",
    ]
    assert [(one.first, one.outcome) for one in found] == [
        ("no-nsp", "worse"),
        ("left-to-right", "no difference"),
    ]
    assert found[0].title == "2 tasks"


def test_sizes_begin_with_largest_and_smallest() -> None:
    found = swept(
        "size",
        "table-6",
        {
            "1-32-1": {"mnli": [0.5, 0.51, 0.52]},
            "1-64-1": {"mnli": [0.6, 0.61, 0.62]},
            "2-64-1": {"mnli": [0.7, 0.71, 0.72]},
        },
    )
    assert [(one.first, one.second) for one in found] == [
        ("2-64-1", "1-32-1"), ("1-64-1", "1-32-1"), ("2-64-1", "1-64-1"),
    ]  # fmt: skip
    assert found[0].sentence == (
        "Size 2-64-1 instead of 1-32-1: +20 points on MNLI-m (95 % interval 18 to 22, 3 restarts)"
    )


def test_steps_are_compared_between_objectives_and_half_way() -> None:
    axes = {
        "objective": ExpandedAxis(table="figure-5", variants=("masked-lm", "left-to-right")),
        "steps": ExpandedAxis(table="figure-5", variants=("600", "1200")),
    }
    runs = {"masked-lm": ([0.5, 0.51, 0.52], [0.9, 0.91, 0.92]), "left-to-right": (POOR, POOR)}
    entries, given = [], []
    for objective, at in runs.items():
        for step, scores in zip(("600", "1200"), at, strict=True):
            name = f"{objective}-{step}"
            variants = {"objective": objective, "steps": step}
            entries.append(ExpandedEntry(entry=name, of="mnli", variants=variants, phase=objective))
            given.append(written(name, "mnli", scores))
    assert sentences(of_sweep(axes, entries, *given)) == [
        "masked-lm instead of left-to-right (at 1,200 steps): +48 points on MNLI "
        "(95 % interval 46 to 50, 3 restarts)",
        "1,200 steps instead of 600 steps (masked-lm): +40 points on MNLI "
        "(95 % interval 38 to 42, 3 restarts)",
        "No difference visible on MNLI between 1,200 steps and 600 steps (left-to-right): "
        "0.0 points (p 1); more restarts are needed",
    ]


def test_masking_of_table_8_is_compared_with_the_papers_rule() -> None:
    rule, less = [0.98, 1.0, 0.99], [0.8, 0.82, 0.84]
    found = swept(
        "masking",
        "table-8",
        {
            "80-10-10": {"mnli": rule, "conll-2003": rule},
            "100-0-0": {"mnli": less, "conll-2003": less},
            "0-0-100": {"mnli": rule, "conll-2003": rule},
        },
    )
    assert sentences(found) == [
        "Masking 100-0-0 instead of 80-10-10: -17 points on average over 2 tasks "
        "(95 % interval -19 to -15, 3 restarts)",
        "No difference visible on average over 2 tasks between 0-0-100 and 80-10-10: "
        "0.0 points (p 1); more restarts are needed",
    ]


def test_variants_at_majority_are_one_verdict_at_the_end() -> None:
    chance = [0.4, 0.41, 0.39]
    found = swept(
        "size", "table-6", {"a": {"mnli": chance}, "b": {"mnli": chance}, "c": {"mnli": GOOD}}
    )
    assert found[-1].sentence == "MNLI, 2 of 3 variants: not better than the majority class (40.0)"
    assert [one.kind for one in found] == ["variants"] * 3 + ["baseline"]


def test_features_are_compared_with_fine_tuning() -> None:
    found = verdicts(
        written("ner", "conll-2003", [0.95, 0.96, 0.97]),
        written("ner-features", "conll-2003", [0.8, 0.81, 0.79], model=FEATURES),
    )
    assert sentences(found) == [
        "Features (concat-last-4) instead of fine-tuning: -16 points on CoNLL-2003 "
        "(95 % interval -18 to -14, 3 restarts)"
    ]


def test_nothing_to_compare_has_no_verdict() -> None:
    assert verdicts(written("sst-2", "sst-2", [0.9])) == []
    assert verdicts(written("sst-2", "sst-2", [None, 0.9], baseline=0.5)) == []
