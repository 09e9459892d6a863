"""The command `run`."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from flows.cli import options
from flows.cli.console import echo
from flows.cli.final_summary import summary_parts
from flows.cli.plan import EstimatePrinter, print_plan
from flows.cli.progress import StepPrinter
from flows.cli.tables import print_result
from flows.recipes.loader import load_recipe
from flows.run.machines import JOIN_TIMEOUT, parse_machine_options
from flows.run.run import Run
from flows.run.step_execution import StepResult
from flows.running import flow_parameters, follow_run, run_recipe


def run(
    recipe: options.Recipe,
    overrides: options.Overrides = None,
    store: options.Store = None,
    runner: options.Runner = None,
    workers: options.Workers = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Maximum number of concurrent steps. Default: 1."),
    ] = None,
    engine: options.Engine = "auto",
    dry_run: options.DryRun = False,
    rebuild: options.Rebuild = None,
    until: options.Until = "",
    nnodes: options.Nnodes = None,
    node_rank: options.NodeRank = None,
    rdzv_endpoint: options.RdzvEndpoint = None,
    join_timeout: options.JoinTimeout = JOIN_TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Run a recipe: build what is not in the store yet."""
    started = time.monotonic()
    machines = parse_machine_options(nnodes, node_rank, rdzv_endpoint, join_timeout)
    arguments: dict[str, Any] = {
        "overrides": overrides or (),
        "store": store,
        "runner": runner,
        "workers": workers,
        "max_parallel_steps": jobs,
    }
    loaded = load_recipe(recipe, **arguments)
    if dry_run:
        print_plan(loaded, rebuild=rebuild or (), until=until, as_json=as_json)
        return
    if machines is not None and machines.node_rank:
        follow_run(loaded, machines, log=lambda text: echo(text, err=as_json))
        return
    printer = StepPrinter(as_json=as_json)
    with printer.replace_printed_error():
        run_recipe(
            loaded,
            listeners=[EstimatePrinter(), printer],
            engine=engine,
            parameters=flow_parameters(recipe, **arguments),
            rebuild=rebuild or (),
            until=until,
            machines=machines,
        )
    if printer.run is not None:
        print_results(printer.run, seconds=time.monotonic() - started, as_json=as_json)


def print_results(run: Run, *, seconds: float, as_json: bool = False) -> None:
    """Print the summary of a run that took `seconds` of wall time."""
    results, store, recipe = run.results(), run.store, run.recipe.name
    data = {
        "recipe": recipe,
        "store": store.root,
        "report": run.newest_report or None,
        "seconds": round(seconds, 3),
        "steps": [_result_json(result) for result in results],
    }
    report = run.newest_report
    parts = summary_parts(results, store=store, recipe=recipe, report=report, seconds=seconds)
    print_result(data, *parts, as_json=as_json)


def _result_json(result: StepResult) -> dict[str, Any]:
    manifest = result.manifest
    return {
        "step": result.label,
        "was_cached": result.was_cached,
        "seconds": round(result.seconds, 3),
        "artifact_id": manifest.artifact_id,
        "cache_key": manifest.cache_key,
        "content": manifest.content_digest,
        "folder": manifest.artifact_path,
        "warnings": list(result.warnings),
    }
