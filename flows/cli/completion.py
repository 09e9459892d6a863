"""What tab completion offers: recipes, steps, tasks, and the names that are in a store.

A shell waits for it with every press of the key, and shows what is printed: so nothing here fails
or says anything, and a store that does not answer at once has no names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from flows.bert import recipe_steps, stages
from flows.lineage.resolve import newest_run
from flows.recipes.loader import ENDINGS, default_store, load_recipe, packaged_recipes
from flows.store.artifacts import ArtifactStore
from flows.store.runs import run_ids
from model.tasks import TASKS
from pipelines.runners.launch import RUNNERS
from schemas.trial_names import entry_label

_STORE_SECONDS = 2.0
"""How long a store is waited for, which may be in a bucket that does not answer."""


def packaged_names(incomplete: str) -> list[str]:
    """Packaged recipes that begin so."""
    return _beginning(incomplete, packaged_recipes())


def recipe_names(incomplete: str) -> list[str]:
    """Packaged recipes and YAML files that begin so."""
    folder = Path(f"{incomplete}x").parent
    files = _without_errors(lambda: (str(p) for p in folder.iterdir() if p.suffix in ENDINGS))
    return [*packaged_names(incomplete), *_beginning(incomplete, sorted(files))]


def stage_names(incomplete: str) -> list[str]:
    """Stages that begin so, and `all`."""
    return _beginning(incomplete, (*_stages(), "all"))


def step_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Stages that begin so, and the steps of the recipe that the command is given."""
    # An option that still waits for its value keeps the words before it from being arguments.
    words = [word for word in ctx.args if not word.startswith("-")]
    recipe, changes = ctx.params.get("recipe") or next(iter(words), None), ctx.params.get("changes")

    def of_recipe() -> Iterator[str]:
        if recipe is not None:
            for step in recipe_steps(load_recipe(recipe, overrides=changes or ())):
                yield entry_label(step.label)

    return _beginning(incomplete, (*_stages(), *_without_errors(of_recipe)))


def runner_names(incomplete: str) -> list[str]:
    """Runners that begin so."""
    return _beginning(incomplete, RUNNERS)


def task_names(incomplete: str) -> list[str]:
    """Tasks that begin so."""
    return _beginning(incomplete, TASKS)


def artifact_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the store's artifacts that begin so: refs, steps of the newest run, stages, ids."""

    def names(store: ArtifactStore) -> Iterator[str]:
        yield from store.refs()
        if "/" in incomplete:
            return
        run = newest_run(store)
        yield from (step.label for step in run.steps if "." in step.label) if run else ()
        pointers = list(store.pointers()) if incomplete else []
        yield from dict.fromkeys(pointer.stage for pointer in pointers)
        yield from (pointer.artifact_id for pointer in pointers)

    return _beginning(incomplete, _of_store(ctx, names))


def run_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Runs of the store that begin so, the newest first."""
    return _beginning(incomplete, reversed(_of_store(ctx, run_ids)))


def _stages() -> Iterable[str]:
    return stages()


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _of_store(ctx: typer.Context, names: Callable[[ArtifactStore], Iterable[str]]) -> list[str]:
    """Names in the store that the command is given, or the default one."""
    root = ctx.params.get("store") or default_store()
    return _without_errors(lambda: names(ArtifactStore(root, create=False)))


def _without_errors(names: Callable[[], Iterable[str]]) -> list[str]:
    """The names that there were until an error, or until a shell should wait no longer."""
    found: list[str] = []

    def find() -> Any:
        try:
            found.extend(names())
        except Exception:
            return  # no store, no recipe, nobody to ask: there is nothing to complete from

    thread = threading.Thread(target=find, name="completion", daemon=True)
    thread.start()
    thread.join(_STORE_SECONDS)
    return list(found)
