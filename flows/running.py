"""Run recipes: in this process, or as a Prefect flow."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

from flows.bert import recipe_steps
from flows.prefect_settings import is_api_configured, prefect_api
from flows.preparation import mark_killed_runs, prepare_run
from flows.run.events import Event, Listener, RunFinished, watch_runs
from flows.run.executor import local_executor, run_steps
from flows.run.log_lines import LogLines
from flows.run.machines import Follower, MachineOptions, check_store
from flows.run.run import find_store, get_store
from flows.run.step_execution import StepResult
from flows.store.runs import read_run
from schemas.errors import ConfigError
from schemas.recipe import Recipe

ENGINES = ("auto", "prefect", "local")


def run_recipe(
    recipe: Recipe,
    *,
    log: Callable[[str], None] = print,
    listeners: Sequence[Listener] | None = None,
    engine: str = "local",
    parameters: dict[str, Any] | None = None,
    rebuild: Collection[str] = (),
    part: str = "",
    until: str = "",
    machines: MachineOptions | None = None,
) -> list[StepResult]:
    """Run a recipe: build the steps that are not in the store.

    Args:
        recipe: Recipe to run.
        log: Called with a line of text for each step.
        listeners: Receive the events of the run, in place of `log`.
        engine: `local` for this process, `prefect` for a flow, `auto`: see `choose_engine`. Results
            are the same.
        parameters: Result of `flow_parameters`, by which a flow loads the same recipe. None: its
            fields.
        rebuild: Steps to build even if they are cached: `all`, stage names or step labels.
        part, until: Run only some of the steps, see `recipe_steps`.
        machines: Machines that train; only that with rank 0 runs the recipe. None: this machine
            alone.

    Returns:
        The result of every step, in order.

    Raises:
        BertloomError: A step failed; the steps that do not depend on it have run.
    """
    engine = choose_engine(engine)
    if machines is not None and machines.node_rank:
        return follow_run(recipe, machines, log=log)
    listeners = [LogLines(log)] if listeners is None else listeners
    if engine == "prefect":
        collector = _ResultCollector()
        selection = {"rebuild": sorted(rebuild), "until": until, "part": part}
        with prefect_api(), watch_runs(*listeners, collector):
            from flows.prefect_flows import bert_flow  # loads Prefect

            parameters = parameters or {"recipe": recipe_fields(recipe)}
            bert_flow(**parameters, **selection, machines=machines)
        return collector.results
    store = find_store(recipe.store)
    mark_killed_runs(recipe, store=store)
    run = prepare_run(
        recipe,
        recipe_steps(recipe, part=part, until=until),
        store=store,
        listeners=listeners,
        rebuild=rebuild,
        machines=machines,
    )
    with run, local_executor(run) as submit:
        run_steps(run, submit)
    return run.results()


def choose_engine(engine: str) -> str:
    """Return `prefect` or `local`; `auto` is `prefect` where an API of Prefect is configured.

    Raises:
        ConfigError: The engine is unknown.
    """
    if engine not in ENGINES:
        raise ConfigError(f"engine: expected one of {', '.join(ENGINES)}, got {engine!r}")
    if engine != "auto":
        return engine
    return "prefect" if is_api_configured() else "local"


def flow_parameters(
    recipe: str, *, overrides: Sequence[str] = (), store: str | None = None, **execution: Any
) -> dict[str, Any]:
    """Return the parameters of a flow that loads a recipe as `load_recipe` does.

    Args:
        recipe, overrides, store, **execution: As for `flows.recipes.loader.load_recipe`.
    """
    fields = [
        f"execution.{name}={json.dumps(value)}"
        for name, value in execution.items()
        if value is not None
    ]
    return {"recipe": recipe, "overrides": [*overrides, *fields], "store": store}


def recipe_fields(recipe: Recipe) -> dict[str, Any]:
    """Return the fields of a recipe as a flow parameter.

    Prefect refuses parameters above 512 kB, which an expanded sweep can exceed.
    """
    text = recipe.unexpanded.model_dump_json(exclude={"expanded_sweep"})
    # The flow expands variables. Those of the recipe have been expanded.
    fields: dict[str, Any] = json.loads(text.replace("$", "$$"))
    return fields


class _ResultCollector:
    """Listener that keeps the results of a run."""

    def __init__(self) -> None:
        self.results: list[StepResult] = []

    def on_event(self, event: Event) -> None:
        """Keep the results at the end of the run."""
        if isinstance(event, RunFinished):
            self.results = event.run.results()


def follow_run(
    recipe: Recipe, machines: MachineOptions, *, log: Callable[[str], None] = print
) -> list[StepResult]:
    """Take part in the trainings of a run that the machine with rank 0 runs, until its end.

    Returns:
        The results of the run, from its record in the store.

    Raises:
        MachinesError: The machine with rank 0 did not come.
        RunnerError: The run failed.
    """
    store = get_store(recipe.store)
    check_store(store)
    leader = Follower(store, machines, recipe=recipe, log=log).run()
    return [
        StepResult(step.label, store.read_manifest(step.manifest), step.was_cached, step.seconds)
        for step in read_run(store, leader.run_id).steps
    ]
