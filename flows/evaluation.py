"""Evaluation: a recipe's fine-tunings compared and scored, up to the tables beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from flows.corpus import build_corpus
from flows.engine.stages import RecipeSteps, Step
from flows.finetuning import finetune, trials
from flows.orchestration.part import part
from flows.pretraining import pretrain
from model import build_examples, tabulate
from model import evaluate as stage
from model import finetune as finetuning
from model import pretrain as pretraining
from schemas.recipe import Recipe
from schemas.task_configs import EvaluateConfig, FinetuneConfig, SweptAxis, TabulateConfig


@part("bertloom-evaluation", modules=(stage, tabulate), after=(build_corpus, pretrain, finetune))
def evaluate(recipe: Recipe, steps: RecipeSteps) -> None:
    """Evaluations read the trials of an entry, or of an ensemble's members; the tables read all."""
    groups = {name: ([name], entry.ensemble) for name, entry in recipe.finetune.items()}
    groups |= {name: (list(e.members), e.size) for name, e in recipe.ensembles.items()}
    evaluated = {
        name: _evaluation(recipe, steps, name, members=members, size=size)
        for name, (members, size) in groups.items()
    }
    if evaluated:
        # Phases are read for the held-out perplexity of what was fine-tuned (Table 6).
        phases = dict.fromkeys(item.phase for item in recipe.swept or () if item.phase)
        read = {f"pretrain.{phase}": steps.of(pretraining.STAGE, phase) for phase in phases}
        steps.add(tabulate.STAGE, _tabulate_config(recipe), **evaluated, **read)


def _tabulate_config(recipe: Recipe) -> TabulateConfig:
    axes = {
        name: SweptAxis(table=axis.table, variants=tuple(axis.variants))
        for name, axis in recipe.sweep.items()
    }
    return TabulateConfig(axes=axes, swept=recipe.swept or ())


def _evaluation(
    recipe: Recipe, steps: RecipeSteps, name: str, *, members: Sequence[str], size: int
) -> Step:
    first = recipe.finetune[members[0]]
    starts = (_start(recipe.finetune[member]) for member in members)
    config = EvaluateConfig(
        examples=first.examples,
        entry=name,
        start=", ".join(dict.fromkeys(starts)),
        ensemble=size,
        micro_batch_tokens=first.micro_batch_tokens,
        device=first.device,
        threads=first.threads,
    )
    compared = {
        f"{member}.{trial}" if len(members) > 1 else trial: steps.of(
            finetuning.STAGE, f"{member}.{trial}"
        )
        for member in members
        for trial in trials(recipe.finetune[member])
    }
    examples = steps.of(build_examples.STAGE, first.examples)
    return steps.add(stage.STAGE, config, name, examples=examples, **compared)


def _start(entry: FinetuneConfig) -> str:
    """What an entry's trials start from, as tables say it."""
    if entry.init_checkpoint is not None:
        *before, last = entry.init_checkpoint.rstrip("/").split("/")
        # An artifact's files are in .../pretrain/ID/data.
        return " ".join(before[-2:]) if last == "data" and before else last
    if entry.start_from is not None:
        return entry.start_from + (f" at step {entry.at_step}" if entry.at_step else "")
    return "scratch" if entry.model is not None else entry.method
