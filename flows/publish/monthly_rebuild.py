"""The monthly rebuild of a corpus: find the newest dump, fetch it, build, publish.

Each dump has a folder `DOWNLOADS/WIKI/DATE`. A folder that the rebuild created has a mark; other
folders are never deleted.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ConfigDict, Field

from flows.bert import recipe_steps
from flows.fetch import wikipedia
from flows.fetch.http_client import HttpClient
from flows.publish.comparison import VOCABULARY, Corpus, dump_dates
from flows.publish.publish import (
    LATEST,
    Publication,
    publish,
    publish_config,
    published_corpus,
    was_rolled_back,
)
from flows.recipes.loader import load_recipe
from flows.run.run import find_store
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.base_configs import Config
from schemas.corpus_configs import WikipediaSource
from schemas.errors import ConfigError
from schemas.recipe import Recipe

MARK = ".created-by-bertloom-rebuild"
_DATE = re.compile(r"[0-9]{8}")

Log = Callable[[str], None]


class RebuildRequest(Config):
    """Corpus to rebuild."""

    model_config = ConfigDict(use_attribute_docstrings=True)  # Prefect's form shows them

    recipe: str
    """Path of a recipe, or name of a packaged one, with a source named like the wiki."""

    wiki: str
    """Name of the wiki, such as `simplewiki`."""

    date: str = LATEST
    """Date of the dump, YYYYMMDD. `latest`: the newest complete one."""

    downloads: str = "dumps"
    """Local folder of the dumps."""

    keep_downloads: int = Field(2, ge=1)
    """Number of dumps to keep there, at least 1. Older ones are deleted after publishing."""

    overrides: tuple[str, ...] = ()
    """`KEY=VALUE` texts, as for `bertloom run --set`."""

    store: str | None = None
    """Artifact store, in place of the recipe's."""

    mirror: str | None = None
    """URL in place of the official site of the dumps."""

    force: bool = False
    """Publish even if the corpus exceeds a limit."""

    workers: int | None = Field(None, ge=1)
    """Number of worker processes on this machine."""


class RebuildPlan(NamedTuple):
    """Dump to build from."""

    date: str
    """Date of the dump, YYYYMMDD."""

    folder: Path
    """Folder of the dump."""

    overrides: tuple[str, ...] = ()
    """Overrides of the recipe in addition to those requested."""

    skip_reason: str = ""
    """Reason to build nothing. "": build."""


def plan_rebuild(request: RebuildRequest, *, log: Log) -> RebuildPlan:
    """Find the dump to build from, and whether it is published already.

    Raises:
        ConfigError: The recipe or an option cannot be used.
        FetchError: The site cannot be reached.
    """
    wiki, date = request.wiki, request.date
    wikipedia.check_dump(wiki, date)
    if "://" in request.downloads or "::" in request.downloads:
        raise ConfigError(f"--download-dir: expected a local folder, got {request.downloads}")
    folder = Path(request.downloads).expanduser().absolute() / wiki
    recipe = load_corpus_recipe(request, (), [str(folder)])
    store, latest = find_store(recipe.store), f"{publish_config(recipe).name}/{LATEST}"
    # `publish` reports manifests that cannot be read.
    published = published_corpus(store, store.ref(latest), force=True) if store is not None else {}
    before = dump_dates(published).get(wiki, "")
    if date == LATEST:
        with HttpClient(log=log) as client:
            date = wikipedia.find_dump(wiki, mirror=request.mirror, client=client).date
    kind = "newest complete dump" if request.date == LATEST else "dump"
    log(f"{wiki}: {kind} {date}, published {before or 'none'}")
    plan = RebuildPlan(date, folder / date)
    if store is None or not published:
        return plan
    if reason := _skip_reason(request, recipe, published, date=date, before=before, store=store):
        log(f"nothing to do: {reason}")
        return plan._replace(skip_reason=reason)
    return plan._replace(overrides=_vocabulary_override(recipe, published, store=store, log=log))


