"""Numbers, tables, nested values and record counts as text."""

from __future__ import annotations

from typing import Any

import pytest

from flows.formatting import format_statistic
from flows.record_counts import record_counts
from flows.run.stages import get_stage
from schemas.manifest import Manifest


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("metrics.dev.accuracy", 0.5, "50.0"),
        ("held_out.mlm_accuracy", 0.5, "50.0"),
        ("held_out.perplexity", 1234.5678, "1,234.57"),
        ("entries.squad-1.1.mean", 0.5, "50.0"),
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


def made(stage: str, statistics: Any) -> Manifest:
    return Manifest.model_construct(
        artifact_id="0" * 16,
        stage=stage,
        statistics=statistics,
        counters={},
        table_name="",
        files=(),
    )


def trial(f1: float) -> Manifest:
    # Sorted by name, as JSON gives them.
    dev = {"em": f1 - 0.1, "f1": f1, "has-answer-em": 0.2}
    return made("finetune", {"task": "squad-2.0", "metrics": {"dev": dev}})


def test_the_metric_that_chooses_comes_first() -> None:
    stage = get_stage("finetune")
    assert stage.summary(trial(0.5)) == "f1 50.0, em 40.0 on dev"
    assert stage.summary_of([trial(0.5), trial(0.25)]) == "2 trials, f1 25.0 to 50.0"
    without = made("finetune", {"task": "rte", "metrics": {}})
    assert stage.summary(without) == "no answers on dev"
    assert stage.summary_of([without]) == "1 trial"


def test_evaluation_has_mean_deviation_and_restarts_in_percent() -> None:
    point = "bs16-lr2e-05-ep3"
    cells = [
        {"name": f"{point}-r{number}", "restart": number, "metrics": {"dev": {"accuracy": score}}}
        for number, score in enumerate((0.222, 0.276, 0.33))
    ]
    statistics = {
        "task": "rte",
        "metric": "accuracy",
        "cells": cells,
        "best_point": point,
        "metrics": {"dev": {"accuracy": 0.336}},
        "ensemble": 1,
    }
    amount = get_stage("evaluate").summary(made("evaluate", statistics))
    assert amount == "accuracy 27.6 ± 5.4, 3 restarts, best 33.6"
