"""The README says what is true: its commands exist, and every command is in it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from flows.cli.app import app
from pipelines.runners.launch import RUNNERS
from pipelines.sources import SOURCES
from schemas.publish_configs import PublishConfig
from schemas.recipe import Recipe

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
WORKFLOW = (ROOT / "docs" / "workflow.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line.partition("#")[0])
    for line in re.findall(r"^\$ (?:\S*/)?bertloom (.+)$", README + WORKFLOW, re.MULTILINE)
]
GROUPS = {"fetch"}


def test_readme_shows_commands() -> None:
    assert len(COMMANDS) >= 5
    assert "@@" not in README + WORKFLOW


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_shown_command_takes_its_options(command: list[str]) -> None:
    named = command[: 2 if command[0] in GROUPS else 1]
    help_text = CliRunner().invoke(app, [*named, "--help"], terminal_width=200).output
    for option in (word for word in command if word.startswith("--")):
        assert option in help_text


def test_every_command_is_shown_and_has_help() -> None:
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        assert command.loaded.help, name
        assert f"bertloom {name}" in README or f"`{name}`" in README, name
        for inner, one in getattr(command.loaded, "commands", {}).items():
            assert one.help, inner
            assert f"bertloom {name} {inner}" in WORKFLOW, inner


def test_every_source_and_runner_is_in_the_readme() -> None:
    for name in (*SOURCES, *RUNNERS):
        assert f"`{name}`" in README, name


def test_the_readme_recipe_is_valid() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    recipe = Recipe.model_validate(yaml.safe_load(text))
    assert {source.kind for source in recipe.build_documents.sources} == {"wikipedia", "books"}


def test_the_shown_publish_entry_is_valid() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", WORKFLOW, re.DOTALL)
    assert PublishConfig.model_validate(yaml.safe_load(text)["publish"]).limits


def test_links_lead_to_files_that_are_there() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).is_file(), f"{page.name}: {target}"


def test_shown_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = re.findall(r"^\$ make (\w+)", README + (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    assert {"run", "test", "check", "bench", "lock"} <= set(shown)
    for target in shown:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
