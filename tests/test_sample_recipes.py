"""The two recipes of the sample: one for the first minutes, one for everything."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from flows.bert import stages, steps
from flows.recipes.files import load_recipe, packaged_recipes
from schemas.recipe import Recipe

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def short() -> Recipe:
    return load_recipe("sample")


@pytest.fixture(scope="module")
def full() -> Recipe:
    return load_recipe("sample-full")


ASKED_FOR = {"find-contamination", "find-near-duplicates"}
"""Stages of corpora that the sample, whose documents are all new, has no use for."""


def test_the_first_run_has_every_kind_of_stage_and_little_of_each(short: Recipe) -> None:
    found = steps(short)
    assert {step.stage.name for step in found} == set(stages()) - ASKED_FOR
    # Four minutes on two quiet cores: about 16 steps of pretraining a second, 4 s a trial.
    assert sum(phase.budget.steps or 1 << 30 for phase in short.pretrain.values()) <= 1_300
    assert sum(step.stage.name == "finetune" for step in found) <= 20


def test_every_task_is_compared_with_the_same_from_scratch(short: Recipe) -> None:
    pretrained = {name for name, tuned in short.finetune.items() if tuned.start_from}
    assert pretrained == {name for name in short.finetune if not name.endswith("-scratch")}
    for name in pretrained:
        ours = short.finetune[name].model_dump(exclude={"start_from", "model"})
        scratch = short.finetune[f"{name}-scratch"]
        assert scratch.model_dump(exclude={"start_from", "model"}) == ours
        assert scratch.model is not None
        assert short.finetune[name].restarts >= 3  # an interval needs them
    # The last number leads back to the dump.
    assert [*short.finetune][-1] in pretrained


def test_both_read_the_same_corpus(short: Recipe, full: Recipe) -> None:
    for field in ("build_documents", "build_vocabulary", "build_tokens"):
        assert getattr(short, field) == getattr(full, field)
    for name, config in short.build_instances.items():
        assert full.build_instances[name] == config
    for name, config in short.build_examples.items():
        assert full.build_examples[name] == config
    assert short.pretrain["phase-1"].model == full.pretrain["phase-1"].model


def test_the_full_one_has_a_task_of_each_kind(full: Recipe) -> None:
    from model.tasks import find_task

    kinds = {find_task(examples.task).type for examples in full.build_examples.values()}
    assert kinds == {"classification", "regression", "span", "choice", "tagging"}


def test_what_runs_by_itself_names_recipes_that_there_are() -> None:
    packaged = set(packaged_recipes())
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    assert {item["parameters"]["recipe"] for item in deployments} <= packaged
    (nightly,) = [item for item in deployments if item["name"] == "nightly"]
    assert nightly["parameters"]["recipe"] == "sample-full"
    assert "run sample --store" in (ROOT / "Makefile").read_text()
