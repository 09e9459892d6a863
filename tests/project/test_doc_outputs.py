"""The commands of the pages print what the pages show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.doc_commands import site_module
from support.doc_outputs import PAGES, TUTORIAL, Command, are_alike, commands, run_commands

from flows.lineage.resolve import open_artifact
from flows.recipes.loader import load_recipe

LINE = "tokens    0123456789abcdef  1 min 02 s  1,234 of 5"
COMMANDS = [command for page in PAGES for command in commands(page)]


@pytest.mark.parametrize(
    ("line", "is_like", "is_like_of_model"),
    [
        (LINE, True, True),
        ("tokens  fedcba9876543210  0.3 s  1,234 of 5", True, True),
        ("tokens  fedcba9876543210  0.3 s  1,235 of 5", False, True),
        ("tokens  fedcba9876543210  0.3 s  1,234 of 5 files", False, False),
    ],
)
def test_outputs_are_compared_without_ids_and_times(
    line: str, is_like: bool, is_like_of_model: bool
) -> None:
    printed = ["step  key  time", "anything", line]
    shown = ["step      key               time", "...", LINE]
    command = Command(PAGES[0], "bertloom plan", shown, uses_model=False, is_in_tutorial=True)
    assert (None not in command.match(printed)) == is_like
    assert (None not in command._replace(uses_model=True).match(printed)) == is_like_of_model
    assert None in command.match(printed[::-1])


def test_predicted_words_of_models_are_not_compared() -> None:
    (command,) = [command for command in COMMANDS if "fill 'Rope" in command.line]
    other = ["Rope was hot and muddy.", "  [MASK]: hot 13.5%"]
    assert list(command.match(other)) == ["\n".join(other)]


def test_every_command_of_the_tutorial_is_run() -> None:
    in_tutorial = [command for command in COMMANDS if command.page in TUTORIAL]
    prompts = sum(len(re.findall(r"^\$ ", page.read_text(), re.M)) for page in TUTORIAL)
    set_up = 3  # `make setup` and what follows it
    assert len(in_tutorial) == prompts - set_up


def test_outputs_in_readme_are_those_of_the_tutorial() -> None:
    shown: dict[str, list[str]] = {}
    for command in COMMANDS:
        if command.page in TUTORIAL:
            shown.setdefault(command.line, command.shown)
        elif command.is_in_tutorial:
            lines = {line for line in command.shown if "..." not in line}
            assert lines <= {*shown[command.line]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the commands run."""
    folder = tmp_path_factory.mktemp("first-hour") / "work"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def printed(folder: Path) -> list[list[str]]:
    """Return what each command prints in one run."""
    return [lines for _, lines in run_commands(folder)]


@pytest.mark.slow
def test_pretraining_of_the_sample_helps_on_each_task_by_20_points(
    folder: Path, printed: list[list[str]]
) -> None:
    store = str(folder / "store")
    recipe = load_recipe("sample", store=store)

    def statistics(step: str) -> dict[str, Any]:
        return open_artifact(f"sample/{step}", store).manifest.statistics

    def mean(entry: str) -> float:
        return statistics("tabulate")["entries"][entry]["mean"]

    for task in (name for name in recipe.finetune if not name.endswith("-scratch")):
        assert mean(task) - mean(f"{task}-scratch") >= 0.2, task
    first, second = (
        statistics(f"pretrain.{phase}")["held_out"]["perplexity"] for phase in recipe.pretrain
    )
    assert second <= first


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=lambda n: COMMANDS[n].line[:60])
def test_command_prints_what_its_page_shows(number: int, printed: list[list[str]]) -> None:
    command = COMMANDS[number]
    matched = list(command.match(printed[number]))
    missing = [line for line, match in zip(command.shown, matched, strict=True) if match is None]
    assert not missing, "\n".join(["not printed:", *missing, "printed:", *printed[number]])


@pytest.mark.slow
@pytest.mark.usefixtures("printed")
def test_picture_of_the_pipeline_shows_the_run(folder: Path) -> None:
    pictures = site_module("pictures")
    shown = pictures.PIPELINE.read_text(encoding="utf-8").splitlines()
    drawn = pictures.draw(str(folder / "store")).splitlines()
    has_model = shown.index(next(line for line in shown if ">pretrain<" in line))
    for number, (line, other) in enumerate(zip(shown, drawn, strict=True)):
        assert are_alike(line, other, only_shape=number > has_model)
