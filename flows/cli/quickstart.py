"""The command `quickstart`."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import echo, echo_raw
from flows.cli.fill import mask_lines
from flows.cli.final_summary import count_line, report_line, warning_lines
from flows.cli.init import write_schema_next_to
from flows.cli.plan import print_plan
from flows.cli.progress import StepPrinter
from flows.cli.tables import print_parts
from flows.model_loading import best_checkpoint, open_filler
from flows.quickstart.folder_scan import scan_folder, scan_lines
from flows.quickstart.mask_prompts import held_out_prompts
from flows.quickstart.recipe_proposal import (
    Proposal,
    propose,
    recipe_name,
    this_machine,
    write_recipe,
    written_budget,
)
from flows.recipes.loader import load_recipe
from flows.run.estimates import low_disk_warning
from flows.run.run import Run
from flows.running import run_recipe
from flows.store.default_store import default_store
from model.pretrain import STAGE as PRETRAIN
from schemas.errors import BertloomError, UsageError
from schemas.recipe import Recipe

_MAX_PROMPTS = 2


def quickstart(
    folder: Annotated[Path, typer.Argument(help="Folder with your texts, or one file.")],
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="Recipe to write. Default: ./NAME.yaml.")
    ] = None,
    name: Annotated[str, typer.Option(help="Recipe name. Default: the folder name.")] = "",
    minutes: Annotated[float, typer.Option(min=0.01, help="Minutes of pretraining.")] = 5.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without asking.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write the recipe and show the plan; build nothing.")
    ] = False,
    store: options.Store = None,
    engine: options.Engine = "local",
) -> None:
    """Train a small model on a folder of texts.

    Scans the folder, writes a commented recipe, runs it, and fills masks in texts that the model
    has not seen.
    """
    if not (dry_run or yes or sys.stdin.isatty()):
        raise UsageError("no terminal to ask in: pass --yes to train, or --dry-run to only plan")
    root = store or default_store()
    scan = scan_folder(folder, store=None if "://" in root else Path(root).absolute())
    name = name or recipe_name(scan.folder)
    file = recipe or Path(f"{name}.yaml")
    budget = written_budget(file)
    if budget is None:
        echo("measuring the speed of a training step ...", err=True)
    proposal = propose(scan, this_machine(), minutes=minutes, name=name, budget=budget)
    print_parts(
        options.relative(str(scan.folder)),
        *scan_lines(scan),
        *(f"  warning   {warning}" for warning in proposal.warnings),
        f"  proposed  {proposal.summary}",
    )
    loaded = _write_and_plan(proposal, file, store=store)
    if dry_run or not (yes or typer.confirm("\nrun it?", default=True)):
        command = f"bertloom run {shlex.quote(str(file))}{options.store_option(loaded.store)}"
        echo(f"\nto run it: {command}")
        return
    if warning := low_disk_warning(loaded.store):
        echo(warning, err=True)
    echo("")
    started = time.monotonic()
    printer = StepPrinter()
    with printer.replace_printed_error():
        run_recipe(loaded, listeners=[printer], engine=engine)
    if printer.run is not None:
        _print_results(printer.run, seconds=time.monotonic() - started)


def _write_and_plan(proposal: Proposal, file: Path, *, store: str | None) -> Recipe:
    """Write the recipe and print its plan; delete the recipe if it cannot be planned."""
    is_new = write_recipe(proposal, file)
    try:
        loaded = load_recipe(str(file), store=store)
        echo(f"  recipe    {file}{'' if is_new else ' (unchanged)'}\n")
        print_plan(loaded)
    except BertloomError:
        if is_new:
            file.unlink()
        raise
    if message := write_schema_next_to(file):
        echo(message)
    return loaded


def _print_results(run: Run, *, seconds: float) -> None:
    """Print the steps and wall time of a run, predictions of its best phase for held-out texts,
    and how to continue."""
    recipe, store, results = run.recipe, run.store, run.results()
    phases = [result for result in results if result.manifest.stage == PRETRAIN.name]
    checkpoint = best_checkpoint([phase.manifest for phase in phases])
    counts = count_line(results, recipe=recipe.name, seconds=seconds)
    print_parts("", counts, *warning_lines(results))
    if checkpoint != phases[-1].manifest:
        label = next(phase.label for phase in phases if phase.manifest == checkpoint)
        echo(f"`bertloom fill` uses {label}, which has the lowest held-out perplexity")
    prompts = held_out_prompts(store.artifact(checkpoint), limit=_MAX_PROMPTS)
    if prompts:
        echo("predictions on held-out text:")
    filler = open_filler(checkpoint.artifact_id, store=recipe.store)
    for prompt in prompts:
        [text] = filler.fill([prompt.text])
        for line in (f"\n{prompt.text}", *mask_lines(text), f"  original: {prompt.word}"):
            echo_raw(line)
    example = shlex.quote(prompts[0].text if prompts else "... [MASK] ...")
    echo_raw(f"\ntry it:\n  bertloom fill {example}{options.store_option(recipe.store)}")
    echo(report_line(run.newest_report))
