"""The `bertloom` command: which commands there are, and what all of them share.

A command's module is loaded when the command is called, so that `--help` and completion answer at
once and no command waits for what another needs.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version as version_of
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from flows.cli.console import echo, handle_errors, log_to_console
from schemas.errors import UsageError

EXIT_CODES = (
    "Exit codes: 0 done; 1 an error that is said, or damage found; 2 wrong usage; 70 a fault of "
    "bertloom's own; 130 interrupted (Ctrl-C); 143 terminated (SIGTERM)."
)
COMMANDS = {
    "quickstart": ("quickstart", "Make a small model of a folder of your own texts."),
    "run": ("run", "Run a recipe: build what is not in the store yet."),
    "plan": ("plan", "Say what a run would do, and why."),
    "show": ("show", "Show an artifact: counts, files, inputs, configuration."),
    "head": ("head", "Print the first rows of a shard, decoded."),
    "export": ("export", "Write an artifact as datasets, transformers, pandas open it."),
    "card": ("export", "Print the card of an artifact: sources, licenses, scores."),
    "recipes": ("recipes", "List the recipes that come with bertloom."),
    "init": ("recipes", "Write a commented recipe to edit."),
    "schema": ("recipes", "Print a recipe's JSON Schema, for editors."),
    "sample": ("sample", "Write the sample: a small wiki, books, labelled sets."),
    "finetune": ("finetune", "Fine-tune a checkpoint on one task: a grid with restarts."),
    "evaluate": ("evaluate", "Score predictions, or a model, on a file of a task."),
    "claims": ("claims", "Say which of the paper's claims the tables show."),
    "predict": ("predict", "Ask a fine-tuned model: text in, answer out."),
    "fill": ("fill", "Ask a pretrained model what a [MASK] stands for."),
    "contamination": ("contamination", "Look for the texts of tasks in a corpus."),
    "ls": ("ls", "List what is in the store, the newest first."),
    "runs": ("ls", "List the runs that the store has records of."),
    "pin": ("maintenance", "Keep an artifact from being deleted by gc."),
    "unpin": ("maintenance", "Take a pin away."),
    "gc": ("maintenance", "Delete what nothing needs."),
    "verify": ("maintenance", "Check that artifacts are to the byte what was written."),
    "doctor": ("doctor", "Check the store, versions, telemetry, disk and clock."),
    "lineage": ("lineage", "Tell what something was made from, or what of it."),
    "trace": ("lineage", "Tell which documents a row of a shard was made from."),
    "diff": ("lineage", "Tell how two artifacts, or two runs, differ."),
    "reproduce": ("reproduce", "Write a bundle that reproduces an artifact, or run one."),
    "rebuild": ("publish", "Bring a published corpus up to the newest dump."),
    "publish": ("publish", "Publish the corpus that a recipe last built."),
    "report": ("report", "Write a run's report, one page of HTML, anew."),
    "beam-worker": ("workers", "Become a worker of an engine, which calls this."),
    "worker-pool": ("workers", "Start workers for an engine beside it, which asks for them."),
    "worker-package": ("workers", "Write the wheel that workers elsewhere install."),
    "fetch": ("fetch", "Download raw data: Wikipedia's dumps, labelled sets."),
}
"""The module of each command, and what `--help` says of it, in that order."""


class Lazy(TyperCommand):
    """A command that is known by its name and a sentence until it is called."""

    def __init__(self, name: str, *, module: str, summary: str) -> None:
        super().__init__(name, help=summary, rich_markup_mode=None)
        self._module = module

    @functools.cached_property
    def loaded(self) -> TyperCommand | TyperGroup:
        """The command itself, of the function or the Typer application of this name."""
        name = str(self.name)
        module = importlib.import_module(f"flows.cli.{self._module}")
        found = getattr(module, name.replace("-", "_"))
        if not isinstance(found, typer.Typer):
            single = typer.Typer(rich_markup_mode=None, add_completion=False)
            single.command(name)(found)
            found = single
        command: Any = typer.main.get_command(found)
        command.name = name
        return command  # type: ignore[no-any-return]

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """That of the command itself, which is called by it."""
        return self.loaded.make_context(*arguments, **more)


class _Commands(TyperGroup):
    """All of COMMANDS."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.commands = {
            name: Lazy(name, module=module, summary=summary)
            for name, (module, summary) in COMMANDS.items()
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
_SHOWN = {"tracebacks": False}


def _version(wanted: bool) -> None:
    if wanted:
        echo(f"bertloom {version_of('bertloom')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what is done.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error is from.")] = False,
) -> None:
    del version
    _SHOWN["tracebacks"] = debug
    log_to_console(verbose=verbose)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit; see EXIT_CODES.

    Args:
        arguments: in place of the process's own.
    """
    with handle_errors(debug=lambda: _SHOWN["tracebacks"]):
        texts = list(sys.argv[1:] if arguments is None else arguments)
        check_texts(texts)
        app(args=texts, prog_name="bertloom")


def check_texts(arguments: Sequence[str]) -> None:
    """Raise UsageError if an argument is not valid UTF-8: Python hides its bytes in surrogates."""
    for number, argument in enumerate(arguments, start=1):
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"argument {number}: expected UTF-8, got {os.fsencode(argument)!r}"
            ) from error
