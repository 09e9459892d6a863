"""Tagged sentences as JSON Lines or Parquet, one sentence per row: `tokens` and `ner_tags`.

`datasets` writes this form. Tags are names (`B-LOC`) or numbers. The names of numbers are those of
the recipe's `labels`, or those that `datasets` stores in the Parquet schema. Each row is a separate
document, because rows have no document number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from model.tasks.columns import Document, Sentence
from model.tasks.entities import OUTSIDE, is_tag
from model.tasks.files import is_text, shown
from model.tasks.named_columns import TAGS, WORDS, NamedColumns, label_names, place_of
from model.tasks.raw_tables import (
    RawTable,
    Record,
    is_json_lines,
    is_parquet,
    open_json,
    open_parquet,
)
from model.tasks.task import Bad, Task, is_answered
from schemas.errors import TaskDataError

_WORDS, _TAGS = ("tokens", "words"), ("ner_tags", "tags")


class _Columns(NamedTuple):
    """Columns of a file, and the names of tags that it holds as numbers."""

    words: str
    tags: str | None
    names: tuple[str, ...]


def has_tagged_rows(url: str) -> bool:
    """Return whether a file is Parquet or JSON Lines, by its first bytes."""
    return is_parquet(url) or is_json_lines(url)


def read_tagged_rows(task: Task, split: str, url: str) -> Iterator[Document]:
    """Read a file, one document per row.

    Raises:
        TaskDataError: A column is missing, or tags are numbers without names.
        InputError: The file is missing or damaged.
    """
    table = open_parquet(url) if is_parquet(url) else open_json(url)
    columns = _find_columns(table, task=task, split=split, url=url)
    wanted = [columns.words, *([columns.tags] if columns.tags else [])]
    for number, record in enumerate(table.records(wanted), start=1):
        sentence = record if isinstance(record, Bad) else _sentence(record, columns, split, url)
        name = f"sentence-{number}"
        if isinstance(sentence, Bad):
            yield Document(record.position, name, (), (sentence,))
        else:
            yield Document(record.position, name, (sentence,), ())


def _find_columns(table: RawTable, *, task: Task, split: str, url: str) -> _Columns:
    named: NamedColumns | None = task.columns.get("named")
    found: dict[str, str | None] = {}
    for name, usual in ((WORDS, _WORDS), (TAGS, _TAGS)):
        is_needed = name == WORDS or is_answered(split)
        if named is None:
            found[name] = next((column for column in usual if column in table.columns), None)
        else:
            at = place_of(
                named.columns[name],
                table.columns,
                header=table.columns,
                url=url,
                name=name,
                is_needed=is_needed,
            )
            found[name] = None if at is None else table.columns[at]
        if is_needed and found[name] is None:
            raise TaskDataError(
                f"{url}: expected a column {' or '.join(usual)} ({name}) of {task.name} {split}, "
                f"got the columns {', '.join(table.columns)}. Name yours: columns: "
                "{words: COLUMN, tags: COLUMN}"
            )
    tags = found[TAGS]
    return _Columns(str(found[WORDS]), tags, label_names(task, table, tags))


def _sentence(record: Record, columns: _Columns, split: str, url: str) -> Sentence | Bad:
    words = record.values.get(columns.words)
    tags = record.values.get(columns.tags) if columns.tags else None
    if not isinstance(words, list) or not words:
        return Bad(record.position, "no-words", f"{columns.words}: {shown(words)}")
    wrong = next((word for word in words if not is_text(word) or not word.strip()), None)
    if wrong is not None:
        return Bad(record.position, "no-word", f"{columns.words}: {shown(repr(wrong))}")
    if tags is None:
        if is_answered(split):
            return Bad(record.position, "no-tags", f"{columns.tags}: {shown(tags)}")
        return Sentence(words, None)
    if not isinstance(tags, list) or len(tags) != len(words):
        found = f"{columns.tags}: {shown(tags)}, expected a list of {len(words)}, one per word"
        return Bad(record.position, "tags-do-not-fit-words", found)
    names = [_name(tag, columns, url) for tag in tags]
    for name, tag in zip(names, tags, strict=True):
        if name is None:
            found = f"{columns.tags}: {shown(repr(tag))}, expected {_expected(columns.names)}"
            return Bad(record.position, "unknown-tag", found)
    return Sentence(words, [name for name in names if name is not None])


def _name(tag: Any, columns: _Columns, url: str) -> str | None:
    """Return the name of a tag, or None if it has none."""
    if isinstance(tag, int) and not isinstance(tag, bool):
        if not columns.names:
            raise TaskDataError(
                f"{url}: expected names of tags in {columns.tags}, got the number {tag}, and the "
                "file does not name its numbers. Name them in order: labels: [O, B-PER, I-PER] (or "
                "--labels O,B-PER,I-PER)"
            )
        tag = columns.names[tag] if 0 <= tag < len(columns.names) else None
    return tag if isinstance(tag, str) and is_text(tag) and is_tag(tag) else None


def _expected(names: Sequence[str]) -> str:
    if names:
        return f"a number from 0 to {len(names) - 1} ({', '.join(names)}), or one of these names"
    return f"{OUTSIDE} or such as B-LOC, I-LOC"
