"""The steps of fine-tuning and evaluation that a recipe's entries stand for.

An entry of `finetune` is a grid with restarts: each cell of it is a step of its own, so that a
sweep that was stopped goes on where it was, and a restart more trains that one alone. The entry's
evaluation reads all its cells, and the tables read all evaluations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from model.finetuning.jobs import rate_text
from schemas.configs import Config
from schemas.recipe import Recipe
from schemas.task_configs import (
    EvaluateConfig,
    FinetuneConfig,
    TabulateConfig,
    TaskTrainingConfig,
    TrialConfig,
)

_CELL = re.compile(r"\.b\d+-lr[^-]+(?:-\d+)?-e\d+-r\d+$")


class PlannedEntry(NamedTuple):
    """What a step is made of, but for its stage."""

    suffix: str
    """What the label has after the stage's name, such as `.cola.b16-lr2e-05-e3-r0`."""

    config: Config
    inputs: dict[str, str]
    """Label of the step that makes each input, by the input's name."""


def cells(entry: FinetuneConfig) -> dict[str, TrialConfig]:
    """The cells of a grid by name, in the order of the recipe, restarts last."""
    common = {name: getattr(entry, name) for name in TaskTrainingConfig.model_fields}
    # A majority has no batches, rates or epochs: one cell, whatever the grid.
    is_single = entry.method == "majority"
    found = {}
    for batch in entry.batch[:1] if is_single else entry.batch:
        for rate in entry.learning_rate[:1] if is_single else entry.learning_rate:
            for epochs in entry.epochs[:1] if is_single else entry.epochs:
                for restart in range(1 if is_single else entry.restarts):
                    point = {"batch": batch, "learning_rate": rate, "epochs": epochs}
                    name = f"b{batch}-lr{rate_text(rate)}-e{epochs}-r{restart}"
                    found[name] = TrialConfig(**common, **point, restart=restart)
    return found


def entry_label(label: str) -> str:
    """The label of a cell's step without the cell; any other label as it is."""
    return _CELL.sub("", label)


def trial_steps(recipe: Recipe) -> Iterator[PlannedEntry]:
    """The trainings of all entries."""
    for name, entry in recipe.finetune.items():
        inputs = {"examples": f"build-examples.{entry.examples}"}
        if entry.start_from is not None:
            inputs["checkpoint"] = f"pretrain.{entry.start_from}"
        elif entry.model is not None:
            inputs["vocabulary"] = "build-vocabulary"
        for cell, config in cells(entry).items():
            yield PlannedEntry(f".{name}.{cell}", config, dict(inputs))


def evaluation_steps(recipe: Recipe) -> Iterator[PlannedEntry]:
    """The evaluations: of each entry, and of each ensemble."""
    for name, entry in recipe.finetune.items():
        yield _evaluation(recipe, name, of=[name], size=entry.ensemble)
    for name, ensemble in recipe.ensembles.items():
        yield _evaluation(recipe, name, of=ensemble.members, size=ensemble.size)


def _evaluation(recipe: Recipe, name: str, *, of: Iterable[str], size: int) -> PlannedEntry:
    members = list(of)
    first = recipe.finetune[members[0]]
    config = EvaluateConfig(
        examples=first.examples,
        entry=name,
        start=", ".join(dict.fromkeys(_start(recipe.finetune[member]) for member in members)),
        ensemble=size,
        micro_batch_tokens=first.micro_batch_tokens,
        device=first.device,
        threads=first.threads,
    )
    inputs = {"examples": f"build-examples.{first.examples}"}
    for member in members:
        prefix = f"{member}." if len(members) > 1 else ""
        for cell in cells(recipe.finetune[member]):
            inputs[f"{prefix}{cell}"] = f"finetune.{member}.{cell}"
    return PlannedEntry(f".{name}", config, inputs)


def _start(entry: FinetuneConfig) -> str:
    if entry.init_checkpoint is not None:
        *before, last = entry.init_checkpoint.rstrip("/").split("/")
        # An artifact's files are in .../pretrain/ID/data.
        return " ".join(before[-2:]) if last == "data" and before else last
    return entry.start_from or ("scratch" if entry.model is not None else entry.method)


def table_steps(recipe: Recipe) -> Iterator[PlannedEntry]:
    """The tables, where anything is evaluated."""
    evaluated = [*recipe.finetune, *recipe.ensembles]
    if evaluated:
        yield PlannedEntry("", TabulateConfig(), {name: f"evaluate.{name}" for name in evaluated})


PLANS: dict[str, Callable[[Recipe], Iterator[PlannedEntry]]] = {
    "finetune": trial_steps,
    "evaluate": evaluation_steps,
    "tabulate": table_steps,
}
"""By the names of the stages whose steps are not the recipe's own entries."""
