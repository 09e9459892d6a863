"""`bertloom quickstart`: from a folder of one's own texts to a model that fills masks."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.console import print_lines, say, say_text
from flows.cli.filling import filled_lines
from flows.cli.last_screen import warning_lines
from flows.cli.models import open_filler
from flows.cli.options import EngineOption, StoreOption
from flows.cli.plan import print_plan
from flows.cli.recipes import write_schema_beside
from flows.cli.step_lines import StepPrinter
from flows.quickstart.asking import held_out_texts
from flows.quickstart.proposal import (
    Proposal,
    propose,
    recipe_name,
    this_machine,
    write_recipe,
)
from flows.quickstart.survey import found_lines, survey
from flows.recipes.loader import default_store, load_recipe
from flows.run.estimates import check_disk_space
from flows.run.plan import PlannedStep, estimate_run
from flows.run.run import get_store
from flows.run.step_execution import StepResult
from flows.running import run_recipe
from model.pretrain import STAGE as PRETRAIN
from schemas.errors import BertloomError
from schemas.recipe import Recipe

_SHOWN = 2


def quickstart(
    folder: Annotated[Path, typer.Argument(help="The folder that your texts are in.")],
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="The recipe to write; else ./NAME.yaml.")
    ] = None,
    name: Annotated[str, typer.Option(help="Names the run; else the folder's name does.")] = "",
    minutes: Annotated[float, typer.Option(min=0.01, help="Of pretraining.")] = 5.0,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Do not ask before it starts; without a terminal nobody is asked."
        ),
    ] = False,
    plan_only: Annotated[
        bool,
        typer.Option("--plan-only", "--dry-run", help="Write the recipe, say what it takes."),
    ] = False,
    store: StoreOption = None,
    engine: EngineOption = "local",
) -> None:
    """Make a small model of a folder of your own texts.

    Looks at what is there, writes a commented recipe that is yours, runs it, and fills masks in
    texts that the model has not seen.
    """
    kept = store or default_store()
    found = survey(folder, store=None if "://" in kept else Path(kept).absolute())
    say(f"{found.folder}")
    print_lines(found_lines(found))
    proposal = propose(
        found, this_machine(), minutes=minutes, name=name or recipe_name(found.folder)
    )
    for warning in proposal.warnings:
        say(f"  warning   {warning}")
    say(f"  proposed  {proposal.summary}")
    file = recipe or Path(f"{proposal.name}.yaml")
    loaded, planned = _planned(proposal, file, store=store)
    if plan_only:
        say(f"\nto run it: bertloom run {shlex.quote(str(file))}{_store_option(loaded)}")
        return
    if not yes and sys.stdin.isatty() and not typer.confirm("\nrun it?", default=True):
        say(f"to run it later: bertloom run {shlex.quote(str(file))}{_store_option(loaded)}")
        return
    check_disk_space(estimate_run(planned), store=loaded.store)
    say("")
    results = run_recipe(loaded, listeners=[StepPrinter()], engine=engine)
    _show(loaded, results, language=found.guess.language)


def _planned(
    proposal: Proposal, file: Path, *, store: str | None
) -> tuple[Recipe, Sequence[PlannedStep]]:
    """Write the recipe and say what it will take; of an input that is refused nothing is left."""
    was_written = write_recipe(proposal, file)
    try:
        loaded = load_recipe(str(file), store=store)
        say(f"  recipe    {file}{'' if was_written else ' (as it was)'}\n")
        planned = print_plan(loaded)
    except BertloomError:
        if was_written:
            file.unlink()
        raise
    if said := write_schema_beside(file):
        say(said)
    return loaded, planned


def _show(recipe: Recipe, results: Sequence[StepResult], *, language: str) -> None:
    """Masks of held-out texts filled, and how to go on."""
    trained = [result for result in results if result.manifest.stage == PRETRAIN.name][-1]
    filler = open_filler(trained.manifest.artifact_id, store=recipe.store)
    asked = held_out_texts(trained.manifest, store=get_store(recipe.store), wanted=_SHOWN)
    if warnings := warning_lines(results):
        print_lines(["", *warnings])
    if asked:
        say("\nasked for frequent words in texts of yours that it was not trained on:")
    for one in asked:
        [found] = filler.fill([one.text])
        say_text(f"\n{one.text}")
        print_lines(line for line in filled_lines(found) if line.startswith("  "))
        say_text(f"  the text has: {one.word}")
    text = '"The capital of [MASK] is"'
    if language != "en":  # in words that it may have met
        text = shlex.quote(asked[0].near if asked else "... [MASK] ...")
    say_text(f"\nask it yourself:\n  bertloom fill {text}{_store_option(recipe)}")
    say(f"report: {get_store(recipe.store).url(f'reports/{recipe.name}.html')}")


def _store_option(recipe: Recipe) -> str:
    return "" if recipe.store == default_store() else f" --store {shlex.quote(recipe.store)}"
