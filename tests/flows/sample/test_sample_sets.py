"""The sample's labeled sets: the words of a dev row can be learned from the corpus only."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from itertools import pairwise, product
from pathlib import Path

import pytest
import torch

from flows.recipes.loader import load_recipe
from flows.sample import write_sample
from flows.sample.books import make_book
from flows.sample.pages import make_pages
from flows.sample.task_datasets import SETS, Row, content_words, make_rows
from flows.sample.world import Words, seeded
from model.build_examples import build_examples
from pipelines.wordpiece.vocab_training import count_words, train_vocabulary
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import ExamplesConfig

TEXT_TASKS = ("cola", "sst-2", "mrpc", "rte", "qqp", "qnli", "mnli", "sts-b", "wnli")
PAIR_TASKS = ("mrpc", "rte", "qqp", "qnli", "mnli", "sts-b", "squad-1.1", "squad-2.0")
TAGGED = ("conll-2003", "conll-2003-particle")
WORLD = Words.of_world(0)

Features = Callable[[Row], set[str]]


def rows_of(task: str, split: str) -> list[Row]:
    return make_rows(task, WORLD, 0)[split]


def texts_of(row: Row) -> list[str]:
    return [text for key, text in row.items() if key not in ("label", "mark")]


def content_of(rows: Iterable[Row]) -> set[str]:
    """Return the nouns, verbs and adjectives of all rows."""
    return {word for row in rows for text in texts_of(row) for word in content_words(text, WORLD)}


# Files


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_sample(str(tmp_path_factory.mktemp("sets")), articles=1, tales=0).tasks


@pytest.mark.parametrize("task", SETS)
def test_official_files_are_read_without_a_dropped_row(
    task: str, tasks: str, tmp_path: Path
) -> None:
    official = task.removesuffix("-particle")
    made = build_examples(
        ExamplesConfig(task=official, data_dir=f"{tasks}/{task}", max_invalid_fraction=0.0),
        inputs={}, output=str(tmp_path), execution=ExecutionConfig(),
    )  # fmt: skip
    counts = {split: len(rows) for split, rows in make_rows(task, WORLD, 0).items()}
    assert made.statistics["splits"] == counts
    assert made.counters["rows-in"] == made.counters["rows-kept"] == sum(counts.values())
    assert made.statistics["task"] == official


@pytest.mark.parametrize("task", [*TEXT_TASKS, "swag"])
def test_labels_are_balanced(task: str) -> None:
    for rows in make_rows(task, WORLD, 0).values():
        counts = Counter(row["label"] for row in rows)
        assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize("task", SETS)
def test_no_row_occurs_twice(task: str) -> None:
    rows = [row for split in make_rows(task, WORLD, 0).values() for row in split]
    assert max(Counter(tuple(texts_of(row)) for row in rows).values()) == 1


# Words


@pytest.mark.parametrize("task", SETS)
def test_train_rows_share_no_content_word_with_dev_and_test_rows(task: str) -> None:
    train, *others = make_rows(task, WORLD, 0).values()
    assert content_of(train)
    for rows in others:
        assert content_of(rows)
        assert not content_of(train) & content_of(rows)


@pytest.mark.parametrize("task", PAIR_TASKS)
def test_texts_of_a_row_share_no_content_word(task: str) -> None:
    for rows in make_rows(task, WORLD, 0).values():
        for row in rows:
            first, second = (content_words(row[key], WORLD) for key in ("first", "second"))
            assert first
            assert not set(first) & set(second), row


def test_endings_share_no_content_word_with_what_they_end() -> None:
    for row in rows_of("swag", "dev"):
        right = content_words(row[f"ending{row['label']}"], WORLD)
        assert not set(content_words(row["first"], WORLD)) & set(right), row


def test_each_content_word_is_one_word_piece() -> None:
    """The vocabulary is learned as the recipe says, from the prose of the default sample."""
    config = load_recipe("sample").build_vocabulary
    articles, books = (signature(write_sample).parameters[n].default for n in ("articles", "tales"))
    pages = make_pages(WORLD, seed=0, articles=articles)
    texts = [text for page in pages for text in page.paragraphs]
    for number in range(books):
        texts += [
            text for part in make_book(WORLD, seed=0, number=number).chapters for text in part
        ]
    vocabulary = train_vocabulary(count_words(texts, lowercase=config.lowercase), config)
    content = {word for topic in WORLD.topics for words in topic for word in words}
    assert len(content) == 96
    assert content <= {*vocabulary}
    assert {word.lower() for word in (*WORLD.names, *WORLD.times)} <= {*vocabulary}


# Shortcuts


def words_in(text: str) -> list[str]:
    return re.findall(r"[a-z]+|[,?]", text.lower())


def single_words(row: Row) -> set[str]:
    """Return the words of each text, told apart by text."""
    return {f"{key}: {word}" for key in ("first", "second") for word in words_in(row.get(key, ""))}


def word_pairs(row: Row) -> set[str]:
    """Return adjacent words of each text, and each word of the first with each of the second."""
    first, second = words_in(row["first"]), words_in(row.get("second", ""))
    adjacent = {f"{a} {b}" for text in (first, second) for a, b in pairwise(text)}
    return adjacent | {f"{a} | {b}" for a, b in product(first, second)}


def indicators(rows: Sequence[set[str]], names: Sequence[str]) -> torch.Tensor:
    """Return 0 or 1 for each set (row) and name (column), and a last column of ones."""
    place = {name: number for number, name in enumerate(names)}
    matrix = torch.zeros(len(rows), len(names) + 1)
    matrix[:, -1] = 1
    for number, features in enumerate(rows):
        matrix[number, [place[name] for name in features if name in place]] = 1
    return matrix


def logistic_accuracy(train: Sequence[Row], dev: Sequence[Row], features: Features) -> float:
    """Return the accuracy on dev, in percent, of a logistic regression trained on train."""
    labels = sorted({row["label"] for row in train})
    known = [features(row) for row in train]
    names = sorted(set().union(*known))
    inputs = indicators(known, names)
    targets = torch.tensor([labels.index(row["label"]) for row in train])
    weights = torch.zeros(inputs.shape[1], len(labels), requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        fit = torch.nn.functional.cross_entropy(inputs @ weights, targets)
        total = fit + 1e-3 * weights.square().sum()
        total.backward()
        return total

    optimizer.step(loss)
    scores = indicators([features(row) for row in dev], names) @ weights.detach()
    expected = torch.tensor([labels.index(row["label"]) for row in dev])
    return 100 * float((scores.argmax(1) == expected).float().mean())


@pytest.mark.parametrize("features", [single_words, word_pairs])
@pytest.mark.parametrize("task", TEXT_TASKS)
def test_words_and_pairs_of_words_do_not_answer(task: str, features: Features) -> None:
    """2,000 new dev rows are drawn, so that chance moves the accuracy by about a point."""
    train, draw = rows_of(task, "train"), seeded("more rows", 0)
    dev = [SETS[task].make(WORLD.half(second=True), draw, number) for number in range(2000)]
    chance = 100 / len({row["label"] for row in train})
    assert abs(logistic_accuracy(train, dev, features) - chance) < 5


def test_logistic_regression_answers_where_words_do() -> None:
    """The measure itself: within the words of dev, single words tell the mood of SST-2."""
    rows = rows_of("sst-2", "dev")
    assert logistic_accuracy(rows[:200], rows[200:], single_words) > 95


def test_no_ending_is_right_by_its_words() -> None:
    """Endings are ranked by how often their words are in right and in wrong endings of train."""
    counts: dict[bool, Counter[str]] = defaultdict(Counter)
    for row in rows_of("swag", "train"):
        for number in range(4):
            counts[row["label"] == str(number)].update(words_in(row[f"ending{number}"]))
    correct = 0
    dev = rows_of("swag", "dev")
    for row in dev:
        endings = [words_in(row[f"ending{number}"]) for number in range(4)]
        scores = [sum(counts[True][w] - counts[False][w] / 3 for w in words) for words in endings]
        correct += scores.index(max(scores)) == int(row["label"])
    assert 20 < 100 * correct / len(dev) < 30


@pytest.mark.parametrize("task", ["squad-1.1", "squad-2.0"])
def test_no_place_and_no_name_answers_squad(task: str) -> None:
    train, dev = rows_of(task, "train"), rows_of(task, "dev")
    chance = 50 if task == "squad-1.1" else 100 / 3
    names = [[word for word in row["second"].split() if word in WORLD.names] for row in dev]
    assert {len(found) for found in names} == {2}
    for place in range(2):
        right = [row["label"] == found[place] for row, found in zip(dev, names, strict=True)]
        assert abs(100 * sum(right) / len(right) - chance) < 5
    assert not {row["label"] for row in train} & {row["label"] for row in dev} - {""}


@pytest.mark.parametrize("task", TAGGED)
def test_no_name_and_no_place_tells_its_type(task: str) -> None:
    """A guess by place and word before is at chance; no name of dev occurs in train."""
    counts: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    named = {split: list(names_with_tags(rows_of(task, split))) for split in ("train", "dev")}
    for place, before, _, tag in named["train"]:
        counts[place, before][tag] += 1
    assert not {name for *_, name, _ in named["train"]} & {name for *_, name, _ in named["dev"]}
    usual = Counter(tag for *_, tag in named["train"]).most_common(1)[0][0]
    guesses = [max(counts[at, word], key=counts[at, word].get, default=usual)
               for at, word, *_ in named["dev"]]  # fmt: skip
    right = [guess == tag for guess, (*_, tag) in zip(guesses, named["dev"], strict=True)]
    assert 100 * sum(right) / len(right) < 25 + 6


def names_with_tags(rows: Iterable[Row]) -> Iterable[tuple[int, str, str, str]]:
    """Yield place, word before, name and tag of each name."""
    for row in rows:
        words, tags = row["first"].split(), row["label"].split()
        for place, (word, tag) in enumerate(zip(words, tags, strict=True)):
            if tag != "O":
                yield place, words[place - 1] if place else "", word, tag
