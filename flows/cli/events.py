"""The command about lineage events: send those of a run to a server."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from flows.cli.console import say
from flows.cli.options import StoreOption, open_store


def push_lineage(
    run: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it at run time
        typer.Argument(help="Id of a run, as `bertloom runs` shows it; else the newest."),
    ] = None,
    url: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            envvar="OPENLINEAGE_URL", help="The server, such as http://localhost:5000 (Marquez)."
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Send all events, also those sent before.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Send a run's OpenLineage events to a server; those it was sent before are left out.

    A server that wants a key gets the one in $OPENLINEAGE_API_KEY.
    """
    from flows.lineage.export.push import push
    from flows.store.runs import run_ids
    from schemas.errors import ArtifactNotFoundError, UsageError

    if url is None:
        raise UsageError("no server: name it with --url or $OPENLINEAGE_URL")
    opened = open_store(store)
    if run is None:
        runs = run_ids(opened)
        if not runs:
            raise ArtifactNotFoundError(f"{opened.root}: no runs yet")
        run = runs[-1]
    pushed = push(opened, run, url=url, again=again, say=lambda line: say(line, err=True))
    if pushed.left:
        raise typer.Exit(1)
    say(f"{run}: {pushed.sent} events sent")


COMMANDS: tuple[Any, ...] = (push_lineage,)
"""In the order of `--help`."""
