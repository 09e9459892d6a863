"""Which steps a recipe makes of each stage, and who needs what."""

from __future__ import annotations

from collections.abc import Iterable

from flows.engine.stages import Step, Steps
from model import build_examples, evaluate, finetune, pretrain, tabulate
from model.finetuning.jobs import rate_text
from pipelines import build_documents, build_instances, build_tokens, build_vocabulary
from schemas.recipe import Recipe
from schemas.stage import Stage
from schemas.task_configs import (
    EvaluateConfig,
    FinetuneConfig,
    TabulateConfig,
    TaskTrainingConfig,
    TrialConfig,
)


def stages() -> dict[str, Stage]:
    """The stages by name, each after those that it reads."""
    modules = (
        *(build_documents, build_vocabulary, build_tokens, build_instances),
        *(pretrain, build_examples, finetune, evaluate, tabulate),
    )
    return {module.STAGE.name: module.STAGE for module in modules}


def steps(recipe: Recipe) -> list[Step]:
    """The steps of a recipe, each after those it reads from."""
    found = Steps()
    for part in (corpus, pretraining, finetuning, evaluation):
        part(recipe, found)
    return list(found)


def corpus(recipe: Recipe, steps: Steps) -> None:
    """Documents, a vocabulary learnt from them, their tokens, and of these instances."""
    if recipe.build_documents is None:
        return
    documents = steps.add(build_documents.STAGE, recipe.build_documents)
    vocabulary = steps.add(build_vocabulary.STAGE, recipe.build_vocabulary, documents=documents)
    tokens = steps.add(
        build_tokens.STAGE, recipe.build_tokens, documents=documents, vocabulary=vocabulary
    )
    for name, config in recipe.build_instances.items():
        steps.add(build_instances.STAGE, config, name, tokens=tokens, vocabulary=vocabulary)


def pretraining(recipe: Recipe, steps: Steps) -> None:
    """Phases, each on its instances and from the phase before."""
    for name, phase in recipe.pretrain.items():
        steps.add(
            pretrain.STAGE,
            phase,
            name,
            vocabulary=steps.of(build_vocabulary.STAGE),
            instances=steps.of(build_instances.STAGE, phase.instances),
            checkpoint=steps.of(pretrain.STAGE, phase.start_from),
        )


def finetuning(recipe: Recipe, steps: Steps) -> None:
    """Examples of tasks; and every trial of every grid, so that each is an artifact of its own."""
    for name, examples in recipe.build_examples.items():
        steps.add(build_examples.STAGE, examples, name)
    for name, entry in recipe.finetune.items():
        for trial, config in trials(entry).items():
            steps.add(
                finetune.STAGE,
                config,
                f"{name}.{trial}",
                examples=steps.of(build_examples.STAGE, entry.examples),
                checkpoint=steps.of(pretrain.STAGE, entry.start_from),
                vocabulary=steps.of(build_vocabulary.STAGE) if entry.model else None,
            )


def trials(entry: FinetuneConfig) -> dict[str, TrialConfig]:
    """The trials of a grid by name, in the order of the recipe, restarts last."""
    common = {name: getattr(entry, name) for name in TaskTrainingConfig.model_fields}
    # A majority has no batches, rates or epochs: one trial, whatever the grid.
    is_single = entry.method == "majority"
    found = {}
    for batch in entry.batch[:1] if is_single else entry.batch:
        for rate in entry.learning_rate[:1] if is_single else entry.learning_rate:
            for epochs in entry.epochs[:1] if is_single else entry.epochs:
                for restart in range(1 if is_single else entry.restarts):
                    point = {"batch": batch, "learning_rate": rate, "epochs": epochs}
                    name = f"b{batch}-lr{rate_text(rate)}-e{epochs}-r{restart}"
                    found[name] = TrialConfig(**common, **point, restart=restart)
    return found


def evaluation(recipe: Recipe, steps: Steps) -> None:
    """Each entry's trials compared, ensembles of them, and tables of all."""
    evaluated = {
        name: _evaluation(recipe, steps, name, of=[name], size=entry.ensemble)
        for name, entry in recipe.finetune.items()
    }
    evaluated |= {
        name: _evaluation(recipe, steps, name, of=ensemble.members, size=ensemble.size)
        for name, ensemble in recipe.ensembles.items()
    }
    if evaluated:
        steps.add(tabulate.STAGE, TabulateConfig(), **evaluated)


def _evaluation(recipe: Recipe, steps: Steps, name: str, *, of: Iterable[str], size: int) -> Step:
    members = list(of)
    first = recipe.finetune[members[0]]
    config = EvaluateConfig(
        examples=first.examples,
        entry=name,
        start=", ".join(dict.fromkeys(_start(recipe.finetune[member]) for member in members)),
        ensemble=size,
        micro_batch_tokens=first.micro_batch_tokens,
        device=first.device,
        threads=first.threads,
    )
    compared = {
        f"{member}.{trial}" if len(members) > 1 else trial: steps.of(
            finetune.STAGE, f"{member}.{trial}"
        )
        for member in members
        for trial in trials(recipe.finetune[member])
    }
    examples = steps.of(build_examples.STAGE, first.examples)
    return steps.add(evaluate.STAGE, config, name, examples=examples, **compared)


def _start(entry: FinetuneConfig) -> str:
    """What an entry's trials start from, as tables say it."""
    if entry.init_checkpoint is not None:
        *before, last = entry.init_checkpoint.rstrip("/").split("/")
        # An artifact's files are in .../pretrain/ID/data.
        return " ".join(before[-2:]) if last == "data" and before else last
    return entry.start_from or ("scratch" if entry.model is not None else entry.method)
