"""The command `rebuild`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import echo
from flows.publish.monthly_rebuild import RebuildRequest, execute_rebuild, plan_rebuild


def rebuild(
    recipe: options.Recipe,
    wiki: options.Wiki,
    date: options.DumpDate = "latest",
    download_dir: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder for dumps, which go to WIKI/DATE in it.")
    ] = "dumps",
    keep_downloads: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of dumps to keep. Older ones that this command downloaded are deleted "
            "after a publication.",
        ),
    ] = 2,
    mirror: options.Mirror = None,
    overrides: options.Overrides = None,
    store: options.Store = None,
    workers: options.Workers = None,
    engine: options.Engine = "auto",
    force: options.Force = False,
    dry_run: options.DryRun = False,
) -> None:
    """Update a published corpus to the newest dump: fetch, build, compare, publish or refuse.

    A source of the recipe has the name of the wiki.
    """
    request = RebuildRequest(
        recipe=recipe, wiki=wiki, date=date, downloads=download_dir, keep_downloads=keep_downloads,
        overrides=overrides or (), store=store, mirror=mirror, force=force, workers=workers,
    )  # fmt: skip
    plan = plan_rebuild(request, log=echo)
    if dry_run and not plan.skip_reason:
        echo(f"would fetch {wiki} {plan.date} to {plan.folder}, build, and publish")
    elif not plan.skip_reason:
        execute_rebuild(request, plan, engine=engine, log=echo)
