"""Packaged recipes: those of the paper, those of the sample, and the list of all."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import yaml
from support.cli_runner import Cli
from support.paths import ROOT

from flows.bert import recipe_steps
from flows.recipes.loader import load_recipe
from flows.recipes.packaged import describe_recipe, packaged_recipes
from flows.run.stages import STAGES
from schemas.finetune_configs import FinetuneConfig
from schemas.recipe import Recipe

PAPER: dict[str, object] = {
    # 3: shapes are in `SHAPES`; positions up to 512, WordPiece of some 30,000
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "vocab_size": 30_522,  # of the vocabulary that was released
    "lowercase": True,
    # 3.1: masks and pairs
    "masked_lm_prob": 0.15,
    "mask_token_prob": 0.8,
    "random_token_prob": 0.1,
    "unchanged_prob": 0.1,
    "strategy": "wordpiece",
    "pairing": "nsp",
    "random_next_prob": 0.5,
    "objective": "mlm+nsp",
    "masking": "stored",
    # A.2: batches, steps, Adam
    "instances": 256,
    "steps": {128: 900_000, 512: 100_000},  # 90 % of one million
    "total_budget": 1_000_000,
    "warm-up steps": 10_000,
    "lr_scheduler_type": "linear",
    "min_lr_ratio": 0.0,
    "optimizer": "bert-adam",
    "learning_rate": 1e-4,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "weight_decay": 0.01,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
}
SHAPES = {"bert-base": (12, 768, 12, 3072), "bert-large": (24, 1024, 16, 4096)}


@functools.cache
def variables() -> set[str]:
    """Return the names of the variables of all packaged recipes."""
    return {name for each in map(describe_recipe, packaged_recipes()) for name in each.variables}


@pytest.fixture(autouse=True)
def corpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in variables():
        monkeypatch.setenv(name, f"/data/{name.lower()}")


def settings_of(recipe: Recipe) -> list[dict[str, object]]:
    """Return the settings of each phase, by the names of PAPER."""
    settings = []
    first, *_ = recipe.pretrain.values()
    assert first.model is not None
    for phase in recipe.pretrain.values():
        instances = recipe.build_instances[phase.instances]
        schedule = phase.schedule
        assert schedule.total_budget is not None
        settings.append(
            {
                **first.model.model_dump(),
                **recipe.build_vocabulary.model_dump(),
                **instances.model_dump(),
                **instances.masking.model_dump(),
                **phase.model_dump(include={"objective", "masking"}),
                **phase.optimizer.model_dump(exclude={"name"}),
                **schedule.model_dump(),
                "optimizer": phase.optimizer.name,
                "instances": phase.batch.global_batch_size,
                "steps": phase.budget.max_steps,
                "warm-up steps": schedule.warmup_ratio * schedule.total_budget,
            }
        )
    return settings


@pytest.mark.parametrize("name", SHAPES)
def test_pretraining_has_settings_of_the_paper(name: str) -> None:
    recipe = load_recipe(name)
    settings = settings_of(recipe)
    assert [each["max_seq_length"] for each in settings] == [128, 512]
    for each in settings:
        length = each["max_seq_length"]
        paper = {**PAPER, "steps": PAPER["steps"][length]}  # type: ignore[index]
        assert {key: each[key] for key in paper} == paper
    model = next(iter(recipe.pretrain.values())).model
    assert model is not None
    assert SHAPES[name] == (
        model.num_hidden_layers,
        model.hidden_size,
        model.num_attention_heads,
        model.feed_forward_size,
    )
    assert [phase.init_from_phase for phase in recipe.pretrain.values()] == [None, "phase-1"]
    assert recipe.pretrain["phase-2"].optimizer_state == "restore"


def test_command_lists_recipes_and_writes_copies(cli: Cli) -> None:
    listed = cli("recipes")
    assert listed.code == 0
    for name in packaged_recipes():
        assert f"\n{name} " in listed.out
    assert "ENWIKI ITWIKI JAWIKI" in listed.out
    assert {each["name"] for each in json.loads(cli("recipes", "--json").out)} == set(
        packaged_recipes()
    )
    assert cli("init", "mine.yaml", "--from", "bert-large").code == 0
    assert load_recipe("mine.yaml").name == "bert-large"
    refused = cli("init", "other.yaml", "--from", "bert-huge")
    assert refused.code == 2
    assert "bert-large" in refused.err


# Recipes of the sample: one for the first minutes, one for everything


@pytest.fixture(scope="module")
def short() -> Recipe:
    return load_recipe("sample")


def differing_fields(one: FinetuneConfig, other: FinetuneConfig) -> set[str]:
    first, second = one.model_dump(), other.model_dump()
    return {name for name in first if first[name] != second[name]}


SEARCHES = {"find-contamination", "find-near-duplicates"}
"""Stages that the sample does not need, because all of its documents are new."""


def test_sample_has_all_stages_and_few_steps(short: Recipe) -> None:
    graph = recipe_steps(short)
    assert {step.stage.name for step in graph} == set(STAGES) - SEARCHES
    # Two minutes on two quiet cores: about 50 steps of pretraining a second, 2 s a trial.
    assert sum(phase.budget.max_steps or 1 << 30 for phase in short.pretrain.values()) <= 2_300
    assert sum(step.stage.name == "finetune" for step in graph) <= 24


def test_sample_compares_every_task_with_scratch(short: Recipe) -> None:
    pretrained = {name for name, tuned in short.finetune.items() if tuned.init_from_phase}
    assert pretrained == {name for name in short.finetune if not name.endswith("-scratch")}
    for name in pretrained:
        ours, scratch = short.finetune[name], short.finetune[f"{name}-scratch"]
        assert differing_fields(ours, scratch) == {"init_from_phase", "model"}
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


def test_sample_full_compares_every_task_of_the_paper_with_scratch() -> None:
    full = load_recipe("sample-full")
    glue = {"cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli"}
    others = {"squad-1.1", "squad-2.0", "swag", "conll-2003"}
    assert {examples.task for examples in full.build_examples.values()} == glue | others
    for name in glue | others:
        pretrained, scratch = full.finetune[name], full.finetune[f"{name}-scratch"]
        assert pretrained.init_from_phase == "phase-2"
        assert differing_fields(pretrained, scratch) == {"init_from_phase", "model"}


def test_deployments_name_packaged_recipes() -> None:
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    parameters = (item["parameters"] for item in deployments)
    names = {values.get("request", values)["recipe"] for values in parameters}
    assert names <= {*packaged_recipes()}
