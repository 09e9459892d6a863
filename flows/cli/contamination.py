"""The command `contamination`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from flows.bert import recipe_steps
from flows.cli import options
from flows.cli.finetune import NOT_IN_NAMES
from flows.cli.progress import StepPrinter
from flows.cli.tables import print_result, table
from flows.lineage.resolve import open_store, resolve
from flows.preparation import prepare_run
from flows.recipes.loader import load_recipe, recipe_from
from flows.recipes.packaged import packaged_recipes
from flows.report.contamination import Contamination, contamination_of
from flows.run.graph import StepGraph
from flows.running import execute_run
from model.build_examples import STAGE as BUILD_EXAMPLES
from model.tasks import find_task
from pipelines.build_documents import STAGE as BUILD_DOCUMENTS
from pipelines.find_contamination import STAGE
from schemas.corpus_configs import ContaminationRules
from schemas.errors import ConfigError
from schemas.manifest import Manifest

_DEFAULTS = ContaminationRules()
_CORPUS_FIELDS = ("name", "build_documents", "build_tokens", "store", "execution")

FIELD_OPTIONS = {
    "data_dir": "TASK=FOLDER",
    "data_files": "TASK:SPLIT=FILE",
    "splits": "--split",
    "ngram_size": "--ngram-size",
    "max_document_frequency": "--max-documents",
}
"""Option or argument by field of the recipe that the command makes."""


@options.use_option_names(FIELD_OPTIONS)
def contamination(
    corpus: Annotated[str, typer.Argument(help="Recipe, or RECIPE/build-documents.")],
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASK...",
            help="TASK=FOLDER with the official files, TASK:SPLIT=FILE, or examples of the store "
            "(RECIPE/build-examples.ENTRY).",
        ),
    ],
    split: Annotated[
        list[str] | None,
        typer.Option(help="Split to search for (repeatable). Default: all but training splits."),
    ] = None,
    ngram_size: Annotated[
        int, typer.Option(min=4, max=100, help="Number of words of a shared passage.")
    ] = _DEFAULTS.ngram_size,
    max_documents: Annotated[
        int, typer.Option(min=1, help="Ignore phrases that more documents have.")
    ] = _DEFAULTS.max_document_frequency,
    store: options.Store = None,
    runner: options.Runner = None,
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Find the texts of tasks in a corpus, and show the longest passages that both share."""
    provided: dict[str, Manifest] = {}
    if corpus in packaged_recipes() or corpus.endswith((".yaml", ".yml")):
        loaded = load_recipe(corpus, store=store).model_dump(mode="json")
        if loaded["build_documents"] is None:
            raise ConfigError(f"{corpus}: expected a recipe with build_documents, found none")
        data = {field: loaded[field] for field in _CORPUS_FIELDS}
    else:
        documents = _find_artifact(corpus, BUILD_DOCUMENTS.name, store)
        provided[BUILD_DOCUMENTS.name] = documents
        data = {"name": corpus.partition("/")[0], "build_documents": documents.config}
    examples = _examples(tasks, provided, store)
    data["name"] = NOT_IN_NAMES.sub("-", f"contamination-{data['name'].lower()}")[:64]
    data["build_examples"] = examples
    data["decontaminate"] = {
        "tasks": list(examples),
        "splits": split or [],
        "ngram_size": ngram_size,
        "min_text_words": min(_DEFAULTS.min_text_words, ngram_size),
        "max_document_frequency": max_documents,
    }
    recipe = recipe_from(
        data, where="bertloom contamination", folder=Path.cwd(), store=store or data.get("store"),
        runner=runner, workers=workers,
    )  # fmt: skip
    steps = recipe_steps(recipe, until=STAGE.name)
    run = prepare_run(
        recipe,
        StepGraph(step for step in steps if step.label not in provided),
        listeners=[StepPrinter(as_json=as_json)],
        provided=provided,
    )
    execute_run(run)
    manifest = run.step_results[STAGE.name].manifest
    result = {"artifact_id": manifest.artifact_id, **manifest.statistics}
    parts = _parts(contamination_of(run.store, manifest))
    store_option = options.store_option(run.store.root)
    pairs = f"\nall pairs: bertloom head {manifest.artifact_id}{store_option}"
    print_result(result, *parts, pairs, as_json=as_json)


def _examples(
    tasks: Sequence[str], provided: dict[str, Manifest], store: str | None
) -> dict[str, dict[str, Any]]:
    """Return the entries of build_examples; add the examples of the store to `provided`.

    Raises:
        ConfigError: A task does not exist.
    """
    entries: dict[str, dict[str, Any]] = {}
    for text in tasks:
        name, is_path, path = text.partition("=")
        if is_path:
            task, _, split = name.partition(":")
            task = find_task(task).name
            entry = entries.setdefault(task, {"task": task})
            if split:
                entry.setdefault("data_files", {}).setdefault(split, []).append(path)
            else:
                entry["data_dir"] = path
            continue
        manifest = _find_artifact(text, BUILD_EXAMPLES.name, store)
        entry_name = text.rpartition(f"{BUILD_EXAMPLES.name}.")[2]
        entry_name = NOT_IN_NAMES.sub("-", entry_name.lower())
        entries[entry_name] = manifest.config
        provided[f"{BUILD_EXAMPLES.name}.{entry_name}"] = manifest
    return entries


def _find_artifact(name: str, stage: str, store: str | None) -> Manifest:
    manifest = resolve(name, store=open_store(store))
    if manifest.stage != stage:
        got = f"{manifest.artifact_id} of {manifest.stage}"
        raise ConfigError(f"{name}: expected an artifact of {stage}, got {got}")
    return manifest


def _parts(result: Contamination) -> Iterator[str | Table]:
    for grid in (result.fields, result.splits):
        yield ""
        yield table(grid.header, grid.rows, right=range(grid.texts, len(grid.header)))
    yield f"\n{result.summary}\n{result.problem}".rstrip()
    for example, field, words, document, position, text in result.passages.rows:
        yield f"\n{example} {field}: {words} words, in {document} from word {position} on\n  {text}"
