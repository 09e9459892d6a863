"""TriviaQA (Joshi et al. 2017) as questions on passages, to train on before SQuAD (paper 4.2).

The official files: `qa/*.json`, whose `Data` is a list of questions, each with its answer, the
answer's aliases and the documents that may hold it; and below `evidence` the documents' texts,
`wikipedia/NAME` for `EntityPages` and `web/NAME` for `SearchResults`. The unfiltered questions have
the same form and the same evidence.

A row is a question on one of its documents. The passage is the document's first 400 tokens, as in
the paper; a token is a word or a punctuation mark. The paper keeps passages "that contain at least
one of the provided possible answers": here an answer or alias matches if its tokens occur
consecutively, ignoring case. The first match counts, the longest at that position. So every answer
is a span of the text, unlike in the official `convert_to_squad_format.py`, which lower-cases
answers and matches inside words.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from model.tasks.files import file_chunks, is_text, shown
from model.tasks.task import BadRow, InvalidRowError, Row, convert_row
from pipelines.io.raw_files import open_file
from schemas.errors import MissingInputError, TaskDataError

PASSAGE_TOKENS = 400
"""Tokens of each document (paper 4.2, footnote)."""

DOCUMENTS = {"EntityPages": "wikipedia", "SearchResults": "web"}
"""Lists of documents of a question, and the folders of their texts."""

_BEGINNING = re.compile(rb'\s*\{\s*"(Data|Domain|Split|VerifiedEval|Version)"')
_TOKEN = re.compile(r"\w+|[^\w\s]")
_NAMES = ("Aliases", "NormalizedAliases", "HumanAnswers")
_HEAD = 1 << 16
_MARK = "\ufeff"


class Passage(NamedTuple):
    """Beginning of a document.

    Attributes:
        text: Text from its first to its last token.
        tokens: (start, end, lower-cased token) in the text.
    """

    text: str
    tokens: tuple[tuple[int, int, str], ...]


def is_triviaqa(url: str) -> bool:
    """Return whether a file has TriviaQA's questions, by its first key."""
    return _BEGINNING.match(next(file_chunks(url), b"")[:_HEAD]) is not None


def read_triviaqa(url: str, *, evidence: str) -> Iterator[Row | BadRow]:
    """Yield the questions of a file on each of their documents, in order.

    Dropped by rule: documents without an answer in the passage, repeated documents, documents that
    list no file, and questions without documents. Invalid: documents whose file is missing, not
    UTF-8 or outside `evidence`, and questions without answer.

    Args:
        url: Plain or compressed file of any size.
        evidence: Folder with `wikipedia` and `web`.

    Raises:
        TaskDataError: The file is not JSON.
        InputError: The file is missing or damaged.
    """
    for number, question in enumerate(_questions(url), start=1):
        where = f"question {number}"
        fault = _question_fault(question)
        if fault is not None:
            yield BadRow(where, *fault)
            continue
        documents = [
            (field, document) for field in DOCUMENTS for document in question.get(field) or ()
        ]
        if not documents:
            yield BadRow(where, "no-document", f"no {' and no '.join(DOCUMENTS)}", is_fault=False)
        names, seen = _answer_names(question["Answer"]), set[str]()
        for count, (field, document) in enumerate(documents, start=1):
            values = {
                "question": question,
                "document": document,
                "folder": f"{evidence}/{DOCUMENTS[field]}",
            }
            row = Row(f"{where}, {field} {count}", values)
            yield convert_row(row, partial(_example, names=names, seen=seen))


def documents_of(url: str) -> list[str]:
    """Return the sorted folders that have a document of any question of a file."""
    fields = {field for question in _questions(url) if isinstance(question, dict)
              for field in DOCUMENTS if question.get(field)}  # fmt: skip
    return sorted(DOCUMENTS[field] for field in fields)


def _example(row: Row, *, names: Sequence[str], seen: set[str]) -> Row:
    question, document = row.values["question"], row.values["document"]
    name = document.get("Filename") if isinstance(document, dict) else None
    if not name:
        raise InvalidRowError("no-file-name", shown(document), is_fault=False)
    if not is_inside(name):
        raise InvalidRowError("unsafe-file-name", shown(repr(name)))
    url = f"{row.values['folder']}/{name}"
    if url in seen:
        raise InvalidRowError("same-document-again", name, is_fault=False)
    seen.add(url)
    try:
        passage = read_passage(url)
    except (MissingInputError, IsADirectoryError):
        raise InvalidRowError("no-evidence-file", url) from None
    except UnicodeDecodeError as error:
        raise InvalidRowError("evidence-not-utf-8", f"{url}: byte {error.start:,}") from None
    if passage is None:
        raise InvalidRowError("empty-evidence", url)
    span = find_answer(passage, names)
    if span is None:
        reason = f"answer-not-in-first-{PASSAGE_TOKENS}-tokens"
        raise InvalidRowError(reason, shown(names[0]), is_fault=False)
    start, end = span
    title = document.get("Title")
    values = {
        "id": f"{question['QuestionId']}--{name}",
        "title": title if is_text(title) else "",
        "question": question["Question"],
        "context": passage.text,
        "answers": [passage.text[start:end]],
        "answer_starts": [start],
        "is_impossible": False,
    }
    return row._replace(values=values)


