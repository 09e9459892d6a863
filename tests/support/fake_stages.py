"""Tiny stages in a package that a test writes, and can change."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from flows.run.events import Event
from flows.run.stages import STAGES as REGISTRY
from schemas.corpus_configs import DocumentsConfig, InstancesConfig, TextSource
from schemas.recipe import Recipe

STAGES = """
import hashlib
from pathlib import Path

from pipelines.io.files import write_text_file
from schemas.manifest import RawInput, StageOutput

CALLS = []
FAULTS = {}


def words(text):
    return text.lower().split()


def raw_inputs(config):
    return tuple(
        RawInput(
            name=Path(p).name, uri=p, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
        )
        for p in (config.sources[0].paths if hasattr(config, "sources") else ())
        for data in [Path(p).read_bytes()]
    )


def _make(name, text, output, **more):
    CALLS.append(name)
    entry = write_text_file("part-00000.txt", text, output=output)
    if FAULTS.get(name):
        raise FAULTS[name].pop(0)
    return StageOutput(files=(entry,), table_name=name, **more)


def _text(given):
    return Path(f"{given.data}/{given.files[0].stored_name}").read_text()


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

LABELS = [
    "build-documents",
    "build-vocabulary",
    "build-tokens",
    "build-instances.one",
    "build-instances.two",
]
"""Labels of the steps of the recipe."""

EventType = TypeVar("EventType", bound=Event)
REPLACED = ("build-documents", "build-vocabulary", "build-tokens", "build-instances")
"""Stages that have a fake."""


class FakeStages:
    """The package, imported, with a recipe that runs its stages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "fakestages"
        self.package.mkdir()
        self.write("__init__", "")
        self.write("stages", STAGES)
        self.raw = folder / "raw.txt"
        self.raw.write_text("The cat sat\n")

    def write(self, module: str, text: str) -> None:
        (self.package / f"{module}.py").write_text(text)

    def raise_version(self) -> None:
        """Let the stages have version 2."""
        for name in REPLACED:
            REGISTRY[name] = dataclasses.replace(REGISTRY[name], version=2)

    def replace(self, name: str, function: Callable[..., Any]) -> None:
        """Let a stage, which then supports resuming, run a function."""
        self.module.replacement = function
        REGISTRY[name] = dataclasses.replace(
            REGISTRY[name], run="fakestages.stages:replacement", supports_resume=True
        )

    @property
    def module(self) -> Any:
        return importlib.import_module("fakestages.stages")

    def function(self, name: str) -> Callable[..., Any]:
        """Return a function that looks up the module's attribute when it is called."""
        return lambda *positional, **named: getattr(self.module, name)(*positional, **named)

    @property
    def calls(self) -> list[str]:
        """Return the stages that ran since the last call."""
        made, self.module.CALLS[:] = list(self.module.CALLS), []
        return made

    def recipe(self, store: str, **changes: Any) -> Recipe:
        source = TextSource(name="mine", paths=(str(self.raw),))
        fields: dict[str, Any] = {
            "name": "fake",
            "store": store,
            "build_documents": DocumentsConfig(sources=(source,)),
            "build_instances": {"one": InstancesConfig(), "two": InstancesConfig(seed=2)},
            **changes,
        }
        return Recipe(**fields)


class Recorder:
    """Listener that keeps the events of a run."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    @property
    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    def events_of(self, kind: type[EventType]) -> list[EventType]:
        return [event for event in self.events if isinstance(event, kind)]


@contextmanager
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStages]:
    """The fake stages, written to a new folder, in place of the real ones."""
    folder.mkdir()
    fakes = FakeStages(folder)
    monkeypatch.syspath_prepend(str(folder))
    for name in REPLACED:
        stage = REGISTRY[name]
        fake = dataclasses.replace(
            stage,
            version=1,
            run=f"fakestages.stages:{stage.output_type}",
            raw_inputs="fakestages.stages:raw_inputs" if stage.raw_inputs else "",
            libraries=("pyarrow",),
            supports_reuse=False,
            summarize="",
        )
        monkeypatch.setitem(REGISTRY, name, fake)
    yield fakes
    for name in [name for name in sys.modules if name.partition(".")[0] == "fakestages"]:
        del sys.modules[name]
