"""The evaluation flow: all of a recipe, up to the tables beside the paper's."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.runs import start_run
from flows.tasks import run_steps
from schemas.recipe import Recipe


@flow(name="bertloom-evaluation", flow_run_name="{recipe.name}", persist_result=False)
def evaluate(
    recipe: Recipe, rebuild: tuple[str, ...] = (), until: str = ""
) -> list[dict[str, Any]]:
    """Evaluate a recipe's fine-tunings and make its tables; the references to all artifacts.

    Args:
        recipe: what to build, train and evaluate.
        rebuild: stages to build even if they are there: `all`, stage names or step labels.
        until: a stage or a step: it and what it needs are run; "" for all.

    Raises:
        Exception: as the first step that failed; the steps that do not depend on it have run.
    """
    return run_steps(start_run(recipe, rebuild=rebuild, until=until))
