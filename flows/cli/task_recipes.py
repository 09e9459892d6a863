"""Recipes for one task, as `bertloom finetune` makes them of its options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from flows.cli.models import checkpoint_folder
from flows.engine.preflight import examples_fault, refuse_all
from model.tasks import find_task
from schemas.errors import BertloomError, ConfigError, UsageError
from schemas.task_configs import ExamplesConfig

_NOT_IN_NAMES = re.compile(r"[^a-z0-9_.-]+")


def single_task_recipe(
    task: str,
    *,
    data: str | None,
    files: Sequence[str],
    checkpoint: str | None,
    store: str | None,
    grid: Mapping[str, str],
    restarts: int,
    max_seq_length: int | None,
    name: str,
) -> dict[str, Any]:
    """The raw recipe of one fine-tuning.

    Args:
        task: a name in `model.tasks.TASKS`.
        data: folder with the task's official files, or None.
        files: `SPLIT=PATH` texts in place of the folder's.
        checkpoint: folder, URL or name of an artifact.
        store: where artifacts are looked up.
        grid: comma-separated values by hyper-parameter.
        restarts: of each grid point.
        max_seq_length: or None for the task's own.
        name: of the run, or "" for one made of the task's name.

    Raises:
        ConfigError: no such task, nothing to start from, or a value that is none.
    """
    found = find_task(task)
    examples: dict[str, Any] = {"task": found.name}
    if data is not None:
        examples["folder"] = data
    if files:
        examples["files"] = _files(files)
    numbers = {field: _numbers(text, field=field) for field, text in grid.items()}
    refuse_all(_faults(examples, checkpoint, store=store))
    entry = {
        "examples": found.name,
        "init_checkpoint": checkpoint_folder(str(checkpoint), store=store),
        **numbers,
        "restarts": restarts,
        "max_seq_length": max_seq_length or found.max_seq_length,
    }
    return {
        "name": name or _NOT_IN_NAMES.sub("-", f"finetune-{found.name}"),
        "build_examples": {found.name: examples},
        "finetune": {found.name: entry},
    }


def _faults(
    examples: Mapping[str, Any], checkpoint: str | None, *, store: str | None
) -> list[BertloomError]:
    """All that is wrong with the data and the checkpoint, the data first."""
    faults: list[BertloomError] = []
    if len(examples) == 1:
        faults.append(
            ConfigError(
                "--data is missing: expected folder with the task's official files, or --file "
                "SPLIT=PATH for each split"
            )
        )
    elif (fault := examples_fault(ExamplesConfig.model_validate(examples))) is not None:
        faults.append(fault)
    if checkpoint is None:
        faults.append(
            ConfigError(
                "--checkpoint is missing: expected a folder in Hugging Face's layout or an "
                "artifact such as sample/pretrain.phase-2. From scratch, and much more, goes with "
                "a recipe: `bertloom init`"
            )
        )
        return faults
    try:
        checkpoint_folder(checkpoint, store=store)
    except BertloomError as error:
        faults.append(error)
    return faults


def _files(given: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in given:
        split, equals, path = text.partition("=")
        if not equals or not split or not path:
            raise UsageError(f"--file {text}: expected SPLIT=PATH, such as train=train.tsv")
        found.setdefault(split, []).append(path)
    return found


def _numbers(text: str, *, field: str) -> list[float] | list[int]:
    is_whole = field != "learning_rate"
    number = int if is_whole else float
    try:
        return [number(part) for part in text.split(",")]
    except ValueError as error:
        expected = "whole numbers" if is_whole else "numbers"
        option = field.replace("_", "-")
        raise UsageError(f"--{option} {text}: expected {expected}, with commas between") from error
