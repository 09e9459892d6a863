"""Hooks of MkDocs: the list of commands, and links to files outside `docs/`.

The pages are also read in the repository, where such links work. The site shows only the name of
the file.
"""

from __future__ import annotations

import re
from typing import Any

from typer.main import get_command

from flows.cli.app import COMMANDS, app


def on_page_markdown(markdown: str, *, page: Any, **_given: Any) -> str:
    """The page as the site shows it."""
    if page.file.src_uri == "commands.md":
        markdown = markdown.replace("<!-- each command -->", _commands())
    folders_up = page.file.src_uri.count("/") + 1  # to the folder that has `docs`
    outside = rf"\[([^\]]+)\]\((?:\.\./){{{folders_up}}}[^)]+\)"
    return re.sub(outside, r"`\1`", markdown)


def _commands() -> str:
    """Every command with its options, as `--help` has them."""
    parts = []
    group: Any = get_command(app)
    for name in COMMANDS:
        loaded = group.commands[name].loaded
        for label, one in [(name, loaded), *_below(name, loaded)]:
            rows = [
                f"| `{', '.join(param.opts + param.secondary_opts)}` | {_cell(param.help)} |"
                for param in one.params
                if param.param_type_name == "option" and param.name != "help" and not param.hidden
            ]
            usage = " ".join(
                one.collect_usage_pieces(one.make_context(label, [], resilient_parsing=True))
            )
            parts.append(f"### {label} options\n\n`bertloom {label} {usage}`\n\n{one.help or ''}")
            if rows:
                parts.append("\n".join(["| option | |", "| --- | --- |", *rows]))
    return "\n\n".join(parts)


def _below(name: str, command: Any) -> list[tuple[str, Any]]:
    return [(f"{name} {inner}", one) for inner, one in getattr(command, "commands", {}).items()]


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")
