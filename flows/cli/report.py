"""`bertloom report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.completion import run_names
from flows.cli.console import print_result
from flows.cli.options import JsonOption, StoreOption, open_store
from flows.report.index import write_index
from flows.report.page import report_page, write_report
from flows.store.backend import open_backend
from flows.store.runs import find_run
from schemas.checksummed import dump_page
from schemas.errors import UsageError


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
    index: Annotated[
        bool, typer.Option("--index", help="Write the page of all runs alone, reports/index.html.")
    ] = False,
    no_text: Annotated[
        bool,
        typer.Option(
            "--no-text", help="Without sentences and raw text (report_include_text: false)."
        ),
    ] = False,
    store: StoreOption = None,
    out: Annotated[Path | None, typer.Option(help="Write the page to this file as well.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run's report, one page of HTML, anew, and say where it is."""
    opened = open_store(store)
    if index:
        if run or out is not None:
            raise UsageError("--index is the page of all runs: expected no RUN and no --out")
        url = write_index(opened)
        print_result({"index": url}, [f"all runs: {url}"], as_json=as_json)
        return
    record, is_newest = find_run(opened, run)
    url = write_report(opened, record, is_newest=is_newest, text=not no_text)
    all_runs = write_index(opened)
    if out is not None:
        # Without the link to the page of all runs, which is not beside it.
        page = dump_page(report_page(opened, record, text=not no_text).encode())
        open_backend(str(out.absolute().parent)).replace(out.name, page)  # whole or not at all
    found = {
        "run_id": record.run_id,
        "recipe": record.recipe.get("name"),
        "state": record.state,
        "report": url,
        "index": all_runs,
        "out": str(out.absolute()) if out is not None else None,
    }
    line = f"report of run {record.run_id}, {record.state}: {out if out is not None else url}"
    print_result(found, [line], as_json=as_json)
