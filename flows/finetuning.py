"""Fine-tuning: examples of tasks, and the trials of every grid.

Each trial (a point of a grid and a restart) is one artifact. An interrupted sweep resumes
with the trials that are missing, and one more restart trains that trial alone.
"""

from __future__ import annotations

import itertools

from flows.run.graph import StepGraph
from model import build_examples, finetune, pretrain
from pipelines import build_vocabulary
from schemas.finetune_configs import FinetuneConfig, TaskTrainingConfig, TrialConfig
from schemas.recipe import Recipe
from schemas.trial_names import AXES, trial_name

STAGES = (build_examples.STAGE, finetune.STAGE)


def finetuning_steps(recipe: Recipe, graph: StepGraph) -> None:
    """Add the examples of every task, and a step per trial.

    A trial reads examples and a phase's checkpoint or, from scratch, the vocabulary.
    """
    for name, examples in recipe.build_examples.items():
        graph.add(build_examples.STAGE, examples, name)
    for name, entry in recipe.finetune.items():
        for trial, config in trials(entry).items():
            if _starts_from_published(entry, recipe):
                config = config.model_copy(update={"init_from_step": None})  # the same cache key
            graph.add(
                finetune.STAGE,
                config,
                f"{name}.{trial}",
                examples=graph.get(build_examples.STAGE, entry.examples),
                checkpoint=graph.get(pretrain.STAGE, entry.init_from_phase),
                vocabulary=graph.get(build_vocabulary.STAGE) if entry.model is not None else None,
            )


def _starts_from_published(entry: FinetuneConfig, recipe: Recipe) -> bool:
    """Return whether `init_from_step` is the last step, whose model the phase publishes."""
    return entry.init_from_phase is not None and (
        entry.init_from_step not in recipe.pretrain[entry.init_from_phase].kept_steps
    )


def trials(entry: FinetuneConfig) -> dict[str, TrialConfig]:
    """Return the trials of a grid by name, in the order of the recipe, restarts last."""
    common = {name: getattr(entry, name) for name in TaskTrainingConfig.model_fields}
    axes = (entry.batch_size, entry.learning_rate, entry.num_epochs, range(entry.restarts))
    if entry.method == "majority":  # it trains nothing: one trial
        axes = (entry.batch_size[:1], entry.learning_rate[:1], entry.num_epochs[:1], range(1))
    points = (dict(zip(AXES, point, strict=True)) for point in itertools.product(*axes))
    configs = [TrialConfig(**common, **point) for point in points]
    return {trial_name(config): config for config in configs}
