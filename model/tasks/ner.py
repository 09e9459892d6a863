"""Named-entity recognition, and tagging of any words (paper 5.3, Table 7).

Files have one word per line as in the CoNLL shared tasks, or are JSON Lines or Parquet as
`datasets` writes them: a sentence per row in `tokens` and `ner_tags`. There tags are names
(`B-LOC`) or numbers, with the names of the recipe's `labels` or of the Parquet schema.

A line of a CoNLL file has the word first and its tag last, or in the columns that a recipe names.
Sentences end at blank lines, documents at `-DOCSTART-` lines. In a file without such lines, and in
JSON Lines and Parquet, every sentence is a separate document, because neighboring sentences may be
unrelated.

A row of examples is a document. A sentence with an invalid line counts as another row, which is
dropped, so that rows in = documents kept + sentences dropped. The rest of its document has the note
`without-a-sentence`.

Tags become IOB2. Each document that this changes has a note: `from-bioes` (or BILOU), `bare-tags`
(roles without a type, such as B, I, O: all entities have the type ENTITY), otherwise `from-iob1`.

conlleval defines what an entity is (Tjong Kim Sang 2000, 2003): an `I-LOC` that does not follow an
entity of type LOC starts one. This reads IOB1, IOB2, IO and BIOES alike, and the invalid sequences
that models produce.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from model.tasks.files import DataFile, is_text, open_data, shown
from model.tasks.tables import Table, find_fields, number_columns, read_table
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

OUTSIDE = "O"
UNNAMED_TYPE = "ENTITY"
"""Type of entities whose tags have none."""

TAG_SHAPE = re.compile(r"([BIESLU])(?:-(.*\S.*))?", re.DOTALL)
"""Pattern of a tag inside an entity: role and type. L and U are BILOU's names of E and S."""

_ROLES = {"L": "E", "U": "S"}

BARE_TAGS = "bare-tags"
_COLUMNS = {"words": (("tokens",), ("words",)), "tags": (("ner_tags",), ("tags",))}
_ENDINGS = ("conll", "txt", "tsv", "iob2", "bio")
_MARK = re.compile(r"-DOCSTART-([ \t]|$)")
_BLANK = " \t\r"
_SPACES = re.compile("[ \t]+")  # no other space ends a word: U+00A0 may be one


class Sentence(NamedTuple):
    """Valid sentence. `tags` are as in the file; None in a file without tags."""

    words: list[str]
    tags: list[str] | None


def read_tags(task: Task, split: str, url: str) -> Iterator[Row | BadRow]:
    """Read the documents of a file; a `Reader`.

    Raises:
        TaskDataError: The file has no words, or no tags in a split that must have them, or a column
            is missing.
        InputError: The file is missing or damaged.
    """
    with open_data(url) as data:
        if data.format in ("parquet", "json-lines"):
            yield from _read_rows(data, task, split)
        else:
            yield from _read_conll(data, task, split)


def _to_rows(
    position: str, name: str, parsed: Sequence[Sentence | BadRow]
) -> Iterator[Row | BadRow]:
    """Yield the bad sentences of a document, and the document with the others.

    Args:
        position: First line or row of the document, for messages: `line 17`, `row 3`.
        name: `document-3` or, in a file without marks, `sentence-3`, counted from 1 in the file.
        parsed: Sentences between two `-DOCSTART-` lines, or one sentence.
    """
    yield from (item for item in parsed if isinstance(item, BadRow))
    sentences = [item for item in parsed if isinstance(item, Sentence)]
    if not sentences:
        return
    notes = ["without-a-sentence"] if len(sentences) < len(parsed) else []
    original = [sentence.tags for sentence in sentences if sentence.tags is not None]
    tags = [tag for own in original for tag in iob2(entities_of(own), words=len(own))]
    if tags != (old := list(itertools.chain(*original))):
        notes.append(_find_scheme(old))
    values: dict[str, Any] = {
        "id": name,
        "sentence_lengths": [len(sentence.words) for sentence in sentences],
        "words": [word for sentence in sentences for word in sentence.words],
        "tags": tags if original else None,
    }
    yield Row(position, values, tuple(notes))


def _find_scheme(tags: Sequence[str]) -> str:
    """Return the note of a document with tags in another scheme than IOB2."""
    if any(map(is_bare, tags)):
        return BARE_TAGS
    return "from-bioes" if any(split_tag(tag)[0] in "ES" for tag in tags) else "from-iob1"


# Tags


class Entity(NamedTuple):
    """Words start .. end - 1 of a sentence."""

    start: int
    end: int
    type: str


def is_tag(text: str) -> bool:
    """Return whether a text is a tag: `O`, or a role of B I E S L U, alone or with a hyphen and a
    type."""
    return text == OUTSIDE or TAG_SHAPE.fullmatch(text) is not None


