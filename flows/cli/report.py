"""The command `report`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import write_file
from flows.cli.tables import print_result
from flows.lineage.resolve import open_store
from flows.report.artifact_pages import write_artifact_pages
from flows.report.index import write_index
from flows.report.page import includes_text, report_page, write_report
from flows.report.rendering import pages_folder, with_pages_in
from flows.report.run_steps import read_steps
from flows.store.runs import find_run
from schemas.errors import UsageError


def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN|RECIPE]",
            help="Id of a run or its first digits, or a recipe for its last run. Default: the last "
            "run of all.",
        ),
    ] = "",
    index: Annotated[
        bool, typer.Option("--index", help="Write only the page of all runs.")
    ] = False,
    no_text: Annotated[
        bool,
        typer.Option(
            "--no-text", help="Exclude sentences and raw text (report_include_text: false)."
        ),
    ] = False,
    store: options.Store = None,
    out: Annotated[Path | None, typer.Option(help="Write the page to this file as well.")] = None,
    as_json: options.Json = False,
) -> None:
    """Write the HTML report of a run again, and print where it is."""
    opened = open_store(store)
    if index:
        if run or out is not None:
            raise UsageError("--index: expected no RUN and no --out")
        url = write_index(opened)
        print_result({"index": url}, f"all runs: {options.relative(url)}", as_json=as_json)
        return
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
        "out": str(out.absolute()) if out is not None else None,
    }
    if out is not None:  # without the link to the page of all runs
        page = report_page(opened, record, steps, text=not no_text)
        folder = opened.url(pages_folder(shows_text=shows_text))
        if opened.backend.is_local:
            folder = os.path.relpath(folder, out.absolute().parent)
        write_file(out, with_pages_in(folder, page))
    line = f"report of run {record.run_id}, {record.state}: {out or options.relative(url)}"
    print_result(data, line, as_json=as_json)
