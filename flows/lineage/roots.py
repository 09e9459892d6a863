"""Where an artifact came from: its inputs, theirs, and the raw files at the end."""

from __future__ import annotations

from flows.lineage.graph import upstream_graph
from flows.lineage.texts import tree_lines
from flows.store.artifacts import ArtifactStore
from schemas.manifest import Manifest


def lineage_lines(manifest: Manifest, *, store: ArtifactStore) -> list[str]:
    """The lineage as a tree of text; an artifact that was shown already is only named.

    Of a raw file that was verified, the published checksum is given in full.
    """
    return tree_lines(upstream_graph([manifest], store=store))
