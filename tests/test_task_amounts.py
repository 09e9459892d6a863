"""What cells and evaluations hold, in a few words."""

from __future__ import annotations

from flows.engine.task_amounts import cells_amount, task_amount


def cell(f1: float) -> dict[str, object]:
    # Sorted by name, as JSON gives them.
    dev = {"em": f1 - 0.1, "f1": f1, "has-answer-em": 0.2}
    return {"task": "squad-2.0", "metrics": {"dev": dev}}


def test_the_metric_that_chooses_comes_first() -> None:
    assert task_amount("finetune", cell(0.5)) == "f1 .500, em .400 on dev"
    assert cells_amount([cell(0.5), cell(0.25)]) == "2 cells, f1 .250 to .500"
    assert task_amount("finetune", {"task": "rte", "metrics": {}}) == "no answers on dev"
    assert task_amount("build-tokens", {}) is None
    assert cells_amount([{"task": "rte", "metrics": {}}]) == "1 cell"


def test_statistics_of_another_make_are_no_fault() -> None:
    for statistics in ({}, {"task": "gone", "metrics": {"dev": {"f1": 0.5}}}, {"metrics": 3}):
        for stage in ("build-examples", "finetune", "evaluate"):
            assert task_amount(stage, statistics) is None
        assert cells_amount([statistics, statistics]) == "2 cells"
