"""Stages by name, and the steps that a recipe makes of them."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from schemas.configs import Config
from schemas.errors import ConfigError
from schemas.manifest import Manifest, StageOutput
from schemas.stage import ANY, Stage
from schemas.trial_names import entry_label

_PACKAGES = ("pipelines", "model")
_NAME = re.compile(r"[a-z]+(?:-[a-z]+)*")


def find_stage(name: str) -> Stage:
    """The stage of a manifest; of a name that is none any more, one that counts rows and no more.

    Loads the stage's module and no other.
    """
    if _NAME.fullmatch(name):
        for package in _PACKAGES:
            module = f"{package}.{name.replace('-', '_')}"
            if importlib.util.find_spec(module) is not None:
                found = getattr(importlib.import_module(module), "STAGE", None)
                if isinstance(found, Stage):
                    return found
    return Stage(name=name, module="", version=0, run=_gone, config=Config, holds=name)


def _gone(*_given: Any, **_named: Any) -> StageOutput:
    raise ConfigError("this stage is not one of this version of bertloom, and cannot be run")


def amount(manifest: Manifest) -> str:
    """How much an artifact holds, as its stage says it: `1,234 documents`."""
    return find_stage(manifest.stage).amount(manifest)


class Step(NamedTuple):
    """A stage with the configuration that a recipe gives it."""

    label: str
    """`build-tokens`, or `build-instances.NAME` where a recipe has several."""

    stage: Stage
    config: Config
    inputs: dict[str, str]
    """Label of the step that makes each input, by the input's name."""


class RecipeSteps:
    """The steps of a recipe as they are added, each after those it reads from."""

    def __init__(self) -> None:
        """None yet."""
        self._by_label: dict[str, Step] = {}

    def __iter__(self) -> Iterator[Step]:
        return iter(self._by_label.values())

    def add(self, stage: Stage, config: Config, entry: str = "", /, **inputs: Step | None) -> Step:
        """Add a step.

        Args:
            stage: what runs.
            config: of the step.
            entry: its name among those of the stage, where a recipe has several.
            inputs: the steps it reads from, by the stage's names for them; None for none.
        """
        read = {name: step.label for name, step in inputs.items() if step is not None}
        missing = {*stage.inputs} - {*read, ANY}
        others = {*read} - {*stage.inputs, *stage.optional_inputs}
        if missing or (others and ANY not in stage.inputs):
            raise TypeError(
                f"{stage.name} reads {stage.inputs} and perhaps {stage.optional_inputs}, and is "
                f"given {tuple(read)}"
            )
        label = f"{stage.name}.{entry}" if entry else stage.name
        step = self._by_label[label] = Step(label, stage, config, read)
        return step

    def of(self, stage: Stage, entry: str | None = "") -> Step | None:
        """The step of a stage that was added before; None where `entry` is None."""
        if entry is None:
            return None
        return self._by_label[f"{stage.name}.{entry}" if entry else stage.name]


def steps_until(found: Sequence[Step], until: str) -> list[Step]:
    """The steps that `until` names, and those they need; "" for all.

    Args:
        found: the steps of a recipe.
        until: a label, a stage, or the first parts of labels (`finetune.cola`: all its trials).

    Raises:
        ConfigError: it names none.
    """
    if not until:
        return list(found)
    return with_inputs(found, _named(found, until, use="run until"))


def with_inputs(found: Sequence[Step], labels: Iterable[str]) -> list[Step]:
    """The steps of some labels, and all that those read from, in order."""
    needed = set(labels)
    for step in reversed(found):
        if step.label in needed:
            needed.update(step.inputs.values())
    return [step for step in found if step.label in needed]


def rebuilt_labels(rebuild: Iterable[str], found: Sequence[Step]) -> set[str]:
    """Labels of the steps that `rebuild` names: `all`, stage names, or labels.

    Raises:
        ConfigError: it names a stage that there is not.
    """
    chosen: set[str] = set()
    for name in rebuild:
        is_all = name == "all"
        chosen |= {s.label for s in found} if is_all else _named(found, name, use="rebuild")
    return chosen


def _named(found: Sequence[Step], name: str, *, use: str) -> set[str]:
    """Labels of the steps whose label or stage is `name`, or whose label begins so and a dot."""
    named = {
        step.label
        for step in found
        if name in (step.label, step.stage.name) or step.label.startswith(f"{name}.")
    }
    if not named:
        labels = list(dict.fromkeys(entry_label(step.label) for step in found))
        known = [*labels, *(step.stage.name for step in found), *(step.label for step in found)]
        close = difflib.get_close_matches(name, dict.fromkeys(known), n=1)
        if close:
            raise ConfigError(f"no stage {name!r} to {use}; did you mean {close[0]!r}?")
        others = "all, or " if use == "rebuild" else ""
        raise ConfigError(f"no stage {name!r} to {use}: choose {others}from {', '.join(labels)}")
    return named
