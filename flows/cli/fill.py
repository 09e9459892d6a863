"""The command `fill`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli import options
from flows.cli.console import echo_raw
from flows.cli.predict import decode_lines
from flows.model_loading import open_filler
from schemas.errors import PredictionsError

if TYPE_CHECKING:
    from model.filling import FilledText


def fill(
    text: Annotated[
        str | None,
        typer.Argument(help="Text with at least one [MASK]. Default: lines of standard input."),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="Pretrained model: artifact (RECIPE/pretrain.PHASE), or folder or URL in Hugging "
            "Face's layout. Default: the phase of the last run with the lowest perplexity.",
        ),
    ] = "",
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Candidates per mask.")] = 5,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Predict the masked tokens of a text."""
    lines = [text] if text is not None else decode_lines(sys.stdin.buffer)
    if not any(line is None or line.strip() for line in lines):
        raise PredictionsError("expected a text with [MASK], or lines on standard input, got none")
    filler = open_filler(model, store=store)
    for number, line in enumerate(lines, start=1):
        if line is None:
            raise PredictionsError(f"line {number} of standard input: expected UTF-8")
        if not line.strip():
            continue
        [filled] = filler.fill([line], k=top_k)
        if as_json:
            echo_raw(json.dumps(filled.as_json(), ensure_ascii=False))
        else:
            for shown in (filled.filled, *mask_lines(filled)):
                echo_raw(shown)


def mask_lines(text: FilledText) -> Iterator[str]:
    """Yield the most probable tokens of each mask, with probabilities in percent."""
    for number, candidates in enumerate(text.masks, start=1):
        mask = f"[MASK] {number}" if len(text.masks) > 1 else "[MASK]"
        tokens = ", ".join(f"{item.token} {item.probability:.1%}" for item in candidates)
        yield f"  {mask}: {tokens}"
