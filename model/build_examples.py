"""Stage `build-examples`: read the files of a fine-tuning task into tables of examples.

Every row is kept, or dropped and counted by reason: rows in = kept + dropped. There is one table
per split, `SPLIT.arrow`, with the task type's schema in `schemas.arrow.EXAMPLES`. The stage needs
no torch and no Beam: the largest of the paper's tasks has 400,000 rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from model.tasks import task_of
from model.tasks.official_files import find_files, raw_inputs_of, read_data_label
from model.tasks.task import Task
from pipelines.counters import Counters
from schemas.errors import TaskDataError
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import ExamplesConfig
from schemas.manifest import FileEntry, RawInput, StageInput, StageOutput


def raw_inputs(config: ExamplesConfig) -> tuple[RawInput, ...]:
    """Return the task's files with their digests.

    Raises:
        ConfigError: The task or a split does not exist.
        MissingInputError: A required split has no file.
    """
    task = task_of(config)
    files = raw_inputs_of(find_files(config, task=task), task=task)
    return (*files, *read_data_label(config)[1])


def check_files(config: ExamplesConfig) -> None:
    """Find the files of a task and read the first row of each.

    Raises:
        ConfigError: The task or a split does not exist.
        InputError: A file is missing, or its format or columns are not those of the task.
    """
    task = task_of(config)
    for split, files in find_files(config, task=task).items():
        for file in files:
            next(task.reader(task, split, file), None)


def build_examples(
    config: ExamplesConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
) -> StageOutput:
    """Read the files of a task's splits and write their examples.

    Args:
        config: Task, files and limits.
        inputs: Unused.
        output: URL of the folder to write to.
        execution: Unused; the stage runs in the calling process.

    Raises:
        ConfigError: The task or a split does not exist.
        InputError: A file is missing, damaged, or has an unexpected format (TaskDataError), for
            example if more than `max_invalid_fraction` of its rows are bad.
    """
    from model.tasks.split_build import LabelSet, SplitBuild  # lazy: heavy imports
    from schemas.arrow import EXAMPLES

    del inputs, execution
    label, inputs_of_label = read_data_label(config)
    config = config.model_copy(update={"data_label": label})
    task = task_of(config)
    files_by_split = find_files(config, task=task)
    answers = LabelSet(task)
    counters = Counters()
    notes, files, rows = list[str](), list[FileEntry](), dict[str, int]()
    cuts = dict[str, Any]()
    for split, split_files in files_by_split.items():
        build = SplitBuild(split, config=config, task=task, answers=answers)
        files.append(build.write(split_files, output=output))
        rows[split] = build.counters["rows-kept"]
        if (cut := build.cut()) is not None:
            cuts[split] = cut
        for name, count in build.counters.items():
            counters.count(name, count)
            counters.count(f"{name}@{split}", count)
        notes += build.notes
    _check_labels(answers.labels(), task=task, files=files_by_split)
    return StageOutput(
        files=tuple(files),
        counters=dict(sorted(counters.items())),
        statistics={
            "task": task.name,
            "kind": task.type,
            "labels": list(answers.labels()),
            "splits": rows,
            **({"cut": cuts} if cuts else {}),
            **({"data": config.data_label} if config.data_label else {}),
        },
        table_name=EXAMPLES[task.type].metadata[b"bertloom.table"].decode(),
        notes=tuple(notes),
        raw_inputs=(*raw_inputs_of(files_by_split, task=task), *inputs_of_label),
    )


def _check_labels(labels: Sequence[str], *, task: Task, files: Mapping[str, Sequence[str]]) -> None:
    if task.type == "classification" and len(labels) < 2:
        where = ", ".join(files["train"])
        raise TaskDataError(f"{where}: expected two labels or more, found only {', '.join(labels)}")
