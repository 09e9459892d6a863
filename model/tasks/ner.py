"""Named-entity recognition, and tagging of any words (paper 5.3, Table 7).

Files have one word per line (`model.tasks.column_files`), or are JSON Lines or Parquet as
`datasets` writes them: a sentence per row in `tokens` and `ner_tags`. There tags are names
(`B-LOC`) or numbers, with the names of the recipe's `labels` or of the Parquet schema.

A row is a document. A sentence with an invalid line counts as another row, which is dropped, so
that rows in = documents kept + sentences dropped. The rest of its document has the note
`without-a-sentence`.

Tags become IOB2. Each document that this changes has a note: `from-iob1` (an entity begins with I-,
and with B- only next to another of its type), `from-bioes` (or BILOU), or `tags-mended` if the file
follows no scheme. conlleval defines what an entity is (`model.tasks.entities`). If the tags are
roles without a type (B, I, O), all entities have the type ENTITY, and the note is `bare-tags`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from model.tasks.column_files import Document, Sentence, read_documents
from model.tasks.entities import OUTSIDE, entities_of, iob2, is_bare, is_tag, split_tag
from model.tasks.files import is_text, shown
from model.tasks.input_tables import Table, is_json_lines, is_parquet, open_rows
from model.tasks.task import (
    BadRow,
    FileLayout,
    InvalidRowError,
    Row,
    Task,
    convert_row,
    is_answered,
)
from schemas.errors import TaskDataError
from schemas.field_names import field_name

BARE_TAGS = "bare-tags"
_COLUMNS = {"words": (("tokens",), ("words",)), "tags": (("ner_tags",), ("tags",))}
_ENDINGS = ("conll", "txt", "tsv", "iob2", "bio")


def read_tags(task: Task, split: str, url: str) -> Iterator[Row | BadRow]:
    """Read the documents of a file; a `Reader`.

    Raises:
        TaskDataError: The file has no words, or no tags in a split that must have them, or a column
            of JSON Lines or Parquet is missing.
        InputError: The file is missing or damaged.
    """
    if is_parquet(url) or is_json_lines(url):
        documents = list(_read_rows(task, split, url))
    else:
        documents = list(read_documents(url, task.layout, split=split))
    tags = [item.tags for document in documents for item in _valid(document)]
    if is_answered(split) and None in tags:
        raise TaskDataError(
            f"{url}: expected a word and its tag per line of {task.name} {split}, found one "
            "column. It is the file of another split, or its columns have another separator"
        )
    _check_types(documents, url)
    note = _conversion(own for own in tags if own is not None)
    for document in documents:
        yield from _rows(document, note=note)


def _check_types(documents: Sequence[Document], url: str) -> None:
    """Check that all tags of a file have a type, or none.

    Raises:
        TaskDataError: Some have a type, and some have none.
    """
    first: dict[bool, str] = {}  # first tag without and with a type, and its position
    for document in documents:
        for tag in (tag for item in _valid(document) for tag in item.tags or ()):
            if tag != OUTSIDE:
                first.setdefault(is_bare(tag), f"{shown(tag)} ({document.position})")
    if len(first) == 2:
        raise TaskDataError(
            f"{url}: expected tags with a type, such as B-LOC, or only tags without one, got "
            f"{first[True]} without and {first[False]} with a type. Give all of them a type"
        )


def _valid(document: Document) -> list[Sentence]:
    return [item for item in document.sentences if isinstance(item, Sentence)]


def _rows(document: Document, *, note: str) -> Iterator[Row | BadRow]:
    yield from (item for item in document.sentences if isinstance(item, BadRow))
    sentences = _valid(document)
    if not sentences:
        return
    notes = ["without-a-sentence"] if len(sentences) < len(document.sentences) else []
    notes += dict.fromkeys(note for sentence in sentences for note in sentence.notes)
    tags: list[str] | None = None
    if sentences[0].tags is not None:
        original = [sentence.tags or [] for sentence in sentences]
        tags = [tag for own in original for tag in iob2(entities_of(own), words=len(own))]
        if tags != [tag for own in original for tag in own]:
            notes.append(BARE_TAGS if any(map(is_bare, itertools.chain(*original))) else note)
    values: dict[str, Any] = {
        "id": document.name,
        "sentence_lengths": [len(sentence.words) for sentence in sentences],
        "words": [word for sentence in sentences for word in sentence.words],
        "tags": tags,
    }
    yield Row(document.position, values, tuple(notes))


def _conversion(sentences: Iterable[Sequence[str]]) -> str:
    """Return the note of documents whose tags change: the scheme of the file."""
    begins_with_i = begins_with_b = False
    for tags in sentences:
        type_before = ""
        for role, type_ in map(split_tag, tags):
            if role in "ES":
                return "from-bioes"
            if type_ != type_before and type_:
                begins_with_i |= role == "I"
                begins_with_b |= role == "B"
            type_before = type_
    return "tags-mended" if begins_with_i and begins_with_b else "from-iob1"


# JSON Lines and Parquet


def _read_rows(task: Task, split: str, url: str) -> Iterator[Document]:
    """Read a file with a sentence per row. Each row is a document: rows have no document number."""
    table = open_rows(task, split, url)
    convert = partial(_sentence, table=table, task=task, split=split, url=url)
    for number, row in enumerate(table.rows(), start=1):
        yield Document(row.position, f"sentence-{number}", (convert_row(row, convert),))


def _sentence(row: Row, *, table: Table, task: Task, split: str, url: str) -> Sentence:
    words_column, tags_column = table.column("words"), table.column("tags")
    words, tags = row.values["words"], row.values.get("tags")
    if not isinstance(words, list) or not words:
        raise InvalidRowError("no-words", f"{words_column}: {shown(words)}")
    wrong = [word for word in words if not is_text(word) or not word.strip()]
    if wrong:
        raise InvalidRowError("no-word", f"{words_column}: {shown(repr(wrong[0]))}")
    if tags is None:
        if is_answered(split):
            raise InvalidRowError("no-tags", f"{tags_column}: {shown(tags)}")
        return Sentence(words, None)
    if not isinstance(tags, list) or len(tags) != len(words):
        found = f"{tags_column}: {shown(tags)}, expected a list of {len(words)}, one per word"
        raise InvalidRowError("tags-do-not-fit-words", found)
    names = table.names_of("tags", task.layout)
    if not names and any(type(tag) is int for tag in tags):
        raise TaskDataError(
            f"{url}: expected names of tags in {tags_column}, got the numbers {shown(tags)}, which "
            "the file does not name. Name them in order, e.g. O, B-PER, I-PER, by "
            f"{field_name('labels')}"
        )
    for at, tag in enumerate(tags):
        name = tag
        if type(tag) is int:
            name = names[tag] if 0 <= tag < len(names) else None
        if not (is_text(name) and is_tag(name)):
            expected = f"{OUTSIDE} or such as B-LOC, I-LOC"
            if names:
                expected = f"a number from 0 to {len(names) - 1}, or one of {', '.join(names)}"
            found = f"{tags_column}: {shown(repr(tag))}, expected {expected}"
            raise InvalidRowError("unknown-tag", found)
        tags[at] = name
    return Sentence(words, tags)


# Tasks


def _task(
    name: str,
    title: str,
    splits: Mapping[str, tuple[str, ...]],
    *,
    is_cased: bool | None = True,
    allows_comments: bool = False,
    **fields: Any,
) -> Task:
    return Task(
        name=name,
        title=title,
        type="tagging",
        splits=splits,
        reader=read_tags,
        layout=FileLayout(columns=_COLUMNS, allows_comments=allows_comments),
        metrics=("entity-f1", "entity-precision", "entity-recall"),
        is_cased=is_cased,
        max_seq_length=512,  # paper 5.3: as much of the document as there is
        **fields,
    )


_CONLL_2003 = _task(
    "conll-2003",
    "CoNLL-2003",
    {
        "train": ("train.txt", "eng.train", "eng.train.txt", "train.conll", "*.train", "train"),
        "dev": (
            *("valid.txt", "dev.txt", "testa.txt", "eng.testa", "eng.testa.txt"),
            *("valid.conll", "dev.conll", "*.testa", "testa", "dev", "validation", "valid"),
        ),
        "test": (
            *("test.txt", "testb.txt", "eng.testb", "eng.testb.txt", "test.conll"),
            *("*.testb", "testb", "test"),
        ),
    },
    sizes={"train": 14_041, "dev": 3_250, "test": 3_453},
    paper={f"{split}/entity-f1": ("table-7", split) for split in ("dev", "test")},
)

_TAGGING = _task(
    "tagging",
    "Tagging",
    {
        "train": (*(f"train.{end}" for end in _ENDINGS), "train"),
        "dev": (
            *(f"{name}.{end}" for name in ("dev", "valid") for end in _ENDINGS),
            *("dev", "validation", "valid"),
        ),
        "test": (*(f"test.{end}" for end in _ENDINGS), "test"),
    },
    is_cased=None,
    allows_comments=True,
    can_split_train=True,
)
"""Any files with the word in the first column and its tag in the last, or in `tokens` and
`ner_tags`."""

NER_TASKS: dict[str, Task] = {task.name: task for task in (_CONLL_2003, _TAGGING)}
"""NER tasks by name."""
