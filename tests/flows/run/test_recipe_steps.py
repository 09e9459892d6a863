"""Steps of fine-tuning and evaluation, and checks of their recipe fields."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flows.bert import recipe_steps, trials
from flows.recipes.errors import RecipeError
from flows.recipes.loader import recipe_from
from flows.run.graph import Step
from schemas.corpus_configs import DocumentsConfig, TextSource
from schemas.finetune_configs import EnsembleConfig, ExamplesConfig, FinetuneConfig
from schemas.recipe import Recipe

EXAMPLES = {"cola": ExamplesConfig(task="cola", data_dir="cola")}
TINY = {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 1}
SHORT = {**TINY, "max_position_embeddings": 64}
CORPUS = {
    "build_documents": DocumentsConfig(sources=(TextSource(name="mine", paths=("text",)),)),
    "pretrain": {"one": {"instances": "length-128", "model": TINY, "budget": {"max_steps": 1}}},
}


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


def tagger(layers: str) -> FinetuneConfig:
    method = {"method": "feature-based", "feature_layers": layers}
    return entry(init_checkpoint=None, init_from_phase="one", **method)


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


def test_trials_read_phase_or_vocabulary() -> None:
    entries = {
        "tagger": tagger("weighted-sum-all"),
        "pretrained": entry(init_checkpoint=None, init_from_phase="one", restarts=1),
        "scratch": entry(init_checkpoint=None, model=TINY, restarts=1),
    }
    steps = by_label(recipe_steps(recipe(**CORPUS, finetune=entries)))
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


def one(**changes: Any) -> dict[str, Any]:
    return {"finetune": {"x": entry(**changes)}}


def ensemble(*members: str) -> dict[str, Any]:
    return {"ensembles": {"e": EnsembleConfig(members=members)}}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"build_examples": {}, "finetune": {}}, "build_documents"),
        (one(examples="rte"), "finetune.x.examples"),
        (one(init_checkpoint=None, init_from_phase="p"), "finetune.x.init_from_phase"),
        (one(init_checkpoint=None, model=TINY), "finetune.x.model"),
        (one(init_checkpoint=None, model=SHORT) | CORPUS, "finetune.x.max_seq_length"),
        # The encoder has two layers.
        ({"finetune": {"x": tagger("concat-last-4")}} | CORPUS, "finetune.x.feature_layers"),
        ({"ensembles": {"cola": EnsembleConfig(members=("cola",))}}, "ensembles.cola"),
        (ensemble("sst"), "ensembles.e.members"),
        (
            {"finetune": {"x": entry(), "y": entry(max_seq_length=64)}} | ensemble("x", "y"),
            "members",
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
        ({"method": "majority"}, "method"),
        ({"batch_size": (16, 16)}, "batch_size"),
        ({"num_epochs": (0,)}, "num_epochs"),
        ({"learning_rate": (math.nan,)}, "learning_rate"),
        ({"optimizer": {"learning_rate": 0.5}}, "optimizer.learning_rate"),
    ],
)
def test_invalid_grid_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        entry(**changes)
    assert field in str(caught.value)


def test_tasks_and_methods_are_checked_when_recipe_loads(tmp_path: Path) -> None:
    raw = {
        "name": "mine",
        "build_examples": {"cola": {"task": "cola", "data_dir": "cola"}},
        "finetune": {"x": {"examples": "cola", "init_checkpoint": "bert", "batch_size": 8}},
    }
    loaded = recipe_from(raw, where="here", folder=tmp_path)
    assert loaded.finetune["x"].batch_size == (8,)
    for change in ("finetune.x.method=feature-based", "build_examples.cola.task=colo"):
        with pytest.raises(RecipeError) as error:
            recipe_from(raw, where="here", folder=tmp_path, overrides=[change])
        assert error.value.field == change.partition("=")[0]
