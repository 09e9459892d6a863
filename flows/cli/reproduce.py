"""The command `reproduce`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import echo
from flows.cli.tables import print_result
from flows.formatting import format_count
from flows.lineage.resolve import open_store
from flows.reproduction.check_bundle import run_bundle
from flows.reproduction.write_bundle import write_bundle
from schemas.errors import UsageError


def reproduce(
    artifact: Annotated[
        str,
        typer.Argument(
            metavar="ARTIFACT|METRIC|FOLDER",
            help="Artifact or metric, as for lineage: sample/build-tokens, "
            "evaluate.cola:matthews. With --run: folder of a bundle.",
        ),
    ],
    folder: Annotated[Path | None, typer.Argument(help="New folder for the bundle.")] = None,
    run: Annotated[
        bool,
        typer.Option("--run", help="Build a bundle, compare digests."),
    ] = False,
    copy_inputs: Annotated[bool, typer.Option("--copy-inputs", help="Copy raw files too.")] = False,
    store: options.Store = None,
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Write a bundle that reproduces an artifact on another machine, or run a bundle.

    With --run, --store is where the artifact is built. Default: FOLDER/store. The exit code is 1 if
    a step differs.
    """
    if run == (folder is not None) or (run and copy_inputs):
        raise UsageError(
            "expected ARTIFACT FOLDER to write a bundle, or FOLDER --run to build its artifact"
        )
    if folder is None:
        log = partial(echo, err=as_json)
        comparison = run_bundle(Path(artifact), store=store, workers=workers, log=log)
        print_result(comparison.model_dump(mode="json"), *comparison.lines(), as_json=as_json)
        if not comparison.is_equal:
            raise typer.Exit(1)
        return
    opened = open_store(store)
    expected = write_bundle(artifact, folder, store=opened, copy_inputs=copy_inputs)
    counts = f"{format_count(len(expected.steps), 'step')}, "
    counts += format_count(len(expected.inputs), "input")
    copied = "copied to" if copy_inputs else "to be copied to"
    first = "" if copy_inputs else f"copy the files of inputs.sha256 to {folder}/inputs, then "
    lines = [
        f"{expected.target}: {counts} {copied} {folder}/inputs",
        f"next: {first}bertloom reproduce {folder} --run",
    ]
    print_result(expected.model_dump(mode="json"), *lines, as_json=as_json)
