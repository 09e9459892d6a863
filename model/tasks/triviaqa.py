"""TriviaQA (Joshi et al. 2017) as questions on passages, to train on before SQuAD (paper 4.2).

The official files: `qa/*.json`, whose `Data` is a list of questions, each with its answer, the
answer's aliases and the documents that may hold it; and below `evidence` the documents' texts,
`wikipedia/NAME` for `EntityPages` and `web/NAME` for `SearchResults`. The unfiltered questions have
the same form and the same evidence.

A row is a question on one of its documents, of which the first 400 tokens are the passage, as in
the paper; a token is a word or a sign that is none. The paper keeps passages "that contain at least
one of the provided possible answers": here an answer or alias is found where its tokens follow each
other, letter case aside. Its first place counts, and there the longest. So every answer is a span
of the text as it is, which the official `convert_to_squad_format.py`, with lower-cased answers
found inside words too, does not promise.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from model.tasks.files import file_chunks, is_text, shown
from model.tasks.task import Bad, Row
from pipelines.io.raw_files import open_file
from schemas.errors import MissingInputError, TaskDataError

PASSAGE_TOKENS = 400
"""Of each document (paper 4.2, footnote)."""

DOCUMENTS = {"EntityPages": "wikipedia", "SearchResults": "web"}
"""Lists of documents of a question, and the folders of their texts."""

_BEGINNING = re.compile(rb'\s*\{\s*"(Data|Domain|Split|VerifiedEval|Version)"')
_TOKEN = re.compile(r"\w+|[^\w\s]")
_NAMES = ("Aliases", "NormalizedAliases", "HumanAnswers")
_HEAD = 1 << 16
_MARK = "\ufeff"


class Passage(NamedTuple):
    """The beginning of a document.

    Attributes:
        text: from its first token to its last.
        tokens: (start, end, lower-cased) in the text.
    """

    text: str
    tokens: tuple[tuple[int, int, str], ...]


def is_triviaqa(url: str) -> bool:
    """Whether a file has TriviaQA's questions, by its first key, which no file of SQuAD has."""
    return _BEGINNING.match(next(file_chunks(url), b"")[:_HEAD]) is not None


def read_triviaqa(url: str, *, evidence: str) -> Iterator[Row | Bad]:
    """The questions of a file on each of their documents, in its order, one question at a time.

    Dropped by rule: a document without an answer in its passage, one that is listed again, one
    that has no file, and a question without documents. What should not be is a fault: a document
    whose file is missing, is not UTF-8 or leads out of `evidence`, and a question without answer.

    Args:
        url: plain or compressed, of any size.
        evidence: the folder that holds `wikipedia` and `web`.

    Raises:
        TaskDataError: it is no JSON.
        InputError: it is missing or damaged.
    """
    for number, question in enumerate(_questions(url), start=1):
        where = f"question {number}"
        fault = _question_fault(question)
        if fault is not None:
            yield Bad(where, *fault)
        else:
            yield from _rows(question, where=where, evidence=evidence)


def documents_of(url: str) -> list[str]:
    """The folders that any question of a file has a document in, sorted."""
    fields = {field for question in _questions(url) if isinstance(question, dict)
              for field in DOCUMENTS if question.get(field)}  # fmt: skip
    return sorted(DOCUMENTS[field] for field in fields)


def _rows(question: Mapping[str, Any], *, where: str, evidence: str) -> Iterator[Row | Bad]:
    names = _answer_names(question["Answer"])
    seen: set[tuple[str, str]] = set()
    count = 0
    for field, folder in DOCUMENTS.items():
        for document in question.get(field) or ():
            count += 1
            position = f"{where}, {field} {count}"
            name = document.get("Filename") if isinstance(document, dict) else None
            if not name:
                yield Bad(position, "no-file-name", shown(document), is_fault=False)
            elif not is_inside(name):
                yield Bad(position, "unsafe-file-name", shown(repr(name)))
            elif (folder, name) in seen:
                yield Bad(position, "same-document-again", name, is_fault=False)
            else:
                seen.add((folder, name))
                yield _row(question, document, f"{evidence}/{folder}/{name}", names=names,
                           position=position)  # fmt: skip
    if not count:
        yield Bad(where, "no-document", f"no {' and no '.join(DOCUMENTS)}", is_fault=False)


def _row(
    question: Mapping[str, Any],
    document: Mapping[str, Any],
    url: str,
    *,
    names: Sequence[str],
    position: str,
) -> Row | Bad:
    try:
        passage = read_passage(url)
    except (MissingInputError, IsADirectoryError):
        return Bad(position, "no-evidence-file", url)
    except UnicodeDecodeError as error:
        return Bad(position, "evidence-not-utf-8", f"{url}: byte {error.start:,}")
    if passage is None:
        return Bad(position, "empty-evidence", url)
    span = find_answer(passage, names)
    if span is None:
        reason = f"answer-not-in-first-{PASSAGE_TOKENS}-tokens"
        return Bad(position, reason, shown(names[0]), is_fault=False)
    start, end = span
    title = document.get("Title")
    values = {
        "id": f"{question['QuestionId']}--{document['Filename']}",
        "title": title if is_text(title) else "",
        "question": question["Question"],
        "context": passage.text,
        "answers": [passage.text[start:end]],
        "answer_starts": [start],
        "is_impossible": False,
    }
    return Row(position, values)


def is_inside(name: Any) -> bool:
    """Whether a document's name leads nowhere but below the folder it is relative to."""
    if not is_text(name) or any(sign in name for sign in ("\\", "\0", "::", "://")):
        return False
    parts = name.split("/")
    return all(part not in ("", ".", "..") and len(part.encode()) <= 255 for part in parts)


def read_passage(url: str) -> Passage | None:
    """The first tokens of a document; None where it has none.

    Raises:
        MissingInputError: no file is there.
        UnicodeDecodeError: what was read of it is not UTF-8.
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
    """Where the first of some names stands in a passage, the longest of those that begin there."""
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
    """One more than are taken, as the last of what was read may go on behind it."""
    found = []
    for token in _TOKEN.finditer(text):
        found.append(token)
        if len(found) > PASSAGE_TOKENS:
            break
    return found


def _decoded(data: bytes, *, is_whole: bool) -> str:
    return codecs.getincrementaldecoder("utf-8")().decode(data, is_whole).removeprefix(_MARK)


def _question_fault(question: Any) -> tuple[str, str] | None:
    """Reason and what was found, of a question that cannot be used with any document."""
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
    """What the answer may be called, as given."""
    if not isinstance(answer, dict):
        return []
    lists = [found for field in _NAMES if isinstance(found := answer.get(field), list)]
    names = [answer.get("Value"), answer.get("NormalizedValue"), *(n for ns in lists for n in ns)]
    return list(dict.fromkeys(name for name in names if is_text(name) and _TOKEN.search(name)))


def _questions(url: str) -> Iterator[Any]:
    """The items of `Data`, one in memory at a time: unfiltered files are of gigabytes."""
    import ijson  # start-up: 20 ms, and few read TriviaQA

    try:
        yield from ijson.items(ijson.from_iter(file_chunks(url)), "Data.item", use_float=True)
    except ijson.JSONError as error:
        raise TaskDataError(
            f"{url}: no JSON ({str(error).splitlines()[0]}); expected TriviaQA's questions. "
            "Download it again"
        ) from error
