"""A part of a recipe's work: which steps it adds to those before it, and ways to run them.

Neither listing nor planning steps loads Prefect; the Prefect flow of a part is made when it is
first asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flows.engine.graph import AddSteps, Graph
from schemas.disclosure import recorded
from schemas.errors import ConfigError
from schemas.recipe import Recipe

if TYPE_CHECKING:
    from prefect import Flow

    from flows.engine.steps import StepResult

ENGINES = ("prefect", "local")


class Part(Graph):
    """Steps of a recipe, and what they need. Called as its Prefect flow is called."""

    def run(
        self,
        recipe: Recipe,
        *,
        say: Callable[[str], None] = print,
        engine: str = "prefect",
        rebuild: Collection[str] = (),
        until: str = "",
    ) -> list[StepResult]:
        """Run the steps, with Prefect or without any server in this process; results are the same.

        Args:
            recipe: what to run.
            say: takes a line of text on each step.
            engine: `prefect`, or `local`.
            rebuild: stages to build even if they are there: `all`, stage names or step labels.
            until: a stage or a step: it and what it needs are run; "" for all.

        Returns:
            The result of every step, in order.

        Raises:
            BertloomError: a step failed; those that do not depend on it have run.
        """
        if engine not in ENGINES:
            raise ConfigError(f"unknown engine {engine!r}: choose one of {', '.join(ENGINES)}")
        if engine == "prefect":
            from flows.orchestration.launch import in_prefect  # start-up: 300 ms

            with in_prefect(self, recipe, say=say, rebuild=rebuild, until=until) as run:
                named = recorded(recipe.model_dump(mode="json"))
                self.flow(named, rebuild=list(rebuild), until=until)
            return run.results()
        from flows.orchestration.loop import run_steps  # start-up: 300 ms
        from flows.orchestration.run import Run

        with Run(recipe, self.steps(recipe, until), say=say, rebuild=rebuild) as run:
            run_steps(run)
        return run.results()

    def __call__(
        self,
        recipe: str | dict[str, Any],
        changes: Sequence[str] | None = None,
        store: str | None = None,
        rebuild: Sequence[str] | None = None,
        until: str = "",
    ) -> list[dict[str, Any]]:
        """Run the Prefect flow: on the server that is configured, within the flow that calls it, or
        on a server of its own that ends with this process.

        Args:
            recipe: what to run: a packaged recipe's name, a file, or all of it as JSON.
            changes: `KEY=VALUE` texts, as of `bertloom run --set`.
            store: in place of the recipe's own.
            rebuild, until: as of `run`.

        Returns:
            The records of all steps, in order.
        """
        from flows.orchestration.launch import in_prefect  # start-up: 300 ms

        given: dict[str, Any] = {
            "recipe": recipe,
            "changes": list(changes or ()),
            "store": store,
            "rebuild": list(rebuild or ()),
            "until": until,
        }
        with in_prefect(self, **given):
            records: list[dict[str, Any]] = self.flow(**given)
        return records

    @functools.cached_property
    def flow(self) -> Flow[..., Any]:
        """Prefect's own object, for deployments: its parameters are those of a call."""
        from flows.orchestration.flows import flow_of  # start-up: 2 s

        return flow_of(self)


def part(
    flow_name: str,
    *,
    modules: Sequence[ModuleType] = (),
    after: Sequence[Part] = (),
    is_whole: bool = False,
) -> Callable[[AddSteps], Part]:
    """Make a part of a function that adds its steps to those before them.

    Args:
        flow_name: the name of its Prefect flow.
        modules: those of its stages.
        after: the parts whose steps come before, in order.
        is_whole: whether the steps of those are its own, too.
    """
    return lambda add_steps: Part(
        add_steps, flow_name=flow_name, modules=modules, after=after, is_whole=is_whole
    )
