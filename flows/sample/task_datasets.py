"""The sample's labeled sets, in the tasks' official formats: what each needs from the corpus.

A row has words of known topics, and its label depends on how these topics are related. The texts
of a row share no word, so a model must know from the corpus which words belong together; train and
dev rows share no word that decides (`flows.sample.world`).

    set             row                                           label
    CoLA            one sentence                                  whether it has one topic
    SST-2           one sentence                                  mood of its topic
    MRPC, RTE       two sentences                                 whether their topics agree
    QQP             two questions                                 whether their topics agree
    QNLI            a question and a sentence                     whether their topics agree
    MNLI            two sentences                                 same topic, same mood, neither
    STS-B           two sentences                                 5, 2.5 or 0 for the same three
    WNLI            "N and N, which was A?" and one noun          whether it is of A's topic
    SWAG            a sentence and endings of four topics         the ending of its topic
    SQuAD 1.1       a question, and two names before a clause     first name if topics agree
    SQuAD 2.0       a question and two clauses with a name each   name in the clause of its topic
    CoNLL-2003      two clauses with a name each                  topic of the name's clause
    .. -particle    the same; half of the verbs have a particle   topic that they mean with it
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from flows.sample.world import (
    HAPPY,
    MOODS,
    PARTICLE,
    PLAIN_FORMS,
    Words,
    capitalize,
    opposite,
    seeded,
)
from model.tasks.official_files import DATA_LABEL_FILE
from pipelines.io.file_systems import file_system

Row = dict[str, str]
"""Texts (`first`, `second`, `ending0` to `ending3`), the `label`, for CoLA the author's `mark`."""

MakeRow = Callable[[Words, random.Random, int], Row]
"""Makes row number n; n decides the label, so that labels are balanced."""

_TOPICS = range(len(MOODS))
_ENTITY_TYPES = ("PER", "LOC", "ORG", "MISC")
_IS_ENTAILED = ("not_entailment", "entailment")
_QUESTIONS = ("what was N", "who V N")
_OTHER_QUESTIONS = ("where was A N", "which N V")


def _other(topic: int, draw: random.Random, *, same_mood: bool | None = None) -> int:
    """Return another topic, of the same or another mood if that is asked for."""
    others = [other for other in _TOPICS if other != topic]
    if same_mood is not None:
        others = [other for other in others if (MOODS[other] == MOODS[topic]) == same_mood]
    return draw.choice(others)


def _cola(words: Words, draw: random.Random, number: int) -> Row:
    topics, is_mixed = draw.sample(_TOPICS, 2), number % 2
    text = words.fill(draw.choice(PLAIN_FORMS), draw, *topics[: 1 + is_mixed])
    return {"first": f"{text}.", "label": str(1 - is_mixed), "mark": "*" * is_mixed}


def _sst_2(words: Words, draw: random.Random, number: int) -> Row:
    is_happy = number % 2
    topic = draw.choice([topic for topic in _TOPICS if (MOODS[topic] == HAPPY) == is_happy])
    text = words.fill(draw.choice(PLAIN_FORMS), draw, topic)
    return {"first": f"{text}.", "label": str(is_happy)}


def _pairs(
    first: Sequence[str], second: Sequence[str], labels: Sequence[str], *, marks: str = ".."
) -> MakeRow:
    """Return the maker of pairs whose topics differ for the first label and agree for the second.

    Args:
        first: forms of the first text, of which one is drawn.
        second: forms of the second text.
        labels: the two labels.
        marks: marks at the end of the first and the second text.
    """

    def make(words: Words, draw: random.Random, number: int) -> Row:
        topic, is_same = draw.choice(_TOPICS), number % 2
        other = topic if is_same else _other(topic, draw)
        return _pair(words, draw, (first, second), (topic, other), labels[is_same], marks)

    return make


def _graded(labels: Sequence[str], first: str, second: str) -> MakeRow:
    """Return the maker of pairs of the same topic, the same mood, and other moods, by turns."""

    def make(words: Words, draw: random.Random, number: int) -> Row:
        topic, grade = draw.choice(_TOPICS), number % 3
        other = _other(topic, draw, same_mood=grade == 1) if grade else topic
        return _pair(words, draw, ([first], [second]), (topic, other), labels[grade], "..")

    return make


