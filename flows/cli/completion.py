"""What tab completion offers: recipes, stages, and the names of a store."""

from __future__ import annotations

from pathlib import Path


def recipe_names(incomplete: str) -> list[str]:
    """Packaged recipes and YAML files that begin so."""
    from flows.recipes.files import packaged_recipes

    files = [str(path) for path in Path().glob(f"{incomplete}*.yaml")]
    return [name for name in packaged_recipes() if name.startswith(incomplete)] + sorted(files)


def stage_names(incomplete: str) -> list[str]:
    """Stages that begin so, and `all`."""
    from flows.engine.graph import stages

    return [name for name in (*stages(), "all") if name.startswith(incomplete)]


def artifact_names(incomplete: str) -> list[str]:
    """Refs of the default store, and stages, that begin so."""
    from flows.engine.graph import stages
    from flows.recipes.files import default_store
    from flows.store.artifacts import ArtifactStore
    from schemas.errors import BertloomError

    try:
        refs = ArtifactStore(default_store(), create=False).refs()
    except BertloomError:
        refs = []  # there is no store here to complete from
    return [name for name in (*refs, *stages()) if name.startswith(incomplete)]


def run_names(incomplete: str) -> list[str]:
    """Runs of the default store that begin so, the newest first."""
    from flows.recipes.files import default_store
    from flows.store.artifacts import ArtifactStore
    from flows.store.runs import run_ids
    from schemas.errors import BertloomError

    try:
        found = run_ids(ArtifactStore(default_store(), create=False))
    except BertloomError:
        return []
    return [name for name in reversed(found) if name.startswith(incomplete)]
