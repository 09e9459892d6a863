"""Models that are pretrained on the sample beat models from scratch, on each task and world."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.recipes.loader import load_recipe
from flows.running import run_recipe
from flows.sample import write_sample
from schemas.manifest import Manifest
from schemas.recipe import Recipe

_LEARN_FASTER = (
    "pretrain.phase-1.budget.max_steps=300",
    "pretrain.phase-1.optimizer.learning_rate=3.0e-3",
    "build_instances.length-16.masking.masked_lm_prob=0.3",
    "build_instances.length-16.masking.max_predictions_per_seq=5",
)
"""Changes with which a quarter of the recipe's steps teach enough for one task."""


def build(recipe: Recipe) -> dict[str, Manifest]:
    """Return the manifests of a run by step."""
    results = run_recipe(recipe, log=lambda _: None, engine="local")
    return {result.label: result.manifest for result in results}


def margins(manifests: dict[str, Manifest]) -> dict[str, float]:
    """Return pretrained minus scratch in percent points, by task: means of all restarts on dev."""
    means = {
        label.removeprefix("evaluate."): 100 * manifest.statistics["points"][0]["mean"]
        for label, manifest in manifests.items()
        if label.startswith("evaluate.")
    }
    return {
        task: mean - means[f"{task}-scratch"] for task, mean in means.items()
        if not task.endswith("-scratch")
    }  # fmt: skip


@pytest.mark.slow
def test_tagging_gains_20_points_at_reduced_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sample(str(tmp_path / "sample"), articles=1000, tales=2, seed=1)
    monkeypatch.setenv("BERTLOOM_SAMPLE", str(tmp_path / "sample"))
    gains = margins(build(reduced(load_recipe("sample", overrides=_LEARN_FASTER), tmp_path)))
    assert gains["conll-2003"] >= 20


def reduced(recipe: Recipe, folder: Path) -> Recipe:
    """Return the recipe with its first phase, one task and one restart."""
    finetune = {
        entry: config.model_copy(
            update={"restarts": 1, "init_from_phase": config.init_from_phase and "phase-1"}
        )
        for entry, config in recipe.finetune.items()
        if config.examples == "conll-2003"
    }
    return recipe.model_copy(update={
        "store": str(folder / "store"),
        "build_instances": {"length-16": recipe.build_instances["length-16"]},
        "pretrain": {"phase-1": recipe.pretrain["phase-1"]},
        "build_examples": {"conll-2003": recipe.build_examples["conll-2003"]},
        "finetune": finetune,
    })  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_task_gains_20_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    write_sample(str(tmp_path / "sample"), seed=seed)
    monkeypatch.setenv("BERTLOOM_SAMPLE", str(tmp_path / "sample"))
    recipe = load_recipe("sample", store=str(tmp_path / "store"), max_parallel_steps=1)
    manifests = build(recipe)
    gains = margins(manifests)
    assert set(gains) == {name for name in recipe.finetune if not name.endswith("-scratch")}
    assert min(gains.values()) >= 20, gains
    first, second = (
        manifests[f"pretrain.{phase}"].statistics["held_out"]["perplexity"]
        for phase in recipe.pretrain
    )
    assert second <= first
