"""The monthly rebuild as a Prefect flow, which `prefect.yaml` schedules.

    fetch -> build-corpus -> compare-and-publish

`flows.publish.rebuilding.rebuild_corpus` is the same without Prefect.
"""

from __future__ import annotations

import contextvars
import logging
import re
from typing import Any, NamedTuple

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import FlowRun, State
from prefect.flows import Flow
from prefect.states import Completed

from flows.lineage.openlineage import send_abort
from flows.prefect_server import prefect_api, start_server
from flows.publish.comparison import Corpus, CorpusComparison
from flows.publish.publishing import CorpusRefusedError, Publication
from flows.publish.rebuilding import (
    RebuildOrder,
    RebuildWork,
    Say,
    clear_downloads,
    corpus_recipe,
    fetch_dump,
    find_work,
    publish_rebuilt,
)
from flows.recipes.loader import load_recipe
from flows.run.run import get_store
from flows.running import run_recipe
from flows.store.runs import mark_crashed_runs
from schemas.errors import BertloomError
from schemas.recipe import Recipe
from schemas.redaction import escape_control_characters, redact, redact_record

_LOGGER = logging.getLogger(__name__)


def mark_run_crashed(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Mark the run of the crashed flow's corpus as crashed; Prefect's worker calls this hook."""
    del flow, state
    parameters = flow_run.parameters
    try:
        recipe = load_recipe(
            parameters["recipe"],
            overrides=parameters.get("overrides") or (),
            store=parameters.get("store"),
        )
        mark_crashed_runs(get_store(recipe.store), recipe=recipe.name, close=send_abort)
    except BertloomError as error:  # then the run did not start
        _LOGGER.debug("%s has no record: %s", flow_run.id, error)


@flow(
    name="bertloom-rebuild",
    flow_run_name="{wiki}-{date}",
    persist_result=False,
    on_crashed=[mark_run_crashed],
)
def rebuild(
    recipe: str,
    wiki: str,
    date: str = "latest",
    downloads: str = "dumps",
    keep_downloads: int = 2,
    overrides: list[str] | None = None,
    store: str | None = None,
    mirror: str | None = None,
    force: bool = False,
    workers: int | None = None,
) -> Any:
    """Bring a published corpus up to the newest dump.

    Args:
        recipe: Path of a recipe, or name of a packaged one, with a source named like the wiki.
        wiki: Name of the wiki, such as `simplewiki`.
        date: Date of the dump, eight digits; `latest` for the newest complete one.
        downloads: Folder that dumps are downloaded to.
        keep_downloads: Number of dumps to keep there.
        overrides: `KEY=VALUE` texts, as for `bertloom run --set`.
        store: Artifact store, in place of the recipe's.
        mirror: URL in place of the official site of the dumps.
        force: Publish even if the corpus exceeds a limit.
        workers: Number of worker processes on this machine.

    Raises:
        CorpusRefusedError: The corpus exceeds a limit; it is kept, and not published.
        BertloomError: The dump is not available, or a step failed.
    """
    given = {name: value for name, value in locals().items() if name != "overrides"}
    order = RebuildOrder(**given, changes=overrides or ())
    if (called := _CALLED.get()) is not None:
        order = called.order
    work, files = fetch(order)
    if work.done:
        return Completed(message=f"nothing to do: {work.done}", data=_summary(work, None))
    loaded = corpus_recipe(order, work, files)
    made = {r.label: r.manifest for r in run_recipe(loaded, part="corpus", log=_say())}
    publication = compare_and_publish(order, work, loaded, made)
    return _summary(work, publication)


@task(name="fetch", task_run_name="fetch", cache_policy=NO_CACHE, persist_result=False)
def fetch(order: RebuildOrder) -> tuple[RebuildWork, tuple[str, ...]]:
    """Return the dump to build from and its files; no files if nothing has to be done."""
    work = find_work(order, say=_say())
    return work, () if work.done else fetch_dump(order, work, say=_say()).files


@task(
    name="compare-and-publish",
    task_run_name="compare-and-publish",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def compare_and_publish(
    order: RebuildOrder, work: RebuildWork, recipe: Recipe, made: Corpus
) -> Publication:
    """Publish the corpus, or refuse to; an artifact shows the comparison with the published one."""
    try:
        publication = publish_rebuilt(order, recipe, made, say=_say())
    except CorpusRefusedError as error:
        _show(order, work, error.comparison, "Refused: beyond the limits below, and kept.")
        raise
    if publication.comparison is not None:
        _show(order, work, publication.comparison, publication.verdict)
    clear_downloads(order, work, say=_say())
    return publication


def _show(order: RebuildOrder, work: RebuildWork, comparison: CorpusComparison, text: str) -> None:
    title = f"{order.wiki} {work.date} compared with the published corpus"
    create_markdown_artifact(
        comparison.markdown(title=title, verdict=text),
        key=re.sub("[^a-z0-9]+", "-", f"corpus-of-{order.wiki}"),
        description=text,
    )


def _summary(work: RebuildWork, publication: Publication | None) -> dict[str, Any]:
    """Return the result of the flow as plain values."""
    return {
        "date": work.date,
        "published_before": work.published,
        "outcome": publication.outcome if publication is not None else "nothing to do",
        "name": publication.name if publication is not None else "",
        "kept_as": publication.kept_as if publication is not None else "",
    }


# From this process


class _Call(NamedTuple):
    """What the caller in this process passes in addition to the parameters."""

    order: RebuildOrder
    """Request with its credentials, which flow parameters must not contain."""

    say: Say


_CALLED: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("_CALLED", default=None)


def rebuild_with_prefect(order: RebuildOrder, *, say: Say) -> dict[str, Any]:
    """Run the flow in this process, against the server that is configured or one of its own.

    Args:
        order: Corpus to rebuild.
        say: Called with a line of text for each step.

    Returns:
        The result of the flow, as plain values.

    Raises:
        BertloomError: See `flows.publish.rebuilding.rebuild_corpus`.
    """
    server = start_server()
    parameters = order._asdict()
    parameters["overrides"] = list(parameters.pop("changes"))
    token = _CALLED.set(_Call(order, say))
    try:
        with prefect_api(server):
            result: dict[str, Any] = rebuild(**redact_record(parameters))
            return result
    finally:
        _CALLED.reset(token)


def _say() -> Say:
    if (called := _CALLED.get()) is not None:
        return called.say
    # Downloads report from other threads, which have no logger of the flow run.
    log = get_run_logger()
    return lambda line: log.info("%s", escape_control_characters(redact(line)))