def entities_of(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of one sentence, in order and without overlaps.

    Raises:
        ValueError: A text is not a tag (`is_tag`).
    """
    entities: list[Entity] = []
    is_open = False  # whether the next tag can extend the last entity
    for position, tag in enumerate(tags):
        role, type_ = split_tag(tag)
        if is_open and role in "IE" and type_ == entities[-1].type:
            entities[-1] = entities[-1]._replace(end=position + 1)
        elif role != OUTSIDE:
            entities.append(Entity(position, position + 1, type_))
        is_open = role not in (OUTSIDE, "E", "S")
    return entities


def iob2(entities: Iterable[Entity], *, words: int) -> list[str]:
    """Return the IOB2 tags of a sentence: every entity begins with B-."""
    tags = [OUTSIDE] * words
    for start, end, type_ in entities:
        tags[start] = f"B-{type_}"
        tags[start + 1 : end] = [f"I-{type_}"] * (end - start - 1)
    return tags


def is_bare(tag: str) -> bool:
    """Return whether a tag is a role without a type."""
    return len(tag) == 1 and tag != OUTSIDE


def split_tag(tag: str) -> tuple[str, str]:
    """Return role (O B I E S) and type of a tag; the type of O is "".

    Raises:
        ValueError: The text is not a tag (`is_tag`).
    """
    if tag == OUTSIDE:
        return OUTSIDE, ""
    match = TAG_SHAPE.fullmatch(tag)
    if match is None:
        raise ValueError(f"expected O or a tag such as B-LOC, found {tag!r}")
    role, type_ = match.groups()
    return _ROLES.get(role, role), type_ or UNNAMED_TYPE


# CoNLL


class _Line(NamedTuple):
    """Line with a word."""

    number: int
    text: str
    """Text, in which bytes that are not UTF-8 are surrogates."""

    document: int
    """Number of `-DOCSTART-` lines before it."""

    sentence: int
    """Number of its sentence in the file, from 1."""


class _Columns(NamedTuple):
    """Columns of a file of tagged words, counted from 0."""

    words: int
    tags: int | None
    size: int
    is_exact: bool
    """False if a line can have more than `size` columns, because a recipe names those to read."""


def _read_conll(data: DataFile, task: Task, split: str) -> Iterator[Row | BadRow]:
    """Yield the documents of a file with a word per line."""
    header = _split_line(data.first_line.decode(errors="replace"))
    has_header = task.layout.has_header(header)
    lines = list(_word_lines(data, has_header=has_header))
    if not lines:
        raise TaskDataError(
            f"{data.url}: expected a word and its tag per line, got no such line. Is it empty?"
        )
    names = header if has_header else number_columns(_split_line(lines[0].text))
    columns = _find_columns(data, names, lines[0], task, split)
    unit = "document" if lines[-1].document else "sentence"
    documents = itertools.groupby(lines, operator.attrgetter(unit))
    for number, (_, own) in enumerate(documents, start=1):
        by_sentence = itertools.groupby(own, operator.attrgetter("sentence"))
        sentences = [list(group) for _, group in by_sentence]
        parsed = [_parse_sentence(sentence, columns) for sentence in sentences]
        yield from _to_rows(f"line {sentences[0][0].number}", f"{unit}-{number}", parsed)


def _word_lines(data: DataFile, *, has_header: bool) -> Iterator[_Line]:
    """Yield the lines of words, without marks, the header, and comments before sentences."""
    document = sentence = 0
    is_start = True
    for number, raw in enumerate(data.lines(), start=1):
        text = raw.decode(errors="surrogateescape")
        is_mark = text.startswith("-") and _MARK.match(text) is not None
        if is_mark or not text.strip(_BLANK):
            document += is_mark
            is_start = True
        elif has_header:
            has_header = False
        elif not (is_start and _is_comment(text)):
            sentence += is_start
            is_start = False
            yield _Line(number, text, document, sentence)


def _split_line(text: str) -> list[str]:
    """Split a line at its tabs if it has any, otherwise at its spaces."""
    if "\t" in text:
        return [cell.strip(" \r") for cell in text.rstrip(_BLANK).split("\t")]
    return _SPACES.split(text.strip(_BLANK))


def _is_comment(text: str) -> bool:
    """Return whether a line at the start of a sentence is a comment, such as `# id 7`.

    It is a word if it ends in a tag. A comment may end in a single letter, so a tag without a type
    must be the second of two cells.
    """
    if not text.startswith("# "):
        return False
    cells = _split_line(text)
    is_word = is_tag(cells[-1]) and (not is_bare(cells[-1]) or len(cells) == 2)
    return not is_word


def _find_columns(
    data: DataFile, names: Sequence[str], line: _Line, task: Task, split: str
) -> _Columns:
    """Return the columns that the recipe names, or the first and the last of the first line."""
    cells = _split_line(line.text)
    if not task.layout.named_columns:
        tags = len(cells) - 1 if len(cells) > 1 else None
        if tags is None and is_answered(split):
            raise TaskDataError(
                f"{data.url}: line {line.number}: expected a word and its tag for {task.name} "
                f"{split}, got one column: {shown(cells[0])}. It is the file of another split, or "
                "its columns have another separator than tabs or spaces"
            )
        return _Columns(0, tags, len(cells), True)
    fields = find_fields(names, task, split, data.url)
    words = names.index(fields["words"][0])
    tags = names.index(fields["tags"][0]) if "tags" in fields else None
    return _Columns(words, tags, max(words, tags or 0) + 1, False)


def _parse_sentence(lines: Sequence[_Line], columns: _Columns) -> Sentence | BadRow:
    words, tags = list[str](), list[str]()
    for line in lines:
        try:
            word, tag = _parse_line(line, columns)
        except InvalidRowError as error:
            size = f"{len(lines)} word{'s' if len(lines) > 1 else ''}"
            detail = f"{error.detail}, in a sentence of {size}"
            return BadRow(f"line {line.number}", error.reason, detail)
        words.append(word)
        tags.append(tag)
    return Sentence(words, tags if columns.tags is not None else None)


def _parse_line(line: _Line, columns: _Columns) -> tuple[str, str]:
    """Return the word and the tag of a line."""
    if not is_text(line.text):
        raise InvalidRowError("not-utf-8", shown(line.text))
    cells, size = _split_line(line.text), columns.size
    if len(cells) < size or (columns.is_exact and len(cells) > size):
        reason = f"too-{'few' if len(cells) < size else 'many'}-columns"
        expected = f"{size}" if columns.is_exact else f"{size} or more"
        detail = f"{len(cells)} columns, expected {expected}: {shown(' '.join(cells))}"
        raise InvalidRowError(reason, detail)
    word = cells[columns.words]
    tag = OUTSIDE if columns.tags is None else cells[columns.tags]
    if not word:
        raise InvalidRowError("no-word", shown(" ".join(cells)))
    if not is_tag(tag):
        detail = f"{shown(tag)} in column {columns.tags} of {shown(' '.join(cells))}"
        raise InvalidRowError(
            "unknown-tag",
            f"{detail}, expected {OUTSIDE} or such as B-LOC, I-LOC. The tags of other columns are "
            f"read by {field_name('columns.words')} and {field_name('columns.tags')}",
        )
    return word, tag


# JSON Lines and Parquet


def _read_rows(data: DataFile, task: Task, split: str) -> Iterator[Row | BadRow]:
    """Yield the sentences of a file with a sentence per row."""
    table = read_table(data, task, split)
    convert = partial(_convert_sentence, table=table, task=task, split=split, url=data.url)
    for number, row in enumerate(table.rows, start=1):
        yield from _to_rows(row.position, f"sentence-{number}", [convert_row(row, convert)])


def _convert_sentence(row: Row, *, table: Table, task: Task, split: str, url: str) -> Sentence:
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
        detail = f"{tags_column}: {shown(tags)}, expected a list of {len(words)}, one per word"
        raise InvalidRowError("tags-do-not-fit-words", detail)
    names = table.names_of("tags", task.layout)
    if not names and any(type(tag) is int for tag in tags):
        raise TaskDataError(
            f"{url}: expected names of tags in {tags_column}, got the numbers {shown(tags)}, which "
            "the file does not name. Name them in order, e.g. O, B-PER, I-PER, by "
            f"{field_name('labels')}"
        )
    return Sentence(words, [_name_tag(tag, names, tags_column) for tag in tags])


def _name_tag(tag: Any, names: Sequence[str], column: str) -> str:
    name = tag
    if type(tag) is int:
        name = names[tag] if 0 <= tag < len(names) else None
    if is_text(name) and is_tag(name):
        return str(name)
    expected = f"{OUTSIDE} or such as B-LOC, I-LOC"
    if names:
        expected = f"a number from 0 to {len(names) - 1}, or one of {', '.join(names)}"
    raise InvalidRowError("unknown-tag", f"{column}: {shown(repr(tag))}, expected {expected}")


# Tasks


def _task(
    name: str,
    title: str,
    splits: Mapping[str, tuple[str, ...]],
    *,
    is_cased: bool | None = True,
    **fields: Any,
) -> Task:
    return Task(
        name=name,
        title=title,
        type="tagging",
        splits=splits,
        reader=read_tags,
        layout=FileLayout(columns=_COLUMNS),
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
    can_split_train=True,
)
"""Any files with the word in the first column and its tag in the last, or in `tokens` and
`ner_tags`."""

NER_TASKS: dict[str, Task] = {task.name: task for task in (_CONLL_2003, _TAGGING)}
"""NER tasks by name."""