def _pair(
    words: Words, draw: random.Random, forms: tuple[Sequence[str], Sequence[str]],
    topics: tuple[int, int], label: str, marks: str,
) -> Row:  # fmt: skip
    """Return two texts without a common content word.

    The forms are drawn once: if they changed with the words, short ones would be more frequent
    among texts of one topic, which often share a word.
    """
    chosen = [draw.choice(form) for form in forms]
    while True:
        texts = [words.fill(form, draw, topic) for form, topic in zip(chosen, topics, strict=True)]
        content = [content_words(text, words) for text in texts]
        if not set(content[0]) & set(content[1]):
            return {"first": texts[0] + marks[0], "second": texts[1] + marks[1], "label": label}


def content_words(text: str, words: Words) -> list[str]:
    """Return the nouns, verbs and adjectives of a text, in lower case."""
    content = {word for topic in words.topics for one_class in topic for word in one_class}
    return [word for word in text.lower().replace(",", " ").rstrip(".?").split() if word in content]


def _wnli(words: Words, draw: random.Random, number: int) -> Row:
    topics, asked, is_right = draw.sample(_TOPICS, 2), draw.randrange(2), number % 2
    nouns = [draw.choice(words.topics[topic].nouns) for topic in topics]
    adjective = draw.choice(words.topics[topics[asked]].adjectives)
    first = capitalize(f"{nouns[0]} and {nouns[1]}, which was {adjective}?")
    named = nouns[asked] if is_right else nouns[1 - asked]
    return {"first": first, "second": f"{capitalize(named)}.", "label": str(is_right)}


def _swag(words: Words, draw: random.Random, number: int) -> Row:
    topics, right = draw.sample(_TOPICS, len(_TOPICS)), number % len(_TOPICS)
    forms = ["X V N"], ["N was A and A"]
    row = _pair(words, draw, forms, (topics[right], topics[right]), str(right), "..")
    endings = [words.fill("N was A and A", draw, topic).lower() + "." for topic in topics]
    endings[right] = row.pop("second").lower()
    return row | {f"ending{index}": text for index, text in enumerate(endings)}


def _squad_1(words: Words, draw: random.Random, number: int) -> Row:
    topic, is_same = draw.choice(_TOPICS), number % 2
    clause_topic = topic if is_same else _other(topic, draw)
    names = draw.sample(words.names, 2)
    row = _pair(words, draw, (["A N V"], ["V N"]), (topic, clause_topic), names[1 - is_same], "?,")
    return row | {"second": f"{names[0]} {names[1]} {row['second'].lower()}"}


def _squad_2(words: Words, draw: random.Random, number: int) -> Row:
    """A third of the questions has no answer."""
    asked, *topics = draw.sample(_TOPICS, 3)
    clause = number % 3
    if clause < len(topics):
        topics[clause] = asked
    while True:
        clauses = [words.fill("X V N", draw, topic) for topic in topics]
        question = words.fill("N V", draw, asked)
        used = " ".join([*clauses, question]).lower().split()
        if len(set(used)) == len(used):
            break
    answer = clauses[clause].split()[0] if clause < len(topics) else ""
    return {"first": f"{question}?", "second": f"{', '.join(clauses)},", "label": answer}


def _conll(words: Words, draw: random.Random, number: int) -> Row:
    """The label has the type of each of the two names."""
    topics = [number % len(_TOPICS), draw.choice(_TOPICS)]
    clauses = [words.fill(draw.choice(("D X V N", "X V N")), draw, topic) for topic in topics]
    return _tagged(clauses, topics, words)


def _conll_particle(words: Words, draw: random.Random, number: int) -> Row:
    """A verb means its topic, or with the particle the opposite one."""
    topics = [number % len(_TOPICS), draw.choice(_TOPICS)]
    clauses, meant = list[str](), list[int]()
    for topic in topics:
        has_particle = draw.random() < 0.5
        form = draw.choice(("D X V", "X V")) + f" {PARTICLE}" * has_particle
        clauses.append(words.fill(form, draw, topic))
        meant.append(opposite(topic) if has_particle else topic)
    return _tagged(clauses, meant, words)


