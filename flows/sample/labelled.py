"""The sample's labelled sets: small tasks about the sample world, in the official formats.

    tasks/cola        sentences, well-formed or not         train.tsv, dev.tsv, test.tsv
    tasks/sst-2       sentences of praise or blame          train.tsv, dev.tsv, test.tsv
    tasks/mrpc        pairs, the same or not                train.tsv, dev.tsv, test.tsv
    tasks/sts-b       pairs and how near they are, 0 to 5   train.tsv, dev.tsv, test.tsv
    tasks/mnli        pairs, what follows from what         train.tsv, dev_matched.tsv, ...
    tasks/qnli        a question, an answer or not          train.tsv, dev.tsv, test.tsv
    tasks/rte         pairs, the second goes on or not      train.tsv, dev.tsv, test.tsv
    tasks/squad-2.0   passages and questions                train-v2.0.json, dev-v2.0.json
    tasks/swag        four endings, one of them right       train.csv, val.csv, test.csv
    tasks/conll-2003  names in text                         eng.train, eng.testa, eng.testb

What decides a label is what the corpus teaches: which word fits where, what is said of one topic,
what comes next, which words praise, how names look, what each craft needs. Regions and sentences
of `train` are in no other split. The bytes depend on the sample's seed only. Test files have no
labels where the official ones have none.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from flows.sample import labelled_rows as rows
from flows.sample.wording import tables
from pipelines.io.file_systems import file_system

_MAKERS: dict[str, Callable[[rows.Cast, int], list[rows.Row]]] = {
    "cola": rows.judged, "sst-2": rows.felt, "sts-b": rows.rated, "rte": rows.sequels,
    **{task: partial(rows.compared, task=task) for task in ("mrpc", "mnli", "qnli")},
}  # fmt: skip
TASKS = (*_MAKERS, "squad-2.0", "swag", "conll-2003")
"""Names of the labelled sets, as recipes say them."""


def write_labelled(folder: str, *, seed: int) -> str:
    """Write the labelled sets below `folder` (a path or fsspec URL) and return `FOLDER/tasks`.

    Args:
        seed: of the sample; the sets speak of the world of that seed.
    """
    fs, root = file_system(folder)
    base = f"{root.rstrip('/')}/tasks"
    everyone = rows.casts(seed)
    for task in TASKS:
        fs.makedirs(f"{base}/{task}", exist_ok=True)
        everyone[0].said.clear()  # which all three share
        for split, cast in enumerate(everyone):
            for name, text in _files(task, cast, split):
                fs.pipe_file(f"{base}/{task}/{name}", text.encode())
    return fs.unstrip_protocol(base) if "://" in folder else base


def _files(task: str, cast: rows.Cast, split: int) -> Iterable[tuple[str, str]]:
    """Name and text of a set's file of one split. SQuAD's test set was never published."""
    if task == "swag":
        yield f"{('train', 'val', 'test')[split]}.csv", _swag(cast, (240, 240, 200)[split])
    elif task == "conll-2003":
        yield f"eng.{('train', 'testa', 'testb')[split]}", _conll(cast, (400, 300, 200)[split])
    elif task == "squad-2.0":
        if cast.split != "test":
            yield f"{cast.split}-v2.0.json", _squad(cast, (240, 120)[split])
    else:
        table = tables("labelled")[task]
        made = _MAKERS[task](cast, table["counts"][split])
        name = table.get("names", rows.SPLITS)[split]
        yield f"{name}.tsv", _tsv(made, table["test" if cast.split == "test" else "columns"], cast)


def _tsv(made: list[rows.Row], columns: str, cast: rows.Cast) -> str:
    # As in GLUE's files: no quoting, so no cell may hold a tab or the end of a line.
    if not columns:  # CoLA's has no header
        return "".join(
            f"smpl\t{label}\t{'' if int(label) else '*'}\t{text}\n" for text, _, label in made
        )
    named = [column.split("=") for column in columns.split("|")]
    named = [pair for pair in named if pair[1] != "label" or cast.split != "test"]
    lines = ["\t".join(name for name, _ in named)]
    for index, row in enumerate(made):
        known = dict(zip(("index", "first", "second", "label"), (str(index), *row), strict=True))
        lines.append("\t".join(known.get(content, content) for _, content in named))
    return "\n".join(lines) + "\n"


def _squad(cast: rows.Cast, count: int) -> str:
    articles: dict[str, list[Any]] = {}
    for number, (title, text, questions) in enumerate(rows.passages(cast, count)):
        asked = [
            {
                "question": question.text,
                "id": f"{cast.split}-{number:03d}-{position}",
                "answers": [{"text": question.answer, "answer_start": question.start}]
                * bool(question.answer),
                "is_impossible": not question.answer,
            }
            for position, question in enumerate(questions)
        ]
        articles.setdefault(title, []).append({"qas": asked, "context": text})
    data = [{"title": title, "paragraphs": articles[title]} for title in articles]
    return json.dumps({"version": "v2.0", "data": data}, ensure_ascii=False) + "\n"


_SWAG = ["video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source",
         *(f"ending{number}" for number in range(4)), "label"]  # fmt: skip


def _swag(cast: rows.Cast, count: int) -> str:
    text = io.StringIO()
    last = -1 if cast.split == "test" else None  # without the label
    write = csv.writer(text, lineterminator="\n").writerow
    write(["", *_SWAG][:last])
    for index, (context, start, endings, right) in enumerate(rows.choices(cast, count)):
        phrase = (f"{context} {start}", context, start, "gold")
        write([index, f"sample_{index}", index, *phrase, *endings, right][:last])
    return text.getvalue()


def _conll(cast: rows.Cast, count: int) -> str:
    lines = []
    for number, sentence in enumerate(rows.tagged(cast, count)):
        lines += ["-DOCSTART- -X- O O", ""] if number % 10 == 0 else []
        lines += [*map(" ".join, sentence), ""]
    return "\n".join(lines) + "\n"
