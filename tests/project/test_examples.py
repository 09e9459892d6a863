"""Docstrings of public names are examples that run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest
from support.tiny_recipe import write_tiny

from pipelines.wordpiece.vocab_files import FIXED_TOKENS, vocab_text

MODULES = [
    "bertloom.api",
    "flows.nested_values",
    "pipelines.arrays",
    "pipelines.counters",
    "pipelines.documents.records",
    "pipelines.instances",
    "pipelines.runners.registry",
    "pipelines.seeds",
    "pipelines.documents.sentences",
    "pipelines.transforms",
    "pipelines.wordpiece.tokenizer",
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from bertloom import run

    folder = tmp_path_factory.mktemp("tiny")
    write_tiny(folder)
    words = ("the", "rain", "fell", "river", "rose", ".")
    (folder / "vocab.txt").write_text(vocab_text([*FIXED_TOKENS, *words]), encoding="utf-8")
    run(str(folder / "tiny.yaml"))
    return folder


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings_run(name: str, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny)
    module = importlib.import_module(name)
    found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 0, f"{name}: no example"
    assert found.failed == 0
