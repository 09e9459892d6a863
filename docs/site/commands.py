"""Writes docs/commands.md: every command with its options, as `--help` has them.

python docs/site/commands.py        # also `make docs`; a test checks that the page is current
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from flows.cli.app import COMMANDS, app

PAGE = Path(__file__).parents[1] / "commands.md"
HEAD = """\
# Commands

Made from the command line by `docs/site/commands.py`: edit the help texts there.

Commands about artifacts and runs take `--store`, or `$BERTLOOM_STORE`. They name an artifact by its
[id, step, stage or path](how-to/lineage.md#names-of-artifacts). `--json` prints the same result for
programs. [Exit codes](running.md#exit-codes) are the same for all. `bertloom --install-completion`
makes the shell complete commands and options.

| to | run |
| --- | --- |
| train on a folder of [your texts](tutorial/2-own-texts.md) | `quickstart`, `fill` |
| write a [recipe](recipes.md), list packaged ones | `init`, `recipes` |
| see [what would be built](running.md), and why; build it | `plan`, `run` |
| look into a [store](running.md#the-store) | `ls`, `runs`, `show`, `head`, `card`, `report` |
| find [where a number comes from](how-to/lineage.md) | `lineage`, `trace`, `diff`, `reproduce` |
| [share](how-to/share.md) an artifact | `export` |
| [fine-tune, predict, score](how-to/models.md) | `finetune`, `predict`, `evaluate` |
| maintain a store | `verify`, `gc`, `ref`, `doctor` |
| get raw [data](how-to/corpora.md) | `fetch`, `sample` |
| update a corpus [each month](how-to/prefect.md) | `rebuild`, `publish` |
| run Beam workers for [an engine](how-to/clusters.md) | `worker-package`, `worker-pool` |
"""


def reference() -> str:
    """Return the page as Markdown."""
    group: Any = get_command(app)
    parts = [HEAD]
    for name in COMMANDS:
        command = group.commands[name].loaded
        inner = getattr(command, "commands", {})
        parts += _section(name, command)
        for inner_name, inner_command in inner.items():
            parts += _section(f"{name} {inner_name}", inner_command)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _section(name: str, command: Any) -> Iterator[str]:
    """Yield the heading, usage, help and options of a command."""
    context = command.make_context(name, [], resilient_parsing=True)
    yield f"## {name}"
    yield f"`bertloom {' '.join([name, *command.collect_usage_pieces(context)])}`"
    yield command.help or ""
    options = [
        f"| `{', '.join(param.opts + param.secondary_opts)}` | {_cell(param.help)} |"
        for param in command.params
        if param.param_type_name == "option" and param.name != "help" and not param.hidden
    ]
    if options:
        yield "\n".join(["| option | |", "| --- | --- |", *options])


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
