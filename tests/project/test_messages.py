"""Fields and options that messages name: all of them exist."""

from __future__ import annotations

import ast
import functools
import re
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import typer
from pydantic import BaseModel
from support.paths import ROOT

from flows.cli.app import app
from flows.fetch.task_datasets import Sources
from schemas.recipe import Recipe

PACKAGES = ("schemas", "pipelines", "model", "flows", "bertloom")

ADVICE = re.compile(
    r"\b(?i:set|raise|lower|increase|decrease|reduce|correct|change|remove) "
    r"(?P<mark>`?)(?P<field>[a-z][a-z0-9]*(?:[._][a-z0-9]+)*)\b(?P<value>: ?[\w{]| to )?"
)
"""Advice to set a field. A word is a field if it has an underscore, a dot, a value or a mark."""

OPTION = re.compile(r"(?<![\w-])(?<!var\()--[a-z][a-z-]+[a-z](?![\w-])")

OTHER_NAMES = {
    "it",
    "config.json",  # a file of a checkpoint
    "encoding",  # a line of the sample's books: "Character set encoding: UTF-8"
}
OTHER_OPTIONS = {"--local-dir", "--notest", "--revision"}
"""Options of other programs that messages quote."""


def literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of the string literals of a module, without docstrings."""
    statements = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    skipped = {id(node) for node in statements if isinstance(node, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = node.values
            skipped |= {id(part) for part in parts}
            texts = [part.value if isinstance(part, ast.Constant) else "{}" for part in parts]
            yield node.lineno, "".join(map(str, texts))
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in skipped:
            yield node.lineno, node.value


def advised_fields(text: str) -> list[str]:
    """Return the fields that a message advises to change."""
    return [
        match["field"]
        for match in ADVICE.finditer(text)
        if match["mark"] or match["value"] or set(match["field"]) & set("._")
    ]


def named_fields(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and field of the calls of `field_name` in a module."""
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if is_call and node.func.id == "field_name":
            argument = node.args[0]
            parts = argument.values if isinstance(argument, ast.JoinedStr) else [argument]
            if isinstance(parts[0], ast.Constant):
                yield node.lineno, parts[0].value.rstrip(".")


class Texts(NamedTuple):
    messages: list[tuple[str, str]]
    """Position and text of the string literals that are sentences."""

    fields: list[tuple[str, str]]
    """Position and field of the calls of `field_name`."""


@functools.cache
def read_packages() -> Texts:
    """Return the texts of the modules of all packages."""
    texts = Texts([], [])
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        tree, name = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(ROOT)
        texts.messages.extend(
            (f"{name}:{line}", text) for line, text in literals(tree) if " " in text
        )
        texts.fields.extend((f"{name}:{line}", field) for line, field in named_fields(tree))
    return texts


def inner_models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from inner_models(argument)


def all_models() -> set[type[BaseModel]]:
    """Return the models of the YAML files of users, and all models below them."""
    models: set[type[BaseModel]] = set()
    waiting: list[type[BaseModel]] = [Recipe, Sources]
    while waiting:
        model = waiting.pop()
        if model not in models:
            models.add(model)
            for field in model.model_fields.values():
                waiting += inner_models(field.annotation)
    return models


MODELS = all_models()


def is_field(path: str) -> bool:
    """Return whether some configuration has this dotted path of fields."""
    models = list(MODELS)
    for name in path.split("."):
        fields = [model.model_fields[name] for model in models if name in model.model_fields]
        if not fields:
            return False
        models = [inner for field in fields for inner in inner_models(field.annotation)]
        if not models and any("dict" in str(field.annotation) for field in fields):
            return True
    return True


def all_options() -> set[str]:
    options: set[str] = set()
    waiting: list[Any] = [typer.main.get_command(app)]
    while waiting:
        command = waiting.pop()
        command = getattr(command, "loaded", command)
        for parameter in command.params:
            options |= {*parameter.opts, *parameter.secondary_opts}
        waiting += getattr(command, "commands", {}).values()
    return options


def test_fields_that_messages_advise_to_set_exist() -> None:
    unknown = [
        f"{position}: {field}: {text}"
        for position, text in read_packages().messages
        for field in advised_fields(text)
        if field not in OTHER_NAMES and not is_field(field)
    ]
    assert unknown == []


def test_fields_that_messages_name_by_context_exist() -> None:
    names = read_packages().fields
    assert names
    assert [item for item in names if not is_field(item[1])] == []


def test_options_that_messages_name_exist() -> None:
    known = all_options() | OTHER_OPTIONS
    unknown = [
        f"{position}: {option}: {text}"
        for position, text in read_packages().messages
        for option in OPTION.findall(text)
        if option not in known
    ]
    assert unknown == []


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("Set `document: file` if each file is one", ["document"]),
        ("close it, or set table.quotes: false", ["table.quotes"]),
        ("Raise max_invalid_fraction. Remove it", ["max_invalid_fraction"]),
        ("Set masking to dynamic", ["masking"]),
        ("Set the variable, or correct its value", []),
    ],
)
def test_advice_is_collected(text: str, fields: list[str]) -> None:
    assert advised_fields(text) == fields


@pytest.mark.parametrize(
    ("path", "exists"),
    [
        ("document_delimiter", True),
        ("build_examples", True),
        ("columns.text", True),
        ("file_format.header", True),
        ("document", False),
        ("file_format.quotes", False),
        ("max_steps.budget", False),
    ],
)
def test_paths_of_fields_are_known(path: str, exists: bool) -> None:
    assert is_field(path) is exists
