"""Commands to try after a run; each works as it is printed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from flows.lineage.shards import read_rows
from flows.report.run_steps import Built, Steps
from flows.store.artifacts import ArtifactStore
from model.tasks import find_task
from schemas.redaction import escape_control_characters, redact

_MAX_COMMANDS = 3
_MAX_ROWS = 100
"""Rows of a shard that are searched for a short example."""

_SENTENCE_LENGTHS = range(30, 90)
"""Characters of a sentence that a command shows."""


def next_commands(
    steps: Steps, evaluation: Built | None, *, store: ArtifactStore, recipe: str, options: str = ""
) -> list[str]:
    """Return up to three commands about what a run built.

    Args:
        steps: Steps of the run.
        evaluation: Evaluation whose model is asked, if there is one.
        store: Store of the run.
        recipe: Name of the recipe.
        options: Text that each command ends with, such as `--store runs/store`.
    """
    arguments = _arguments(steps, evaluation, store, recipe)
    commands = [shlex.join(["bertloom", *words]) for words in arguments if _is_printable(words)]
    return [f"{command} {options}".rstrip() for command in commands[:_MAX_COMMANDS]]


def _arguments(
    steps: Steps, evaluation: Built | None, store: ArtifactStore, recipe: str
) -> Iterator[list[str]]:
    """Yield the arguments of all commands that fit, most interesting first."""
    if evaluation and (question := _find_question(evaluation, steps, store)):
        yield ["predict", f"{recipe}/{evaluation.label}", *question]
    elif (phase := steps.last_of_type("checkpoint")) and (text := _find_masked_text(steps, store)):
        yield ["fill", text, "--model", f"{recipe}/{phase.label}"]
    last = evaluation or steps.built[-1]
    yield ["lineage", f"{recipe}/{last.label}"]
    rows = (steps.last_of_type(things) for things in ("instances", "tokens", "documents"))
    for built in list(filter(None, rows))[:1]:
        yield ["trace", f"{recipe}/{built.label}:0"]
        yield ["head", f"{recipe}/{built.label}", "-n", "1"]
    yield ["show", f"{recipe}/{last.label}"]


def _is_printable(words: list[str]) -> bool:
    """Return whether the console prints these words unchanged, on one line."""
    text = "".join(words)
    return text.isprintable() and escape_control_characters(redact(text)) == text


def _find_question(evaluation: Built, steps: Steps, store: ArtifactStore) -> list[str]:
    """Return the shortest dev example of an evaluation as arguments of `predict`."""
    ref = evaluation.manifest.input("examples")
    examples = [b for b in steps.built if ref and b.manifest.artifact_id == ref.artifact_id]
    task_type = find_task(str(evaluation.statistics["task"])).type
    questions = [
        _question(task_type, row) for built in examples for row in _rows(built, store, "dev.arrow")
    ]
    return min(
        (words for words in questions if not words[0].startswith("-")),
        key=lambda words: len(" ".join(words)),
        default=[],
    )


def _question(task_type: str, row: Mapping[str, Any]) -> list[str]:
    if task_type == "span":
        return [row["context"], "--question", row["question"]]
    if task_type == "choice":
        choices = (("--choice", text) for text in row["continuations"])
        return [row["context"], *(word for choice in choices for word in choice)]
    if task_type == "tagging":
        return [" ".join(row["words"][: row["sentence_lengths"][0]])]
    return [row["text_a"], *(("--text-pair", row["text_b"]) if row["text_b"] else ())]


def _find_masked_text(steps: Steps, store: ArtifactStore) -> str:
    """Return a sentence of the corpus whose longest word is masked, "" if none fits."""
    documents = steps.last_of_type("documents")
    for row in _rows(documents, store) if documents else ():
        for sentence in map(str, row["sentences"]):
            words = sentence.split()
            if len(sentence) in _SENTENCE_LENGTHS and len(words) > 3 and sentence[0].isalpha():
                return sentence.replace(max(words, key=len).strip('.,;:!?"'), "[MASK]", 1)
    return ""


def _rows(built: Built, store: ArtifactStore, prefix: str = "part-") -> list[dict[str, Any]]:
    """Return the first rows of the first file with this prefix; [] without such a file."""
    entries = [e for e in built.manifest.files if e.rows and e.path.startswith(prefix)]
    urls = [store.url(f"{built.manifest.data}/{entry.object}") for entry in entries[:1]]
    return [row for url in urls for _, row in read_rows(url, start=0, count=_MAX_ROWS)]
