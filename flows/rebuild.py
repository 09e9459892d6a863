"""The monthly rebuild as a Prefect flow, which `prefect.yaml` schedules."""

from __future__ import annotations

import logging
import re
import textwrap
from typing import Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import FlowRun, State
from prefect.flows import Flow
from prefect.states import Completed

from flows.lineage.openlineage import send_aborts
from flows.publish.comparison import CorpusComparison
from flows.publish.monthly_rebuild import (
    Log,
    RebuildRequest,
    execute_rebuild,
    load_corpus_recipe,
    plan_rebuild,
)
from flows.publish.publish import CorpusChangeLimitError
from flows.run.run import get_store
from flows.store.runs import mark_crashed_runs
from schemas.errors import BertloomError
from schemas.redaction import escape_control_characters, redact

_LOGGER = logging.getLogger(__name__)


def mark_run_crashed(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Mark the run of the crashed flow's corpus as crashed; Prefect's worker calls this hook."""
    del flow, state
    request = RebuildRequest.model_validate(flow_run.parameters["request"])
    try:
        recipe = load_corpus_recipe(request, (), [request.downloads])
        store = get_store(recipe.store)
        send_aborts(store, mark_crashed_runs(store, recipe=recipe.name))
    except BertloomError as error:  # then the run did not start
        _LOGGER.debug("%s has no record: %s", flow_run.id, error)


@flow(
    name="bertloom-rebuild",
    flow_run_name="{request.wiki}-{request.date}",
    persist_result=False,
    on_crashed=[mark_run_crashed],
)
def rebuild(request: RebuildRequest) -> Any:
    """Bring a published corpus up to the newest dump.

    An artifact of the flow run shows the comparison with the corpus published before.

    Args:
        request: Corpus to rebuild.

    Raises:
        CorpusChangeLimitError: The corpus exceeds a limit; it is in the store, not published.
        BertloomError: The dump is not available, or a step failed.
    """
    log = _flow_log()
    plan = plan_rebuild(request, log=log)
    if plan.skip_reason:
        skipped = {"date": plan.date, "outcome": "skipped"}
        return Completed(message=f"nothing to do: {plan.skip_reason}", data=skipped)
    try:
        publication = execute_rebuild(request, plan, engine="prefect", log=log)
    except CorpusChangeLimitError as error:
        _show(f"{request.wiki} {plan.date}", "Not published: limits exceeded.", error.comparison)
        raise
    if publication.comparison is not None:
        _show(f"{request.wiki} {plan.date}", publication.summary, publication.comparison)
    outcome, version = publication.outcome, publication.version_ref
    return {"date": plan.date, "outcome": outcome, "version_ref": version}


def _show(title: str, summary: str, comparison: CorpusComparison) -> None:
    # An indented block shows names from raw files as they are.
    table = textwrap.indent("\n".join(comparison.lines()), "    ")
    create_markdown_artifact(
        f"# {title}\n\n{summary}\n\n{table}\n",
        key=re.sub("[^a-z0-9]+", "-", f"corpus-of-{title.split()[0]}"),
        description=summary,
    )


def _flow_log() -> Log:
    # Downloads report from other threads, which have no logger of the flow run.
    log = get_run_logger()
    return lambda line: log.info("%s", escape_control_characters(redact(line)))
