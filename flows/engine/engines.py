"""Running a recipe: with Prefect, or without any server in this process.

The results are the same; they come from `flows.engine.running.execute_step` either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flows.engine.running import Say
from flows.engine.steps import StepResult
from schemas.errors import ConfigError
from schemas.recipe import Recipe


def run_recipe(
    recipe: Recipe,
    *,
    say: Say = print,
    engine: str = "prefect",
    rebuild: Sequence[str] = (),
    until: str = "",
) -> list[StepResult]:
    """Run all steps of a recipe, or those that are asked for.

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
    return ENGINES[engine](recipe, say, rebuild, until)


def _with_prefect(recipe: Recipe, say: Say, rebuild: Sequence[str], until: str) -> list[StepResult]:
    from flows.orchestration.engine import run_with_prefect  # Prefect takes a second or two to load

    return run_with_prefect(recipe, say=say, rebuild=rebuild, until=until)


def _without_server(
    recipe: Recipe, say: Say, rebuild: Sequence[str], until: str
) -> list[StepResult]:
    from flows.engine.loop import run_in_this_process

    return run_in_this_process(recipe, say=say, rebuild=rebuild, until=until)


ENGINES: dict[str, Callable[[Recipe, Say, Sequence[str], str], list[StepResult]]] = {
    "prefect": _with_prefect,
    "local": _without_server,
}
