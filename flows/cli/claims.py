"""The command `claims`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from flows.cli import options
from flows.cli.completion import recipe_names
from flows.cli.console import echo
from flows.cli.progress import StepPrinter
from flows.cli.tables import print_result
from flows.recipes.loader import load_recipe
from flows.recipes.packaged import packaged_recipes
from flows.report.results import read_tables
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.default_store import default_store
from model import tabulate
from model.tables.claims import LEVEL, Source, judge
from schemas.errors import ArtifactNotFoundError, UsageError

_ABLATIONS = ("tasks", "size", "steps", "features")
_RECIPES = {
    "sample": (
        *(f"ablation-{name}-sample" for name in _ABLATIONS), "sample-full", "squad-ensemble-sample",
    ),
    "small": tuple(f"ablation-{name}-small" for name in _ABLATIONS),
    "paper": (*(f"ablation-{name}" for name in _ABLATIONS), "paper-tables", "squad-ensemble"),
}  # fmt: skip
"""Packaged recipes of each scale."""


def claims(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE]...",
            help="Recipes whose last tables are read. Default: all with tables in the store.",
            autocompletion=recipe_names,
        ),
    ] = None,
    scale: Annotated[
        Literal["sample", "small", "paper"] | None,
        typer.Option(help="Read the packaged recipes of this scale."),
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="First run recipes without tables.")] = False,
    engine: options.Engine = "prefect",
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Show for each of the paper's claims whether the tables support it, and by which test.

    docs/claims.md describes the tests. The exit code is 0 also if a claim is not shown.
    """
    if run and not (recipes or scale):
        raise UsageError("--run: expected recipes, or --scale")
    root = store or default_store()
    files = [*(recipes or ()), *(_RECIPES[scale] if scale else ())]
    names = {_recipe_name(file, store): file for file in files}
    if run:
        existing = _recipes_with_tables(ArtifactStore(root))
        for name, file in names.items():
            if name not in existing:
                echo(f"running {name}", err=as_json)
                printer = StepPrinter(as_json=as_json)
                run_recipe(load_recipe(file, store=root), listeners=[printer], engine=engine)
    opened = ArtifactStore(root, create=False)
    data = _judge(opened, list(names) or _recipes_with_tables(opened))
    print_result(data, *_lines(data), as_json=as_json)


def _recipe_name(file: str, store: str | None) -> str:
    """Return the name of a recipe; packaged ones can need unset variables, and are not loaded."""
    return file if file in packaged_recipes() else load_recipe(file, store=store).name


def _recipes_with_tables(store: ArtifactStore) -> list[str]:
    refs = (ref.rpartition("/") for ref in store.refs())
    return [name for name, _, label in refs if label == tabulate.STAGE.name]


def _judge(store: ArtifactStore, recipes: Sequence[str]) -> dict[str, Any]:
    """Return the claims, judged by the last tables of recipes."""
    sources, missing = [], []
    for name in recipes:
        if (pointer := store.ref(f"{name}/{tabulate.STAGE.name}")) is None:
            missing.append(name)
            continue
        manifest = store.read_manifest(pointer.manifest)
        sources.append(Source(name, manifest.artifact_id, read_tables(store, manifest)))
    if recipes and not sources:
        raise ArtifactNotFoundError(
            f"{store.root}: expected tables of {', '.join(missing)}, found none. Run the recipes, "
            "or pass --run"
        )
    return {
        "store": store.root,
        "level": LEVEL,
        "recipes": [source.recipe for source in sources],
        "without_tables": missing,
        "claims": [claim.model_dump(mode="json") for claim in judge(sources)],
    }


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    for number, claim in enumerate(data["claims"], start=1):
        yield f"{number}. {claim['says']}: {claim['status'].upper()}"
        yield f"   the paper: {claim['paper']}"
        for finding in claim["findings"]:
            p = "not tested" if finding["p"] is None else f"p {finding['p']:.2g}"
            data_name = f", on {finding['data']}" if finding["data"] else ""
            comparison = f"{finding['recipe']}, {finding['of']}: {finding['ours']}"
            yield f"   {comparison}; {p}: {finding['status']}{data_name}"
        yield ""
    yield (
        f"shown: the one-sided test of every line is below {data['level']:.4f}, which is 0.05 "
        "divided by seven claims."
    )
    yield "Restarts are of fine-tuning; each model was pretrained once."
    if any(finding["data"] for claim in data["claims"] for finding in claim["findings"]):
        yield "Scores on other data than the paper's compare bertloom's models with each other."
    yield f"tables of: {', '.join(data['recipes']) or 'no recipe'}"
    if data["without_tables"]:
        yield f"without tables: {', '.join(data['without_tables'])}"
