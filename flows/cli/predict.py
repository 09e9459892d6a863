"""`bertloom predict`: one answer or fault for each text, in order, of a fine-tuned model."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import pyarrow as pa
import typer

from flows.cli.console import echo, echo_raw
from flows.cli.model_loading import answers, open_predictors
from flows.cli.options import (
    ColumnsOption,
    JsonOption,
    LabelsOption,
    StoreOption,
    TableOption,
    task_with_columns,
)
from model.tasks import Task
from model.tasks.examples import examples_of_file
from schemas.arrow import EXAMPLES
from schemas.errors import PredictionsError, UsageError

if TYPE_CHECKING:
    from model.finetuning.prediction import Predictor

_SHOWN = 5

_WORD = re.compile(r"\w+(?:[-'\u2019.]\w+)*|[^\w\s]")
"""Words as newspapers' corpora split them: punctuation apart, hyphens and apostrophes inside."""


class AskedTexts(NamedTuple):
    """What is asked about some texts."""

    examples: pa.Table
    """Those that can be asked, in order; the ids are their numbers from 0 among all."""

    faults: dict[int, str]
    """Why the others cannot, by number from 0."""

    @property
    def size(self) -> int:
        """How many texts, both kinds."""
        return len(self.examples) + len(self.faults)


def predict(
    model: Annotated[
        str,
        typer.Argument(
            help="A fine-tuned model: an artifact of the store (RECIPE/evaluate.ENTRY: the best of "
            "it, or RECIPE/finetune.ENTRY.TRIAL), a folder or a URL."
        ),
    ],
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Texts; without any, lines of standard input: an answer each."),
    ] = None,
    text_pair: Annotated[str | None, typer.Option(help="Second text of a pair.")] = None,
    question: Annotated[str | None, typer.Option(help="A question about the text.")] = None,
    choices: Annotated[
        list[str] | None, typer.Option("--choice", help="A continuation of the text; give each.")
    ] = None,
    file: Annotated[
        str | None, typer.Option(help="A file of the task in place of texts: path or URL.")
    ] = None,
    split: Annotated[str, typer.Option(help="Which split's layout the --file has.")] = "test",
    columns: ColumnsOption = None,
    table: TableOption = None,
    labels: LabelsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a fine-tuned model: text in, answer out."""
    predictors = open_predictors(model, store=store)
    task = predictors[0].task
    if file is not None:
        if texts or text_pair or question or choices:
            raise UsageError("--file: expected it alone, without texts and parts of them")
        task = task_with_columns(task, columns, table, labels)
        examples, lost = file_as_examples(task, file, split=split, labels=predictors[0].labels)
        asked = AskedTexts(examples, {})
        if lost:
            echo(lost, err=True)
    elif columns or table or labels:
        raise UsageError("--column, --table and --labels require --file")
    else:
        given = texts or lines_of(sys.stdin.buffer)
        if not given:
            raise PredictionsError("no text: give one, or lines on standard input, or --file")
        asked = texts_as_examples(
            task, given, text_pair=text_pair, question=question, choices=tuple(choices or ())
        )
    for line in ask(predictors, asked, as_json=as_json):
        echo_raw(line)


def lines_of(source: Iterable[bytes]) -> list[str | None]:
    """Lines without their ends, blank ones too; None for one that is not UTF-8."""
    found: list[str | None] = []
    for line in source:
        try:
            found.append(line.removesuffix(b"\n").removesuffix(b"\r").decode())
        except UnicodeDecodeError:
            found.append(None)
    return found


def texts_as_examples(
    task: Task,
    texts: Sequence[str | None],
    *,
    text_pair: str | None = None,
    question: str | None = None,
    choices: Sequence[str] = (),
) -> AskedTexts:
    """Texts as examples of a task; one that cannot be used does not take others along.

    Args:
        task: that of the model.
        texts: Texts; None for one that is not UTF-8. Without `text_pair`, a tab separates pairs.
        text_pair, question, choices: the other parts, the same for each text.

    Raises:
        UsageError: a part that the task needs is missing, or one that it has no use for is given.
    """
    _check_parts(
        task, texts, {"text-pair": text_pair, "question": question, "choice": choices or None}
    )
    rows, faults = [], {}
    for number, text in enumerate(texts):
        found = _row(task, text, text_pair=text_pair, question=question, choices=choices)
        if isinstance(found, str):
            faults[number] = found
        else:
            rows.append({"id": str(number), **found})
    schema = EXAMPLES[task.type]
    full = [{field.name: row.get(field.name) for field in schema} for row in rows]
    return AskedTexts(pa.Table.from_pylist(full, schema=schema), faults)


def _check_parts(task: Task, texts: Sequence[str | None], parts: dict[str, Any]) -> None:
    needed = {
        "text-pair": task.is_pair and task.type != "choice",
        "question": task.type == "span",
        "choice": task.type == "choice",
    }
    has_tabs = any(text is not None and "\t" in text for text in texts)
    for name, value in parts.items():
        if value is not None and not needed[name]:
            raise UsageError(f"--{name}: {task.name} ({task.type}) has no use for it")
        if value is None and needed[name] and not (name == "text-pair" and has_tabs):
            more = " (or a tab between the two texts)" if name == "text-pair" else ""
            raise UsageError(f"--{name} is missing: {task.name} ({task.type}) needs it{more}")
    if task.type == "choice" and (found := len(parts["choice"])) != task.choices:
        raise UsageError(
            f"--choice: expected {task.choices} of them for {task.name}, found {found}"
        )


def _row(
    task: Task,
    text: str | None,
    *,
    text_pair: str | None,
    question: str | None,
    choices: Sequence[str],
) -> dict[str, Any] | str:
    """The example of a text, or why there is none."""
    if text is None:
        return "not UTF-8"
    if not text.strip():
        return "no text"
    if task.type == "choice":
        return {"context": text, "continuations": list(choices)}
    if task.type == "span":
        asked = {"title": "", "question": question, "context": text}
        return {**asked, "answers": [], "answer_starts": []}
    if task.type == "tagging":
        words = _WORD.findall(text)
        return {"sentence_lengths": [len(words)], "words": words}
    if task.is_pair and text_pair is None:
        if (tabs := text.count("\t")) != 1:
            return f"expected two texts with one tab between, found {tabs} tabs"
        text, _, text_pair = text.partition("\t")
        if not (text.strip() and text_pair.strip()):
            return "expected two texts with one tab between, one is empty"
    return {"text_a": text, "text_b": text_pair}


def file_as_examples(
    task: Task, file: str, *, split: str, labels: Sequence[str]
) -> tuple[pa.Table, str]:
    """The examples of a file of a task, and which rows of it are none ("" where all are)."""
    examples, counts = examples_of_file(task, file, split=split, labels=labels)
    prefix = "rows-dropped-"
    lost = sorted((k.removeprefix(prefix), n) for k, n in counts.items() if k.startswith(prefix))
    if not lost:
        return examples, ""
    rows, reasons = counts["rows-in"], ", ".join(f"{reason} {number:,}" for reason, number in lost)
    without = f"{rows - counts['rows-kept']:,} of {rows:,} rows get no answer: {reasons}"
    return examples, f"{file}: {without}"


def ask(predictors: Sequence[Predictor], asked: AskedTexts, *, as_json: bool) -> Iterator[str]:
    """A line for each text, in order: the answer and how sure the model is, or why there is none.

    Raises:
        PredictionsError: after the last line, if some text could not be asked about; says which.
    """
    lines = iter(_answer_lines(predictors, asked.examples, as_json=as_json))
    for number in range(asked.size):
        if (fault := asked.faults.get(number)) is None:
            yield next(lines)
        elif as_json:
            yield json.dumps({"id": str(number), "error": f"line {number + 1}: {fault}"})
        else:
            yield f"(not answered: {fault})"
    if asked.faults:
        faults = [f"line {number + 1}: {fault}" for number, fault in asked.faults.items()]
        more = f"; and {len(faults) - _SHOWN:,} more" if len(faults) > _SHOWN else ""
        raise PredictionsError(
            f"{len(faults):,} of {asked.size:,} lines were not answered: "
            f"{'; '.join(faults[:_SHOWN])}{more}"
        )


def _answer_lines(
    predictors: Sequence[Predictor], examples: pa.Table, *, as_json: bool
) -> Iterator[str]:
    if not len(examples):
        return
    task = predictors[0].task
    task_type = task.type
    found = map(task.in_words, answers(predictors, examples))
    for row, said in zip(examples.to_pylist(), found, strict=True):
        if as_json:
            yield json.dumps(said, sort_keys=True, ensure_ascii=False)
        elif task_type == "regression":
            yield f"{said['score']:.3f}"
        elif task_type == "span":
            # Where the threshold decides, it need not be the first of them.
            shares = (
                best["probability"] for best in said["n_best"] if best["text"] == said["text"]
            )
            yield f"{said['text'] or '(no answer)'}\t{next(shares, 0.0):.3f}"
        elif task_type == "tagging":
            pairs = zip(row["words"], said["tags"], strict=True)
            yield " ".join(word if tag == "O" else f"{word}/{tag}" for word, tag in pairs)
        else:
            label = said["label"]
            chosen = label if isinstance(label, str) else row["continuations"][label]
            yield f"{chosen}\t{said['probabilities'][label]:.3f}"
