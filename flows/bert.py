"""The whole of a recipe: corpus, pretraining, fine-tuning, evaluation.

from flows.bert import bert

bert("sample")                         # its Prefect flow; a server of its own if there is none
bert.run(recipe, engine="local")       # without Prefect
"""

from __future__ import annotations

from collections.abc import Collection

from flows.corpus import build_corpus
from flows.engine.plan import PlannedStep, plan_steps
from flows.engine.stages import RecipeSteps
from flows.evaluation import evaluate
from flows.finetuning import finetune
from flows.orchestration.part import part
from flows.pretraining import pretrain
from flows.store.artifacts import ArtifactStore
from schemas.recipe import Recipe
from schemas.stage import Stage


@part("bertloom", after=(build_corpus, pretrain, finetune, evaluate), is_whole=True)
def bert(recipe: Recipe, steps: RecipeSteps) -> None:
    """All steps of the parts."""
    del recipe, steps


steps, run_recipe = bert.steps, bert.run


def plan(
    recipe: Recipe,
    *,
    store: ArtifactStore | None,
    rebuild: Collection[str] = (),
    until: str = "",
) -> list[PlannedStep]:
    """What a run would do with each step; see `flows.engine.plan.plan_steps`."""
    return plan_steps(recipe, steps(recipe, until), store=store, rebuild=rebuild)


def stages() -> dict[str, Stage]:
    """All stages by name, each after those that it reads."""
    return {stage.name: stage for stage in bert.stages}
