"""The commands that the documentation shows: blocks of `console`, each under a comment.

<!-- run -->                       each runs, in order, next to a small corpus of the sample
<!-- run, with models -->          the same, by a slow test, where there are models and tables too
<!-- run in the tutorial -->       each runs, in the order of the tutorial's pages
<!-- run in the tutorial, with a model -->   the same; figures can differ between machines
<!-- not run here: REASON -->      none runs; bertloom commands are still parsed

`support.tutorial` runs those of the tutorial.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from support.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN, RUN_WITH_MODELS, NOT_RUN = "run", "run, with models", "not run here: "
RUN_TUTORIAL = "run in the tutorial"
_BLOCK = re.compile(
    r"(?:^[ ]*<!-- (?P<mark>[^>]+?) -->\n+)?^[ ]*```console\n(?P<text>.*?)^[ ]*```", re.M | re.S
)
_PROMPT = re.compile(r"^[ ]*\$ ((?:.*\\\n)*.*)$", re.MULTILINE)


class Block(NamedTuple):
    """A block of commands with what they print."""

    page: str
    mark: str
    commands: list[list[str]]
    output: list[str]
    """Lines that the page shows below the commands, without those that have `...`."""

    def ours(self) -> list[list[str]]:
        """The arguments of its `bertloom` commands."""
        return [command[1:] for command in self.commands if command[0] == "bertloom"]


def blocks() -> Iterator[Block]:
    """Each block of every page, in order."""
    for page in PAGES:
        for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
            lines = [line.replace("\\\n", " ") for line in _PROMPT.findall(found["text"])]
            commands = [command for line in lines for command in _commands(line)]
            output = _PROMPT.sub("", found["text"]).splitlines()
            shown = [line for line in output if line.strip() and "..." not in line]
            yield Block(page.name, found["mark"] or "", commands, shown)


def shape(line: str) -> str:
    """Return a line of output without what differs between runs: digests, numbers and times.

    >>> shape("build-tokens  built in 1 min 02 s  0123456789abcdef  1,234 tokens")
    'build-tokens built in 0 s # 0 tokens'
    """
    line = re.sub(r"\b(?=[a-z]*\d)[0-9a-f]{7,}\b", "#", line)
    line = re.sub(r"\d[\d.,]*", "0", line)
    line = re.sub(r"\b(?:0 h )?(?:0 min )?0 s\b", "0 s", line)
    return " ".join(re.sub(r"\b0 [kMG]?B\b", "0 B", line).split())


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
