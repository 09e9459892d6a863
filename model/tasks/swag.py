"""Four-way choice of a continuation: SWAG (paper 4.4, Table 4).

The paper's input is the pair of sentence A and a continuation. A is the context, `sent1`; the
continuation is the begin of the second sentence, `sent2`, and one of the endings, as in NVIDIA's
run_swag.py. Google released no code for SWAG.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from model.tasks.files import is_text, shown
from model.tasks.sentences import Answer, Example, read_text_rows
from model.tasks.task import BadRow, FileLayout, InvalidRowError, Row, Task

_NUMBERS = ("0", "1", "2", "3")
_ENDINGS = tuple(f"ending{number}" for number in _NUMBERS)


def read_choices(task: Task, split: str, url: str) -> Iterator[Row | BadRow]:
    """Read the rows of a table as those of texts with the labels 0 to 3; a `Reader`."""
    labeled = replace(task, labels=_NUMBERS)
    yield from read_text_rows(labeled, split, url, build=_build_choice)


def _build_choice(values: Mapping[str, Any], texts: Sequence[str], answer: Answer) -> Example:
    begin = values["begin"] or ""
    if not is_text(begin):
        raise InvalidRowError("no-text", f"sent2: {shown(repr(begin))}")
    context, *endings = (text.strip() for text in texts)
    return {
        "context": context,
        "continuations": [f"{begin.strip()} {ending}".strip() for ending in endings],
        "label": None if answer is None else int(answer),
    }


_SWAG = Task(
    name="swag",
    title="SWAG",
    type="choice",
    splits={"train": ("train",), "dev": ("val", "dev", "validation"), "test": ("test",)},
    folders=("regular",),  # on the hub
    reader=read_choices,
    layout=FileLayout(
        columns={
            "text": (("sent1", *_ENDINGS),),
            "begin": (("sent2",),),
            "label": (("label",),),
            "id": (("index",), ("",), ("Unnamed: 0",)),  # the official files do not name it
        },
        hint="Take train.csv, val.csv and test.csv, not those ending in _full.csv",
    ),
    sizes={"train": 73_546, "dev": 20_006, "test": 20_005},
    metrics=("accuracy",),
    is_pair=True,
    choices=len(_NUMBERS),
    paper={"dev/accuracy": ("table-4", "dev")},
)

SWAG_TASKS: dict[str, Task] = {_SWAG.name: _SWAG}
"""Choice tasks by name."""
