"""The evaluation flow: a recipe's fine-tunings evaluated, up to the tables beside the paper's."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.orchestration.flow_parts import FLOW_OPTIONS, run_part
from flows.orchestration.flow_session import RecipeParameter

EVALUATION = ("evaluate", "tabulate")
"""The flow's own stages."""


@flow(name="bertloom-evaluation", **FLOW_OPTIONS)
def evaluate(
    recipe: RecipeParameter,
    changes: list[str] | None = None,
    store: str | None = None,
    rebuild: list[str] | None = None,
    until: str = "",
) -> list[dict[str, Any]]:
    """Evaluate a recipe's models and make its tables. The references to all artifacts, in order.

    Args:
        recipe: what to evaluate: a packaged recipe's name, a file, or all of it as JSON.
        changes: `KEY=VALUE` texts, as of `bertloom run --set`.
        store: in place of the recipe's own.
        rebuild: stages to build even if they are there: `all`, stage names or step labels.
        until: a stage or a step: it and what it needs are run; "" for all.

    Raises:
        Exception: as the first step that failed; the steps that do not depend on it have run.
    """
    return run_part(EVALUATION, recipe, changes, store, rebuild, until)
