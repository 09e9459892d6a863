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
from flows.lineage.text_formats import tree_lines
from flows.run.log_lines import result_summary
from flows.run.step_execution import StepResult
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from schemas.corpus_configs import InstancesConfig, MaskingConfig
from schemas.errors import InstanceDataError, MissingInputError
from schemas.manifest import Manifest
from schemas.recipe import Recipe

LABELS = ("pretrain.phase-1", "pretrain.phase-2")

pytestmark = pytest.mark.usefixtures("in_process")


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
    return Path(store.url(manifest.data_path))


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
        entry.path for entry in first.files if entry.excluded_from_digest
    }


def test_change_rebuilds_only_what_depends_on_it(
    recipe: Recipe, results: dict[str, StepResult], store: ArtifactStore
) -> None:
    def rebuilt(**second: Any) -> list[str]:
        changed = recipe.model_copy(update={"pretrain": phases(**second)})
        steps = plan_recipe(changed, store=store)
        return [step.label for step in steps if step.state != "cached"]

    assert rebuilt() == []
    assert rebuilt(seed=3) == [LABELS[1]]
    assert rebuilt(num_processes=2, logging_steps=7) == []


def test_second_phase_continues_the_schedule(
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


def test_reset_optimizer_restarts_the_schedule(
    recipe: Recipe, results: dict[str, StepResult], store: ArtifactStore
) -> None:
    again = recipe.model_copy(update={"pretrain": phases(optimizer_state="reset")})
    manifest = run(again)[LABELS[1]].manifest
    assert lines(manifest, store)[0]["learning_rate"] == 0.0


def test_transformers_loads_the_artifact(
    results: dict[str, StepResult], store: ArtifactStore
) -> None:
    from transformers import AutoModelForPreTraining, AutoTokenizer

    folder = data(results[LABELS[1]].manifest, store)
    model, info = AutoModelForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer("the river", "the [MASK]", return_tensors="pt")
    with torch.no_grad():
        output = model(**inputs)
    assert output.prediction_logits.shape == (1, inputs["input_ids"].shape[1], 400)
    assert tokenizer.mask_token_id in inputs["input_ids"]


def test_pretraining_starts_from_checkpoint_of_transformers(
    recipe: Recipe, results: dict[str, StepResult], store: ArtifactStore, tmp_path: Path
) -> None:
    from transformers import BertConfig, BertForPreTraining

    (vocab,) = data(results["build-vocabulary"].manifest, store).glob("vocab-*.txt")
    shape: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2}
    config = BertConfig(vocab_size=400, intermediate_size=64, **shape)
    folder = tmp_path / "theirs"
    BertForPreTraining(config).save_pretrained(folder)
    (folder / "vocab.txt").write_bytes(vocab.read_bytes())
    phase = tiny_config(init_checkpoint=str(folder), budget={"max_steps": 2})
    own = recipe.model_copy(update={"pretrain": {"own": phase}})
    manifest = run(own)["pretrain.own"].manifest
    assert "config.json" in [item.name for item in manifest.raw_inputs]
    written = json.loads((data(manifest, store) / "config.json").read_text())
    assert written["intermediate_size"] == 64
    (folder / "vocab.txt").write_text(vocab.read_text().replace("\nwas\n", "\nzzz\n"))
    with pytest.raises(InstanceDataError, match=r"zzz.*was"):
        run(own)
    elsewhere = tiny_config(init_checkpoint=str(tmp_path / "nowhere"))
    with pytest.raises(MissingInputError, match="nowhere"):
        run(recipe.model_copy(update={"pretrain": {"own": elsewhere}}))


ONE_STEP = {"instances": "length-32", "model": TINY, "budget": {"max_steps": 1}}


def check(recipe: Recipe, **phases: Any) -> None:
    Recipe.model_validate({**recipe.model_dump(), "pretrain": phases})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"instances": "length-9"}, "length-9"),
        ({"model": None, "init_from_phase": "zero"}, "zero"),
        ({"init_from_phase": "zero"}, "model"),
        ({"budget": {"max_steps": 1, "max_minutes": 2}}, "budget"),
        ({"model": {"preset": "huge"}}, "huge"),
        ({"model": {"preset": "base", "num_attention_heads": 7}}, "heads"),
        ({"masking": "dynamic", "dynamic_masking": {"strategy": "none"}}, "masking"),
    ],
)
def test_wrong_phase_is_refused(changes: dict[str, Any], field: str, recipe: Recipe) -> None:
    check(recipe, one=ONE_STEP)
    with pytest.raises(ValueError, match=field):
        check(recipe, one={**ONE_STEP, **changes})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"model": {**TINY, "max_position_embeddings": 32}}, {}),
        ({}, {"optimizer": {"name": "lamb"}}),
        ({}, {"budget": {"max_minutes": 1}}),
    ],
)
def test_second_phase_that_cannot_continue_the_first_is_refused(
    first: dict[str, Any], second: dict[str, Any], recipe: Recipe
) -> None:
    start = {"instances": "length-64", "init_from_phase": "one", "budget": {"max_steps": 1}}
    check(recipe, one=ONE_STEP, two=start)
    with pytest.raises(ValueError, match="two"):
        check(recipe, one={**ONE_STEP, **first}, two={**start, **second})
    lamb = {"optimizer": {"name": "lamb"}, "optimizer_state": "reset"}
    check(recipe, one=ONE_STEP, two={**start, **lamb})
    minutes = {"budget": {"max_minutes": 1}}
    check(recipe, one={**ONE_STEP, **minutes}, two={**start, **minutes})
