"""The monthly rebuild of a corpus, step by step: find the dump, fetch, build, publish.

No Prefect here; `flows.rebuild` has the same steps as a flow. Each dump has a folder:

    DOWNLOADS/simplewiki/20261001/      its files, and a mark that this command made the folder

A folder without the mark was made by someone else, and is never deleted.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from flows.bert import recipe_steps
from flows.fetch import wikipedia
from flows.fetch.http_client import HttpClient
from flows.publish.comparison import VOCABULARY, Corpus, dump_dates
from flows.publish.publishing import (
    LATEST,
    CorpusRefusedError,
    Publication,
    publish,
    publish_config,
    published_corpus,
    was_set_aside,
)
from flows.recipes.loader import load_recipe
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.corpus_configs import WikipediaSource
from schemas.errors import ArtifactNotFoundError, ConfigError
from schemas.recipe import Recipe

MARK = ".made-by-bertloom-rebuild.json"
_DATE = re.compile(r"[0-9]{8}")

Say = Callable[[str], None]


class RebuildOrder(NamedTuple):
    """What is asked for."""

    recipe: str
    """File, or name of a packaged recipe. A source of it has the wiki's name."""

    wiki: str
    """Such as `simplewiki`."""

    date: str = LATEST
    """The dump's, eight digits; `latest`: the newest that is complete."""

    downloads: str = "dumps"
    """Folder that dumps are downloaded to, each to `WIKI/DATE` in it."""

    keep_downloads: int = 2
    """Dumps that stay there, at least 1; older ones go when a newer one is published."""

    changes: Sequence[str] = ()
    """`KEY=VALUE` texts as of --set."""

    store: str | None = None
    """Root of the artifact store, in place of what the recipe says."""

    mirror: str | None = None
    """URL in place of the dumps' own site."""

    force: bool = False
    """Publish even if the corpus is beyond a limit."""

    workers: int | None = None
    """Worker processes on this machine."""


class RebuildWork(NamedTuple):
    """What there is to do."""

    date: str
    """The dump's, eight digits."""

    published: str
    """Date of the published dump; "" for none."""

    folder: str
    """Where the dump is, or will be."""

    changes: tuple[str, ...]
    """`KEY=VALUE` texts beside those asked for, without the dump's paths."""

    notes: tuple[str, ...]
    """What a person should know of it."""

    done: str
    """Why there is nothing to do; "" where there is something."""


def rebuild_corpus(order: RebuildOrder, *, say: Say) -> Publication | None:
    """Bring a published corpus up to the newest dump, without Prefect; None: it is already.

    Args:
        order: what is asked for.
        say: is given a line of text for each thing that is done.

    Raises:
        ConfigError: the recipe or an option cannot be used.
        FetchError: the dump cannot be had.
        CorpusRefusedError: the corpus is beyond a limit; it is kept, and not published.
        BertloomError: a step failed.
    """
    work = find_work(order, say=say)
    if work.done:
        return None
    fetched = fetch_dump(order, work, say=say)
    recipe = corpus_recipe(order, work, fetched.files)
    results = run_recipe(recipe, part="corpus", log=say, engine="local")
    made = {result.label: result.manifest for result in results}
    publication = publish_rebuilt(order, recipe, made, say=say)
    clear_downloads(order, work, say=say)
    return publication


def find_work(order: RebuildOrder, *, say: Say) -> RebuildWork:
    """Find the dump to build from, and whether it is published already.

    Raises:
        ConfigError: the recipe or an option cannot be used.
        FetchError: the site cannot be asked.
    """
    wikipedia.check_dump(order.wiki, order.date)
    folder = downloads_folder(order.downloads) / order.wiki
    recipe = corpus_recipe(order, None, [str(folder)])
    published, store = _published(recipe)
    date = order.date
    if date == LATEST:
        with HttpClient(log=say) as client:
            date = wikipedia.find_dump(order.wiki, mirror=order.mirror, client=client).date
    before = dump_dates(published).get(order.wiki, "")
    done = _reason_to_rest(order, recipe, published, date=date, before=before, store=store)
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = () if published else ("nothing is published yet",)
    if published and store is not None and not done:
        changes, notes = _kept_vocabulary(recipe, published, store=store)
    work = RebuildWork(date, before, str(folder / date), changes, notes, done)
    kind = "newest complete dump" if order.date == LATEST else "dump"
    say(f"{order.wiki}: {kind} {date}, published {before or 'none'}")
    for line in (*notes, *([f"nothing to do: {done}"] if done else [])):
        say(line)
    return work


def fetch_dump(order: RebuildOrder, work: RebuildWork, *, say: Say) -> wikipedia.FetchedDump:
    """Download the dump, or what of it is not there yet, and verify it.

    Raises:
        FetchError: it cannot be had, or is not what its checksums say.
    """
    downloads = downloads_folder(order.downloads)
    make_folder(Path(work.folder))
    return wikipedia.fetch_wikipedia(
        order.wiki, date=work.date, output_dir=downloads, mirror=order.mirror, log=say
    )


