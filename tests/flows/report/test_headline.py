"""The headline of a run, for every kind of result and end."""

from __future__ import annotations

from typing import Any

import pytest
from support.evaluation_builder import written
from support.lineage_builder import put, put_recipe

from flows.report.headline import find_headline, run_headline
from flows.report.run_steps import Built, Steps, read_steps
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run, run_ids


@pytest.mark.parametrize(
    ("data", "name"),
    [("generated sample", "cola (generated sample)"), ("Briefe", "cola (Briefe)"), ("", "cola")],
)
def test_headline_names_data_that_is_not_the_task_s_own(
    store: ArtifactStore, data: str, name: str
) -> None:
    splits = {"splits": {"train": 4}}
    other = put(store, "build-examples", key="other", statistics={**splits, "data": "another"})
    examples = put(store, "build-examples", key="own", statistics={**splits, "data": data})
    evaluation = put(
        store, "evaluate", {"examples": examples}, statistics=written("cola", "cola", [0.5])
    )
    made = {"build-examples.x": other, "build-examples.cola": examples, "evaluate.cola": evaluation}
    steps = Steps((), tuple(Built(label, manifest) for label, manifest in made.items()))
    assert find_headline(steps, None).startswith(f"{name}: matthews 50.0")


@pytest.mark.parametrize(
    ("stages", "headline"),
    [
        (1, "1 file"),
        (4, "1 file, 9,000 tokens"),
        (5, "pretrain.phase-2: 0 steps, held-out perplexity 12.50"),
    ],
)
def test_headline_without_scores_is_perplexity_or_corpus(
    store: ArtifactStore, stages: int, headline: str
) -> None:
    made = dict(list(put_recipe(store).items())[:stages])
    if "pretrain.phase-2" in made:
        counted = made["pretrain.phase-2"].model_copy(update={"counters": {"steps": 0}})
        made["pretrain.phase-2"] = counted
    steps = Steps((), tuple(Built(label, manifest) for label, manifest in made.items()))
    assert find_headline(steps, None) == headline


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({"state": "running"}, "The run is running"),
        ({"state": "interrupted"}, "The run was interrupted"),
        ({"state": "failed", "failures": {"": "no disk"}}, "The run failed"),
        (
            {"state": "failed", "failures": dict.fromkeys(["a.x", "b", "c", "d"], "E")},
            "a.x, b, c ... failed",
        ),
    ],
)
def test_headline_of_run_that_did_not_complete_is_its_end(
    store: ArtifactStore, changes: dict[str, Any], headline: str
) -> None:
    put_recipe(store)
    record = read_run(store, run_ids(store)[-1])
    steps = read_steps(store, record)
    assert run_headline(record.model_copy(update=changes), steps, None) == headline
    assert run_headline(record, steps, None).startswith("cola: matthews")
