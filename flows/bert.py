"""The step graph of a recipe, from raw dumps to the paper's tables.

`recipe_steps` is the graph. `flows.running.run_recipe` runs it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from flows.run.graph import Step, StepGraph
from flows.run.plan import PlannedStep, plan_steps
from flows.run.preflight import check_inputs
from flows.store.artifacts import ArtifactStore
from pipelines.io.hub import is_hub_url, split_revision
from schemas.corpus_configs import ContaminationConfig, ContaminationRules
from schemas.finetune_configs import (
    EvaluateConfig,
    ExpandedAxis,
    FinetuneConfig,
    TabulateConfig,
    TaskTrainingConfig,
    TrialConfig,
)
from schemas.recipe import Recipe
from schemas.trial_names import AXES, trial_name

PARTS: dict[str, tuple[str, ...]] = {
    "corpus": (
        "build-documents",
        "find-contamination",
        "find-near-duplicates",
        "build-vocabulary",
        "build-tokens",
        "build-instances",
    ),
    "pretraining": ("pretrain",),
    "finetuning": ("build-examples", "finetune"),
    "evaluation": ("evaluate", "tabulate"),
}
"""Stages of each part of the workflow, each after those that it reads."""


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
    _add_corpus(recipe, graph)
    _add_pretraining(recipe, graph)
    _add_finetuning(recipe, graph)
    _add_evaluation(recipe, graph)
    if part:
        graph = graph.with_upstream(step.label for step in graph if step.stage.name in PARTS[part])
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


def _add_corpus(recipe: Recipe, graph: StepGraph) -> None:
    """Add documents, documents to exclude, vocabulary, tokens and instances."""
    if recipe.build_documents is None:
        return
    documents = graph.add("build-documents", recipe.build_documents)
    excluded = _add_contamination(recipe, graph, documents)
    near = None
    if recipe.find_near_duplicates is not None:
        near = graph.add(
            "find-near-duplicates",
            recipe.find_near_duplicates,
            documents=documents,
            contamination=excluded,
        )
    vocabulary = graph.add(
        "build-vocabulary",
        recipe.build_vocabulary,
        documents=documents,
        contamination=excluded,
        near_duplicates=near,
    )
    tokens = graph.add(
        "build-tokens",
        recipe.build_tokens,
        documents=documents,
        vocabulary=vocabulary,
        contamination=excluded,
        near_duplicates=near,
    )
    for name, config in recipe.build_instances.items():
        graph.add("build-instances", config, name, tokens=tokens, vocabulary=vocabulary)


def _add_contamination(recipe: Recipe, graph: StepGraph, documents: Step) -> Step | None:
    """Add the search for the texts of tasks, and the examples of these tasks before it."""
    if (rules := recipe.decontaminate) is None:
        return None
    examples = {
        f"examples.{task}": graph.add("build-examples", recipe.build_examples[task], task)
        for task in rules.tasks
    }
    config = ContaminationConfig(
        **{name: getattr(rules, name) for name in ContaminationRules.model_fields},
        remove_duplicates=recipe.build_tokens.remove_duplicates,
    )
    return graph.add("find-contamination", config, documents=documents, **examples)


def _add_pretraining(recipe: Recipe, graph: StepGraph) -> None:
    """Add the phases; each continues the model of the one before."""
    for name, phase in recipe.pretrain.items():
        graph.add(
            "pretrain",
            phase,
            name,
            vocabulary=graph.get("build-vocabulary"),
            instances=graph.get("build-instances", phase.instances),
            checkpoint=graph.get("pretrain", phase.init_from_phase),
        )


def _add_finetuning(recipe: Recipe, graph: StepGraph) -> None:
    """Add the examples of every task, and the trials of every grid.

    Each trial (a point of a grid and a restart) is one artifact. An interrupted sweep resumes
    with the trials that are missing, and one more restart trains that trial alone.
    """
    for name, examples in recipe.build_examples.items():
        graph.add("build-examples", examples, name)
    for name, entry in recipe.finetune.items():
        for trial, config in trials(entry).items():
            if _starts_from_published(entry, recipe):
                config = config.model_copy(update={"init_from_step": None})  # the same cache key
            graph.add(
                "finetune",
                config,
                f"{name}.{trial}",
                examples=graph.get("build-examples", entry.examples),
                checkpoint=graph.get("pretrain", entry.init_from_phase),
                vocabulary=graph.get("build-vocabulary") if entry.model is not None else None,
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
    points = (dict(zip(AXES, point, strict=True)) for point in itertools.product(*axes))
    configs = [TrialConfig(**common, **point) for point in points]
    return {trial_name(config): config for config in configs}


def _add_evaluation(recipe: Recipe, graph: StepGraph) -> None:
    """Add an evaluation per fine-tuning and ensemble, and the tables of all of them."""
    groups = {name: ([name], entry.ensemble_size) for name, entry in recipe.finetune.items()}
    groups |= {name: (list(e.members), e.ensemble_size) for name, e in recipe.ensembles.items()}
    evaluations = {
        name: _add_scores(recipe, graph, name, members=members, size=size)
        for name, (members, size) in groups.items()
    }
    if evaluations:
        axes = {
            name: ExpandedAxis(table=axis.table, variants=tuple(axis.variants))
            for name, axis in recipe.sweep.items()
        }
        config = TabulateConfig(axes=axes, expanded_sweep=recipe.expanded_sweep or ())
        # Table 6 shows the held-out perplexity of the phases that were fine-tuned.
        phases = dict.fromkeys(item.phase for item in config.expanded_sweep if item.phase)
        pretrained = {f"pretrain.{name}": graph.get("pretrain", name) for name in phases}
        graph.add("tabulate", config, **evaluations, **pretrained)


def _add_scores(
    recipe: Recipe, graph: StepGraph, name: str, *, members: Sequence[str], size: int
) -> Step:
    """Add the evaluation of the trials of one fine-tuning, or of the members of an ensemble."""
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
        trial if members == [name] else f"{member}.{trial}": graph.get(
            "finetune", f"{member}.{trial}"
        )
        for member in members
        for trial in trials(recipe.finetune[member])
    }
    examples = graph.get("build-examples", first.examples)
    return graph.add("evaluate", config, name, examples=examples, **trial_steps)


def _start(entry: FinetuneConfig) -> str:
    """Return what the trials of an entry start from, as tables name it."""
    if entry.init_checkpoint is not None:
        if is_hub_url(entry.init_checkpoint):
            return split_revision(entry.init_checkpoint)[0]
        *before, last = entry.init_checkpoint.rstrip("/").split("/")
        # Files of an artifact are in .../pretrain/ID/data.
        return " ".join(before[-2:]) if last == "data" and before else last
    if entry.init_from_phase is not None:
        return entry.init_from_phase + (
            f" at step {entry.init_from_step}" if entry.init_from_step else ""
        )
    return "scratch"
