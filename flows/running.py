"""Run recipes: prepare a run and execute it with an engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from flows.bert import recipe_steps
from flows.prefect_server import prefect_api, report_crashed, start_server
from flows.preparation import mark_killed_runs, prepare_run
from flows.run.events import Listener
from flows.run.executor import local_executor, run_steps
from flows.run.log_lines import LogLines
from flows.run.machines import Follower, MachineOptions, check_store
from flows.run.run import Run, get_store
from flows.run.step_execution import StepResult
from flows.store.runs import read_run
from pipelines.io.temporary_folders import remove_abandoned_folders
from schemas.recipe import Recipe
from schemas.redaction import redact_record


def run_recipe(
    recipe: Recipe,
    *,
    log: Callable[[str], None] = print,
    listeners: Sequence[Listener] | None = None,
    engine: str = "prefect",
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
        engine: `prefect`, or `local` for this process without a server. Results are the same.
        rebuild: Steps to build even if they are cached: `all`, stage names or step labels.
        part, until: Run only some of the steps, see `recipe_steps`.
        machines: Machines that train; only that with rank 0 runs the recipe. None: this machine
            alone.

    Returns:
        The result of every step, in order.

    Raises:
        BertloomError: A step failed; the steps that do not depend on it have run.
    """
    if machines is not None and machines.node_rank:
        return follow_run(recipe, machines, log=log)
    run = prepare_run(
        recipe,
        recipe_steps(recipe, part=part, until=until),
        listeners=[LogLines(log)] if listeners is None else listeners,
        rebuild=rebuild,
        engine=engine,
        machines=machines,
    )
    return execute_run(run, part=part, until=until)


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


def execute_run(run: Run, *, part: str = "", until: str = "") -> list[StepResult]:
    """Execute a run that is prepared, with its engine; see `run_recipe`."""
    remove_abandoned_folders()
    killed = mark_killed_runs(run.recipe)
    if run.engine == "local":
        with run, local_executor(run) as submit:
            run_steps(run, submit)
        return run.results()
    server = start_server()
    from flows.prefect_flows import FLOWS, current_run  # loads Prefect, while the server starts

    is_cached = len(run.cached) == len(run.steps)
    with prefect_api(server, heartbeats=not is_cached), current_run(run):
        report_crashed(killed)
        # Prefect refuses parameters above 512 kB, which an expanded sweep can exceed.
        recipe = run.recipe.unexpanded.model_dump(mode="json", exclude={"expanded_sweep"})
        selection = {"until": until} if until else {}
        FLOWS[part](recipe=redact_record(recipe), rebuild=sorted(run.rebuilt), **selection)
    return run.results()
