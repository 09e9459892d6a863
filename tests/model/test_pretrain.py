"""Pretraining as a stage: artifacts, lineage, phases, and what other programs make of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.corpus_builder import small_recipe, small_sample
from support.training_builder import TINY, tiny_config

from flows.bert import plan_recipe
from flows.lineage.graph import upstream_graph
from flows.lineage.rendering import tree_lines
from flows.run.log_lines import result_summary
from flows.run.step_execution import StepResult
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from schemas.configs import InstancesConfig, MaskingConfig
from schemas.errors import ConfigError, InstancesError, MissingInputError
from schemas.manifest import Manifest
from schemas.recipe import Recipe

LABELS = ("pretrain.phase-1", "pretrain.phase-2")


def phases(**second: Any) -> dict[str, Any]:
    share = {"warmup_ratio": 0.2, "total_budget": 10}
    return {
        "phase-1": tiny_config(budget={"max_steps": 7}, schedule=share),
        "phase-2": tiny_config(
            length=64, init_from_phase="phase-1", budget={"max_steps": 3}, schedule=share, **second
        ),
    }


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    folder = tmp_path_factory.mktemp("pretrain")
    masking = MaskingConfig(max_predictions_per_seq=10)
    return small_recipe(small_sample(folder / "raw")).model_copy(
        update={
            "store": str(folder / "store"),
            "build_instances": {
                f"length-{length}": InstancesConfig(
                    max_seq_length=length, held_out_fraction=0.1, masking=masking
                )
                for length in (32, 64)
            },
            "pretrain": phases(),
        }
    )


def run(recipe: Recipe) -> dict[str, StepResult]:
    results = run_recipe(recipe, log=lambda _line: None, engine="local")
    return {result.label: result for result in results}


@pytest.fixture(scope="module")
def results(recipe: Recipe) -> dict[str, StepResult]:
    return run(recipe)


@pytest.fixture
def store(recipe: Recipe) -> ArtifactStore:
    return ArtifactStore(recipe.store, create=False)


def data(manifest: Manifest, store: ArtifactStore) -> Path:
    return Path(store.url(manifest.data))


def lines(manifest: Manifest, store: ArtifactStore) -> list[dict[str, Any]]:
    text = (data(manifest, store) / "curves.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_phases_are_artifacts_with_a_lineage(
    results: dict[str, StepResult], store: ArtifactStore
) -> None:
    first, second = (results[label].manifest for label in LABELS)
    assert first.counters["steps"] == 7
    assert second.counters["steps"] == 3
    checkpoint = second.input("checkpoint")
    assert checkpoint is not None
    assert checkpoint.artifact_id == first.artifact_id
    tree = "\n".join(tree_lines(upstream_graph([second], store=store)))
    assert "held-out perplexity" in tree
    assert "books.tar.gz" in tree
    assert not list(Path(store.root, "work").glob("pretrain/*"))
    assert "3 steps, held-out perplexity" in result_summary(results[LABELS[1]])
    assert {"events/events.out.tfevents.0", "curves.jsonl", "timing.jsonl"} <= {
        entry.path for entry in first.files if entry.is_record
    }


def test_a_second_run_does_nothing_and_a_change_only_what_depends_on_it(
    recipe: Recipe, results: dict[str, StepResult], store: ArtifactStore
) -> None:
    assert all(result.was_cached for result in run(recipe).values())
    changed = recipe.model_copy(update={"pretrain": phases(seed=3)})
    states = {step.label: step.state for step in plan_recipe(changed, store=store)}
    assert [label for label, state in states.items() if state != "cached"] == [LABELS[1]]
    # How and where it is trained is not what is trained.
    elsewhere = recipe.model_copy(update={"pretrain": phases(num_processes=2, logging_steps=7)})
    assert all(step.state == "cached" for step in plan_recipe(elsewhere, store=store))


def test_the_second_phase_goes_on_in_the_schedule(
    results: dict[str, StepResult], store: ArtifactStore
) -> None:
    rates = [
        line["learning_rate"]
        for label in LABELS
        for line in lines(results[label].manifest, store)
        if line["kind"] == "train"
    ]
    # Two steps of warm-up of ten, then the decay of optimization.py, lines 32-54.
    expected = [0.0, 5e-4, *(1e-3 * (1 - step / 10) for step in range(2, 10))]
    assert rates == pytest.approx(expected)


def test_a_reset_optimizer_begins_its_schedule_anew(
    recipe: Recipe, results: dict[str, StepResult], store: ArtifactStore
) -> None:
    again = recipe.model_copy(update={"pretrain": phases(optimizer_state="reset")})
    manifest = run(again)[LABELS[1]].manifest
    assert lines(manifest, store)[0]["learning_rate"] == 0.0


def test_another_optimizer_cannot_carry_on(recipe: Recipe) -> None:
    other = recipe.model_copy(update={"pretrain": phases(optimizer={"name": "lamb"})})
    with pytest.raises(ConfigError, match="optimizer_state to reset"):
        run(other)


def test_the_artifact_is_a_checkpoint_that_transformers_loads(
    results: dict[str, StepResult], store: ArtifactStore
) -> None:
    from transformers import AutoModelForPreTraining, AutoTokenizer

    folder = data(results[LABELS[1]].manifest, store)
    model, info = AutoModelForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    given = tokenizer("the river", "the [MASK]", return_tensors="pt")
    with torch.no_grad():
        output = model(**given)
    assert output.prediction_logits.shape == (1, given["input_ids"].shape[1], 400)
    assert tokenizer.mask_token_id in given["input_ids"]


def test_a_checkpoint_from_outside_starts_a_run(
    recipe: Recipe, results: dict[str, StepResult], store: ArtifactStore, tmp_path: Path
) -> None:
    from transformers import BertConfig, BertForPreTraining

    vocabulary = data(results["build-vocabulary"].manifest, store)
    (vocab,) = vocabulary.glob("vocab-*.txt")
    shape: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2}
    config = BertConfig(vocab_size=400, intermediate_size=64, **shape)
    folder = tmp_path / "theirs"
    BertForPreTraining(config).save_pretrained(folder)
    (folder / "vocab.txt").write_bytes(vocab.read_bytes())
    phase = tiny_config(init_checkpoint=str(folder), budget={"max_steps": 2})
    own = recipe.model_copy(update={"pretrain": {"own": phase}})
    manifest = run(own)["pretrain.own"].manifest
    assert "config.json" in [item.name for item in manifest.raw_inputs]
    made = json.loads((data(manifest, store) / "config.json").read_text())
    assert made["intermediate_size"] == 64
    (folder / "vocab.txt").write_text(vocab.read_text().replace("\nwas\n", "\nzzz\n"))
    with pytest.raises(InstancesError, match="'zzz' there, 'was' here"):
        run(own)
    elsewhere = tiny_config(init_checkpoint=str(tmp_path / "nowhere"))
    with pytest.raises(MissingInputError, match="expected a checkpoint in Hugging Face's layout"):
        run(recipe.model_copy(update={"pretrain": {"own": elsewhere}}))


def test_a_recipe_says_what_it_means(recipe: Recipe) -> None:
    def check(**changes: Any) -> None:
        data = recipe.model_dump()
        data["pretrain"] = {
            "one": {"instances": "length-32", "model": TINY, "budget": {"max_steps": 1}, **changes}
        }
        Recipe.model_validate(data)

    check()
    with pytest.raises(ValueError, match="no 'length-9' in build_instances"):
        check(instances="length-9")
    with pytest.raises(ValueError, match="no phase 'zero' before this one"):
        check(model=None, init_from_phase="zero")
    with pytest.raises(ValueError, match="exactly one of model"):
        check(init_from_phase="zero")
    with pytest.raises(ValueError, match="exactly one of steps, tokens and minutes"):
        check(budget={"max_steps": 1, "max_minutes": 2})
    with pytest.raises(ValueError, match="no model 'huge'"):
        check(model={"preset": "huge"})
    with pytest.raises(ValueError, match="multiple of heads"):
        check(model={"preset": "base", "num_attention_heads": 7})


def test_presets_are_the_papers() -> None:
    from schemas.model_configs import ModelConfig

    large = ModelConfig.model_validate({"preset": "large"})
    assert (large.num_hidden_layers, large.hidden_size, large.num_attention_heads) == (24, 1024, 16)
    assert large.feed_forward_size == 4096
    small = ModelConfig.model_validate({"preset": "6-768-3", "hidden_dropout_prob": 0.0})
    assert (
        small.num_hidden_layers,
        small.hidden_size,
        small.num_attention_heads,
        small.hidden_dropout_prob,
    ) == (6, 768, 3, 0.0)


def test_a_schedule_in_minutes_cannot_go_on_from_one_in_steps(recipe: Recipe) -> None:
    second = tiny_config(length=64, init_from_phase="phase-1", budget={"max_minutes": 1})
    other = recipe.model_copy(update={"pretrain": {**phases(), "phase-2": second}})
    with pytest.raises(ConfigError, match="give both budgets in one unit"):
        run(other)


def test_dynamic_masks_of_nothing_are_refused() -> None:
    nothing: dict[str, Any] = {"masking": "dynamic", "dynamic_masking": {"strategy": "none"}}
    with pytest.raises(ValueError, match="nothing to predict"):
        tiny_config(**nothing)
    tiny_config(objective="left-to-right", **nothing)


def test_phases_that_cannot_go_on_are_refused_before_the_first_is_trained(recipe: Recipe) -> None:
    def check(first: dict[str, Any], **second: Any) -> None:
        data = recipe.model_dump()
        one = {"instances": "length-32", "model": TINY, "budget": {"max_steps": 1}, **first}
        two = {
            "instances": "length-64",
            "init_from_phase": "one",
            "budget": {"max_steps": 1},
            **second,
        }
        Recipe.model_validate({**data, "pretrain": {"one": one, "two": two}})

    check({})
    with pytest.raises(ValueError, match=r"two\.instances: length-64 has up to 64 tokens"):
        check({"model": {**TINY, "max_position_embeddings": 32}})
    with pytest.raises(ValueError, match="lamb cannot go on with the state of bert-adam"):
        check({}, optimizer={"name": "lamb"})
    check({}, optimizer={"name": "lamb"}, optimizer_state="reset")
    with pytest.raises(ValueError, match="in minutes, that of one is not"):
        check({}, budget={"max_minutes": 1})
    check({"budget": {"max_minutes": 1}}, budget={"max_minutes": 1})
