"""Pretraining: phases on the corpus, each an artifact that the next goes on from."""

from __future__ import annotations

from flows.corpus import build_corpus
from flows.engine.stages import RecipeSteps
from flows.orchestration.part import part
from model import pretrain as stage
from pipelines import build_instances, build_vocabulary
from schemas.recipe import Recipe


@part("bertloom-pretraining", modules=(stage,), after=(build_corpus,))
def pretrain(recipe: Recipe, steps: RecipeSteps) -> None:
    """Each phase reads its instances, the vocabulary, and the checkpoint of the phase before."""
    for name, phase in recipe.pretrain.items():
        steps.add(
            stage.STAGE,
            phase,
            name,
            vocabulary=steps.of(build_vocabulary.STAGE),
            instances=steps.of(build_instances.STAGE, phase.instances),
            checkpoint=steps.of(stage.STAGE, phase.start_from),
        )
