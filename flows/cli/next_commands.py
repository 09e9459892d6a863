"""Commands to try after a run; each works as printed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from flows.lineage.shards import read_rows
from flows.report.run_steps import Built, Steps
from flows.store.artifacts import ArtifactStore
from model.tasks import find_task
from schemas.redaction import redact

_MAX_COMMANDS = 3
_MAX_ROWS = 100
"""Number of dev examples that are searched for a short one."""


def next_commands(
    steps: Steps, evaluation: Built | None, *, store: ArtifactStore, recipe: str, options: str = ""
) -> list[str]:
    """Return up to three commands about what a run built.

    Args:
        steps: Steps of the run.
        evaluation: Evaluation whose model predicts, if there is one.
        store: Store of the run.
        recipe: Name of the recipe.
        options: Text that each command ends with, such as `--store runs/store`.
    """
    commands = []
    for words in _commands(steps, evaluation, store, recipe):
        text = shlex.join(["bertloom", *words])
        if text.isprintable() and redact(text) == text:
            commands.append(f"{text} {options}".rstrip())
    return commands[:_MAX_COMMANDS]


def _commands(
    steps: Steps, evaluation: Built | None, store: ArtifactStore, recipe: str
) -> Iterator[list[str]]:
    """Yield the words of all commands that fit, most interesting first."""
    if evaluation and (arguments := _shortest_example(evaluation, store)):
        yield ["predict", f"{recipe}/{evaluation.label}", *arguments]
    elif phase := steps.last_of_type("checkpoint"):
        text = "The capital of [MASK] is"
        yield ["fill", text, "--model", f"{recipe}/{phase.label}"]
    last = evaluation or steps.built[-1]
    yield ["lineage", f"{recipe}/{last.label}"]
    for output_type in ("instances", "tokens", "documents"):
        if built := steps.last_of_type(output_type):
            yield ["trace", f"{recipe}/{built.label}:0"]
            yield ["head", f"{recipe}/{built.label}", "-n", "1"]
            break
    yield ["show", f"{recipe}/{last.label}"]


def _shortest_example(evaluation: Built, store: ArtifactStore) -> list[str]:
    """Return the shortest dev example of an evaluation as arguments of `predict`."""
    examples = store.artifact(evaluation.manifest).input("examples")
    if examples is None or "dev.arrow" not in examples.files:
        return []
    task_type = find_task(str(evaluation.statistics["task"])).type
    rows = read_rows(examples.table(["dev.arrow"]), start=0, count=_MAX_ROWS)
    arguments = [_predict_arguments(task_type, row) for row in rows]
    return min(
        (words for words in arguments if not words[0].startswith("-")),
        key=lambda words: len(" ".join(words)),
        default=[],
    )


def _predict_arguments(task_type: str, row: Mapping[str, Any]) -> list[str]:
    if task_type == "span":
        return [row["context"], "--question", row["question"]]
    if task_type == "choice":
        choices = (("--choice", text) for text in row["continuations"])
        return [row["context"], *(word for choice in choices for word in choice)]
    if task_type == "tagging":
        return [" ".join(row["words"][: row["sentence_lengths"][0]])]
    return [row["text_a"], *(("--text-pair", row["text_b"]) if row["text_b"] else ())]
