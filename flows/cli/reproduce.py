"""`bertloom reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.completion import artifact_names
from flows.cli.console import echo, print_result
from flows.cli.options import JsonOption, StoreOption, WorkersOption, open_store
from flows.formatting import format_count
from flows.reproduction.checking import check_reproduction
from flows.reproduction.expected import Expected
from flows.reproduction.writing import write_reproduction
from schemas.errors import UsageError


def reproduce(
    thing: Annotated[
        str,
        typer.Argument(
            metavar="ARTIFACT|METRIC",
            help="As for lineage: an id, sample/build-instances.length-128, a number as "
            "evaluate.cola:matthews. With --check: a folder that this command wrote.",
            autocompletion=artifact_names,
        ),
    ],
    folder: Annotated[
        Path | None, typer.Argument(help="Where to write; not there yet, or empty.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Make it again, and say whether it is equal: exit code 0."),
    ] = False,
    copy_inputs: Annotated[
        bool, typer.Option("--copy-inputs", help="Put the raw files into the folder as well.")
    ] = False,
    store: StoreOption = None,
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write all that makes an artifact again elsewhere; or check that it comes out equal.

    With --check, --store is where it is made: another store than the artifact's; else FOLDER/store.
    """
    if check == (folder is not None):
        raise UsageError(
            "expected ARTIFACT and FOLDER to write, or FOLDER alone with --check to make it again"
        )
    if folder is None:
        if copy_inputs:
            raise UsageError("--copy-inputs is for writing a folder, not for --check")
        _check(Path(thing), store=store, workers=workers, as_json=as_json)
        return
    expected = write_reproduction(thing, folder, store=open_store(store), copy_inputs=copy_inputs)
    found = {
        "folder": str(folder.absolute()),
        "target": expected.target,
        "artifact_id": expected.artifact.artifact_id,
        "content": expected.artifact.content,
        "steps": list(expected.steps),
        "inputs": [one.model_dump(mode="json") for one in expected.inputs],
        "notes": list(expected.notes),
    }
    print_result(found, _written_lines(expected, folder, copied=copy_inputs), as_json=as_json)


def _check(folder: Path, *, store: str | None, workers: int | None, as_json: bool) -> None:
    outcome = check_reproduction(
        folder, store=store, workers=workers, say=lambda line: echo(line, err=as_json)
    )
    print_result(outcome.to_json(), outcome.lines(), as_json=as_json)
    if not outcome.is_equal:
        raise typer.Exit(1)


def _written_lines(expected: Expected, folder: Path, *, copied: bool) -> list[str]:
    where = "copied to" if copied else "to be put into"
    return [
        f"{expected.target} {expected.artifact.artifact_id}: "
        f"{format_count(len(expected.steps), 'step')}, "
        f"{format_count(len(expected.inputs), 'input')}, {where} {folder}/inputs",
        *(f"note: {note}" for note in expected.notes),
        f"wrote {folder}",
        f"next: {folder}/reproduce.sh, or bertloom reproduce {folder} --check",
    ]
