"""Pretraining: phases on the corpus; each phase continues the model of the one before."""

from __future__ import annotations

from flows.run.graph import StepGraph
from model import pretrain
from pipelines import build_instances, build_vocabulary
from schemas.recipe import Recipe

STAGES = (pretrain.STAGE,)


def pretraining_steps(recipe: Recipe, graph: StepGraph) -> None:
    """Add a step per phase, which reads instances, the vocabulary and the phase before it."""
    for name, phase in recipe.pretrain.items():
        graph.add(
            pretrain.STAGE,
            phase,
            name,
            vocabulary=graph.get(build_vocabulary.STAGE),
            instances=graph.get(build_instances.STAGE, phase.instances),
            checkpoint=graph.get(pretrain.STAGE, phase.init_from_phase),
        )
