"""The fine-tuning tasks: their files, columns, labels, type and metrics. No torch here.

A task is one entry of `TASKS`. `build-examples`, features, heads, metrics and tables depend only on
its type and fields, so a new task needs no change elsewhere.

To add a task, write its `Task` next to similar ones (`glue`, `sentences`, `squad`, `ner`) with one
of their readers or a new function, and, in a new module, add a line to `TASKS`. The contract tests
(`tests/model/tasks/test_tasks.py`) pick it up. Your own texts or pairs of texts with a label or a
score, and your own questions on passages, need no code: see `model.tasks.sentences` and
`model.tasks.squad`.
"""

from __future__ import annotations

import difflib
import itertools
from dataclasses import replace

from model.tasks.glue import GLUE_TASKS
from model.tasks.ner import NER_TASKS, OUTSIDE, is_tag
from model.tasks.sentences import SENTENCE_TASKS, SWAG_TASKS
from model.tasks.squad import CUSTOM_QUESTION_TASKS, SQUAD_TASKS
from model.tasks.task import BadRow, Row, Task
from schemas.errors import ConfigError
from schemas.field_names import field_name
from schemas.finetune_configs import ExamplesConfig

TASKS: dict[str, Task] = {
    **GLUE_TASKS,
    **SQUAD_TASKS,
    **SWAG_TASKS,
    **NER_TASKS,
    **SENTENCE_TASKS,
    **CUSTOM_QUESTION_TASKS,
}
"""Tasks by their name in recipes and on the command line."""


def find_task(name: str) -> Task:
    """Return a task by name.

    Raises:
        ConfigError: No task has this name.
    """
    if name in TASKS:
        return TASKS[name]
    titles = {task.title.lower(): task.name for task in TASKS.values()}
    close = difflib.get_close_matches(name.lower(), [*TASKS, *titles], n=3)
    meant = list(dict.fromkeys(titles.get(match, match) for match in close))
    hint = f"Did you mean {' or '.join(meant)}?" if meant else f"Choose from {', '.join(TASKS)}."
    raise ConfigError(f"no task {name!r:.80}. {hint}")


def task_of(config: ExamplesConfig) -> Task:
    """Return the task of a recipe's entry, with the columns and labels that the entry names.

    Raises:
        ConfigError: The task does not exist, or has no such splits, columns or labels.
    """
    task = find_task(config.task)
    _check_columns(task, config)
    _check_splits(task, config)
    _check_labels(task, config)
    _check_dev_fraction(task, config)
    has_new_labels = bool(config.labels) and task.type == "classification"
    layout = replace(
        task.layout,
        named_columns=dict(config.columns),
        file_format=config.file_format,
        label_names=config.labels,
    )
    return replace(task, layout=layout, labels=config.labels if has_new_labels else task.labels)


def _check_columns(task: Task, config: ExamplesConfig) -> None:
    choices = (names for field in task.layout.columns.values() for names in field)
    known = [name for name in dict.fromkeys(itertools.chain(*choices)) if name]
    if unknown := [name for name in config.columns if name not in known]:
        raise ConfigError(
            f"{field_name('columns')}: expected columns of {task.name}: {', '.join(known)}; got "
            f"{', '.join(unknown)}. Give each the name of its column, or its number from 0"
        )
    form = config.file_format
    if task.type in ("span", "tagging") and (form.delimiter != "auto" or form.quoted is not None):
        raise ConfigError(
            f"{field_name('file_format')}: expected no delimiter and no quoted for {task.name}, "
            "whose text files are no tables. Remove them"
        )


def _check_splits(task: Task, config: ExamplesConfig) -> None:
    for field in ("data_files", "max_samples"):
        unknown = sorted(set(getattr(config, field)) - set(task.splits))
        if unknown:
            raise ConfigError(
                f"{field_name(field)}: no split {unknown[0]!r:.80} in {task.name}. "
                f"Choose from {', '.join(task.splits)}"
            )


def _check_dev_fraction(task: Task, config: ExamplesConfig) -> None:
    if config.dev_fraction and not task.can_split_train:
        possible = [name for name, other in TASKS.items() if other.can_split_train]
        raise ConfigError(
            f"{field_name('dev_fraction')}: expected 0 for {task.name}, which has a dev split of "
            f"its own, got {config.dev_fraction:g}. It is for {', '.join(possible)}"
        )


def _check_labels(task: Task, config: ExamplesConfig) -> None:
    wrong = [name for name in config.labels if task.type == "tagging" and not is_tag(name)]
    if wrong:
        raise ConfigError(
            f"{field_name('labels')}: expected {OUTSIDE} or tags such as B-LOC for {task.name}, "
            f"got {', '.join(wrong)}"
        )
    if config.labels and (task.labels or task.type not in ("tagging", "classification")):
        fixed = f" ({', '.join(task.labels)})" if task.labels else ""
        raise ConfigError(
            f"{field_name('labels')}: expected a task without fixed labels, such as "
            f"single-sentence or tagging, got {task.name} ({task.type}){fixed}. Remove it"
        )


__all__ = ["TASKS", "BadRow", "Row", "Task", "find_task", "task_of"]