def _tagged(clauses: Sequence[str], topics: Sequence[int], words: Words) -> Row:
    """Return a row of clauses, each ending in a comma, with a tag for each word and comma."""
    tags = [
        f"I-{_ENTITY_TYPES[topic]}" if word in words.names else "O"
        for clause, topic in zip(clauses, topics, strict=True)
        for word in [*clause.split(), ","]
    ]
    text = " ".join(f"{clause} ," for clause in clauses)
    return {"first": text, "label": " ".join(tags)}


# The official files.

WriteRows = Callable[[Sequence[Row], str], str]
"""Writes the rows of a split as the text of an official file."""


def _table(columns: str, *, test_columns: str = "", delimiter: str = "\t") -> WriteRows:
    """Return the writer of a table.

    Args:
        columns: `HEADER=CONTENT|...`; the content is `index`, a key of the row, or a fixed text.
        test_columns: those of the test file; "" for the same without the label.
        delimiter: a tab for GLUE's files, which have no quotes; a comma for CSV.
    """

    def write(rows: Sequence[Row], split: str) -> str:
        pairs = [column.split("=") for column in columns.split("|")]
        if split == "test":
            pairs = [column.split("=") for column in test_columns.split("|")] if test_columns else [
                pair for pair in pairs if pair[1] != "label"
            ]  # fmt: skip
        lines = [[header for header, _ in pairs]] if any(header for header, _ in pairs) else []
        for index, row in enumerate(rows):
            values = row | {"index": str(index)}
            lines.append([values.get(content, content) for _, content in pairs])
        return "".join(delimiter.join(line) + "\n" for line in lines)

    return write


def _squad_json(version: str) -> WriteRows:
    def write(rows: Sequence[Row], split: str) -> str:
        paragraphs = []
        for index, row in enumerate(rows):
            answer = {"text": row["label"], "answer_start": row["second"].index(row["label"])}
            question = {
                "id": f"{split}-{index:04d}", "question": row["first"],
                "answers": [answer] if row["label"] else [], "is_impossible": not row["label"],
            }  # fmt: skip
            paragraphs.append({"context": row["second"], "qas": [question]})
        data = [{"title": "Sample world", "paragraphs": paragraphs}]
        return json.dumps({"version": version, "data": data}) + "\n"

    return write


def _conll_lines(rows: Sequence[Row], _split: str) -> str:
    """Return a line per word: word, part of speech, chunk, tag in IOB1. A row is a document."""
    lines = list[str]()
    for row in rows:
        lines += ["-DOCSTART- -X- O O", ""]
        for word, tag in zip(row["first"].split(), row["label"].split(), strict=True):
            lines.append(f"{word} -X- O O" if tag == "O" else f"{word} NNP I-NP {tag}")
        lines.append("")
    return "\n".join(lines)


class TaskDataset(NamedTuple):
    """A set: how its rows are made and written."""

    make: MakeRow
    write: WriteRows
    files: str = "train.tsv dev.tsv test.tsv"
    """Names of the files of train, dev and test; SQuAD's test sets are not published."""

    train_rows: int = 320

    @property
    def file_of_split(self) -> dict[str, str]:
        return dict(zip(_ROWS, self.files.split(), strict=False))


_ROWS = {"train": 0, "dev": 400, "test": 100}
_ONE_TEXT = "index=index|sentence=first"
_SENTENCES = "index=index|sentence1=first|sentence2=second|label=label"
_PARSES = "|".join(f"sentence{n}_{kind}=-" for n in (1, 2) for kind in ("binary_parse", "parse"))
_CONLL_FILES = "eng.train eng.testa eng.testb"

