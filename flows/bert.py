"""The whole workflow of a recipe: corpus, pretraining, fine-tuning, evaluation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from flows import corpus, evaluation, finetuning, pretraining
from flows.run.events import Listener
from flows.run.executor import run_steps
from flows.run.graph import StepGraph
from flows.run.log_lines import LogLines
from flows.run.plan import PlannedStep, plan_steps
from flows.run.preflight import check_inputs
from flows.run.run import Run
from flows.run.session import mark_killed_runs, prepare_run
from flows.run.step_execution import StepResult
from flows.store.artifacts import ArtifactStore
from schemas.errors import ConfigError
from schemas.recipe import Recipe
from schemas.stage import Stage

ENGINES = ("prefect", "local")
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
    check_inputs(graph)
    return plan_steps(recipe, graph, store=store, rebuild=rebuild)


def run_recipe(
    recipe: Recipe,
    *,
    log: Callable[[str], None] = print,
    listeners: Sequence[Listener] | None = None,
    engine: str = "prefect",
    rebuild: Collection[str] = (),
    part: str = "",
    until: str = "",
) -> list[StepResult]:
    """Run a recipe: build the steps that are not in the store.

    Args:
        recipe: Recipe to run.
        log: Called with a line of text for each step.
        listeners: Receive the events of the run, in place of `log`.
        engine: `prefect`, or `local` for this process without a server. Results are the same.
        rebuild: Steps to build even if they are cached: `all`, stage names or step labels.
        part, until: Run only some of the steps, see `recipe_steps`.

    Returns:
        The result of every step, in order.

    Raises:
        BertloomError: A step failed; the steps that do not depend on it have run.
    """
    run = prepare_run(
        recipe,
        recipe_steps(recipe, part=part, until=until),
        listeners=[LogLines(log)] if listeners is None else listeners,
        rebuild=rebuild,
        engine=engine,
    )
    return execute_run(run, part=part)


def execute_run(run: Run, *, part: str = "") -> list[StepResult]:
    """Execute a run that is prepared, with its engine; see `run_recipe`."""
    if run.engine not in ENGINES:
        raise ConfigError(f"engine: expected one of {', '.join(ENGINES)}, got {run.engine!r}")
    if run.engine == "prefect":
        from flows.prefect_server import run_with_prefect  # loads Prefect

        run_with_prefect(run, part=part)
        return run.results()
    mark_killed_runs(run.recipe)
    with run:
        run_steps(run)
    return run.results()
