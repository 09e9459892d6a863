"""The whole workflow of a recipe as one step graph: corpus, pretraining, fine-tuning, evaluation.

`flows.running.run_recipe` runs it.
"""

from __future__ import annotations

from collections.abc import Collection

from flows import corpus, evaluation, finetuning, pretraining
from flows.run.graph import StepGraph
from flows.run.plan import PlannedStep, plan_steps
from flows.run.preflight import check_inputs
from flows.store.artifacts import ArtifactStore
from schemas.recipe import Recipe
from schemas.stage import Stage

PARTS = {
    "corpus": (corpus.STAGES, corpus.corpus_steps),
    "pretraining": (pretraining.STAGES, pretraining.pretraining_steps),
    "finetuning": (finetuning.STAGES, finetuning.finetuning_steps),
    "evaluation": (evaluation.STAGES, evaluation.evaluation_steps),
}
"""Stages of each part, and the function that adds its steps, in order."""


def stages() -> dict[str, Stage]:
    """Return all stages by name, each after those that it reads."""
    return {stage.name: stage for part_stages, _ in PARTS.values() for stage in part_stages}


def recipe_steps(recipe: Recipe, *, part: str = "", until: str = "") -> StepGraph:
    """Return the steps of a recipe.

    Args:
        recipe: The recipe.
        part: `corpus`, `pretraining`, `finetuning` or `evaluation`: its steps and what they read.
            "" for all parts.
        until: A stage or a step: it and what it reads. "" for all steps.

    Raises:
        UnknownStepError: `until` names no step.
    """
    graph = StepGraph()
    for _, add_steps in PARTS.values():
        add_steps(recipe, graph)
    if part:
        names = {stage.name for stage in PARTS[part][0]}
        graph = graph.with_upstream(step.label for step in graph if step.stage.name in names)
    return graph.with_upstream(graph.select(until)) if until else graph


def plan_recipe(
    recipe: Recipe,
    *,
    store: ArtifactStore | None,
    rebuild: Collection[str] = (),
    until: str = "",
) -> list[PlannedStep]:
    """Return what a run would do with each step; see `flows.run.plan.plan_steps`.

    Raises:
        InputError: A raw file, a task file or a checkpoint is missing.
    """
    graph = recipe_steps(recipe, until=until)
    check_inputs(list(graph))
    return plan_steps(recipe, graph, store=store, rebuild=rebuild)