SETS: dict[str, TaskDataset] = {
    "cola": TaskDataset(_cola, _table("=smpl|=label|=mark|=first", test_columns=_ONE_TEXT)),
    "sst-2": TaskDataset(_sst_2, _table("sentence=first|label=label", test_columns=_ONE_TEXT)),
    "mrpc": TaskDataset(
        _pairs(["A N V"], ["N V and N V"], "01"),
        _table("Quality=label|#1 ID=index|#2 ID=index|#1 String=first|#2 String=second"),
    ),
    "sts-b": TaskDataset(
        _graded(("5.000", "2.500", "0.000"), "A N V", "N V and N V"),
        _table("index=index|genre=samplewiki|sentence1=first|sentence2=second|score=label"),
    ),
    "qqp": TaskDataset(
        _pairs(_QUESTIONS, _OTHER_QUESTIONS, "01", marks="??"),
        _table(
            "id=index|qid1=index|qid2=index|question1=first|question2=second|is_duplicate=label",
            test_columns="id=index|question1=first|question2=second",
        ),
    ),
    "mnli": TaskDataset(
        _graded(("entailment", "neutral", "contradiction"), "N was A", "A N V"),
        _table(
            f"index=index|promptID=index|pairID=index|genre=samplewiki|{_PARSES}|"
            "sentence1=first|sentence2=second|label1=label|gold_label=label"
        ),
        "train.tsv dev_matched.tsv test_matched.tsv",
    ),
    "qnli": TaskDataset(
        _pairs(_QUESTIONS, (*PLAIN_FORMS, "X V N"), _IS_ENTAILED, marks="?."),
        _table("index=index|question=first|sentence=second|label=label"),
    ),
    "rte": TaskDataset(_pairs(["N V and N V"], ["N was A"], _IS_ENTAILED), _table(_SENTENCES)),
    "wnli": TaskDataset(_wnli, _table(_SENTENCES)),
    "swag": TaskDataset(
        _swag,
        _table(
            "=index|video-id=samplewiki|fold-ind=index|startphrase=first|sent1=first|sent2=|"
            "gold-source=gold|ending0=ending0|ending1=ending1|ending2=ending2|ending3=ending3|"
            "label=label",
            delimiter=",",
        ),
        "train.csv val.csv test.csv",
    ),
    "squad-1.1": TaskDataset(
        _squad_1, _squad_json("1.1"), "train-v1.1.json dev-v1.1.json", train_rows=1280
    ),
    "squad-2.0": TaskDataset(
        _squad_2, _squad_json("v2.0"), "train-v2.0.json dev-v2.0.json", train_rows=1600
    ),
    "conll-2003": TaskDataset(_conll, _conll_lines, _CONLL_FILES),
    "conll-2003-particle": TaskDataset(_conll_particle, _conll_lines, _CONLL_FILES),
}


def make_rows(task: str, words: Words, seed: int) -> dict[str, list[Row]]:
    """Return the rows of each split; no row occurs twice, within a split or across splits."""
    dataset, seen = SETS[task], set[tuple[str, ...]]()

    def new_rows(split: str, draw: random.Random) -> Iterator[Row]:
        half, number = words.half(second=split != "train"), 0
        while True:
            row = dataset.make(half, draw, number)
            texts = tuple(text for key, text in sorted(row.items()) if key not in ("label", "mark"))
            if texts not in seen:
                seen.add(texts)
                number += 1
                yield row

    rows = {}
    for split in dataset.file_of_split:
        draw = seeded(f"{task} {split}", seed)
        rows[split] = list(islice(new_rows(split, draw), _ROWS[split] or dataset.train_rows))
        draw.shuffle(rows[split])
    return rows


DATA_LABEL = "generated sample"


def write_task_datasets(folder: str, *, words: Words, seed: int) -> str:
    """Write all sets to `FOLDER/tasks`, a folder for each, and return its URL."""
    fs, root = file_system(folder)
    base = f"{root.rstrip('/')}/tasks"
    for task, dataset in SETS.items():
        fs.makedirs(f"{base}/{task}", exist_ok=True)
        fs.pipe_file(f"{base}/{task}/{DATA_LABEL_FILE}", f"{DATA_LABEL}\n".encode())
        for split, rows in make_rows(task, words, seed).items():
            path = f"{base}/{task}/{dataset.file_of_split[split]}"
            fs.pipe_file(path, dataset.write(rows, split).encode())
    return fs.unstrip_protocol(base) if "://" in folder else base
