"""The command `pin`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import echo
from flows.lineage.resolve import open_store, resolve
from schemas.errors import UsageError


def pin(
    name: options.Artifact,
    reason: Annotated[str, typer.Option(help="Reason, which `ls --pins` and `gc` show.")],
    store: options.Store = None,
) -> None:
    """Retain an artifact and everything upstream of it in garbage collection."""
    if not reason.strip():
        raise UsageError("--reason: expected a text, got none. Pass a reason")
    opened = open_store(store)
    manifest = resolve(name, store=opened)
    opened.pin(manifest, reason=reason)
    echo(f"pinned {manifest.artifact_id} ({manifest.stage}): {reason}")
