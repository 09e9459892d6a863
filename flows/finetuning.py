"""Fine-tuning: examples of tasks, and the trials of every grid.

Each trial (a point of a grid and a restart) is an artifact of its own, so that a sweep that was
stopped goes on where it was, and a restart more trains that one alone.
"""

from __future__ import annotations

import itertools

from flows.corpus import build_corpus
from flows.engine.stages import RecipeSteps
from flows.orchestration.part import part
from flows.pretraining import pretrain
from model import build_examples
from model import finetune as stage
from model import pretrain as pretraining
from pipelines import build_vocabulary
from schemas.recipe import Recipe
from schemas.task_configs import FinetuneConfig, TaskTrainingConfig, TrialConfig
from schemas.trial_names import AXES, trial_name


@part("bertloom-finetuning", modules=(build_examples, stage), after=(build_corpus, pretrain))
def finetune(recipe: Recipe, steps: RecipeSteps) -> None:
    """Each trial reads examples, and a phase's checkpoint or, from scratch, the vocabulary."""
    for name, examples in recipe.build_examples.items():
        steps.add(build_examples.STAGE, examples, name)
    for name, entry in recipe.finetune.items():
        for trial, config in trials(entry).items():
            if _is_published(entry, recipe):
                config = config.model_copy(update={"at_step": None})  # as one that names no step
            steps.add(
                stage.STAGE,
                config,
                f"{name}.{trial}",
                examples=steps.of(build_examples.STAGE, entry.examples),
                checkpoint=steps.of(pretraining.STAGE, entry.start_from),
                vocabulary=steps.of(build_vocabulary.STAGE) if entry.model is not None else None,
            )


def _is_published(entry: FinetuneConfig, recipe: Recipe) -> bool:
    """Return whether `at_step` is the model that the phase publishes, not one of its snapshots."""
    return entry.start_from is not None and (
        entry.at_step not in recipe.pretrain[entry.start_from].kept_steps
    )


def trials(entry: FinetuneConfig) -> dict[str, TrialConfig]:
    """The trials of a grid by name, in the order of the recipe, restarts last."""
    common = {name: getattr(entry, name) for name in TaskTrainingConfig.model_fields}
    axes = (entry.batch, entry.learning_rate, entry.epochs, range(entry.restarts))
    if entry.method == "majority":  # it has no batches, rates or epochs: one trial
        axes = (entry.batch[:1], entry.learning_rate[:1], entry.epochs[:1], range(1))
    points = (dict(zip(AXES, point, strict=True)) for point in itertools.product(*axes))
    configs = [TrialConfig(**common, **point) for point in points]
    return {trial_name(config): config for config in configs}
