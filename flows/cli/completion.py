"""What tab completion offers: recipes, stages, engines, and the names of the default store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flows.store.artifacts import ArtifactStore


def recipe_names(incomplete: str) -> list[str]:
    """Packaged recipes and YAML files that begin so."""
    from flows.recipes.files import packaged_recipes

    files = sorted(str(path) for path in Path().glob(f"{incomplete}*.yaml"))
    return [*_beginning(incomplete, packaged_recipes()), *files]


def stage_names(incomplete: str) -> list[str]:
    """Stages that begin so, and `all`."""
    from flows.bert import stages

    return _beginning(incomplete, (*stages(), "all"))


def engine_names(incomplete: str) -> list[str]:
    """Engines that begin so."""
    from flows.orchestration.part import ENGINES

    return _beginning(incomplete, ENGINES)


def artifact_names(incomplete: str) -> list[str]:
    """Refs of the default store, and stages, that begin so."""
    from flows.bert import stages

    return _beginning(incomplete, (*_of_store(lambda store: store.refs()), *stages()))


def run_names(incomplete: str) -> list[str]:
    """Runs of the default store that begin so, the newest first."""
    from flows.store.runs import run_ids

    return _beginning(incomplete, reversed(_of_store(run_ids)))


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _of_store(names: Callable[[ArtifactStore], list[str]]) -> list[str]:
    from flows.recipes.files import default_store
    from flows.store.artifacts import ArtifactStore
    from schemas.errors import BertloomError

    try:
        return names(ArtifactStore(default_store(), create=False))
    except BertloomError:
        return []  # there is no store here to complete from
