"""Small files in the official format of every task, written by the tests that read them."""

from __future__ import annotations

import json
from pathlib import Path

from model.tasks.task import Task

ROWS = 30
"""Examples of a file."""

_PARSES = "sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"
_MNLI = f"index promptID pairID genre {_PARSES} sentence1 sentence2"
_STS = "index genre filename year old_index source1 source2 sentence1 sentence2"
_PAIR = "index sentence1 sentence2"

HEADERS: dict[str, tuple[str, str, str]] = {
    # Name: header of train, of dev, of test. CoLA's train and dev files do not have theirs.
    "cola": ("source label author sentence", "source label author sentence", "index sentence"),
    "sst-2": ("sentence label", "sentence label", "index sentence"),
    "sts-b": (f"{_STS} score", f"{_STS} score", _STS),
    "qqp": (
        "id qid1 qid2 question1 question2 is_duplicate",
        "id qid1 qid2 question1 question2 is_duplicate",
        "id question1 question2",
    ),
    "mnli": (
        f"{_MNLI} label1 gold_label",
        f"{_MNLI} label1 label2 label3 label4 label5 gold_label",
        _MNLI,
    ),
    "qnli": (
        "index question sentence label",
        "index question sentence label",
        "index question sentence",
    ),
    "rte": (f"{_PAIR} label", f"{_PAIR} label", _PAIR),
    "wnli": (f"{_PAIR} label", f"{_PAIR} label", _PAIR),
    "ax": ("", "", f"{_PAIR} label"),
    "single-sentence": ("text label", "text label", "text"),
    "sentence-pair": ("sentence1 sentence2 label", "sentence1 sentence2 label", _PAIR),
    "sentence-regression": ("sentence score", "sentence score", "id sentence"),
    "pair-regression": ("sentence1 sentence2 score", "sentence1 sentence2 score", _PAIR),
}
_MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
_MRPC_TEST = "index\t#1 ID\t#2 ID\t#1 String\t#2 String"
_TEXTS = {
    "sentence": "A sentence of its own",
    "text": "A text of its own",
    "sentence1": 'He said: "No quotes here',
    "sentence2": "He said nothing",
    "question1": "How far is it?",
    "question2": "Is it far?",
    "question": "Where is it?",
    "#1 String": "The first one",
    "#2 String": "The second one",
}
_ANSWERS = ("label", "gold_label", "is_duplicate", "score", "Quality")


def header(task: Task, split: str) -> list[str]:
    """The columns of a split's official file."""
    at = 0 if split == "train" else 1 if split.startswith("dev") else 2
    if task.name == "mrpc":
        return (_MRPC_TEST if at == 2 else _MRPC).split("\t")
    if split == "diagnostic":
        return _PAIR.split()
    return HEADERS[task.name][at].split()


def write_task_file(task: Task, split: str, *, folder: Path) -> str:
    """Write a file of `ROWS` examples."""
    writers = {"span": _span, "choice": _choice, "tagging": _tagging}
    text = writers.get(task.type, _text)(task, split)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{task.name}-{split}.txt"
    path.write_bytes(text.encode())
    return str(path)


def _text(task: Task, split: str) -> str:
    columns = header(task, split)
    has_header = not (task.name == "cola" and split != "test")
    lines = ["\t".join(columns)] if has_header else []
    lines += ["\t".join(_cell(task, name, number) for name in columns) for number in range(ROWS)]
    return "\n".join(lines) + "\n"


def _cell(task: Task, column: str, number: int) -> str:
    if column in _TEXTS:
        return f"{_TEXTS[column]}, {number}."
    if column in _ANSWERS:
        labels = task.labels or ("blue", "green")
        return f"{number % 6 * 0.8:.3f}" if task.type == "regression" else labels[number % 2]
    return str(number)


def _choice(task: Task, split: str) -> str:
    lines = []
    for number in range(ROWS):
        label = str(number % 4)
        endings = [f'ending {letter} of {number} "' for letter in "abcd"]
        quoted = ['"' + ending.replace('"', '""') + '"' for ending in endings]
        cells = [str(number), "v", "f", f"Start {number}", f"Start {number}", "It", "gold", *quoted]
        lines.append(",".join([*cells, label]))
    columns = (
        ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
    )
    return "\n".join([f"{columns},label", *lines]) + "\n"


def _span(task: Task, split: str) -> str:
    context = "The river rises in the north and ends in the sea."
    questions = []
    for number in range(ROWS):
        question = {
            "id": f"q{number}",
            "question": f"Where does it end, {number}?",
            "answers": [{"text": "in the sea", "answer_start": context.index("in the sea")}],
        }
        if task.has_unanswerable and number % 3 == 1:
            question |= {"answers": [], "is_impossible": True}
        questions.append(question)
    article = {"title": "River", "paragraphs": [{"context": context, "qas": questions}]}
    return json.dumps({"version": "1.1", "data": [article]})


def _tagging(task: Task, split: str) -> str:
    lines = []
    for number in range(ROWS):
        words = [f"Ada{number} B-PER", "saw O", "Rome B-LOC", ". O"]
        lines += ["-DOCSTART- O", "", *words, ""]
    return "\n".join(lines) + "\n"
