"""The command `reproduce`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli import options
from flows.cli.progress import StepPrinter
from flows.cli.tables import print_result
from flows.lineage.resolve import open_store
from flows.reproduce import reproduce as reproduce_artifact


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
