"""The monthly rebuild as a Prefect flow: `prefect.yaml` schedules it.

    fetch -> build-corpus -> compare-and-publish

Without Prefect, `flows.publish.rebuilding.rebuild_corpus` does the same.
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

from flows.lineage.export.events import close_abandoned
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
from flows.recipes.files import load_recipe
from flows.run.run import get_store
from flows.running import run_recipe
from flows.store.runs import settle_dead_runs
from schemas.disclosure import recorded, visible, without_secrets
from schemas.errors import BertloomError
from schemas.recipe import Recipe

_LOGGER = logging.getLogger(__name__)


def settle_crashed(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """`on_crashed`: the run of the corpus flow within is found by its recipe.

    A worker calls it in a process of its own, where that run's process is gone.
    """
    del flow, state
    given = flow_run.parameters
    try:
        recipe = load_recipe(
            given["recipe"], changes=given.get("changes") or (), store=given.get("store")
        )
        settle_dead_runs(get_store(recipe.store), recipe=recipe.name, close=close_abandoned)
    except BertloomError as error:  # then there was no run either
        _LOGGER.debug("%s has no record: %s", flow_run.id, error)


@flow(
    name="bertloom-rebuild",
    flow_run_name="{wiki}-{date}",
    persist_result=False,
    on_crashed=[settle_crashed],
)
def rebuild(
    recipe: str,
    wiki: str,
    date: str = "latest",
    downloads: str = "dumps",
    keep_downloads: int = 2,
    changes: list[str] | None = None,
    store: str | None = None,
    mirror: str | None = None,
    force: bool = False,
    workers: int | None = None,
) -> Any:
    """Bring a published corpus up to the newest dump.

    Args:
        recipe: a file, or the name of a packaged one, with a source named as the wiki.
        wiki: such as `simplewiki`.
        date: of the dump, eight digits; `latest`: the newest that is complete.
        downloads: folder that dumps are downloaded to.
        keep_downloads: dumps that stay there.
        changes: `KEY=VALUE` texts as of --set.
        store: root of the artifact store, in place of what the recipe says.
        mirror: URL in place of the dumps' own site.
        force: publish even if the corpus is beyond a limit.
        workers: worker processes on this machine.

    Raises:
        CorpusRefusedError: the corpus is beyond a limit; it is kept, and not published.
        BertloomError: the dump cannot be had, or a step failed.
    """
    order = RebuildOrder(**{**locals(), "changes": changes or ()})
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
    """Find the dump to build from and fetch it; with its files, none where nothing is to do."""
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
    """Publish the corpus, or refuse; either way an artifact shows the comparison."""
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
    title = f"{order.wiki} {work.date} beside the published corpus"
    create_markdown_artifact(
        comparison.markdown(title=title, verdict=text),
        key=re.sub("[^a-z0-9]+", "-", f"corpus-of-{order.wiki}"),
        description=text,
    )


def _summary(work: RebuildWork, publication: Publication | None) -> dict[str, Any]:
    """What a script reads of the flow's result."""
    return {
        "date": work.date,
        "published_before": work.published,
        "outcome": publication.outcome if publication is not None else "nothing to do",
        "name": publication.name if publication is not None else "",
        "kept_as": publication.kept_as if publication is not None else "",
    }


# Called from this process


class _Call(NamedTuple):
    """What the caller of the flow in this process gives it beside the parameters."""

    order: RebuildOrder
    """With its credentials, which no flow parameter holds."""

    say: Say


_CALLED: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("_CALLED", default=None)


def rebuild_with_prefect(order: RebuildOrder, *, say: Say) -> dict[str, Any]:
    """Run the flow in this process, against the server that is configured or one of its own.

    Args:
        order: what is asked for.
        say: is given a line of text for each thing that is done.

    Returns:
        The flow's result, as plain JSON values.

    Raises:
        BertloomError: as `flows.publish.rebuilding.rebuild_corpus`.
    """
    server = start_server()
    given = {**order._asdict(), "changes": list(order.changes)}
    token = _CALLED.set(_Call(order, say))
    try:
        with prefect_api(server):
            found: dict[str, Any] = rebuild(**recorded(given))
            return found
    finally:
        _CALLED.reset(token)


def _say() -> Say:
    if (called := _CALLED.get()) is not None:
        return called.say
    # Of this flow or task run: downloads say things from threads of their own.
    log = get_run_logger()
    return lambda line: log.info("%s", visible(without_secrets(line)))
