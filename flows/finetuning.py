"""The fine-tuning flow: examples of tasks, and the cells of every grid.

Each cell (a point of a grid and a restart) is a task with an artifact of its own, so that a sweep
that was stopped goes on where it was. What they start from is built first where it is not there.
"""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.runs import start_run
from flows.tasks import run_steps
from schemas.recipe import Recipe


@flow(name="bertloom-finetuning", flow_run_name="{recipe.name}", persist_result=False)
def finetune(
    recipe: Recipe, rebuild: tuple[str, ...] = (), until: str = ""
) -> list[dict[str, Any]]:
    """Fine-tune on a recipe's tasks; the references to all artifacts, in order.

    Args:
        recipe: what to build and train.
        rebuild: stages to build even if they are there: `all`, stage names or step labels.
        until: a stage or a step: it and what it needs are run; "" for all cells.

    Raises:
        Exception: as the first step that failed; the steps that do not depend on it have run.
    """
    return run_steps(start_run(recipe, rebuild=rebuild, until=until or "finetune"))
