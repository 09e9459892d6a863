"""No label of the sample's sets follows from words, pairs of words, lengths or positions alone."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import matthews_corrcoef

from flows.sample import World, write_articles
from flows.sample.labelled import write_labelled

COLUMNS = {
    "cola": (3, None, 1), "sst-2": (0, None, 1), "mrpc": (3, 4, 0), "mnli": (8, 9, 11),
    "qnli": (1, 2, 3), "rte": (1, 2, 3), "wnli": (1, 2, 3),
}  # fmt: skip
"""Where the first sentence, the second one and the label stand."""

Rows = list[tuple[str, str, str]]


@pytest.fixture(scope="module", params=[0, 5])
def tasks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shortcuts")
    return Path(write_labelled(str(folder), seed=request.param))


def _rows(tasks: Path, task: str, split: str) -> Rows:
    name = "dev_matched" if (task, split) == ("mnli", "dev") else split
    lines = (tasks / f"{task}/{name}.tsv").read_text("utf-8").split("\n")[task != "cola" : -1]
    one, two, label = COLUMNS[task]
    rows = [line.split("\t") for line in lines]
    return [(row[one], "" if two is None else row[two], row[label]) for row in rows]


def _score(train: tuple[Any, list[str]], dev: tuple[Any, list[str]]) -> float:
    model = LogisticRegression(max_iter=3000).fit(*train)
    return float(matthews_corrcoef(dev[1], model.predict(dev[0])))


def _words(rows: Rows) -> list[str]:
    """The words of both sentences, told apart."""
    return [
        " ".join([f"1{w}" for w in one.split()] + [f"2{w}" for w in two.split()])
        for one, two, _ in rows
    ]


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("task", COLUMNS)
def test_words_and_pairs_of_words_do_not_tell(tasks: Path, task: str, most: int) -> None:
    train, dev = (_rows(tasks, task, split) for split in ("train", "dev"))
    counted = CountVectorizer(token_pattern=r"\S+", lowercase=False, ngram_range=(1, most))
    labels = [[row[2] for row in rows] for rows in (train, dev)]
    fitted = counted.fit_transform(_words(train))
    # CoLA's disorder shows in pairs of words. Where it does not, in sentences spliced at a word
    # that both have, a thousand steps of pretraining tell no more than none.
    bar = 0.45 if (task, most) == ("cola", 2) else 0.2
    assert _score((fitted, labels[0]), (counted.transform(_words(dev)), labels[1])) < bar


def _shape(rows: Rows) -> Any:
    """Lengths of the two sentences and the share of words that they have in common."""
    found = []
    for one, two, _ in rows:
        first, second = ({*re.findall(r"\w+", text.lower())} for text in (one, two))
        shared = len(first & second) / max(1, len(first | second))
        found.append([len(one.split()), len(two.split()), shared, shared**2])
    return np.array(found)


@pytest.mark.parametrize("task", COLUMNS)
def test_lengths_and_shared_words_do_not_tell(tasks: Path, task: str) -> None:
    train, dev = (_rows(tasks, task, split) for split in ("train", "dev"))
    labels = [[row[2] for row in rows] for rows in (train, dev)]
    assert _score((_shape(train), labels[0]), (_shape(dev), labels[1])) < 0.35


@pytest.mark.parametrize("task", COLUMNS)
def test_no_label_is_frequent(tasks: Path, task: str) -> None:
    for split in ("train", "dev"):
        labels = Counter(row[2] for row in _rows(tasks, task, split))
        assert max(labels.values()) < 1.25 * min(labels.values())


def test_pairs_of_words_of_the_wiki_do_not_tell_beasts_from_tools(tasks: Path) -> None:
    pairs: Counter[tuple[str, str]] = Counter()
    for article in write_articles(World(0, 200)):
        for sentence in article.sentences():
            words = re.findall(r"\w+", sentence.lower())
            pairs.update(pairwise(words))
    rows = _rows(tasks, "wnli", "train") + _rows(tasks, "wnli", "dev")

    def likely(text: str) -> float:
        words = re.findall(r"\w+", text.lower())
        return float(sum(np.log(pairs[p] + 0.1) for p in pairwise(words)))

    scores = np.array([likely(second) for _, second, _ in rows])
    right = np.array([label == "1" for *_, label in rows])
    assert abs(matthews_corrcoef(right, scores > np.median(scores))) < 0.2


def test_shared_words_do_not_tell_sts_b(tasks: Path) -> None:
    for split in ("train", "dev"):
        lines = (tasks / f"sts-b/{split}.tsv").read_text("utf-8").split("\n")[1:-1]
        rows = [line.split("\t") for line in lines]
        shares = _shape([(row[7], row[8], "") for row in rows])[:, 2]
        assert np.corrcoef(shares, [float(row[9]) for row in rows])[0, 1] < 0.5


def test_an_ending_alone_does_not_tell_swag(tasks: Path) -> None:
    texts, labels = [], []
    for name in ("train", "val"):
        with (tasks / f"swag/{name}.csv").open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
        texts.append([row[f"ending{number}"] for row in rows for number in range(4)])
        labels.append(np.array([int(row["label"]) for row in rows]))
    words = CountVectorizer()
    gold = (labels[0][:, None] == np.arange(4)).ravel()
    model = LogisticRegression(max_iter=2000).fit(words.fit_transform(texts[0]), gold)
    scores = model.predict_proba(words.transform(texts[1]))[:, 1].reshape(-1, 4)
    assert (scores.argmax(1) == labels[1]).mean() < 0.42


def test_the_position_does_not_tell_an_answer(tasks: Path) -> None:
    spans: dict[str, list[tuple[float, bool]]] = {}
    for split in ("train", "dev"):
        found = json.loads((tasks / f"squad-2.0/{split}-v2.0.json").read_text("utf-8"))
        for paragraph in (p for article in found["data"] for p in article["paragraphs"]):
            text = paragraph["context"]
            for answer in (a for row in paragraph["qas"] for a in row["answers"]):
                sentence = text[: answer["answer_start"]].count(". ")
                spans.setdefault(split, []).append((sentence, text.count(". ") > 1))
    usual = Counter(sentence for sentence, _ in spans["train"]).most_common(1)[0][0]
    hits = [sentence == usual for sentence, is_long in spans["dev"] if is_long]
    assert np.mean(hits) < 0.5
