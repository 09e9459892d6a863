"""The corpus flow: from raw dumps to instances."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.orchestration.flow_parts import FLOW_OPTIONS, run_part
from flows.orchestration.flow_session import RecipeParameter

CORPUS = ("build-documents", "build-vocabulary", "build-tokens", "build-instances")
"""The flow's own stages."""


@flow(name="bertloom-corpus", **FLOW_OPTIONS)
def build_corpus(
    recipe: RecipeParameter,
    changes: list[str] | None = None,
    store: str | None = None,
    rebuild: list[str] | None = None,
    until: str = "",
) -> list[dict[str, Any]]:
    """Build a recipe's corpus. The references to all artifacts, in order.

    Args:
        recipe: what to build: a packaged recipe's name, a file, or all of it as JSON.
        changes: `KEY=VALUE` texts, as of `bertloom run --set`.
        store: in place of the recipe's own.
        rebuild: stages to build even if they are there: `all`, stage names or step labels.
        until: a stage or a step: it and what it needs are run; "" for all instances.

    Raises:
        Exception: as the first step that failed; the steps that do not depend on it have run.
    """
    return run_part(CORPUS, recipe, changes, store, rebuild, until or "build-instances")
