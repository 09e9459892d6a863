"""The sample's labelled sets: six small tasks about the sample world, in the official formats.

    tasks/cola        sentences, well-formed or not         train.tsv, dev.tsv, test.tsv
    tasks/rte         pairs, the second goes on or not      train.tsv, dev.tsv, test.tsv
    tasks/sts-b       pairs and how near they are, 0 to 5   train.tsv, dev.tsv, test.tsv
    tasks/squad-2.0   passages and questions                train-v2.0.json, dev-v2.0.json
    tasks/swag        four endings, one of them right       train.csv, val.csv, test.csv
    tasks/conll-2003  names in text                         eng.train, eng.testa, eng.testb

What decides a label is what the corpus teaches: which word fits where, what is said of one topic,
what comes next, how names look. Regions and sentences of `train` are in no other split. The bytes
depend on the sample's seed only. Test files have no labels where the official ones have none.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flows.sample.labelled_cast import Cast, casts
from flows.sample.labelled_names import tagged
from flows.sample.labelled_order import judged
from flows.sample.labelled_questions import Passage, passages
from flows.sample.labelled_sequels import choices, pairs
from flows.sample.labelled_topics import rated
from pipelines.io.file_systems import file_system

_SENTENCES = {"train": 600, "dev": 300, "test": 200}
_ROWS = {"train": 400, "dev": 300, "test": 200}
_CHOICES = {"train": 240, "dev": 240, "test": 200}
_PASSAGES = {"train": 240, "dev": 120}
"""Each has up to three questions. SQuAD's test set was never published, so there is none here."""


def write_labelled(folder: str, *, seed: int) -> str:
    """Write the labelled sets below `folder` (a path or fsspec URL) and return `FOLDER/tasks`.

    Args:
        seed: of the sample; the sets speak of the world of that seed.
    """
    fs, root = file_system(folder)
    base = f"{root.rstrip('/')}/tasks"
    everyone = casts(seed)
    for task, write in _TASKS.items():
        fs.makedirs(f"{base}/{task}", exist_ok=True)
        for name, text in write(everyone).items():
            fs.pipe_file(f"{base}/{task}/{name}", text.encode())
    return fs.unstrip_protocol(base) if "://" in folder else base


def _cola(everyone: list[Cast]) -> dict[str, str]:
    known: set[str] = set()
    files = {}
    for cast in everyone:
        rows = judged(cast, _SENTENCES[cast.split], known=known)
        if cast.split == "test":
            table: list[Sequence[Any]] = [("index", "sentence")]
            table += [(index, row.text) for index, row in enumerate(rows)]
        else:
            marks = {True: "", False: "*"}
            table = [("smpl", int(row.is_good), marks[row.is_good], row.text) for row in rows]
        files[f"{cast.split}.tsv"] = _tsv(table)
    return files


def _rte(everyone: list[Cast]) -> dict[str, str]:
    known: set[str] = set()
    files = {}
    for cast in everyone:
        rows = pairs(cast, _ROWS[cast.split], known=known)
        is_test = cast.split == "test"
        table: list[Sequence[Any]] = [
            ("index", "sentence1", "sentence2", *(() if is_test else ("label",)))
        ]
        for index, row in enumerate(rows):
            label = "entailment" if row.follows else "not_entailment"
            table.append((index, row.first, row.second, *(() if is_test else (label,))))
        files[f"{cast.split}.tsv"] = _tsv(table)
    return files


def _sts_b(everyone: list[Cast]) -> dict[str, str]:
    known: set[str] = set()
    files = {}
    for cast in everyone:
        rows = rated(cast, _ROWS[cast.split], known=known)
        is_test = cast.split == "test"
        table: list[Sequence[Any]] = [(
            "index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1",
            "sentence2", *(() if is_test else ("score",)),
        )]  # fmt: skip
        for index, row in enumerate(rows):
            score = () if is_test else (f"{row.score:.3f}",)
            about = ("main-sample", "samplewiki", "2026sample", f"{index:04d}", "none", "none")
            table.append((index, *about, row.first, row.second, *score))
        files[f"{cast.split}.tsv"] = _tsv(table)
    return files


def _squad(everyone: list[Cast]) -> dict[str, str]:
    known: set[str] = set()
    files = {}
    for cast in everyone:
        if cast.split in _PASSAGES:
            found = passages(cast, _PASSAGES[cast.split], known=known)
            files[f"{cast.split}-v2.0.json"] = _squad_json(cast, found)
    return files


def _squad_json(cast: Cast, found: list[Passage]) -> str:
    articles: dict[str, list[Any]] = {}
    for number, passage in enumerate(found):
        questions = []
        for position, question in enumerate(passage.questions):
            answers = [{"text": question.answer, "answer_start": question.start}]
            questions.append({
                "question": question.text,
                "id": f"{cast.split}-{number:03d}-{position}",
                "answers": answers if question.answer else [],
                "is_impossible": not question.answer,
            })  # fmt: skip
        paragraph = {"qas": questions, "context": passage.text}
        articles.setdefault(passage.title, []).append(paragraph)
    data = [{"title": title, "paragraphs": articles[title]} for title in articles]
    return json.dumps({"version": "v2.0", "data": data}, ensure_ascii=False) + "\n"


def _swag(everyone: list[Cast]) -> dict[str, str]:
    known: set[str] = set()
    files = {}
    for cast in everyone:
        is_test = cast.split == "test"
        table: list[Sequence[Any]] = [(
            "", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source", "ending0",
            "ending1", "ending2", "ending3", *(() if is_test else ("label",)),
        )]  # fmt: skip
        for index, row in enumerate(choices(cast, _CHOICES[cast.split], known=known)):
            start = f"{row.context} {row.start}"
            table.append((
                index, f"sample_{index}", index, start, row.context, row.start, "gold",
                *row.endings, *(() if is_test else (row.right,)),
            ))  # fmt: skip
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(table)
        files[f"{'val' if cast.split == 'dev' else cast.split}.csv"] = text.getvalue()
    return files


def _conll(everyone: list[Cast]) -> dict[str, str]:
    known: set[str] = set()
    names = {"train": "eng.train", "dev": "eng.testa", "test": "eng.testb"}
    files = {}
    for cast in everyone:
        lines = []
        for document in tagged(cast, _ROWS[cast.split], known=known):
            lines += ["-DOCSTART- -X- O O", ""]
            for sentence in document:
                lines += [" ".join(word) for word in sentence]
                lines.append("")
        files[names[cast.split]] = "\n".join(lines) + "\n"
    return files


def _tsv(table: Iterable[Sequence[Any]]) -> str:
    # As in GLUE's files: no quoting, so no cell may hold a tab or the end of a line.
    return "".join("\t".join(map(str, row)) + "\n" for row in table)


_TASKS: dict[str, Callable[[list[Cast]], dict[str, str]]] = {
    "cola": _cola, "rte": _rte, "sts-b": _sts_b, "squad-2.0": _squad, "swag": _swag,
    "conll-2003": _conll,
}  # fmt: skip
TASKS = tuple(_TASKS)
"""Names of the labelled sets, as recipes say them."""
