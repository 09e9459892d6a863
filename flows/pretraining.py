"""The pretraining flow: a recipe's corpus, and the phases of pretraining on it.

Each phase is a task and a stage with an artifact and a lineage; a phase that was stopped goes on
from its last checkpoint.
"""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.orchestration.flow_parts import FLOW_OPTIONS, run_part
from flows.orchestration.flow_session import RecipeParameter

PRETRAINING = ("pretrain",)
"""The flow's own stages."""


@flow(name="bertloom-pretraining", **FLOW_OPTIONS)
def pretrain(
    recipe: RecipeParameter,
    changes: list[str] | None = None,
    store: str | None = None,
    rebuild: list[str] | None = None,
    until: str = "",
) -> list[dict[str, Any]]:
    """Build a recipe's corpus and pretrain on it. The references to all artifacts, in order.

    Args:
        recipe: what to build and train: a packaged recipe's name, a file, or all of it as JSON.
        changes: `KEY=VALUE` texts, as of `bertloom run --set`.
        store: in place of the recipe's own.
        rebuild: stages to build even if they are there: `all`, stage names or step labels.
        until: a stage or a step: it and what it needs are run; "" for all phases.

    Raises:
        Exception: as the first step that failed; the steps that do not depend on it have run.
    """
    return run_part(PRETRAINING, recipe, changes, store, rebuild, until or "pretrain")
