"""The command `diff`."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli import options
from flows.cli.tables import print_result, table
from flows.lineage.diff import difference, run_differences, run_lines
from flows.lineage.document_diff import document_changes
from flows.lineage.resolve import open_artifact, open_store
from flows.store.runs import read_run
from schemas.errors import ConfigError

_RUN_ID = re.compile(r"\d{8}t\d{6}(\d{3})?-[0-9a-f]{8}")


def diff(
    before: Annotated[
        str,
        typer.Argument(
            help="Artifact as for show, step of the newest run, or id of a run.",
        ),
    ],
    after: Annotated[str, typer.Argument(help="Artifact or run to compare with.")],
    examples: Annotated[int, typer.Option(min=0, help="Number of changed documents to show.")] = 3,
    store: options.Store = None,
    as_json: options.Json = False,
    show_all: options.All = False,
) -> None:
    """Compare two artifacts, or the steps of two runs."""
    is_run = [bool(_RUN_ID.fullmatch(name)) for name in (before, after)]
    if any(is_run) and not all(is_run):
        raise ConfigError(f"expected two runs, or two artifacts, got {before} and {after}")
    if all(is_run):
        opened = open_store(store)
        steps = run_differences(read_run(opened, before), read_run(opened, after), store=opened)
        data = {"runs": [before, after], "steps": [asdict(step) for step in steps]}
        rows = run_lines(steps, show_all=show_all)
        header = ("step", before, after, "difference")
        print_result(data, table(header, rows), as_json=as_json)
        return
    old, new = (open_artifact(name, store) for name in (before, after))
    result = difference(old.manifest, new.manifest)
    data, lines = asdict(result), result.lines(show_all=show_all)
    if (
        old.manifest.table_name == new.manifest.table_name == "documents"
        and not result.is_same_content
    ):
        changes = document_changes(old, new, examples=examples)
        data["documents"], lines = asdict(changes), [*lines, *changes.lines()]
    print_result(data, *lines, as_json=as_json)