def corpus_recipe(order: RebuildOrder, work: RebuildWork | None, files: Sequence[str]) -> Recipe:
    """The recipe, reading these files of the wiki.

    Raises:
        ConfigError: it cannot be used, has no source named as the wiki, or publishes nothing.
    """
    paths = f"build_documents.sources.{order.wiki}.paths={_value(list(files))}"
    changes = (*order.changes, *(work.changes if work is not None else ()), paths)
    recipe = load_recipe(order.recipe, overrides=changes, store=order.store, workers=order.workers)
    sources = recipe.build_documents.sources if recipe.build_documents is not None else ()
    if not any(isinstance(found, WikipediaSource) for found in sources if found.name == order.wiki):
        raise ConfigError(
            f"recipe {order.recipe}: expected a source of kind wikipedia named {order.wiki!r} in "
            "build_documents.sources, for the dump's files to be read by"
        )
    publish_config(recipe)
    return recipe


def publish_rebuilt(order: RebuildOrder, recipe: Recipe, made: Corpus, *, say: Say) -> Publication:
    """Compare the corpus with the published one, and publish it or refuse.

    Raises:
        CorpusRefusedError: it is beyond a limit.
        PublishError: a part of it is missing or damaged.
    """
    try:
        publication = publish(recipe, made, store=ArtifactStore(recipe.store), force=order.force)
    except CorpusRefusedError as error:
        for line in ("", *error.comparison.lines(), ""):
            say(line)
        raise
    for line in publication.lines():
        say(line)
    return publication


def clear_downloads(order: RebuildOrder, work: RebuildWork, *, say: Say) -> None:
    """Delete dumps that are older than those to keep."""
    for folder in delete_old(Path(work.folder), keep=order.keep_downloads):
        say(f"deleted the old dump {folder}")


# The folders of dumps


def downloads_folder(downloads: str) -> Path:
    """The folder of all dumps, as an absolute path.

    Raises:
        ConfigError: `downloads` is no local folder.
    """
    if "://" in downloads or "::" in downloads:
        raise ConfigError(
            f"--download-dir {downloads}: expected a folder of this machine, where downloads are "
            "resumed and verified"
        )
    return Path(downloads).expanduser().absolute()


def make_folder(folder: Path) -> None:
    """Make a dump's folder, and mark it as made here; one that is there is left as it is."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return
    mark = {"wiki": folder.parent.name, "date": folder.name}
    (folder / MARK).write_text(json.dumps(mark) + "\n", encoding="utf-8")


def delete_old(folder: Path, *, keep: int) -> list[Path]:
    """Delete the oldest of a wiki's marked dumps that are older than the one in use.

    Args:
        folder: of the dump in use, which stays.
        keep: how many of those and the one in use stay; at least 1.

    Returns:
        The deleted folders, newest first.
    """
    older = [
        other
        for other in sorted(folder.parent.iterdir(), reverse=True)
        if _DATE.fullmatch(other.name) and other.name < folder.name and not other.is_symlink()
        if (other / MARK).is_file()
    ]
    doomed = older[max(keep, 1) - 1 :]
    for other in doomed:
        shutil.rmtree(other)
    return doomed


# What there is to do


def _value(value: object) -> str:
    # JSON is YAML; a dollar sign would begin a variable.
    return json.dumps(value, ensure_ascii=False).replace("$", "$$")


def _published(recipe: Recipe) -> tuple[Corpus, ArtifactStore | None]:
    """The published corpus, and the store; none where there is no store yet."""
    try:
        store = ArtifactStore(recipe.store, create=False)
    except ArtifactNotFoundError:
        return {}, None
    latest = f"{publish_config(recipe).name}/{LATEST}"
    # What cannot be read of it is said when the new corpus is compared with it.
    return published_corpus(store, store.ref(latest), force=True), store


def _reason_to_rest(
    order: RebuildOrder,
    recipe: Recipe,
    published: Corpus,
    *,
    date: str,
    before: str,
    store: ArtifactStore | None,
) -> str:
    if not before or (order.date != LATEST and date != before):
        return ""
    if date > before:
        name = publish_config(recipe).name
        if store is None or not was_set_aside(store, name, date):
            return ""
        return (
            f"{date} was published, and {name}/{LATEST} has gone back to {before} since. "
            f"--date {date} publishes it again"
        )
    if date < before:
        return f"{before} is published, and newer than any complete dump that is offered"
    wanted = {
        step.label: step.config.cache_key_fields() for step in recipe_steps(recipe, part="corpus")
    }
    found = {
        label: manifest.cache_key_inputs.get("config") for label, manifest in published.items()
    }
    if json.dumps(wanted, sort_keys=True) != json.dumps(found, sort_keys=True):
        return ""
    return (
        f"{date} is published already, by the same recipe. After a change of other sources or of "
        f"the code: `bertloom run` and `bertloom publish {order.recipe}`"
    )


def _kept_vocabulary(
    recipe: Recipe, published: Corpus, *, store: ArtifactStore
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Changes of the recipe so that it takes the published vocabulary, and what to say of it."""
    config, made = recipe.build_vocabulary, published.get(VOCABULARY)
    entry = made.file(VOCAB_FILE) if made is not None else None
    is_given = config.vocab_file is not None or not publish_config(recipe).reuse_vocabulary
    if is_given or made is None or entry is None:
        return (), ()
    if any(made.statistics.get(n) != getattr(config, n) for n in ("vocab_size", "lowercase")):
        return (), ("the vocabulary is learnt anew: the recipe has another size or casing",)
    path = _value(store.url(f"{made.data_path}/{entry.stored_name}"))
    note = f"the vocabulary is that of the published corpus ({made.artifact_id})"
    return (f"build_vocabulary.vocab_file={path}",), (note,)
