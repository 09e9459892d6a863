"""The stages there are, what each reads, and the steps that a recipe makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from flows.engine.task_steps import PLANS, entry_label
from schemas.configs import (
    Config,
    DocumentsConfig,
    InstancesConfig,
    TokensConfig,
    VocabularyConfig,
)
from schemas.errors import ConfigError
from schemas.fingerprint import FIRST_PARTY
from schemas.model_configs import PretrainConfig
from schemas.recipe import Recipe
from schemas.task_configs import EvaluateConfig, ExamplesConfig, TabulateConfig, TrialConfig


class ChosenInput(NamedTuple):
    """An input that the step's configuration names."""

    field: str
    """Of the configuration: names the entry of `stage` in the recipe, or is None for no input."""

    stage: str


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A kind of step. It is named by texts, so that listing stages imports none of them.

    The module has the function, `STAGE_VERSION`, and `LIBRARIES` (distributions whose versions may
    change bytes); these two are literals, read from its source without importing it.
    """

    name: str
    """Such as `build-tokens`. The recipe's entry is the same with underscores."""

    module: str
    function: str
    config_type: type[Config]
    provides: str
    """What later stages call its artifact."""

    inputs: tuple[str, ...] = ()
    """What it reads, by what the earlier stages provide."""

    chosen_inputs: Mapping[str, ChosenInput] = field(default_factory=dict)
    """What it reads of stages that a recipe has several entries of, by the stage's name for it."""

    raw_inputs_module: str = ""
    """Has a function `raw_inputs(config)` that digests the raw files; "" where there are none to
    read. It loads quickly, for `bertloom plan` calls it too."""

    has_pieces: bool = False
    """Whether it works piece by piece, and takes over those that it finds in a folder `pieces`."""

    is_resumable: bool = False
    """Whether it is given a folder `work`, the same each time it is run under one cache key, and
    goes on there where it was stopped."""

    packages: tuple[str, ...] = FIRST_PARTY
    """Packages whose code is fingerprinted."""

    needs_corpus: bool = False
    """Whether there are steps of it only where the recipe has a corpus."""


STAGES: dict[str, Stage] = {
    "build-documents": Stage(
        name="build-documents",
        needs_corpus=True,
        module="pipelines.build_documents",
        has_pieces=True,
        function="build_documents",
        config_type=DocumentsConfig,
        provides="documents",
        raw_inputs_module="pipelines.documents.plan",
    ),
    "build-vocabulary": Stage(
        name="build-vocabulary",
        needs_corpus=True,
        module="pipelines.build_vocabulary",
        has_pieces=True,
        function="build_vocabulary",
        config_type=VocabularyConfig,
        provides="vocabulary",
        inputs=("documents",),
        raw_inputs_module="pipelines.wordpiece.plan",
    ),
    "build-tokens": Stage(
        name="build-tokens",
        needs_corpus=True,
        module="pipelines.build_tokens",
        has_pieces=True,
        function="build_tokens",
        config_type=TokensConfig,
        provides="tokens",
        inputs=("documents", "vocabulary"),
    ),
    "build-instances": Stage(
        name="build-instances",
        needs_corpus=True,
        module="pipelines.build_instances",
        has_pieces=True,
        function="build_instances",
        config_type=InstancesConfig,
        provides="instances",
        inputs=("tokens", "vocabulary"),
    ),
    "pretrain": Stage(
        name="pretrain",
        module="model.pretrain",
        function="pretrain",
        config_type=PretrainConfig,
        provides="checkpoint",
        inputs=("vocabulary",),
        chosen_inputs={
            "instances": ChosenInput("instances", "build-instances"),
            "checkpoint": ChosenInput("start_from", "pretrain"),
        },
        raw_inputs_module="model.pretrain",
        is_resumable=True,
    ),
    "build-examples": Stage(
        name="build-examples",
        module="model.build_examples",
        function="build_examples",
        config_type=ExamplesConfig,
        provides="examples",
        raw_inputs_module="model.build_examples",
    ),
    "finetune": Stage(
        name="finetune",
        module="model.finetune",
        function="finetune",
        config_type=TrialConfig,
        provides="cell",
        raw_inputs_module="model.finetune",
        is_resumable=True,
    ),
    "evaluate": Stage(
        name="evaluate",
        module="model.evaluate",
        function="evaluate",
        config_type=EvaluateConfig,
        provides="evaluation",
    ),
    "tabulate": Stage(
        name="tabulate",
        module="model.tabulate",
        function="tabulate",
        config_type=TabulateConfig,
        provides="tables",
    ),
}
"""In an order in which each comes after what it reads."""


class Step(NamedTuple):
    """A stage with the configuration that a recipe gives it."""

    label: str
    """`build-tokens`, or `build-instances.NAME` where a recipe has several."""

    stage: Stage
    config: Config
    inputs: dict[str, str]
    """Label of the step that makes each input, by the input's name."""


def steps(recipe: Recipe, *, stages: Mapping[str, Stage] = STAGES) -> list[Step]:
    """The steps of a recipe, each after those it reads from."""
    made_by: dict[str, str] = {}
    found: list[Step] = []
    for stage in stages.values():
        if stage.name in PLANS:
            for planned in PLANS[stage.name](recipe):
                found.append(Step(f"{stage.name}{planned.suffix}", stage, *planned[1:]))
            continue
        if stage.needs_corpus and recipe.build_documents is None:
            continue
        given = getattr(recipe, stage.name.replace("-", "_"))
        if not isinstance(given, dict):
            made_by[stage.provides] = stage.name
        named = given if isinstance(given, dict) else {"": given}
        for name, config in named.items():
            label = f"{stage.name}.{name}" if name else stage.name
            inputs = {needed: made_by[needed] for needed in stage.inputs}
            for input_name, (field_name, of_stage) in stage.chosen_inputs.items():
                if (entry := getattr(config, field_name)) is not None:
                    inputs[input_name] = f"{of_stage}.{entry}"
            found.append(Step(label, stage, config, inputs))
    return found


def steps_until(found: Sequence[Step], until: str) -> list[Step]:
    """The steps that `until` names, and those they need; "" for all.

    Args:
        found: the steps of a recipe.
        until: a label, a stage, or the first parts of labels (`finetune.cola`: all its cells).

    Raises:
        ConfigError: it names none.
    """
    if not until:
        return list(found)
    needed = {step.label for step in found if is_named(step, until)}
    if not needed:
        labels = named_steps(found)
        raise ConfigError(f"no stage {until!r} to run until: choose from {labels}")
    for step in reversed(found):
        if step.label in needed:
            needed.update(step.inputs.values())
    return [step for step in found if step.label in needed]


def is_named(step: Step, name: str) -> bool:
    """Whether a step's label or stage is `name`, or its label begins with `name` and a dot."""
    return name in (step.label, step.stage.name) or step.label.startswith(f"{name}.")


def named_steps(found: Sequence[Step]) -> str:
    """What steps can be called, for messages: labels, and of cells their entry alone."""
    return ", ".join(dict.fromkeys(entry_label(step.label) for step in found))


def rebuilt_labels(rebuild: Iterable[str], found: Sequence[Step]) -> set[str]:
    """Labels of the steps that `rebuild` names: `all`, stage names, or labels.

    Raises:
        ConfigError: it names a stage that there is not.
    """
    chosen: set[str] = set()
    for name in rebuild:
        matched = {step.label for step in found if name == "all" or is_named(step, name)}
        if not matched:
            labels = named_steps(found)
            raise ConfigError(f"no stage {name!r} to rebuild: choose all, or from {labels}")
        chosen |= matched
    return chosen
