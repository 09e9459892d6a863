"""The pretraining flow: a recipe's corpus, and the phases of pretraining on it.

The phases are tasks beside those of the corpus, not a flow of their own: a sub-flow costs a second
and hides which instances a phase waits for. Each phase is a stage with an artifact and a lineage;
a phase that was stopped goes on from its last checkpoint.
"""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.runs import start_run
from flows.tasks import run_steps
from schemas.recipe import Recipe


@flow(name="bertloom-pretraining", flow_run_name="{recipe.name}", persist_result=False)
def pretrain(
    recipe: Recipe, rebuild: tuple[str, ...] = (), until: str = ""
) -> list[dict[str, Any]]:
    """Build a recipe's corpus and pretrain on it; the references to all artifacts, in order.

    Args:
        recipe: what to build and train.
        rebuild: stages to build even if they are there: `all`, stage names or step labels.
        until: a stage or a step: it and what it needs are run; "" for all phases.

    Raises:
        Exception: as the first step that failed; the steps that do not depend on it have run.
    """
    return run_steps(start_run(recipe, rebuild=rebuild, until=until or "pretrain"))
