"""The fine-tuning tasks: their files, columns, labels, type and metrics. No torch here.

A task is one entry of `TASKS`. `build-examples`, features, heads, metrics and tables depend only on
its type and fields, so a new task needs no change elsewhere.

To add a task, write its `Task` next to similar ones (`glue`, `squad`, `swag`, `ner`) with one of
their readers or a new function, and, in a new module, add a line to `TASKS`. The contract tests
(`tests/model/tasks/test_tasks.py`) pick it up. Your own texts or pairs of texts
with a label or a score, and your own questions on passages, need no code: see
`model.tasks.sentence_tasks` and `model.tasks.squad`.
"""

from __future__ import annotations

import difflib

from model.tasks.columns import with_columns, with_labels
from model.tasks.glue import GLUE_TASKS
from model.tasks.ner import NER_TASKS
from model.tasks.official_files import check_splits
from model.tasks.sentence_tasks import SENTENCE_TASKS
from model.tasks.squad import CUSTOM_QUESTION_TASKS, SQUAD_TASKS
from model.tasks.swag import SWAG_TASKS
from model.tasks.task import Bad, Row, Task
from schemas.errors import ConfigError
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
    task = with_columns(find_task(config.task), config.columns, config.file_format)
    check_splits(config, task=task)
    return with_labels(task, config.labels)


__all__ = ["TASKS", "Bad", "Row", "Task", "find_task", "task_of"]
