"""The command `quickstart`."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import echo, echo_raw
from flows.cli.final_summary import count_line, report_line, warning_lines
from flows.cli.models import mask_lines
from flows.cli.plan import print_plan
from flows.cli.progress import StepPrinter
from flows.cli.recipes import write_schema_next_to
from flows.cli.tables import print_parts
from flows.formatting import format_bytes, format_count
from flows.model_loading import best_checkpoint, open_filler
from flows.quickstart.folder_scan import FolderScan, detect_language, scan_folder
from flows.quickstart.mask_prompts import held_out_prompts
from flows.quickstart.recipe_proposal import SMALL_TEXT_BYTES, gpu_name, propose, recipe_name
from flows.recipes.loader import load_recipe
from flows.run.run import Run
from flows.running import run_recipe
from flows.store.default_store import default_store
from pipelines.io.local_files import create_file
from schemas.errors import BertloomError, ConfigError, UsageError
from schemas.recipe import Recipe

_MAX_PROMPTS = 2


def quickstart(
    folder: Annotated[Path, typer.Argument(help="Folder with your texts, or one file.")],
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="Recipe to write. Default: ./NAME.yaml.")
    ] = None,
    name: Annotated[str, typer.Option(help="Recipe name. Default: the folder name.")] = "",
    language: Annotated[
        str, typer.Option(help="ISO 639 code of the texts' language. Default: detected.")
    ] = "",
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
    if file.exists():
        raise ConfigError(
            f"{file}: exists. Run it with `bertloom run {shlex.quote(str(file))}`, pass --recipe "
            "FILE, or delete it"
        )
    language = language or detect_language(scan.sample)
    print_parts(options.relative(str(scan.folder)), *_scan_lines(scan, language))
    echo("measuring the speed of a training step ...", err=True)
    proposal = propose(scan, gpu=gpu_name(), minutes=minutes, name=name, language=language)
    echo(f"  proposed  {proposal.summary}")
    loaded = _write_and_plan(proposal.text, file, store=store)
    if dry_run or not (yes or typer.confirm("\nrun it?", default=True)):
        command = f"bertloom run {shlex.quote(str(file))}{options.store_option(loaded.store)}"
        echo(f"\nto run it: {command}")
        return
    echo("")
    started = time.monotonic()
    printer = StepPrinter()
    with printer.replace_printed_error():
        run_recipe(loaded, listeners=[printer], engine=engine)
    if printer.run is not None:
        _print_results(printer.run, seconds=time.monotonic() - started)


def _scan_lines(scan: FolderScan, language: str) -> Iterator[str]:
    """Yield what a folder contains, for the terminal."""
    for group in scan.groups:
        text = format_bytes(group.text_bytes)
        documents = format_count(group.documents, "document")
        yield f"  read      {group.files:,} x {group.kind}: about {text} of text, {documents}"
    for reason, count in scan.ignored:
        yield f"  ignored   {count:,} x {reason}"
    yield f"  language  {language or 'not detected: pass --language CODE'}"
    if scan.text_bytes < SMALL_TEXT_BYTES:
        yield "  warning   this is little text: the model will learn only its most frequent words"


def _write_and_plan(text: str, file: Path, *, store: str | None) -> Recipe:
    """Write the recipe and print its plan; delete the recipe if it cannot be planned."""
    create_file(file, text.encode())
    try:
        loaded = load_recipe(str(file), store=store)
        echo(f"  recipe    {file}\n")
        print_plan(loaded)
    except BertloomError:
        file.unlink()
        raise
    if message := write_schema_next_to(file):
        echo(message)
    return loaded


def _print_results(run: Run, *, seconds: float) -> None:
    """Print the steps and wall time of a run, predictions of its best phase for held-out texts,
    and how to continue."""
    recipe, store, results = run.recipe, run.store, run.results()
    phases = [result for result in results if result.manifest.stage == "pretrain"]
    checkpoint = best_checkpoint([phase.manifest for phase in phases])
    cached = [result for result in results if result.was_cached]  # others have printed warnings
    counts = count_line(results, recipe=recipe.name, seconds=seconds)
    print_parts("", counts, *warning_lines(cached))
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
