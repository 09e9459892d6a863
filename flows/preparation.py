"""Prepare a run: check it, plan it once, and attach its listeners."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from flows.cards.cards import CardListener
from flows.lineage.openlineage import openlineage_listeners, send_aborts
from flows.prefect_server import start_server
from flows.report.listener import ReportListener, write_run_report
from flows.run.events import Listener
from flows.run.graph import StepGraph
from flows.run.machines import Coordinator, MachineOptions, check_port, check_store
from flows.run.plan import plan_steps
from flows.run.preflight import check_environment, check_inputs, check_sample
from flows.run.run import Run, find_store, get_store
from flows.run.run_recorder import RunRecorder
from flows.store.runs import RunRecord, mark_crashed_runs, read_run, runs_without_report
from flows.trackers import TrackerListener
from schemas.errors import ConfigError
from schemas.manifest import Manifest
from schemas.recipe import Recipe

ENGINES = ("prefect", "local")


def prepare_run(
    recipe: Recipe,
    graph: StepGraph,
    *,
    listeners: Sequence[Listener] = (),
    rebuild: Collection[str] = (),
    engine: str = "local",
    provided: Mapping[str, Manifest] | None = None,
    machines: MachineOptions | None = None,
) -> Run:
    """Return a run that is checked, planned and ready to start.

    Args:
        recipe: Recipe to run.
        graph: Its steps.
        listeners: Listeners in addition to the run's own, such as the console's.
        rebuild: Steps to build even if they are cached: `all`, stage names or step labels.
        engine: `prefect` or `local`.
        provided: Artifacts that steps read and no step of the run builds, by label.
        machines: Machines that train; this is the one with rank 0. None: this machine alone.

    Raises:
        ConfigError: The engine or the runner is unknown, a package is not installed, several
            inputs are missing, or the machines cannot share the store.
        RunnerError: The engine that jobs go to does not answer.
        InputError: A raw file, a task file or a checkpoint is missing.
    """
    if engine not in ENGINES:
        raise ConfigError(f"engine: expected one of {', '.join(ENGINES)}, got {engine!r}")
    if engine == "prefect":
        start_server()  # it needs seconds, in which the run is planned
    check_environment(recipe, list(graph))
    check_sample(list(graph))
    planned = plan_steps(recipe, graph, store=find_store(recipe.store), rebuild=rebuild)
    cached = {step.label for step in planned if step.state == "cached"}
    check_inputs([step for step in graph if step.label not in cached])
    own = (RunRecorder(), CardListener(), TrackerListener())
    coordinator = _coordinator(recipe, machines)
    last: list[Listener] = [ReportListener(), *filter(None, [coordinator])]
    return Run(
        recipe,
        graph,
        listeners=[*own, *listeners, *openlineage_listeners(), *last],
        rebuild=rebuild,
        engine=engine,
        planned=planned,
        provided=provided,
        machines=coordinator,
    )


def _coordinator(recipe: Recipe, machines: MachineOptions | None) -> Coordinator | None:
    if machines is None:
        return None
    store = get_store(recipe.store)
    check_store(store)
    check_port(machines.endpoint)
    return Coordinator(store, machines, recipe=recipe)


def mark_killed_runs(recipe: Recipe) -> list[RunRecord]:
    """Mark earlier runs of a recipe whose process was killed as crashed; write their reports."""
    store = get_store(recipe.store)
    run_ids = mark_crashed_runs(store, recipe=recipe.name)
    send_aborts(store, run_ids)
    records = [read_run(store, run_id) for run_id in run_ids]
    for record in [*records, *runs_without_report(store, recipe=recipe.name)]:
        write_run_report(store, record, is_newest=False)
    return records
