"""`bertloom claims`: what the tables of a store show of the paper's claims."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args

import typer

from flows.cli.completion import recipe_names
from flows.cli.console import echo, print_result
from flows.cli.options import EngineOption, JsonOption, StoreOption
from flows.cli.progress import StepPrinter
from flows.recipes.loader import default_store, load_recipe, packaged_recipes
from flows.report.results import read_tables
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from model import tabulate
from model.tables.claims import LEVEL, Source, judge
from schemas.errors import ArtifactNotFoundError, UsageError

Scale = Literal["sample", "small", "paper"]
_WIDTH = 100
_ABLATIONS = ("tasks", "size", "steps", "features")
_MORE: dict[str, tuple[str, ...]] = {
    "sample": ("sample-full", "squad-ensemble-sample"),
    "small": (),
    "paper": ("paper-tables", "squad-ensemble"),
}
"""Besides the ablations of a scale, the packaged recipes that claims are read from."""


class Wanted(NamedTuple):
    """A recipe, as it is run and as its refs are named."""

    given: str
    name: str


def _known_scale(scale: str) -> str:
    if scale and scale not in get_args(Scale):
        raise UsageError(f"--scale {scale}: choose one of {', '.join(get_args(Scale))}")
    return scale


def claims(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE]...",
            help="Recipes whose last tables are read; else all that the store has tables of.",
            autocompletion=recipe_names,
        ),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="The packaged recipes of this scale: sample, small or paper.",
            callback=_known_scale,
        ),
    ] = "",
    run: Annotated[
        bool, typer.Option("--run", help="First run those of the recipes that have no tables yet.")
    ] = False,
    engine: EngineOption = "prefect",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say of each of the paper's claims: shown, not shown or not run, and by which test.

    docs/claims.md says what is tested. A claim that is not shown is no error.
    """
    if run and not (recipes or scale):
        raise UsageError("--run: name the recipes to run, or a --scale")
    wanted = [*(_named(recipe, store=store) for recipe in recipes or ()), *_of_scale(scale)]
    root = store or default_store()
    if run:
        _run_missing(wanted, root=root, engine=engine, as_json=as_json)
    opened = ArtifactStore(root, create=False)
    names = [one.name for one in wanted] or _with_tables(opened)
    found = _read(opened, names)
    print_result(found, _lines(found), as_json=as_json)


def _named(recipe: str, *, store: str | None) -> Wanted:
    """A packaged recipe is not read for its name: what it is to run on may be not set here."""
    if recipe in packaged_recipes():
        return Wanted(recipe, recipe)
    return Wanted(recipe, load_recipe(recipe, store=store).name)


def _of_scale(scale: str) -> list[Wanted]:
    """What is packaged for a scale; at the paper's an ablation's name has no scale in it."""
    if not scale:
        return []
    behind = "" if scale == "paper" else f"-{scale}"
    wanted = [*(f"ablation-{name}{behind}" for name in _ABLATIONS), *_MORE[scale]]
    known = packaged_recipes()
    return [Wanted(name, name) for name in wanted if name in known]


def _ref(name: str) -> str:
    return f"{name}/{tabulate.STAGE.name}"


def _with_tables(store: ArtifactStore) -> list[str]:
    refs = (ref.rpartition("/") for ref in store.refs())
    return [name for name, _, label in refs if label == tabulate.STAGE.name]


def _run_missing(wanted: Sequence[Wanted], *, root: str, engine: str, as_json: bool) -> None:
    known = set(_with_tables(ArtifactStore(root)))
    for given, name in wanted:
        if name in known:
            continue
        echo(f"running {name}", err=as_json)
        loaded = load_recipe(given, store=root)
        run_recipe(loaded, listeners=[StepPrinter(as_json=as_json)], engine=engine)


def _read(store: ArtifactStore, names: Sequence[str]) -> dict[str, Any]:
    """What the last tables of recipes say; those without any are named."""
    sources, missing = [], []
    for name in names:
        if (pointer := store.ref(_ref(name))) is None:
            missing.append(name)
            continue
        manifest = store.read_manifest(pointer.manifest)
        sources.append(Source(name, manifest.artifact_id, read_tables(store, manifest)))
    if names and not sources:
        raise ArtifactNotFoundError(
            f"{store.root}: no tables of {', '.join(missing)}: run them, or add --run"
        )
    judged = [{**claim.model_dump(mode="json"), "status": claim.status} for claim in judge(sources)]
    return {
        "store": store.root,
        "level": LEVEL,
        "recipes": [source.recipe for source in sources],
        "without_tables": missing,
        "claims": judged,
    }


def _lines(found: dict[str, Any]) -> Iterator[str]:
    for number, claim in enumerate(found["claims"], start=1):
        yield f"{number}. {claim['says']}: {claim['status'].upper()}"
        yield from _wrapped(f"the paper: {claim['paper']}")
        for one in claim["findings"]:
            p = (
                "not tested, no two restarts that differ"
                if one["p"] is None
                else f"p {one['p']:.2g}"
            )
            on = f", on {one['data']}" if one["data"] else ""
            yield from _wrapped(
                f"{one['recipe']}, {one['of']}: {one['ours']}; {p}: {one['status']}{on}"
            )
        yield ""
    yield from textwrap.wrap(
        f"shown: the one-sided test of every line is below {found['level']:.4f}, 0.05 shared over "
        "seven claims. Restarts are of fine-tuning; each model was pretrained once.",
        _WIDTH,
    )
    data = {one["data"] for claim in found["claims"] for one in claim["findings"] if one["data"]}
    if data:
        yield from textwrap.wrap(
            f"on {', '.join(sorted(data))}: scores are not comparable with the paper's, so a claim "
            "compares models of ours with each other",
            _WIDTH,
            subsequent_indent="  ",
        )
    read = ", ".join(found["recipes"]) or "none"
    yield from textwrap.wrap(f"read: the last tables of {read}", _WIDTH, subsequent_indent="  ")
    if found["without_tables"]:
        missing = ", ".join(found["without_tables"])
        yield from textwrap.wrap(f"without tables: {missing}", _WIDTH, subsequent_indent="  ")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="   ", subsequent_indent="     ")
