"""`bertloom report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.completion import run_names
from flows.cli.console import print_json, say
from flows.cli.options import JsonOption, StoreOption, open_store
from flows.report.page import write_report
from flows.store.artifacts import ArtifactStore
from flows.store.backend import open_backend
from flows.store.runs import RunRecord, read_run, run_records
from schemas.errors import ArtifactNotFoundError, ConfigError


def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN|RECIPE]",
            help="A run's id or the beginning of it, or a recipe, whose last run is taken. "
            "Without it the last run of all.",
            autocompletion=run_names,
        ),
    ] = "",
    store: StoreOption = None,
    out: Annotated[Path | None, typer.Option(help="Write the page to this file as well.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run's report, one page of HTML, anew, and say where it is."""
    opened = open_store(store)
    record, is_newest = find_run(opened, run)
    url = write_report(opened, record, is_newest=is_newest)
    if out is not None:
        page = opened.backend.read(f"runs/{record.run_id}/report.html")
        open_backend(str(out.absolute().parent)).replace(out.name, page)  # whole or not at all
    if as_json:
        found = {
            "run_id": record.run_id,
            "recipe": record.recipe.get("name"),
            "state": record.state,
            "report": url,
            "out": str(out.absolute()) if out is not None else None,
        }
        print_json(found)
        return
    say(f"report of run {record.run_id}, {record.state}: {out if out is not None else url}")


def find_run(store: ArtifactStore, name: str) -> tuple[RunRecord, bool]:
    """The run that a name means, and whether it is its recipe's last.

    Args:
        store: where runs have left their records.
        name: a run's id or the beginning of one, a recipe's name, or "" for the last run.

    Raises:
        ArtifactNotFoundError: there is none.
        ConfigError: several runs begin like this.
        ArtifactCorruptError: its record cannot be read.
    """
    recipes = {
        record["run_id"]: record.get("recipe", {}).get("name") for record in run_records(store)
    }  # the newest first; None of those that cannot be read
    if not recipes:
        raise ArtifactNotFoundError(f"{store.root}: no run has left a record; `bertloom run` does")
    found = [run_id for run_id in recipes if run_id.startswith(name)]
    if not name or name in recipes:
        found = [name or found[0]]
    if not found:
        found = [run_id for run_id, recipe in recipes.items() if recipe == name][:1]
    if len(found) > 1:
        shown = ", ".join(reversed(found[:3]))
        raise ConfigError(f"{len(found)} runs begin with {name!r}, such as {shown}: say more of it")
    if not found:
        damaged = sum(recipe is None for recipe in recipes.values())
        unread = f", {damaged} of which cannot be read" if damaged else ""
        raise ArtifactNotFoundError(
            f"{store.root}: no run and no recipe {name!r} among {len(recipes)} runs{unread}; "
            "`bertloom runs` lists them"
        )
    record = read_run(store, found[0])
    last = next(run_id for run_id, recipe in recipes.items() if recipe == recipes[found[0]])
    return record, last == found[0]
