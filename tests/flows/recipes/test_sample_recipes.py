"""The two recipes of the sample: one for the first minutes, one for everything."""

from __future__ import annotations

import pytest
import yaml
from support.paths import ROOT

from flows.bert import recipe_steps, stages
from flows.recipes.loader import load_recipe
from flows.recipes.packaged import packaged_recipes
from schemas.recipe import Recipe


@pytest.fixture(scope="module")
def short() -> Recipe:
    return load_recipe("sample")


@pytest.fixture(scope="module")
def full() -> Recipe:
    return load_recipe("sample-full")


SEARCHES = {"find-contamination", "find-near-duplicates"}
"""Stages that the sample does not need, because all of its documents are new."""


def test_sample_has_all_stages_and_few_steps(short: Recipe) -> None:
    found = recipe_steps(short)
    assert {step.stage.name for step in found} == set(stages()) - SEARCHES
    # Two minutes on two quiet cores: about 50 steps of pretraining a second, 2 s a trial.
    assert sum(phase.budget.max_steps or 1 << 30 for phase in short.pretrain.values()) <= 2_300
    assert sum(step.stage.name == "finetune" for step in found) <= 24


def test_sample_compares_every_task_with_scratch(short: Recipe) -> None:
    pretrained = {name for name, tuned in short.finetune.items() if tuned.init_from_phase}
    assert pretrained == {name for name in short.finetune if not name.endswith("-scratch")}
    for name in pretrained:
        ours = short.finetune[name].model_dump(exclude={"init_from_phase", "model"})
        scratch = short.finetune[f"{name}-scratch"]
        assert scratch.model_dump(exclude={"init_from_phase", "model"}) == ours
        assert scratch.model is not None
        assert short.finetune[name].restarts >= 3  # an interval needs them
    # The last number leads back to the dump.
    assert [*short.finetune][-1] in pretrained


@pytest.mark.parametrize(
    ("name", "until"), [("sample-full", ""), ("ablation-size-sample", "build-tokens")]
)
def test_recipe_shares_artifacts_of_sample(short: Recipe, name: str, until: str) -> None:
    others = {step.label: step for step in recipe_steps(load_recipe(name))}
    for step in recipe_steps(short, until=until):
        if step.stage.name != "tabulate":
            other = others[step.label]
            # With equal inputs, these decide the cache key.
            assert (other.stage, other.inputs) == (step.stage, step.inputs)
            assert other.config.cache_key_fields() == step.config.cache_key_fields(), step.label


def test_sample_full_compares_every_task_of_the_paper_with_scratch(full: Recipe) -> None:
    glue = {"cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli"}
    others = {"squad-1.1", "squad-2.0", "swag", "conll-2003"}
    assert {examples.task for examples in full.build_examples.values()} == glue | others
    for name in glue | others:
        pretrained, scratch = full.finetune[name], full.finetune[f"{name}-scratch"]
        assert pretrained.init_from_phase == "phase-2"
        assert scratch.model is not None
        exclude = {"init_from_phase", "model"}
        assert pretrained.model_dump(exclude=exclude) == scratch.model_dump(exclude=exclude)


def test_deployments_name_packaged_recipes() -> None:
    packaged = set(packaged_recipes())
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    assert {item["parameters"]["recipe"] for item in deployments} <= packaged
    (nightly,) = [item for item in deployments if item["name"] == "nightly"]
    assert nightly["parameters"]["recipe"] == "sample-full"
    assert "run sample --store" in (ROOT / "Makefile").read_text()
