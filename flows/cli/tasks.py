"""The commands about tasks: fine-tune without a recipe file, score predictions, ask a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml

from flows.bert import run_recipe
from flows.cli.asking import AskedTexts, ask, file_as_examples, lines_of, texts_as_examples
from flows.cli.console import print_json, say, say_text
from flows.cli.models import open_predictors
from flows.cli.options import (
    ChangesOption,
    DryRunOption,
    EngineOption,
    JsonOption,
    StoreOption,
    TaskArgument,
)
from flows.cli.run import print_plan, print_results, step_printer
from flows.cli.scoring import NoAnswer, score_model, score_predictions
from flows.cli.task_recipes import single_task_recipe
from flows.recipes.files import recipe_from
from schemas.errors import PredictionsError, UsageError


def finetune(
    task: TaskArgument,
    data: Annotated[
        str | None,
        typer.Option(help="Folder with the task's files under their official names."),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="SPLIT=PATH", help="A file of one split, e.g. train=a.tsv."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="What to start from: a folder or URL in Hugging Face's layout, or an artifact of "
            "the store (RECIPE/pretrain.PHASE)."
        ),
    ] = None,
    batch: Annotated[str, typer.Option(help="Batch sizes to try, e.g. 16,32.")] = "32",
    learning_rate: Annotated[str, typer.Option(help="Learning rates to try.")] = "5e-5,3e-5,2e-5",
    epochs: Annotated[str, typer.Option(help="Numbers of epochs to try.")] = "3",
    restarts: Annotated[int, typer.Option(min=1, help="Trainings of each of them.")] = 1,
    max_seq_length: Annotated[
        int | None,
        typer.Option(min=8, help="Tokens of the longest sequence; else what suits the task."),
    ] = None,
    name: Annotated[str, typer.Option(help="Names the run; else finetune-TASK.")] = "",
    changes: ChangesOption = None,
    store: StoreOption = None,
    engine: EngineOption = "prefect",
    dry_run: DryRunOption = False,
    show_recipe: Annotated[
        bool, typer.Option("--show-recipe", help="Print the recipe this stands for, and end.")
    ] = False,
) -> None:
    """Fine-tune a checkpoint on one task: a grid with restarts, the best on dev evaluated."""
    recipe = single_task_recipe(
        task,
        data=data,
        files=files or (),
        checkpoint=checkpoint,
        store=store,
        grid={"batch": batch, "learning_rate": learning_rate, "epochs": epochs},
        restarts=restarts,
        max_seq_length=max_seq_length,
        name=name,
    )
    if show_recipe:
        say_text(yaml.safe_dump(recipe, sort_keys=False), nl=False)
        return
    loaded = recipe_from(
        recipe, where="bertloom finetune", folder=Path.cwd(), changes=changes or (), store=store
    )
    if dry_run:
        print_plan(loaded)
        return
    print_results(loaded, run_recipe(loaded, say=step_printer(), engine=engine))


def evaluate(
    task: TaskArgument,
    gold: Annotated[str, typer.Argument(help="A file of the task with answers: path or URL.")],
    predictions: Annotated[
        str | None,
        typer.Option(
            help="Saved predictions to score: ours (JSON lines), SQuAD's JSON of answers, GLUE's "
            "index and prediction, CoNLL columns with the tag last."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Or a fine-tuned model to ask: artifact of the store, folder or URL."),
    ] = None,
    split: Annotated[str, typer.Option(help="Which split's layout the file has.")] = "dev",
    na_prob_file: Annotated[
        str | None,
        typer.Option(
            help="With --predictions of squad-2.0: the official file of probabilities (or odds) of "
            "no answer. Prints the best thresholds too, as the official script does."
        ),
    ] = None,
    na_prob_thresh: Annotated[
        float,
        typer.Option(help="With --na-prob-file: above it a question counts as not answered."),
    ] = 1.0,
    force: Annotated[
        bool,
        typer.Option("--force", help="Score a --model that was fine-tuned on another task, too."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Keep the model's predictions here, one JSON object a line."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score predictions, or a fine-tuned model, on a file of a task."""
    if (predictions is None) == (model is None):
        raise UsageError(
            "expected one of --predictions (saved ones to score) and --model (to be asked)"
        )
    if na_prob_file is not None and predictions is None:
        raise UsageError("--na-prob-file goes with --predictions: expected both")
    if predictions is not None:
        if out is not None:
            raise UsageError("--out keeps what a --model says: leave it out with --predictions")
        no_answer = NoAnswer(na_prob_file, na_prob_thresh) if na_prob_file is not None else None
        found = score_predictions(
            task, gold, predictions=predictions, split=split, no_answer=no_answer
        )
    else:
        found = score_model(
            task, gold, model=str(model), split=split, out=out, store=store, force=force
        )
    if as_json:
        print_json(found._asdict(), sort_keys=True)
        return
    for metric, value in found.metrics.items():
        say(f"{metric:<24} {100 * value:8.3f}")
    for figure, value in (found.official or {}).items():
        digits = 0 if figure.endswith("total") else 6 if figure.endswith("thresh") else 3
        say(f"{figure:<24} {value:8,.{digits}f}")
    for thing, count in found.counts.items():
        say(f"{thing:<24} {count:8,}")
    if found.cut:
        say(f"not the whole split: {found.cut}")


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
    pair: Annotated[
        str | None,
        typer.Option(help="The second text of a pair."),
    ] = None,
    question: Annotated[
        str | None,
        typer.Option(help="A question about the text."),
    ] = None,
    choices: Annotated[
        list[str] | None,
        typer.Option("--choice", help="A continuation of the text; give each."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", help="A file of the task in place of texts: path or URL."),
    ] = None,
    split: Annotated[str, typer.Option(help="Which split's layout the --file has.")] = "test",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a fine-tuned model: text in, answer out."""
    predictors = open_predictors(model, store=store)
    task = predictors[0].task
    if file is not None:
        if texts or pair or question or choices:
            raise UsageError("--file: expected it alone, without texts and parts of them")
        labels = predictors[0].labels
        examples, lost = file_as_examples(task.name, file, split=split, labels=labels)
        asked = AskedTexts(examples, {})
        if lost:
            say(lost, err=True)
    else:
        given = texts or lines_of(sys.stdin.buffer)
        if not given:
            raise PredictionsError("no text: give one, or lines on standard input, or --file")
        asked = texts_as_examples(
            task, given, pair=pair, question=question, choices=tuple(choices or ())
        )
    for line in ask(predictors, asked, as_json=as_json):
        say_text(line)