def execute_rebuild(
    request: RebuildRequest, plan: RebuildPlan, *, engine: str, log: Log
) -> Publication:
    """Fetch the dump, build the corpus, publish it, and delete old dumps.

    Args:
        request: Corpus to rebuild.
        plan: Its plan, without `skip_reason`.
        engine: Engine of the run, see `run_recipe`.
        log: Called with a line of text for each step.

    Raises:
        FetchError: The dump cannot be downloaded, or differs from its checksums.
        CorpusChangeLimitError: The corpus exceeds a limit; it is in the store, not published.
        BertloomError: A step failed.
    """
    if not plan.folder.exists():
        plan.folder.mkdir(parents=True)
        (plan.folder / MARK).touch()
    with HttpClient(log=log) as client:
        dump = wikipedia.find_dump(
            request.wiki, date=plan.date, mirror=request.mirror, client=client
        )
        wikipedia.fetch_dump(dump, plan.folder, client=client)
    recipe = load_corpus_recipe(request, plan.overrides, dump.list_articles(plan.folder))
    results = run_recipe(recipe, part="corpus", log=log, engine=engine)
    corpus = {result.label: result.manifest for result in results}
    publication = publish(recipe, corpus, store=ArtifactStore(recipe.store), force=request.force)
    for line in publication.lines():
        log(line)
    for folder in prune_downloads(plan.folder, keep=request.keep_downloads):
        log(f"deleted the old dump {folder}")
    return publication


def load_corpus_recipe(
    request: RebuildRequest, overrides: Sequence[str], files: Sequence[str]
) -> Recipe:
    """Return the recipe, with these files as the paths of the wiki's source.

    Raises:
        ConfigError: It cannot be used, has no source named like the wiki, or publishes nothing.
    """
    name = request.wiki
    paths = f"build_documents.sources.{name}.paths={_value(list(files))}"
    recipe = load_recipe(
        request.recipe,
        overrides=(*request.overrides, *overrides, paths),
        store=request.store,
        workers=request.workers,
    )
    sources = recipe.build_documents.sources if recipe.build_documents is not None else ()
    if not any(isinstance(item, WikipediaSource) and item.name == name for item in sources):
        expected = f"a source of kind wikipedia named {name!r} in build_documents.sources"
        raise ConfigError(f"recipe {request.recipe}: expected {expected}, got none")
    publish_config(recipe)
    return recipe


def prune_downloads(folder: Path, *, keep: int) -> list[Path]:
    """Delete the oldest dumps of a wiki that a rebuild downloaded.

    Args:
        folder: Folder of the current dump. It and newer dumps are kept.
        keep: Number of dumps to keep, with the current one; at least 1.

    Returns:
        The deleted folders, newest first.
    """
    older = [
        other
        for other in sorted(folder.parent.iterdir(), reverse=True)
        if _DATE.fullmatch(other.name) and other.name < folder.name
        if not other.is_symlink() and (other / MARK).is_file()
    ]
    for other in older[max(keep, 1) - 1 :]:
        shutil.rmtree(other)
    return older[max(keep, 1) - 1 :]


def _skip_reason(
    request: RebuildRequest,
    recipe: Recipe,
    published: Corpus,
    *,
    date: str,
    before: str,
    store: ArtifactStore,
) -> str:
    """Return why the dump must not be built or need not; "" if it is to be built."""
    is_latest, name = request.date == LATEST, publish_config(recipe).name
    if not before:  # the published corpus is from other files
        return ""
    if date > before and is_latest and was_rolled_back(store, name, date):
        advice = f"--date {date} publishes it again"
        return f"{name}/{LATEST} was rolled back from {date} to {before}. {advice}"
    if date < before and is_latest:
        return f"{before} is published, which is newer than any complete dump of the site"
    configs = {
        step.label: step.config.cache_key_fields() for step in recipe_steps(recipe, part="corpus")
    }
    known = {label: manifest.cache_key_inputs["config"] for label, manifest in published.items()}
    if date != before or json.dumps(configs, sort_keys=True) != json.dumps(known, sort_keys=True):
        return ""
    advice = f"run it and `bertloom publish {request.recipe}`"
    return f"{date} is published already, from the same recipe. After other changes, {advice}"


def _vocabulary_override(
    recipe: Recipe, published: Corpus, *, store: ArtifactStore, log: Log
) -> tuple[str, ...]:
    """Return the override that makes a recipe reuse the published vocabulary; () for none."""
    config, manifest = recipe.build_vocabulary, published.get(VOCABULARY)
    entry = manifest.file(VOCAB_FILE) if manifest is not None else None
    is_reused = publish_config(recipe).reuse_vocabulary and config.vocab_file is None
    if manifest is None or entry is None or not is_reused:
        return ()
    if any(manifest.statistics.get(n) != getattr(config, n) for n in ("vocab_size", "lowercase")):
        log("learning a new vocabulary: its size or casing changed")
        return ()
    log(f"reusing the published vocabulary ({manifest.artifact_id})")
    path = store.url(f"{manifest.data_path}/{entry.stored_name}")
    return (f"build_vocabulary.vocab_file={_value(path)}",)


def _value(value: object) -> str:
    # JSON is YAML; `$` starts a variable.
    return json.dumps(value, ensure_ascii=False).replace("$", "$$")
