"""Process of a race of publishers; a separate module so that it starts quickly."""

from __future__ import annotations

from typing import Any

from support.publication_builder import LABELS, corpus_recipe

from flows.publish.publish import publish
from flows.store.artifacts import ArtifactStore


def race(root: str, paths: list[str], start: Any, results: Any) -> None:
    """Publish the corpus with these manifests, and put the result into a queue."""
    store = ArtifactStore(root)
    built = {label: store.read_manifest(path) for label, path in zip(LABELS, paths, strict=True)}
    start.wait(120)
    result = publish(corpus_recipe(root), built, store=store)
    tokens = built["build-tokens"].artifact_id
    results.put((tokens, result.outcome, result.replaced, result.version_ref))
