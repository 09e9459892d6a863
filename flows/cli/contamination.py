"""`bertloom contamination`: texts that models are tested on, looked for in a corpus."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.bert import recipe_steps
from flows.cli.console import echo, print_json, print_result
from flows.cli.options import RunnerOption, StoreOption, WorkersOption, open_store
from flows.cli.progress import StepPrinter
from flows.formatting import align_columns
from flows.lineage.resolve import resolve
from flows.preparation import prepare_run
from flows.recipes.loader import load_recipe, packaged_recipes, recipe_from
from flows.report.contamination import contamination_of
from flows.run.graph import StepGraph
from flows.run.preflight import check_examples
from flows.running import execute_run
from flows.store.artifacts import ArtifactStore
from model.build_examples import STAGE as BUILD_EXAMPLES
from model.tables.grids import Grid
from pipelines.build_documents import STAGE as BUILD_DOCUMENTS
from pipelines.find_contamination import STAGE
from schemas.contamination_configs import ContaminationRules
from schemas.errors import ConfigError, raise_all
from schemas.finetune_configs import ExamplesConfig
from schemas.manifest import Manifest
from schemas.recipe import Recipe

_DEFAULTS = ContaminationRules()
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_.-]+")


def contamination(
    corpus: Annotated[
        str, typer.Argument(help="A recipe, or the documents of one (RECIPE/build-documents).")
    ],
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASK...",
            help="TASK=FOLDER with its official files, TASK:SPLIT=FILE, or examples of the store "
            "(RECIPE/build-examples.ENTRY).",
        ),
    ],
    split: Annotated[
        list[str] | None,
        typer.Option(help="A split to look for; else all but those that models learn from."),
    ] = None,
    ngram_size: Annotated[
        int, typer.Option(min=4, max=100, help="Words of a shared passage.")
    ] = _DEFAULTS.ngram_size,
    max_documents: Annotated[
        int, typer.Option(min=1, help="What more documents have is a common phrase.")
    ] = _DEFAULTS.max_document_frequency,
    store: StoreOption = None,
    runner: RunnerOption = None,
    workers: WorkersOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look for the texts of tasks in a corpus, and show the longest passages that both have."""
    rules = {
        "splits": split or [],
        "ngram_size": ngram_size,
        "min_text_words": min(_DEFAULTS.min_text_words, ngram_size),
        "max_document_frequency": max_documents,
    }
    execution = {"runner": runner, "workers": workers}
    recipe, given = _recipe(corpus, tasks, rules=rules, store=store, execution=execution)
    manifest, opened = _run(recipe, given, as_json=as_json)
    found = contamination_of(opened, manifest)
    if as_json:
        print_json({"artifact_id": manifest.artifact_id, **manifest.statistics})
        return
    echo("")
    print_result(None, _lines(found.fields, found.splits), as_json=False)
    echo(f"\n{found.summary}\n{found.problem}".rstrip())
    echo(_passage_text(found.passages))
    echo(f"\nall pairs: bertloom head {manifest.artifact_id} --store {opened.root}")


def _recipe(
    corpus: str,
    tasks: Sequence[str],
    *,
    rules: dict[str, Any],
    store: str | None,
    execution: Mapping[str, Any],
) -> tuple[Recipe, dict[str, Manifest]]:
    """The recipe that the arguments stand for, and what of it is in the store by label."""
    given: dict[str, Manifest] = {}
    data: dict[str, Any] = {}
    if corpus in packaged_recipes() or corpus.endswith((".yaml", ".yml")):
        loaded = load_recipe(corpus, store=store)
        if loaded.build_documents is None:
            raise ConfigError(f"{corpus}: expected a recipe with build_documents, found none")
        whole = loaded.model_dump(mode="json")
        kept = ("build_documents", "build_tokens", "store", "execution")
        data, name, store = {key: whole[key] for key in kept}, loaded.name, loaded.store
    else:
        manifest = _artifact(corpus, BUILD_DOCUMENTS.name, store=store)
        given[BUILD_DOCUMENTS.name] = manifest
        data["build_documents"] = manifest.config
        name = corpus.partition("/")[0]
    examples = _examples(tasks, given, store=store)
    data |= {
        "name": _NOT_IN_NAMES.sub("-", f"contamination-{name.lower()}")[:64],
        "build_examples": examples,
        "decontaminate": {"tasks": list(examples), **rules},
    }
    where = "bertloom contamination"
    return (
        recipe_from(data, where=where, folder=Path.cwd(), store=store, **execution),
        given,
    )


def _examples(
    tasks: Sequence[str], given: dict[str, Manifest], *, store: str | None
) -> dict[str, dict[str, Any]]:
    """Entries of build_examples; of artifacts their own configurations."""
    found: dict[str, dict[str, Any]] = {}
    for text in tasks:
        name, equals, path = text.partition("=")
        if equals:
            task, _, split = name.partition(":")
            entry = found.setdefault(task, {"task": task})
            if split:
                entry.setdefault("data_files", {}).setdefault(split, []).append(path)
            else:
                entry["data_dir"] = path
            continue
        manifest = _artifact(text, BUILD_EXAMPLES.name, store=store)
        entry_name = text.rpartition(f"{BUILD_EXAMPLES.name}.")[2] or text
        entry_name = _NOT_IN_NAMES.sub("-", entry_name.lower())
        found[entry_name] = manifest.config
        given[f"{BUILD_EXAMPLES.name}.{entry_name}"] = manifest
    read = [entry for name, entry in found.items() if f"{BUILD_EXAMPLES.name}.{name}" not in given]
    faults = (check_examples(ExamplesConfig.model_validate(entry)) for entry in read)
    raise_all(faults)
    return found


def _artifact(name: str, stage: str, *, store: str | None) -> Manifest:
    manifest = resolve(name, store=open_store(store))
    if manifest.stage != stage:
        raise ConfigError(
            f"{name}: expected an artifact of {stage}, found {manifest.artifact_id} of "
            f"{manifest.stage}"
        )
    return manifest


def _run(
    recipe: Recipe, given: dict[str, Manifest], *, as_json: bool
) -> tuple[Manifest, ArtifactStore]:
    steps = recipe_steps(recipe, until=STAGE.name)
    run = prepare_run(
        recipe,
        StepGraph(step for step in steps if step.label not in given),
        listeners=[StepPrinter(as_json=as_json)],
        provided=given,
    )
    execute_run(run)
    return run.step_results[STAGE.name].manifest, run.store


def _lines(*tables: Grid) -> Iterator[str]:
    for number, table in enumerate(tables):
        yield from [""] if number else []
        right = range(table.texts, len(table.header))
        yield from align_columns([table.header, *table.rows], right=right)


def _passage_text(passages: Grid) -> str:
    lines = []
    for example, field, words, document, at, text in passages.rows:
        lines.append(
            f"\n{example} {field}: {words} words, in {document} from word {at} on\n  {text}"
        )
    return "\n".join(lines)
