"""The recipes of the paper's own pretraining, and the list of all recipes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli_runner import Cli

from flows.bert import recipe_steps
from flows.recipes.loader import load_recipe
from flows.recipes.packaged import describe_recipe, packaged_recipes
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


@pytest.fixture(autouse=True)
def corpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in {
        variable for each in map(describe_recipe, packaged_recipes()) for variable in each.variables
    }:
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


def test_base_and_large_differ_only_in_the_model() -> None:
    base, large = (load_recipe(name).model_dump() for name in SHAPES)
    for recipe in (base, large):
        recipe.pop("name")
        recipe["pretrain"]["phase-1"].pop("model")
        for phase in recipe["pretrain"].values():
            phase["batch"].pop("per_device_max_tokens")  # memory alone
    assert base == large


def test_one_gpu_recipe_takes_a_day_and_has_only_trained_positions() -> None:
    recipe = load_recipe("bert-base-1gpu-24h")
    assert sum(phase.budget.max_minutes or 0 for phase in recipe.pretrain.values()) == 24 * 60
    (phase,) = recipe.pretrain.values()
    instances = recipe.build_instances[phase.instances]
    assert phase.model is not None
    assert phase.model.max_position_embeddings == instances.max_seq_length
    share = phase.dynamic_masking.masked_lm_prob * instances.max_seq_length
    assert (
        phase.dynamic_masking.max_predictions_per_seq >= share
    )  # or fewer were masked than it says


def test_squad_ensemble_has_seven_different_members() -> None:
    recipe = load_recipe("squad-ensemble")
    (ensemble,) = recipe.ensembles.values()
    members = [recipe.finetune[name] for name in ensemble.members]
    assert ensemble.ensemble_size == 7
    assert len({member.seed for member in members}) == 7
    assert len({member.init_checkpoint for member in members}) == 7
    for entry in recipe.finetune.values():  # 4.2
        assert (entry.batch_size, entry.learning_rate, entry.num_epochs) == ((32,), (5e-5,), (3,))
        assert entry.dropout == 0.1
    with_triviaqa = recipe.build_examples[members[0].examples]
    assert set(with_triviaqa.data_files) == {"augmentation"}
    assert not recipe.build_examples[recipe.finetune["single"].examples].data_files
    assert recipe_steps(recipe)


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
