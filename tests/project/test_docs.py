"""Commands, recipes, fields and links in the documentation exist."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from support.cli_runner import Cli
from support.doc_commands import (
    NOT_RUN,
    PAGES,
    ROOT,
    RUN,
    RUN_TUTORIAL,
    WITH_A_MODEL,
    Block,
    blocks,
    site_module,
)
from typer.main import get_command

from flows.cli.app import app, main
from flows.recipes.json_schema import field_descriptions
from flows.recipes.loader import load_recipe
from flows.sample import write_sample
from pipelines.runners.registry import RUNNERS
from pipelines.sources import SOURCES
from schemas.base_configs import Config
from schemas.publish_configs import PublishConfig
from schemas.recipe import Recipe

TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
ALL = "\n".join(TEXTS.values())
BLOCKS = list(blocks())
COMMANDS: Any = get_command(app)
SMALL = """
name: sample
extends: sample
build_vocabulary: {vocab_size: 400}
pretrain: {}
build_examples: {}
finetune: {}
"""
"""The corpus of the recipe `sample`, for as little text as here."""


# Commands


def test_command_block_is_run_or_marked_with_reason() -> None:
    for block in BLOCKS:
        if block.page == "CONTRIBUTING.md":  # lists the commands of CI
            continue
        says_why = block.mark.startswith(NOT_RUN) and len(block.mark) > len(NOT_RUN) + 5
        is_run = block.mark.removesuffix(WITH_A_MODEL) in (RUN, RUN_TUTORIAL)
        assert is_run or says_why, (
            f"{block.page}: {block.commands[:1]}: expected a comment above it, `<!-- {RUN} -->`, "
            f"`<!-- {RUN_TUTORIAL} -->` or `<!-- {NOT_RUN}REASON -->`, got {block.mark!r}"
        )


def of_bertloom() -> list[Any]:
    return [
        pytest.param(command, id=f"{block.page} {' '.join(command)}")
        for block in BLOCKS
        for command in block.ours()
    ]


@pytest.mark.parametrize("command", of_bertloom())
def test_each_shown_command_takes_its_options(command: list[str]) -> None:
    name, *rest = command
    if name.startswith("-"):
        assert name in ("--help", "--install-completion", "--show-completion", "--version")
        return
    loaded = COMMANDS.commands[name].loaded
    if inner := getattr(loaded, "commands", {}):
        loaded = inner[rest.pop(0)]
    # Whether a file is there is not looked at.
    loaded.make_parser(loaded.make_context(name, [], resilient_parsing=True)).parse_args(rest)


def test_every_command_is_shown_and_has_help() -> None:
    for name, command in COMMANDS.commands.items():
        assert command.loaded.help, name
        assert f"bertloom {name}" in ALL, name
        for inner, one in getattr(command.loaded, "commands", {}).items():
            assert one.help, inner
            assert f"bertloom {name} {inner}" in ALL, inner


def test_shown_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = {command[1] for block in BLOCKS for command in block.commands if command[0] == "make"}
    assert {"run", "test", "check", "bench", "lock"} <= shown
    for target in shown:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.fixture(scope="module")
def beside_a_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a small sample and, in a store, its corpus."""
    folder = tmp_path_factory.mktemp("shown")
    write_sample(str(folder / "runs" / "sample"), articles=60, tales=2, pages_per_stream=20)
    (folder / "small.yaml").write_text(SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with pytest.raises(SystemExit) as ended:
            main(["run", "small.yaml", "--engine", "local"])
    assert not ended.value.code
    return folder


@pytest.mark.parametrize(
    "block", [pytest.param(block, id=block.page) for block in BLOCKS if block.mark == RUN]
)
def test_shown_commands_run(
    block: Block, beside_a_corpus: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(beside_a_corpus)
    assert len(block.ours()) == len(block.commands), "other programs' commands cannot be run here"
    for command in block.ours():
        result = cli(*command)
        assert result.code == 0, (command, result.err)


# Recipes, fields, links


def test_every_source_and_runner_is_described() -> None:
    for name in SOURCES:
        assert f"`{name}`" in TEXTS["corpora.md"], name
    for name in RUNNERS:
        assert f"`{name}`" in TEXTS["clusters.md"], name


def test_shown_recipes_are_valid() -> None:
    for page in ("recipes.md", "corpora.md", "models.md"):
        texts = re.findall(r"```yaml\n(name: .*?)```", TEXTS[page], re.DOTALL)
        assert [Recipe.model_validate(yaml.safe_load(text)) for text in texts], page
    (text,) = re.findall(r"```yaml\n(.*?)```", TEXTS["prefect.md"], re.DOTALL)
    assert PublishConfig.model_validate(yaml.safe_load(text)["publish"]).limits


def test_figures_of_readme_are_those_of_the_measurements() -> None:
    """Check that the page of all measurements has each number of README's table."""

    def numbers(text: str) -> set[float]:
        return {float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", text)}

    measured = numbers(TEXTS["measured.md"])
    measured |= {round(number, 1) for number in measured}
    table = TEXTS["README.md"].partition("## Measured")[2].partition("\n## ")[0]
    rows = [row.split("|") for row in re.findall(r"^\|.*\d.*\|$", table, re.MULTILINE)]
    assert len(rows) > 5
    for _, task, figure, _, ratio, _ in rows:
        assert numbers(f"{figure} {ratio}") <= measured, task


def all_configs() -> list[type[Config]]:
    """Every configuration there is, also those that no recipe holds."""
    found: dict[type[Config], None] = {}
    pending: list[type[Config]] = [Config]
    while pending:
        for model in pending.pop().__subclasses__():
            if model.__module__.startswith("schemas."):
                found[model] = None
                pending.append(model)
    return list(found)


@pytest.mark.parametrize("model", all_configs(), ids=lambda model: model.__name__)
def test_every_field_says_what_it_is_for(model: type[Config]) -> None:
    descriptions = field_descriptions(model)
    for name in model.model_fields:
        assert len(descriptions[name].split()) >= 2, name
        assert descriptions[name].endswith((".", ")")), name


def test_every_number_has_a_unit_and_the_page_of_fields_is_current() -> None:
    reference = site_module("reference")
    assert reference.PAGE.read_text(encoding="utf-8") == reference.reference(), (
        "docs/reference.md is not what the schemas say: run `make docs`, or "
        "`.venv/bin/python docs/site/reference.py`, and commit it"
    )
    used = {name for _, model in reference.sections() for name in reference.numeric_fields(model)}
    assert set(reference.UNIT) <= used, "units of fields that no longer exist"


@pytest.mark.parametrize("name", ["api", "commands"])
def test_generated_page_is_current(name: str) -> None:
    module = site_module(name)
    assert module.PAGE.read_text(encoding="utf-8") == module.reference(), (
        f"docs/{name}.md is not what the code says: run `make docs` and commit it"
    )


def test_examples_of_reference_can_be_set() -> None:
    text = site_module("reference").PAGE.read_text(encoding="utf-8")
    examples = re.findall(r"--set ([\w.-]+=[^`\s]+)", text.replace("PATH=VALUE", ""))
    assert examples
    for example in examples:
        load_recipe("sample", overrides=[example])


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and MkDocs make it."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain).strip().lower().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
    for target in (markdown or html for markdown, html in links):
        if re.match(r"https?:", target):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.is_file(), target
        if anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, target


def test_every_page_is_in_the_navigation() -> None:
    text = re.sub(r"!!python\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    named = re.findall(r": ([\w/-]+\.md)$", text, re.MULTILINE)
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES[2:]}
    assert sorted(named) == sorted({"index.md", *pages})


def test_picture_of_a_job_shows_its_beam_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    beam_graph = importlib.import_module("beam_graph")
    texts = ElementTree.parse(beam_graph.PICTURE).iter("{http://www.w3.org/2000/svg}text")
    steps = {"".join(text.itertext()).strip() for text in texts}
    assert steps == set(beam_graph.job_graph(has_grouping=True)), "run docs/site/beam_graph.py"


@pytest.mark.slow
def test_the_site_has_no_dead_link(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES) - 2
    for page in pages:
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"?(https?://[^\">]+)", text)
        assert not fetched, (page.name, fetched)
