"""Tiny stages in a package that a test writes, so that it can also change their code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flows.engine import keys as step_keys
from flows.engine import stages as stage_table
from schemas.configs import (
    Config,
    DocumentsConfig,
    InstancesConfig,
    TextSource,
    TokensConfig,
    VocabularyConfig,
)
from schemas.recipe import Recipe

WORDS = '''
from fakestages.letters import change


def words(text):
    """Words of a text."""
    return [change(word) for word in text.split()]
'''

LETTERS = """
def change(word):
    return word.lower()
"""

STAGES = """
import hashlib
from pathlib import Path

from fakestages.words import words
from pipelines.io.shards import write_text_file
from schemas.manifest import RawInput, StageOutput

STAGE_VERSION = 1
LIBRARIES = ("pyarrow",)
CALLS = []
FAULTS = {}


def raw_inputs(config):
    return tuple(
        RawInput(name=Path(p).name, uri=p, size=len(data), sha256=hashlib.sha256(data).hexdigest())
        for p in (config.sources[0].paths if hasattr(config, "sources") else ())
        for data in [Path(p).read_bytes()]
    )


def _make(name, text, output, **more):
    CALLS.append(name)
    entry = write_text_file("part-00000.txt", text, output=output)
    if FAULTS.get(name):
        raise FAULTS[name].pop(0)
    return StageOutput(files=(entry,), table=name, **more)


def _text(given):
    return Path(f"{given.data}/{given.files[0].object}").read_text()


def documents(config, *, inputs, output, execution):
    found = sorted(w for p in config.sources[0].paths for w in words(Path(p).read_text()))
    counters = {"documents-in": len(found) + 1, "documents-kept": len(found),
                "documents-dropped-too-short": 1}
    return _make("documents", " ".join(found), output, counters=counters)


def vocabulary(config, *, inputs, output, execution):
    text = " ".join(sorted(set(_text(inputs["documents"]).split()))[: config.vocab_size])
    return _make("vocabulary", text, output, statistics={"vocab_size": config.vocab_size})


def tokens(config, *, inputs, output, execution):
    size = inputs["vocabulary"].statistics["vocab_size"]
    return _make("tokens", f"{size} {_text(inputs['documents'])}", output)


def instances(config, *, inputs, output, execution):
    return _make("instances", f"{config.seed} {_text(inputs['tokens'])}", output)
"""


class FakeStages:
    """The package, imported, with a recipe that runs its stages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "fakestages"
        self.package.mkdir()
        self.write("__init__", "")
        self.write("words", WORDS)
        self.write("letters", LETTERS)
        self.write("stages", STAGES)
        self.raw = folder / "raw.txt"
        self.raw.write_text("The cat sat\n")

    def write(self, module: str, text: str) -> None:
        (self.package / f"{module}.py").write_text(text)

    def raise_version(self) -> None:
        """Let the stages have version 2, as another process would meet them."""
        self.write("stages", STAGES.replace("STAGE_VERSION = 1", "STAGE_VERSION = 2"))
        forget_code()

    @property
    def module(self) -> Any:
        return importlib.import_module("fakestages.stages")

    @property
    def calls(self) -> list[str]:
        """Which stages ran since it was asked last."""
        made, self.module.CALLS[:] = list(self.module.CALLS), []
        return made

    def recipe(self, store: str, **changes: Any) -> Recipe:
        source = TextSource(name="mine", paths=(str(self.raw),))
        given: dict[str, Any] = {
            "name": "fake",
            "store": store,
            "build_documents": DocumentsConfig(sources=(source,)),
            "build_instances": {"one": InstancesConfig(), "two": InstancesConfig(seed=2)},
            **changes,
        }
        return Recipe(**given)


def forget_code() -> None:
    """Let this process look at stages' code anew, as another process would."""
    step_keys.code_of.cache_clear()
    step_keys.declared.cache_clear()


@contextmanager
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStages]:
    """The fake stages, written to a new folder, in place of the real ones."""
    folder.mkdir()
    fakes = FakeStages(folder)
    monkeypatch.syspath_prepend(str(folder))
    configs: dict[str, type[Config]] = {
        "documents": DocumentsConfig,
        "vocabulary": VocabularyConfig,
        "tokens": TokensConfig,
        "instances": InstancesConfig,
    }
    for provides, config_type in configs.items():
        name = f"build-{provides}"
        fake = stage_table.Stage(
            name=name,
            module="fakestages.stages",
            function=provides,
            config_type=config_type,
            provides=provides,
            inputs=stage_table.STAGES[name].inputs,
            raw_inputs_module="fakestages.stages"
            if stage_table.STAGES[name].raw_inputs_module
            else "",
            packages=("fakestages",),
        )
        monkeypatch.setitem(stage_table.STAGES, name, fake)
    forget_code()
    yield fakes
    forget_code()
    for name in [name for name in sys.modules if name.partition(".")[0] == "fakestages"]:
        del sys.modules[name]
