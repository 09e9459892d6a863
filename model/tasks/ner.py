"""Named-entity recognition, and tagging of any files in columns (paper 5.3, Table 7).

Files are in columns (`model.tasks.columns`), or JSON Lines or Parquet (`model.tasks.tagged_rows`).
A row is a document. A sentence with an invalid line is counted as a separate row that
was dropped, at that line, so that rows in = documents kept + sentences dropped, and
`max_invalid_fraction` sees it. The document it was in, without it, has the note
`without-a-sentence`.

Tags become IOB2 whatever the file has. Each document in which that changed something has a note:
`from-iob1` (an entity begins with I-, and with B- only where it touches another of its type; files
that have I- alone are read as such too), `from-bioes` (with BILOU), or `tags-mended` where the file
follows no scheme. What an entity is, is what conlleval says (`model.tasks.entities`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from model.tasks.columns import Document, Sentence, read_documents
from model.tasks.entities import OUTSIDE, entities_of, iob2
from model.tasks.official_files import row_globs
from model.tasks.one_file import elsewhere, split_of
from model.tasks.tagged_rows import has_tagged_rows, read_tagged_rows
from model.tasks.task import Bad, Row, Task, is_answered
from schemas.errors import TaskDataError

_METRICS = ("entity-f1", "entity-precision", "entity-recall")
_SHARES = {"train": 0.7, "dev": 0.15, "test": 0.15}


def read_tags(task: Task, split: str, url: str) -> Iterator[Row | Bad]:
    """The documents of a file; a `Reader`.

    `task.columns` may have `shares`, by split: then every file is the whole set, and the documents
    of the split are taken (`model.tasks.one_file`); and `allows_comments`.

    Raises:
        TaskDataError: there is no word in the file, or no tag in one that is trained on, or a
            column of JSON Lines or Parquet is missing.
        InputError: it is missing or damaged.
    """
    if has_tagged_rows(url):
        documents = list(read_tagged_rows(task, split, url))
    else:
        documents = list(
            read_documents(
                url,
                allows_comments=task.columns.get("allows_comments", False),
                named=task.columns.get("named"),
                needs_tags=is_answered(split),
            )
        )
    sentences = [sentence for document in documents for sentence in document.sentences]
    if is_answered(split) and any(sentence.tags is None for sentence in sentences):
        raise TaskDataError(
            f"{url}: expected a word and its tag on a line of {task.name} {split}, found one "
            "column. It is the file of another split, or its columns are not cut by tabs or spaces"
        )
    note = _conversion([sentence.tags for sentence in sentences if sentence.tags is not None])
    shares = task.columns.get("shares")
    for document in documents:
        if shares is not None:
            words = [word for sentence in document.sentences for word in sentence.words]
            belongs = split_of(" ".join(words), task=task.name, shares=shares)
            if belongs != split:
                yield elsewhere(document.position, belongs)
                continue
        yield from _rows(document, note=note)


def _rows(document: Document, *, note: str) -> Iterator[Row | Bad]:
    yield from document.lost
    if not document.sentences:
        return
    notes = ["without-a-sentence"] if document.lost else []
    notes += dict.fromkeys(note for sentence in document.sentences for note in sentence.notes)
    tags: list[str] | None = None
    if document.sentences[0].tags is not None:
        tags = [tag for sentence in document.sentences for tag in _iob2_of(sentence)]
        if tags != [tag for sentence in document.sentences for tag in sentence.tags or ()]:
            notes.append(note)
    values: dict[str, Any] = {
        "id": document.name,
        "sentence_lengths": [len(sentence.words) for sentence in document.sentences],
        "words": [word for sentence in document.sentences for word in sentence.words],
        "tags": tags,
    }
    yield Row(document.position, values, tuple(notes))


def _iob2_of(sentence: Sentence) -> list[str]:
    tags = sentence.tags or []
    return iob2(entities_of(tags), words=len(tags))


def _conversion(sentences: Iterable[Sequence[str]]) -> str:
    """The note of documents whose tags are changed: which scheme the file follows."""
    begins_with_i = begins_with_b = False
    for tags in sentences:
        if any(tag[0] in "ESLU" for tag in tags):
            return "from-bioes"
        type_before = ""
        for tag in tags:
            type_ = "" if tag == OUTSIDE else tag[2:]
            if type_ != type_before and type_:
                begins_with_i |= tag[0] == "I"
                begins_with_b |= tag[0] == "B"
            type_before = type_
    return "tags-mended" if begins_with_i and begins_with_b else "from-iob1"


def _task(name: str, title: str, splits: dict[str, tuple[str, ...]], **others: Any) -> Task:
    return Task(
        name=name,
        title=title,
        type="tagging",
        splits=splits,
        reader=read_tags,
        metrics=_METRICS,
        is_cased=others.pop("is_cased", True),
        max_seq_length=512,  # paper 5.3: as much of the document as there is
        **others,
    )


_CONLL_2003 = _task(
    "conll-2003",
    "CoNLL-2003",
    {
        "train": (
            *("train.txt", "eng.train", "eng.train.txt", "train.conll", "*.train"),
            *row_globs("train"),
        ),
        "dev": (
            *("valid.txt", "dev.txt", "testa", "testa.txt", "eng.testa", "eng.testa.txt"),
            *("valid.conll", "dev.conll", "*.testa"),
            *row_globs("dev", "validation", "valid"),
        ),
        "test": (
            *("test.txt", "testb", "testb.txt", "eng.testb", "eng.testb.txt", "test.conll"),
            "*.testb",
            *row_globs("test"),
        ),
    },
    sizes={"train": 14_041, "dev": 3_250, "test": 3_453},
    paper={
        "dev/entity-f1": ("table-7", "dev"),
        "test/entity-f1": ("table-7", "test"),
    },
)

_WIKIGOLD = _task(
    "wikigold",
    "WikiGold",
    dict.fromkeys(_SHARES, ("wikigold.conll.txt", "wikigold.conll", "data/wikigold.conll.txt")),
    columns={"shares": _SHARES},
)
"""One file, which every split is given whole: a document goes to train, dev or test with chances of
70, 15 and 15 of a hundred, by a fixed rule. Of the published file's 145 documents that makes 108,
18 and 19 (28,739, 6,496 and 3,772 words). For other splits use the task `tagging`."""

_WNUT17 = _task(
    "wnut17",
    "WNUT 2017",
    {
        "train": ("wnut17train.conll", "train.conll", "train.txt", *row_globs("train")),
        "dev": (
            *("emerging.dev.conll", "dev.conll", "dev.txt"),
            *row_globs("dev", "validation", "valid"),
        ),
        "test": (
            *("emerging.test.annotated", "emerging.test.conll", "test.conll", "test.txt"),
            *row_globs("test"),
        ),
    },
    sizes={"train": 3_394, "dev": 1_009, "test": 1_287},
)
"""WNUT has no document marks, and neighboring sentences are posts of different people, so each
sentence is a document."""

_TAGGING = _task(
    "tagging",
    "Tagging",
    {
        "train": (
            *("train.conll", "train.txt", "train.tsv", "train.iob2", "train.bio", "train"),
            *row_globs("train"),
        ),
        "dev": (
            *("dev.conll", "dev.txt", "dev.tsv", "dev.iob2", "dev.bio", "dev"),
            *("valid.conll", "valid.txt", "valid.tsv", "valid"),
            *row_globs("dev", "validation", "valid"),
        ),
        "test": (
            *("test.conll", "test.txt", "test.tsv", "test.iob2", "test.bio", "test"),
            *row_globs("test"),
        ),
    },
    columns={"allows_comments": True},
    is_cased=None,
)
"""Any files with the word in the first column and its tag in the last, or in `tokens` and
`ner_tags`."""

NER_TASKS: dict[str, Task] = {
    task.name: task for task in (_CONLL_2003, _WIKIGOLD, _WNUT17, _TAGGING)
}
"""NER tasks by name."""
