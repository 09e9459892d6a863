"""The commands that the documentation shows: blocks of `console`, each under a comment.

<!-- run -->                    each runs after the tutorial, and also next to a small corpus
<!-- run in the tutorial -->    each runs as a part of the tutorial
<!-- not run here: REASON -->   none runs; bertloom commands are still parsed

`, with a model` behind `run` or `tutorial` says that the commands need a trained model: their
figures can differ between machines. `support.doc_outputs` runs the commands and compares outputs.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from support.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN, RUN_TUTORIAL, NOT_RUN = "run", "run in the tutorial", "not run here: "
WITH_A_MODEL = ", with a model"
_BLOCK = re.compile(
    r"(?:^[ ]*<!-- (?P<mark>[^>]+?) -->\n+)?^[ ]*```console\n(?P<text>.*?)^[ ]*```", re.M | re.S
)
_PROMPT = re.compile(r"^[ ]*\$ ((?:.*\\\n)*.*)$", re.MULTILINE)


class Block(NamedTuple):
    """A block of commands with what they print."""

    page: str
    mark: str
    commands: list[list[str]]

    def ours(self) -> list[list[str]]:
        """The arguments of its `bertloom` commands."""
        return [command[1:] for command in self.commands if command[0] == "bertloom"]


def blocks() -> Iterator[Block]:
    """Each block of every page, in order."""
    for page in PAGES:
        for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
            lines = [line.replace("\\\n", " ") for line in _PROMPT.findall(match["text"])]
            commands = [command for line in lines for command in _commands(line)]
            yield Block(page.name, match["mark"] or "", commands)


def shape(line: str) -> str:
    """Return a line of output without what differs between runs: digests, numbers and times.

    >>> shape("build-tokens  built in 1 min 02 s  0123456789abcdef  1,234 tokens")
    'build-tokens built in 0 s # 0 tokens'
    """
    line = re.sub(r"\b(?=[a-z]*\d)[0-9a-f]{7,}\b", "#", line)
    line = re.sub(r"\d[\d.,]*", "0", line)
    line = re.sub(r"\b(?:0 h )?(?:0 min )?0 s\b", "0 s", line)
    return " ".join(re.sub(r"\b0 [kMG]?B\b", "0 B", line).split())


def site_module(name: str) -> Any:
    """Load a module of docs/site, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _commands(line: str) -> Iterator[list[str]]:
    """Split a line at `&&`, without comments, assignments and `&`."""
    words = shlex.split(line, comments=True)
    start = 0
    for end in [*(at for at, word in enumerate(words) if word in ("&&", "|")), len(words)]:
        command = words[start:end]
        while command and re.fullmatch(r"[A-Z_]+=.*", command[0]):
            command.pop(0)
        if command[-1:] == ["&"]:
            command.pop()
        if ">" in command:
            command = command[: command.index(">")]
        if command:
            yield command
        start = end + 1
