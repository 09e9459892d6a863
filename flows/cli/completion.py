"""What tab completion offers: recipes, stages, engines, and the names of the default store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from flows.recipes.files import default_store, packaged_recipes
from flows.store.artifacts import ArtifactStore
from flows.store.runs import run_ids
from schemas.errors import BertloomError


def packaged_names(incomplete: str) -> list[str]:
    """Packaged recipes that begin so."""
    return _beginning(incomplete, packaged_recipes())


def recipe_names(incomplete: str) -> list[str]:
    """Packaged recipes and YAML files that begin so."""
    files = sorted(str(path) for path in Path().glob(f"{incomplete}*.yaml"))
    return [*packaged_names(incomplete), *files]


def stage_names(incomplete: str) -> list[str]:
    """Stages that begin so, and `all`."""
    from flows.bert import stages  # start-up: 1 s, the modules of all stages

    return _beginning(incomplete, (*stages(), "all"))


def engine_names(incomplete: str) -> list[str]:
    """Engines that begin so."""
    from flows.orchestration.part import ENGINES  # start-up: 700 ms

    return _beginning(incomplete, ENGINES)


def artifact_names(incomplete: str) -> list[str]:
    """Refs of the default store, and stages, that begin so."""
    from flows.bert import stages  # start-up: 1 s, the modules of all stages

    return _beginning(incomplete, (*_of_store(lambda store: store.refs()), *stages()))


def run_names(incomplete: str) -> list[str]:
    """Runs of the default store that begin so, the newest first."""
    return _beginning(incomplete, reversed(_of_store(run_ids)))


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _of_store(names: Callable[[ArtifactStore], list[str]]) -> list[str]:
    try:
        return names(ArtifactStore(default_store(), create=False))
    except BertloomError:
        return []  # there is no store here to complete from
