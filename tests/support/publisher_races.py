"""What a process of a race of publishers does: a module of its own, so that each starts quickly."""

from __future__ import annotations

from typing import Any

from support.publication_builder import LABELS, corpus_recipe

from flows.publish.publishing import publish
from flows.store.artifacts import ArtifactStore


def race(root: str, paths: list[str], start: Any, results: Any) -> None:
    """Publish the corpus with these manifests; report what became of it."""
    store = ArtifactStore(root)
    made = {label: store.read_manifest(path) for label, path in zip(LABELS, paths, strict=True)}
    start.wait(120)
    found = publish(corpus_recipe(root), made, store=store)
    results.put((made["build-tokens"].artifact_id, found.outcome, found.replaced, found.kept_as))
