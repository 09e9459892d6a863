"""The command `unpin`."""

from __future__ import annotations

from flows.cli import options
from flows.cli.console import echo
from flows.lineage.resolve import open_store, resolve


def unpin(name: options.Artifact, store: options.Store = None) -> None:
    """Delete a pin. The artifact stays until garbage collection."""
    opened = open_store(store)
    artifact_id = name if name in opened.pins() else resolve(name, store=opened).artifact_id
    opened.unpin(artifact_id)
    echo(f"unpinned {artifact_id}")
