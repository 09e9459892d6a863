"""The corpus flow: from raw dumps to instances."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.runs import start_run
from flows.tasks import run_steps
from schemas.recipe import Recipe


@flow(name="bertloom-corpus", flow_run_name="{recipe.name}", persist_result=False)
def build_corpus(
    recipe: Recipe, rebuild: tuple[str, ...] = (), until: str = ""
) -> list[dict[str, Any]]:
    """Build a recipe's corpus; the references to its artifacts, in order.

    Args:
        recipe: what to build.
        rebuild: stages to build even if they are there: `all`, stage names or step labels.
        until: a stage or a step: it and what it needs are run; "" for all instances.

    Raises:
        Exception: as the first step that failed; the steps that do not depend on it have run.
    """
    return run_steps(start_run(recipe, rebuild=rebuild, until=until or "build-instances"))
