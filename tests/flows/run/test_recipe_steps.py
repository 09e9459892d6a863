"""Steps of fine-tuning and evaluation, and checks of their recipe fields."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flows.bert import recipe_steps
from flows.finetuning import trials
from flows.recipes.errors import RecipeError
from flows.recipes.loader import load_recipe, recipe_from
from flows.recipes.packaged import packaged_recipes
from flows.run.graph import Step
from schemas.corpus_configs import DocumentsConfig, TextSource
from schemas.finetune_configs import EnsembleConfig, ExamplesConfig, FinetuneConfig
from schemas.model_configs import ModelConfig
from schemas.recipe import Recipe
from schemas.trial_names import entry_label

EXAMPLES = {"cola": ExamplesConfig(task="cola", data_dir="cola")}


def recipe(**changes: Any) -> Recipe:
    values: dict[str, Any] = {
        "name": "mine",
        "build_examples": EXAMPLES,
        "finetune": {"cola": entry()},
        **changes,
    }
    return Recipe(**values)


def entry(**changes: Any) -> FinetuneConfig:
    values: dict[str, Any] = {
        "examples": "cola",
        "init_checkpoint": "bert",
        "batch_size": (16, 32),
        "learning_rate": (5e-5, 2e-5),
        "num_epochs": (2, 3),
        "restarts": 3,
        **changes,
    }
    return FinetuneConfig(**values)


def by_label(steps: list[Step]) -> dict[str, Step]:
    assert len({step.label for step in steps}) == len(steps)
    return {step.label: step for step in steps}


def test_grid_has_trial_per_point_and_restart() -> None:
    grid = trials(entry())
    assert len(grid) == 2 * 2 * 2 * 3
    assert list(grid)[:3] == ["bs16-lr5e-05-ep2-r0", "bs16-lr5e-05-ep2-r1", "bs16-lr5e-05-ep2-r2"]
    points = {(c.batch_size, c.learning_rate, c.num_epochs, c.restart) for c in grid.values()}
    assert len(points) == 24
    identities = {str(config.cache_key_fields()) for config in grid.values()}
    assert len(identities) == 24


def test_nearly_equal_learning_rates_are_separate_trials() -> None:
    grid = trials(
        entry(learning_rate=(1e-5, 1.0000001e-5), batch_size=(8,), num_epochs=(2,), restarts=1)
    )
    assert list(grid) == ["bs8-lr1e-05-ep2-r0", "bs8-lr1.0000001e-05-ep2-r0"]
    assert {entry_label(f"finetune.x.{name}") for name in grid} == {"finetune.x"}


def test_majority_baseline_has_one_trial() -> None:
    grid = trials(entry(init_checkpoint=None, method="majority"))
    assert [config.restart for config in grid.values()] == [0]


def test_finetuning_from_checkpoint_needs_no_corpus() -> None:
    steps = by_label(recipe_steps(recipe()))
    assert {step.stage.name for step in steps.values()} == {
        "build-examples", "finetune", "evaluate", "tabulate"
    }  # fmt: skip
    trial = steps["finetune.cola.bs16-lr5e-05-ep2-r0"]
    assert trial.inputs == {"examples": "build-examples.cola"}
    evaluation = steps["evaluate.cola"]
    assert len(evaluation.inputs) == 25
    assert evaluation.inputs["bs32-lr2e-05-ep3-r2"] == "finetune.cola.bs32-lr2e-05-ep3-r2"
    assert steps["tabulate"].inputs == {"cola": "evaluate.cola"}
    order = list(steps)
    assert all(order.index(label) < order.index(s.label) for s in steps.values()
               for label in s.inputs.values())  # fmt: skip


def test_feature_layers_must_exist_in_encoder() -> None:
    corpus = DocumentsConfig(sources=(TextSource(name="mine", paths=("text",)),))
    shape = ModelConfig(num_hidden_layers=2, hidden_size=8, num_attention_heads=1)
    phases = {"one": {"instances": "length-128", "model": shape, "budget": {"max_steps": 1}}}

    def check(layers: str) -> None:
        tagger = entry(
            init_checkpoint=None,
            init_from_phase="one",
            method="feature-based",
            feature_layers=layers,
        )
        recipe(build_documents=corpus, pretrain=phases, finetune={"a": tagger})

    for layers in ("embeddings", "last", "second-to-last", "weighted-sum-all"):
        check(layers)
    for layers in ("concat-last-4", "weighted-sum-last-4"):
        with pytest.raises(ValidationError, match=r"finetune.a.feature_layers"):
            check(layers)


def test_trials_read_phase_or_vocabulary() -> None:
    source = TextSource(name="mine", paths=("text",))
    corpus = DocumentsConfig(sources=(source,))
    tiny = ModelConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=1)
    pretrain = {"one": {"instances": "length-128", "model": tiny, "budget": {"max_steps": 1}}}
    steps = by_label(
        recipe_steps(
            recipe(
                build_documents=corpus,
                pretrain=pretrain,
                finetune={
                    "pretrained": entry(init_checkpoint=None, init_from_phase="one", restarts=1),
                    "scratch": entry(init_checkpoint=None, model=tiny, restarts=1),
                },
            )
        )
    )
    trial = steps["finetune.pretrained.bs16-lr5e-05-ep2-r0"]
    assert trial.inputs == {"examples": "build-examples.cola", "checkpoint": "pretrain.one"}
    trial = steps["finetune.scratch.bs16-lr5e-05-ep2-r0"]
    assert trial.inputs == {"examples": "build-examples.cola", "vocabulary": "build-vocabulary"}
    starts = {steps[f"evaluate.{name}"].config.start for name in ("pretrained", "scratch")}  # type: ignore[attr-defined]
    assert starts == {"one", "scratch"}


def test_ensemble_reads_trials_of_its_members() -> None:
    both = {"a": entry(restarts=2), "b": entry(batch_size=(16,), restarts=1)}
    ensemble = EnsembleConfig(members=("a", "b"), ensemble_size=3)
    steps = by_label(recipe_steps(recipe(finetune=both, ensembles={"both": ensemble})))
    inputs = steps["evaluate.both"].inputs
    assert len(inputs) == 1 + 16 + 4
    assert inputs["a.bs16-lr5e-05-ep2-r1"] == "finetune.a.bs16-lr5e-05-ep2-r1"
    assert steps["evaluate.both"].config.ensemble_size == 3  # type: ignore[attr-defined]
    assert set(steps["tabulate"].inputs) == {"a", "b", "both"}


def test_until_selects_all_trials_of_an_entry() -> None:
    both = {"a": entry(restarts=2), "b": entry()}
    steps = recipe_steps(recipe(finetune=both), until="finetune.a")
    assert len(steps) == 1 + 16
    assert list(recipe_steps(recipe(finetune=both), until="evaluate.b"))[-1].label == "evaluate.b"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"finetune": {"x": entry(examples="rte")}}, "finetune.x.examples"),
        (
            {"finetune": {"x": entry(init_checkpoint=None, init_from_phase="p")}},
            "finetune.x.init_from_phase",
        ),
        (
            {"finetune": {"x": entry(init_checkpoint=None, model={"preset": "tiny"})}},
            "finetune.x.model",
        ),
        ({"ensembles": {"cola": EnsembleConfig(members=("cola",))}}, "ensembles.cola"),
        ({"ensembles": {"e": EnsembleConfig(members=("sst",))}}, "ensembles.e.members"),
        (
            {
                "finetune": {"a": entry(), "b": entry(max_seq_length=64)},
                "ensembles": {"e": EnsembleConfig(members=("a", "b"))},
            },
            "ensembles.e.members",
        ),
        (
            {"build_examples": {}, "finetune": {}},
            "build_documents",
        ),
    ],
)
def test_references_within_recipe_are_checked(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        recipe(**changes)
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"init_checkpoint": None}, "init_from_phase"),
        ({"init_from_phase": "one"}, "init_checkpoint"),
        ({"method": "majority"}, "init_checkpoint"),
        ({"batch_size": (16, 16)}, "batch_size"),
        ({"num_epochs": (0,)}, "num_epochs"),
        ({"learning_rate": (math.nan,)}, "learning_rate"),
        ({"learning_rate": (math.inf,)}, "learning_rate"),
        ({"optimizer": {"learning_rate": 0.5}}, "optimizer.learning_rate"),
    ],
)
def test_invalid_grid_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        entry(**changes)
    assert field in str(caught.value)


def test_ensemble_members_are_unique() -> None:
    with pytest.raises(ValidationError, match="members"):
        EnsembleConfig(members=("a", "a"))


def test_tasks_and_methods_are_checked_when_recipe_loads(tmp_path: Path) -> None:
    raw = {
        "name": "mine",
        "build_examples": {"cola": {"task": "cola", "data_dir": "cola"}},
        "finetune": {"x": {"examples": "cola", "init_checkpoint": "bert", "batch_size": 8}},
    }
    loaded = recipe_from(raw, where="here", folder=tmp_path)
    assert loaded.finetune["x"].batch_size == (8,)
    change = "finetune.x.method=feature-based"
    with pytest.raises(RecipeError) as error:
        recipe_from(raw, where="here", folder=tmp_path, overrides=[change])
    assert error.value.field == "finetune.x.method"
    change = "build_examples.cola.task=colo"
    with pytest.raises(RecipeError) as error:
        recipe_from(raw, where="here", folder=tmp_path, overrides=[change])
    assert error.value.field == "build_examples.cola.task"


def test_max_seq_length_is_limited_by_positions() -> None:
    corpus = DocumentsConfig(sources=(TextSource(name="mine", paths=("text",)),))
    model = ModelConfig(
        num_hidden_layers=1, hidden_size=8, num_attention_heads=1, max_position_embeddings=64
    )
    with pytest.raises(ValidationError, match=r"finetune.x.max_seq_length"):
        recipe(build_documents=corpus, finetune={"x": entry(init_checkpoint=None, model=model)})


def test_paper_tables_recipe_has_entry_per_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "paper-tables" in packaged_recipes()
    for name in ("CHECKPOINT", "CASED_CHECKPOINT", "GLUE", "SQUAD", "SWAG", "CONLL"):
        monkeypatch.setenv(name, f"/data/{name.lower()}")
    loaded = load_recipe("paper-tables")
    layers = {e.feature_layers for e in loaded.finetune.values() if e.method == "feature-based"}
    assert len(layers) == 6
    tasks = {config.task for config in loaded.build_examples.values()}
    assert {"cola", "mnli", "squad-1.1", "squad-2.0", "swag", "conll-2003", "wnli"} <= tasks
    assert loaded.finetune["ner-last"].restarts == 5
    assert loaded.build_examples["cola"].data_dir == "/data/glue/CoLA"
