"""The run that the flows and tasks of this process belong to, and making it of a flow's parameters.

Prefect is handed names, labels and small records only. The run that they are about is here.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from flows.engine.graph import Graph
from flows.engine.steps import opened_store
from flows.orchestration.run import Run, Say
from flows.recipes.files import load_recipe, recipe_from
from schemas.errors import BertloomError
from schemas.recipe import Recipe

RecipeParameter = str | dict[str, Any]
"""How flows take a recipe: the name of a packaged one, a file, or all of it as plain JSON."""

_LOGGER = logging.getLogger(__name__)
_RUN: contextvars.ContextVar[Run | None] = contextvars.ContextVar("_RUN", default=None)


def current_run() -> Run | None:
    """The run that the flow or task run one is in belongs to."""
    return _RUN.get()


@contextlib.contextmanager
def running(run: Run) -> Iterator[None]:
    """Flows and tasks of this block belong to a run."""
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


def prepare_run(
    graph: Graph, recipe: Recipe, *, say: Say, rebuild: Collection[str], until: str
) -> Run:
    """A run that is not begun yet, with the steps that need nothing but to be looked up."""
    steps = graph.steps(recipe, until)
    try:
        store = opened_store(recipe.store)
        planned = graph.plan(recipe, store=store, rebuild=rebuild, until=until)
        cached = [step.label for step in planned if step.state == "cached"]
    except BertloomError as error:  # the step that it is about says it in its turn
        _LOGGER.debug("no plan: %s", error)
        cached = []
    return Run(recipe, steps, say=say, rebuild=rebuild, engine="prefect", cached=cached)


def load_parameter(
    recipe: RecipeParameter, *, changes: Sequence[str] = (), store: str | None = None
) -> Recipe:
    """The recipe that a flow's parameters stand for.

    Raises:
        ConfigError: there is no such recipe, or something in it cannot be used.
    """
    if isinstance(recipe, str):
        return load_recipe(recipe, changes=changes, store=store)
    where = "the flow's parameter `recipe`"
    return recipe_from(recipe, where=where, folder=Path.cwd(), changes=changes, store=store)
