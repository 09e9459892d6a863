"""Commands that run recipes and show runs."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from flows.cli import options
from flows.cli.console import echo, print_json
from flows.cli.final_summary import summary_parts
from flows.cli.plan import EstimatePrinter, print_plan
from flows.cli.progress import StepPrinter
from flows.cli.tables import print_parts, print_result, table
from flows.formatting import format_duration, format_time
from flows.lineage.resolve import open_store
from flows.recipes.loader import load_recipe
from flows.report.artifact_pages import write_artifact_pages
from flows.report.index import RunRow, read_rows, write_index
from flows.report.page import includes_text, write_report
from flows.report.run_steps import read_steps
from flows.reproduce import reproduce as reproduce_artifact
from flows.run.machines import JOIN_TIMEOUT, parse_machine_options
from flows.run.run import Run
from flows.run.step_execution import StepResult
from flows.running import flow_parameters, follow_run, run_recipe
from flows.store.runs import RunRecord, find_run, list_runs


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


def reproduce(
    artifact: Annotated[
        str,
        typer.Argument(
            metavar="ARTIFACT|METRIC",
            help="Artifact or metric, as for lineage: sample/build-tokens, evaluate.cola:matthews.",
        ),
    ],
    into: Annotated[
        str,
        typer.Option(metavar="STORE", help="Store to build in: a folder or URL."),
    ],
    store: options.Store = None,
    overrides: options.Overrides = None,
    runner: options.Runner = None,
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Build an artifact again in another store, and compare the content of every step.

    The exit code is 0 if all steps are equal, and 1 otherwise.
    """
    reproduction = reproduce_artifact(
        artifact,
        store=open_store(store),
        into=into,
        overrides=overrides or (),
        runner=runner,
        workers=workers,
        listeners=[StepPrinter(as_json=as_json)],
    )
    steps = [{**step._asdict(), "is_equal": step.is_equal} for step in reproduction.steps]
    data = {**reproduction._asdict(), "is_equal": reproduction.is_equal, "steps": steps}
    print_result(data, *reproduction.lines(), as_json=as_json)
    if not reproduction.is_equal:
        raise typer.Exit(1)


_HEADER = (
    "run", "state", "recipe", "engine", "started", "duration", "steps", "cached", "result",
)  # fmt: skip


def runs(store: options.Store = None, as_json: options.Json = False) -> None:
    """List the runs of a store, newest first."""
    opened = open_store(store)
    if as_json:
        print_json(
            [
                record.model_dump(mode="json")
                if isinstance(record, RunRecord)
                else {"run_id": run_id, "state": "corrupt"}
                for run_id, record in list_runs(opened).items()
            ]
        )
        return
    rows = map(_cells, read_rows(opened))
    print_parts(table(_HEADER, rows, right=(5, 6, 7), optional=(1, 2, 4, 5, 3, 6, 7), wrap=False))


def _cells(row: RunRow) -> tuple[str, ...]:
    return (
        row.run_id,
        row.state,
        row.recipe,
        row.engine,
        format_time(row.started),
        "" if row.seconds is None else format_duration(row.seconds),
        f"{row.built + row.cached}/{row.planned}",
        str(row.cached),
        "; ".join(row.failures) or row.result,
    )


def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN|RECIPE]",
            help="Id of a run or its first digits, or a recipe for its last run. Default: the last "
            "run of all.",
        ),
    ] = "",
    no_text: Annotated[
        bool,
        typer.Option(
            "--no-text", help="Exclude sentences and raw text (report_include_text: false)."
        ),
    ] = False,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Write the HTML report of a run and the page of all runs again, and print where they are."""
    opened = open_store(store)
    record, is_newest = find_run(opened, run)
    steps = read_steps(opened, record)
    url = write_report(opened, record, steps, is_newest=is_newest, text=not no_text)
    manifests = [built.manifest for built in steps.built]
    shows_text = includes_text(record, text=not no_text)
    write_artifact_pages(opened, manifests, shows_text=shows_text, refresh=True)
    data = {
        "run_id": record.run_id,
        "recipe": record.recipe_name,
        "state": record.state,
        "report": url,
        "index": write_index(opened),
    }
    line = f"report of run {record.run_id}, {record.state}: {options.relative(url)}"
    print_result(data, line, as_json=as_json)
