"""One-line summaries of trials and evaluations."""

from __future__ import annotations

from typing import Any

from flows.run.stages import get_stage
from schemas.manifest import Manifest


def made(stage: str, statistics: Any) -> Manifest:
    return Manifest.model_construct(
        stage=stage, statistics=statistics, counters={}, table_name="", files=()
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
    statistics = {
        "metric": "accuracy",
        "points": [{"name": "point", "mean": 0.276, "sd": 0.054, "runs": 5}],
        "best_point": "point",
        "metrics": {"dev": {"accuracy": 0.336}},
        "ensemble": 1,
    }
    amount = get_stage("evaluate").summary(made("evaluate", statistics))
    assert amount == "accuracy 27.6 ± 5.4, 5 restarts, best 33.6"
