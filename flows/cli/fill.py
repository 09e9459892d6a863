"""`bertloom fill`: what a pretrained model puts where a text has [MASK]."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.completion import artifact_names
from flows.cli.console import echo_raw
from flows.cli.model_loading import open_filler
from flows.cli.options import JsonOption, StoreOption
from flows.cli.predict import lines_of
from schemas.errors import PredictionsError

if TYPE_CHECKING:
    from model.filling import FilledText


def fill(
    text: Annotated[
        str | None,
        typer.Argument(help="A text with one [MASK] or more; without it, lines of standard input."),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="Pretrained model: artifact (RECIPE/pretrain.PHASE), or folder or URL in Hugging "
            "Face's layout. Default: the phase of the last run with the lowest perplexity.",
            autocompletion=artifact_names,
        ),
    ] = "",
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Candidates per mask.")] = 5,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a pretrained model what stands where a text has [MASK]."""
    texts = (
        [text] if text is not None else [line for line in lines_of(sys.stdin.buffer) if line != ""]
    )
    if not texts:
        raise PredictionsError("no text: give one with [MASK] in it, or lines on standard input")
    filler = open_filler(model, store=store)
    for number, line in enumerate(texts, start=1):
        if line is None:
            raise PredictionsError(f"line {number} of standard input is not UTF-8")
        if not line.strip():
            continue
        [found] = filler.fill([line], k=top_k)
        if as_json:
            echo_raw(json.dumps(found.as_json(), ensure_ascii=False))
        else:
            for shown in filled_lines(found):
                echo_raw(shown)


def filled_lines(found: FilledText) -> Iterator[str]:
    """The filled text, and below it the likeliest pieces for each mask with their probabilities."""
    yield found.filled
    for number, candidates in enumerate(found.masks, start=1):
        which = f"[MASK] {number}" if len(found.masks) > 1 else "[MASK]"
        listed = ", ".join(f"{each.token} {each.probability:.3f}" for each in candidates)
        yield f"  {which}: {listed}"
