"""The `bertloom` command: its sub-commands, global options and entry point.

A command is the function or Typer application with its name, in the module of its noun. The
module is loaded when the command is called, which keeps `bertloom --help` fast.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from flows.cli.console import echo, handle_errors, log_to_console
from schemas.errors import UsageError

EXIT_CODES = (
    "Exit codes: 0 success; 1 error or corruption found; 2 usage error; 70 internal error; "
    "130 interrupted; 143 terminated."
)
COMMANDS = {
    "quickstart": "Train a small model on a folder of your texts.",
    "run": "Run a recipe: build what is not in the store yet.",
    "plan": "Show what a run would do, and why.",
    "show": "Show an artifact: counts, files, inputs, configuration.",
    "head": "Print the first rows of a shard, decoded.",
    "export": "Write an artifact for datasets, transformers or pandas.",
    "card": "Print the card of an artifact: sources, licenses, scores.",
    "recipes": "List the recipes that come with bertloom.",
    "init": "Write a commented recipe to edit.",
    "sample": "Write the sample: a small wiki, books, labeled datasets.",
    "finetune": "Fine-tune a checkpoint on one task: a grid with restarts.",
    "evaluate": "Score predictions, or a model, on a file of a task.",
    "predict": "Predict with a fine-tuned model.",
    "fill": "Predict the masked tokens of a text.",
    "ls": "List the artifacts of a store, newest first.",
    "runs": "List the runs of a store, newest first.",
    "ref": "Name artifacts, which gc then keeps.",
    "gc": "Delete unreferenced artifacts.",
    "verify": "Verify artifact checksums.",
    "doctor": "Check versions, and the writes, clock and space of a store.",
    "lineage": "Show upstream or downstream lineage.",
    "trace": "Show the source documents of a row of a shard.",
    "diff": "Compare two artifacts.",
    "reproduce": "Build an artifact again in another store, compare.",
    "rebuild": "Update a published corpus to the newest dump.",
    "publish": "Publish the corpus that a recipe last built.",
    "report": "Write the HTML report of a run again.",
    "worker-pool": "Start Beam workers when an engine asks for them.",
    "worker-package": "Write the wheel that remote workers install.",
    "fetch": "Download raw data: Wikipedia dumps, labeled datasets.",
}
"""Summary of each command, in the order of `--help`."""

_MODULES = {
    "artifacts": ("show", "head", "ls", "export", "card"),
    "corpus": ("fetch", "sample", "rebuild", "publish"),
    "lineage": ("lineage", "trace", "diff"),
    "models": ("finetune", "evaluate", "predict", "fill"),
    "plan": ("plan",),
    "quickstart": ("quickstart",),
    "recipes": ("recipes", "init"),
    "run": ("run", "reproduce", "runs", "report"),
    "store": ("ref", "gc", "verify", "doctor"),
    "workers": ("worker-pool", "worker-package"),
}
_MODULE_OF = {command: module for module, commands in _MODULES.items() for command in commands}


class LazyCommand(TyperCommand):
    """A command whose module is loaded when it is called."""

    @functools.cached_property
    def loaded(self) -> TyperCommand | TyperGroup:
        """The command itself."""
        name = str(self.name)
        module = importlib.import_module(f"flows.cli.{_MODULE_OF[name]}")
        command = getattr(module, name.replace("-", "_"))
        if not isinstance(command, typer.Typer):
            application = typer.Typer(rich_markup_mode=None, add_completion=False)
            application.command(name)(command)
            command = application
        loaded: Any = typer.main.get_command(command)
        loaded.name = name
        return loaded  # type: ignore[no-any-return]

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Build the context of the loaded command."""
        return self.loaded.make_context(*args, **kwargs)


class _Commands(TyperGroup):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.commands = {
            name: LazyCommand(name, help=summary, rich_markup_mode=None)
            for name, summary in COMMANDS.items()
        }


app = typer.Typer(
    cls=_Commands,
    name="bertloom",
    help="BERT from raw dumps to the paper's tables, as a cached and reproducible workflow.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_STATE = {"debug": False}


def _print_version(is_set: bool) -> None:
    if is_set:
        from importlib.metadata import version  # lazy import: only this option needs it

        echo(f"bertloom {version('bertloom')}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print log messages.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print tracebacks of errors.")] = False,
) -> None:
    del version
    _STATE["debug"] = debug
    log_to_console(verbose=verbose)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit; see EXIT_CODES.

    Args:
        arguments: Words after `bertloom`. None: those of the process.
    """
    with handle_errors(debug=lambda: _STATE["debug"]):
        words = list(sys.argv[1:] if arguments is None else arguments)
        for number, word in enumerate(words, start=1):
            if word.encode(errors="replace").decode() != word:  # undecodable bytes are surrogates
                raise UsageError(f"argument {number}: expected UTF-8, got {os.fsencode(word)!r}")
        app(args=words, prog_name="bertloom")
