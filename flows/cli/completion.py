"""Shell completion of recipes, steps, tasks, artifacts and runs.

A shell waits for the names whenever the user presses Tab. Errors yield no names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import typer

from flows.bert import recipe_steps, stages
from flows.lineage.resolve import newest_run, open_store
from flows.recipes.loader import ENDINGS, load_recipe
from flows.recipes.packaged import packaged_recipes
from flows.store.runs import run_ids
from model.tasks import TASKS
from schemas.trial_names import entry_label

_TIMEOUT_SECONDS = 2.0
"""Maximum time to wait for a store, which can be remote."""


def packaged_names(incomplete: str) -> list[str]:
    """Return packaged recipes."""
    return _matches(incomplete, packaged_recipes)


def recipe_names(incomplete: str) -> list[str]:
    """Return packaged recipes and recipe files."""
    folder = Path(f"{incomplete}x").parent
    files = _matches(incomplete, lambda: (str(p) for p in folder.iterdir() if p.suffix in ENDINGS))
    return [*packaged_names(incomplete), *sorted(files)]


def stage_names(incomplete: str) -> list[str]:
    """Return stages, and `all`."""
    return _matches(incomplete, lambda: (*stages(), "all"))


def step_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return stages, and the steps of the recipe on the command line."""
    # Arguments are unparsed while an option before them waits for its value.
    words = [word for word in ctx.args if not word.startswith("-")]
    recipe = ctx.params.get("recipe") or next(iter(words), "")
    overrides = ctx.params.get("overrides") or ()

    def names() -> Iterator[str]:
        yield from stages()
        for step in recipe_steps(load_recipe(recipe, overrides=overrides)):
            yield entry_label(step.label)

    return _matches(incomplete, names)


def task_names(incomplete: str) -> list[str]:
    """Return tasks."""
    return _matches(incomplete, lambda: TASKS)


def artifact_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return refs, steps of the newest run, stages and ids of a store."""

    def names() -> Iterator[str]:
        store = open_store(ctx.params.get("store"))
        yield from store.refs()
        if "/" in incomplete:
            return
        run = newest_run(store)
        yield from (step.label for step in run.steps if "." in step.label) if run else ()
        pointers = store.pointers() if incomplete else []
        yield from (pointer.stage for pointer in pointers)
        yield from (pointer.artifact_id for pointer in pointers)

    return _matches(incomplete, names)


def run_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return runs of a store, newest first."""
    return _matches(incomplete, lambda: reversed(run_ids(open_store(ctx.params.get("store")))))


def _matches(incomplete: str, names: Callable[[], Iterable[str]]) -> list[str]:
    """Return the names with a prefix that are known before an error or the timeout."""
    matches: dict[str, None] = {}

    def collect() -> None:
        with suppress(Exception):
            for name in names():
                if name.startswith(incomplete):
                    matches[name] = None

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(_TIMEOUT_SECONDS)
    return list(matches)
