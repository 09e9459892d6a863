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
from sklearn.linear_model import LogisticRegression, Ridge
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
    assert _score((fitted, labels[0]), (counted.transform(_words(dev)), labels[1])) < 0.2


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


def test_words_and_shared_words_do_not_tell_sts_b(tasks: Path) -> None:
    found = {}
    for split in ("train", "dev"):
        lines = (tasks / f"sts-b/{split}.tsv").read_text("utf-8").split("\n")[1:-1]
        rows = [line.split("\t") for line in lines]
        found[split] = [(row[7], row[8], row[9]) for row in rows]
    scores = {split: [float(row[2]) for row in rows] for split, rows in found.items()}
    for split, pairs in found.items():
        assert np.corrcoef(_shape(pairs)[:, 2], np.array(scores[split]))[0, 1] < 0.5
    counted = CountVectorizer(token_pattern=r"\S+", lowercase=False, ngram_range=(1, 2))
    model = Ridge().fit(counted.fit_transform(_words(found["train"])), scores["train"])
    guessed = model.predict(counted.transform(_words(found["dev"])))
    assert np.corrcoef(guessed, np.array(scores["dev"]))[0, 1] < 0.35


def _endings(tasks: Path, name: str) -> tuple[list[tuple[str, str]], Any]:
    """What comes before each of the endings, the endings, and which of them is right."""
    with (tasks / f"swag/{name}.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    pairs = [(row["sent1"], row[f"ending{number}"]) for row in rows for number in range(4)]
    return pairs, np.array([int(row["label"]) for row in rows])


def test_an_ending_alone_does_not_tell_swag(tasks: Path) -> None:
    (known, labels), (asked, right) = (_endings(tasks, name) for name in ("train", "val"))
    words = CountVectorizer(ngram_range=(1, 2))
    gold = (labels[:, None] == np.arange(4)).ravel()
    fitted = words.fit_transform(ending for _, ending in known)
    scores = (
        LogisticRegression(max_iter=2000)
        .fit(fitted, gold)
        .predict_proba(words.transform(ending for _, ending in asked))[:, 1]
    )
    assert (scores.reshape(-1, 4).argmax(1) == right).mean() < 0.42


def test_lengths_and_shared_words_do_not_tell_swag(tasks: Path) -> None:
    pairs, right = _endings(tasks, "val")
    shape = _shape([(*pair, "") for pair in pairs]).reshape(-1, 4, 4)
    for guess in (shape[..., 1].argmax(1), shape[..., 1].argmin(1), shape[..., 2].argmax(1)):
        assert (guess == right).mean() < 0.42
    assert max(Counter(right.tolist()).values()) < 0.27 * len(right)


Asked = tuple[str, list[str], int]  # a question, the sentences, which has the answer (-1: none)


def _asked(tasks: Path, version: str, split: str) -> list[Asked]:
    file = tasks / f"squad-{version}/{split}-v{version}.json"
    articles = json.loads(file.read_text("utf-8"))["data"]
    found = list[Asked]()
    for paragraph in (p for article in articles for p in article["paragraphs"]):
        sentences = paragraph["context"].split(". ")
        for row in paragraph["qas"]:
            place = -1
            for answer in row["answers"]:
                place = paragraph["context"][: answer["answer_start"]].count(". ")
            found.append((row["question"], sentences, place))
    return found


def _shares(asked: list[Asked]) -> Any:
    """The share of the question's words that each sentence has."""
    return np.array(
        [_shape([(question, x, "") for x in sentences])[:, 2] for question, sentences, _ in asked]
    )


def test_neither_position_nor_shared_words_tell_an_answer(tasks: Path) -> None:
    known, asked = (_asked(tasks, "1.1", split) for split in ("train", "dev"))
    usual = Counter(place for *_, place in known).most_common(1)[0][0]
    right = np.array([place for *_, place in asked])
    assert {len(sentences) for _, sentences, _ in asked} == {4}
    assert (right == usual).mean() < 0.33
    assert (_shares(asked).argmax(1) == right).mean() < 0.75  # it names the thing, of which two


def test_neither_words_nor_shared_words_tell_that_there_is_no_answer(tasks: Path) -> None:
    known, asked = (_asked(tasks, "2.0", split) for split in ("train", "dev"))
    usual = Counter(place for *_, place in known if place >= 0).most_common(1)[0][0]
    assert np.mean([place == usual for *_, place in asked if place >= 0]) < 0.33
    labels = [[str(place < 0) for *_, place in rows] for rows in (known, asked)]
    shares = [np.sort(_shares(rows), 1) for rows in (known, asked)]
    assert _score((shares[0], labels[0]), (shares[1], labels[1])) < 0.35
    counted = CountVectorizer(ngram_range=(1, 2))
    texts = [[question for question, *_ in rows] for rows in (known, asked)]
    fitted = (counted.fit_transform(texts[0]), labels[0])
    assert _score(fitted, (counted.transform(texts[1]), labels[1])) < 0.2


def _tagged(tasks: Path, name: str) -> list[tuple[str, str, str]]:
    """Every word that begins with a capital, what stands before it, and its kind."""
    blocks = (tasks / f"conll-2003/{name}").read_text("utf-8").strip().split("\n\n")
    found = list[tuple[str, str, str]]()
    for rows in ([line.split(" ") for line in block.split("\n")] for block in blocks):
        kinds = zip([["", "", "", ""], *rows], rows, strict=False)
        found += [(w[0], x[0], w[3][2:]) for x, w in kinds if w[0][0].isupper() and x[0]]
    return found


@pytest.mark.parametrize(("column", "bar"), [(0, 0.6), (1, 0.75)])
def test_neither_the_word_nor_the_one_before_tells_a_name(
    tasks: Path, column: int, bar: float
) -> None:
    known, asked = (_tagged(tasks, name) for name in ("eng.train", "eng.testa"))
    usual = Counter(kind for *_, kind in known).most_common(1)[0][0]
    kinds: dict[str, Counter[str]] = {}
    for row in known:
        kinds.setdefault(row[column], Counter())[row[2]] += 1
    guessed = [kinds[row[column]].most_common(1)[0][0] if row[column] in kinds else usual
               for row in asked]  # fmt: skip
    assert np.mean([row[2] == guess for row, guess in zip(asked, guessed, strict=True)]) < bar
