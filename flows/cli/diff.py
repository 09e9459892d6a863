"""The command `diff`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli import options
from flows.cli.tables import print_result
from flows.lineage.diff import difference
from flows.lineage.document_diff import document_changes
from flows.lineage.resolve import open_artifact


def diff(
    before: options.Artifact,
    after: Annotated[str, typer.Argument(help="Artifact to compare with.")],
    examples: Annotated[int, typer.Option(min=0, help="Number of changed documents to show.")] = 3,
    store: options.Store = None,
    as_json: options.Json = False,
    show_all: options.All = False,
) -> None:
    """Compare two artifacts."""
    old, new = (open_artifact(name, store) for name in (before, after))
    result = difference(old.manifest, new.manifest)
    data, lines = asdict(result), result.lines(show_all=show_all)
    tables = {artifact.manifest.table_name for artifact in (old, new)}
    if tables == {"documents"} and not result.is_same_content:
        changes = document_changes(old, new, examples=examples)
        data["documents"], lines = changes._asdict(), [*lines, *changes.lines()]
    print_result(data, *lines, as_json=as_json)
