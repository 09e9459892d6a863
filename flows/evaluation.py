"""Evaluation: compare and score the fine-tunings of a recipe, up to the paper's tables."""

from __future__ import annotations

from collections.abc import Sequence

from flows.finetuning import trials
from flows.run.graph import Step, StepGraph
from model import build_examples, evaluate, finetune, pretrain, tabulate
from schemas.finetune_configs import EvaluateConfig, ExpandedAxis, FinetuneConfig, TabulateConfig
from schemas.recipe import Recipe

STAGES = (evaluate.STAGE, tabulate.STAGE)


def evaluation_steps(recipe: Recipe, graph: StepGraph) -> None:
    """Add an evaluation per fine-tuning and ensemble, and the tables of all of them."""
    groups = {name: ([name], entry.ensemble_size) for name, entry in recipe.finetune.items()}
    groups |= {name: (list(e.members), e.ensemble_size) for name, e in recipe.ensembles.items()}
    evaluations = {
        name: _add_evaluation(recipe, graph, name, members=members, size=size)
        for name, (members, size) in groups.items()
    }
    if evaluations:
        # Table 6 shows the held-out perplexity of the phases that were fine-tuned.
        phases = dict.fromkeys(item.phase for item in recipe.expanded_sweep or () if item.phase)
        pretrained = {f"pretrain.{name}": graph.get(pretrain.STAGE, name) for name in phases}
        graph.add(tabulate.STAGE, _tabulate_config(recipe), **evaluations, **pretrained)


def _tabulate_config(recipe: Recipe) -> TabulateConfig:
    axes = {
        name: ExpandedAxis(table=axis.table, variants=tuple(axis.variants))
        for name, axis in recipe.sweep.items()
    }
    return TabulateConfig(axes=axes, expanded_sweep=recipe.expanded_sweep or ())


def _add_evaluation(
    recipe: Recipe, graph: StepGraph, name: str, *, members: Sequence[str], size: int
) -> Step:
    first = recipe.finetune[members[0]]
    starts = (_start(recipe.finetune[member]) for member in members)
    config = EvaluateConfig(
        examples=first.examples,
        entry=name,
        start=", ".join(dict.fromkeys(starts)),
        ensemble_size=size,
        per_device_max_tokens=first.per_device_max_tokens,
        device=first.device,
        num_threads=first.num_threads,
    )
    trial_steps = {
        f"{member}.{trial}" if len(members) > 1 else trial: graph.get(
            finetune.STAGE, f"{member}.{trial}"
        )
        for member in members
        for trial in trials(recipe.finetune[member])
    }
    examples = graph.get(build_examples.STAGE, first.examples)
    return graph.add(evaluate.STAGE, config, name, examples=examples, **trial_steps)


def _start(entry: FinetuneConfig) -> str:
    """Return what the trials of an entry start from, as tables name it."""
    if entry.init_checkpoint is not None:
        *before, last = entry.init_checkpoint.rstrip("/").split("/")
        # Files of an artifact are in .../pretrain/ID/data.
        return " ".join(before[-2:]) if last == "data" and before else last
    if entry.init_from_phase is not None:
        return entry.init_from_phase + (
            f" at step {entry.init_from_step}" if entry.init_from_step else ""
        )
    return "scratch" if entry.model is not None else entry.method
