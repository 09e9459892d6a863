"""A run of a recipe as its Prefect flows and tasks share it, in the process that runs the flow.

Prefect is handed names, labels and small references only. What they stand for is here.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from prefect.context import FlowRunContext
from prefect.logging import get_run_logger

from flows.engine.plan import plan
from flows.engine.running import RunPlan, Say, StepRef, finish_run, start_run
from flows.orchestration.error_logs import say_errors_in_a_sentence
from flows.orchestration.views import flush_views
from flows.store.runs import RunState
from model.processes.launcher import stop_running_calls
from schemas.disclosure import visible, without_secrets
from schemas.errors import BertloomError
from schemas.recipe import Recipe

_LOGGER = logging.getLogger(__name__)
_STOP_SECONDS = 0.5

RecipeParameter = str | dict[str, Any]
"""How flows are handed a recipe: the name of a packaged one, a file, or all of it as plain JSON."""


class Held(NamedTuple):
    """What the caller of a flow in this process has at hand already."""

    recipe: Recipe
    """With its credentials, which no flow parameter holds."""

    say: Say
    cached: frozenset[str]
    """Labels of steps whose artifacts are there."""


@dataclass(kw_only=True)
class Session:
    """A run in progress. Tasks of other threads add to it, each under its own labels."""

    run: RunPlan
    say: Say
    cached: frozenset[str]
    """Labels of the steps whose artifacts were there when the run began."""

    done: dict[str, StepRef] = field(default_factory=dict)
    failures: dict[str, BaseException] = field(default_factory=dict)
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the run is to end: no step is begun, or waited for, any more."""

    is_over: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Ask the steps in progress to stop, and those about to begin; returns at once."""
        if not self.stopping.is_set():
            self.stopping.set()
            threading.Thread(target=self._keep_asking, name="stop-steps", daemon=True).start()

    def _keep_asking(self) -> None:
        # More than once: a training that was just about to start has no process to be asked yet.
        while True:
            stop_running_calls()
            if self.is_over.wait(_STOP_SECONDS):
                return

    def results(self) -> list[StepRef]:
        """Of the steps that are done, in the order of the plan."""
        return [self.done[step.label] for step in self.run.steps if step.label in self.done]


_HELD: contextvars.ContextVar[Held | None] = contextvars.ContextVar("_HELD", default=None)
_SESSION: contextvars.ContextVar[Session | None] = contextvars.ContextVar("_SESSION", default=None)


@contextlib.contextmanager
def holding(held: Held) -> Iterator[None]:
    """The flow that is called in this block takes these in place of its parameters."""
    token = _HELD.set(held)
    try:
        yield
    finally:
        _HELD.reset(token)


def open_session() -> Session | None:
    """That of the flow run that this one is a part of, or None."""
    return _SESSION.get()


def session() -> Session:
    """That of the flow run around this task."""
    found = _SESSION.get()
    if found is None:
        raise RuntimeError("a step's task runs in a flow of bertloom only")
    return found


def load_parameter(
    recipe: RecipeParameter, *, changes: Sequence[str] = (), store: str | None = None
) -> Recipe:
    """The recipe that a flow's parameters stand for.

    Raises:
        ConfigError: there is no such recipe, or something in it cannot be used.
    """
    from flows.recipes.files import load_recipe, recipe_from

    if isinstance(recipe, str):
        return load_recipe(recipe, changes=changes, store=store)
    where = "the flow's parameter `recipe`"
    return recipe_from(recipe, where=where, folder=Path.cwd(), changes=changes, store=store)


def found_steps(recipe: Recipe, *, rebuild: Sequence[str], until: str) -> frozenset[str]:
    """Labels of the steps that need nothing but to be looked up.

    A hint: each is looked up again in its turn, and built if its artifact is gone by then.
    """
    from flows.engine.running import opened_store

    try:
        planned = plan(recipe, store=opened_store(recipe.store), rebuild=rebuild, until=until)
    except BertloomError as error:  # the step that it is about says it in its turn
        _LOGGER.debug("no plan: %s", error)
        return frozenset()
    return frozenset(step.label for step in planned if step.state == "cached")


@contextlib.contextmanager
def begun(
    recipe: RecipeParameter,
    *,
    changes: Sequence[str] | None,
    store: str | None,
    rebuild: Sequence[str] | None,
    until: str,
) -> Iterator[Session]:
    """A run of the recipe around this block, recorded from its start to its end.

    Raises:
        Exception: as the first step that failed.
    """
    say_errors_in_a_sentence()
    held, rebuild = _HELD.get(), tuple(rebuild or ())
    loaded = held.recipe if held else load_parameter(recipe, changes=changes or (), store=store)
    cached = held.cached if held else found_steps(loaded, rebuild=rebuild, until=until)
    context = FlowRunContext.get()
    flow_run_id = str(context.flow_run.id) if context and context.flow_run else ""
    run = start_run(loaded, rebuild=rebuild, until=until, engine="prefect", flow_run_id=flow_run_id)
    found = Session(run=run, say=held.say if held else _say_to_log, cached=cached)
    token = _SESSION.set(found)
    try:
        with _recorded(found):
            yield found
    finally:
        found.is_over.set()
        flush_views()
        _SESSION.reset(token)


def _say_to_log(line: str) -> None:
    """On the page of the flow or task run, and where a worker writes its log."""
    get_run_logger().info("%s", visible(without_secrets(line)))


@contextlib.contextmanager
def _recorded(found: Session) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # none of a step's, but of what runs the steps
        finish_run(found.run, state="failed", results=found.results(), failures={"": error})
        raise
    except BaseException as error:
        # A signal reaches this thread alone, and Prefect waits for the others' tasks to end.
        found.stop()
        finish_run(found.run, state="interrupted", results=found.results(), failures={"": error})
        raise
    state: RunState = "failed" if found.failures else "completed"
    finish_run(found.run, state=state, results=found.results(), failures=found.failures)
    for failure in found.failures.values():
        raise failure