def is_inside(name: Any) -> bool:
    """Return whether a document's name stays below its folder."""
    if not is_text(name) or any(sign in name for sign in ("\\", "\0", "::", "://")):
        return False
    parts = name.split("/")
    return all(part not in ("", ".", "..") and len(part.encode()) <= 255 for part in parts)


def read_passage(url: str) -> Passage | None:
    """Return the beginning of a document; None if it has no tokens.

    Raises:
        MissingInputError: The file does not exist.
        UnicodeDecodeError: The beginning is not UTF-8.
    """
    with open_file(url, ahead=_HEAD) as source:
        data = source.read(_HEAD)
        tokens = _tokens(text := _decoded(data, is_whole=len(data) < _HEAD))
        if len(tokens) <= PASSAGE_TOKENS and len(data) == _HEAD:
            tokens = _tokens(text := _decoded(data + source.read(), is_whole=True))
    taken = tokens[:PASSAGE_TOKENS]
    if not taken:
        return None
    first, last = taken[0].start(), taken[-1].end()
    spans = ((token.start() - first, token.end() - first, token[0].lower()) for token in taken)
    return Passage(text[first:last], tuple(spans))


def find_answer(passage: Passage, names: Iterable[str]) -> tuple[int, int] | None:
    """Return the first match of any name in a passage, the longest at its position."""
    by_first: dict[str, set[tuple[str, ...]]] = {}
    for name in names:
        if tokens := tuple(token[0].lower() for token in _TOKEN.finditer(name)):
            by_first.setdefault(tokens[0], set()).add(tokens)
    words = [word for _, _, word in passage.tokens]
    for at, word in enumerate(words):
        found = [
            len(name) for name in by_first.get(word, ()) if (*words[at : at + len(name)],) == name
        ]
        if found:
            return passage.tokens[at][0], passage.tokens[at + max(found) - 1][1]
    return None


def _tokens(text: str) -> list[re.Match[str]]:
    """Return the tokens and one more, because the last one may be incomplete."""
    return list(itertools.islice(_TOKEN.finditer(text), PASSAGE_TOKENS + 1))


def _decoded(data: bytes, *, is_whole: bool) -> str:
    return codecs.getincrementaldecoder("utf-8")().decode(data, is_whole).removeprefix(_MARK)


def _question_fault(question: Any) -> tuple[str, str] | None:
    """Return the reason and the content of an invalid question."""
    if not isinstance(question, dict):
        return "malformed", f"no object: {shown(question)}"
    for field in ("QuestionId", "Question"):
        if not is_text(question.get(field)) or not question[field].strip():
            return "malformed", f"{field} {shown(question.get(field))}"
    for field in DOCUMENTS:
        if not isinstance(question.get(field) or [], list):
            return "malformed", f"{field} {shown(question[field])}, expected a list"
    if not _answer_names(question.get("Answer")):
        return "no-answer", f"Answer {shown(question.get('Answer'))}"
    return None


def _answer_names(answer: Any) -> list[str]:
    """Return the answer and its aliases."""
    if not isinstance(answer, dict):
        return []
    lists = [found for field in _NAMES if isinstance(found := answer.get(field), list)]
    names = [answer.get("Value"), answer.get("NormalizedValue"), *(n for ns in lists for n in ns)]
    return list(dict.fromkeys(name for name in names if is_text(name) and _TOKEN.search(name)))


def _questions(url: str) -> Iterator[Any]:
    """Yield the items of `Data` one at a time: unfiltered files have gigabytes."""
    import ijson

    try:
        yield from ijson.items(ijson.from_iter(file_chunks(url)), "Data.item", use_float=True)
    except ijson.JSONError as error:
        raise TaskDataError(
            f"{url}: no JSON ({str(error).splitlines()[0]}); expected TriviaQA's questions. "
            "Download it again"
        ) from error
