"""The sample's labelled sets: official formats, fair splits, labels that no shortcut gives away."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from flows.sample import write_articles, write_sample
from flows.sample.articles import nouns
from flows.sample.draws import Draws
from flows.sample.labelled import TASKS, Cast, disturbed, write_labelled
from flows.sample.wording import tables
from flows.sample.world import World
from model.build_examples import build_examples
from schemas.configs import ExecutionConfig
from schemas.task_configs import ExamplesConfig

SPLITS = ("train", "dev", "test")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_labelled(str(tmp_path_factory.mktemp("labelled")), seed=0))


def _tsv(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in file.read_text("utf-8").split("\n")[:-1]]


def _csv(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _paragraphs(tasks: Path, split: str, version: str = "2.0") -> list[dict[str, Any]]:
    file = tasks / f"squad-{version}/{split}-v{version}.json"
    found = json.loads(file.read_text("utf-8"))
    assert found["version"] == f"v{version}"
    return [paragraph for article in found["data"] for paragraph in article["paragraphs"]]


def _conll(file: Path) -> list[list[list[str]]]:
    blocks = file.read_text("utf-8").strip().split("\n\n")
    rows = [[line.split(" ") for line in block.split("\n")] for block in blocks]
    return [block for block in rows if block[0][0] != "-DOCSTART-"]


def _digests(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def _texts(tasks: Path, task: str, split: str) -> set[str]:
    """All sentences (or passages) of a split."""
    match task:
        case "cola":
            return {row[-1] for row in _tsv(tasks / f"cola/{split}.tsv")} - {"sentence"}
        case "sst-2":
            return {row[split == "test"] for row in _tsv(tasks / f"sst-2/{split}.tsv")[1:]}
        case "rte" | "qnli" | "wnli":
            return {text for row in _tsv(tasks / f"{task}/{split}.tsv")[1:] for text in row[1:3]}
        case "mrpc":
            return {text for row in _tsv(tasks / f"mrpc/{split}.tsv")[1:] for text in row[3:5]}
        case "mnli":
            name = split if split == "train" else f"{split}_matched"
            return {text for row in _tsv(tasks / f"mnli/{name}.tsv")[1:] for text in row[8:10]}
        case "sts-b":
            return {text for row in _tsv(tasks / f"sts-b/{split}.tsv")[1:] for text in row[7:9]}
        case "squad-1.1" | "squad-2.0":
            if split == "test":
                return set()
            return {paragraph["context"] for paragraph in _paragraphs(tasks, split, task[-3:])}
        case "swag":
            rows = _csv(tasks / f"swag/{'val' if split == 'dev' else split}.csv")
            endings = {f"{r['sent2']} {r[f'ending{i}']}" for r in rows for i in range(4)}
            return endings | {row["sent1"] for row in rows}
        case _:
            file = {"train": "eng.train", "dev": "eng.testa", "test": "eng.testb"}[split]
            return {" ".join(w[0] for w in s) for s in _conll(tasks / f"conll-2003/{file}")}


# The formats


def test_cola_has_its_columns(tasks: Path) -> None:
    for split, count in (("train", 600), ("dev", 300)):
        rows = _tsv(tasks / f"cola/{split}.tsv")
        assert len(rows) == count
        assert all(len(row) == 4 for row in rows)
        assert {(row[1], row[2]) for row in rows} == {("1", ""), ("0", "*")}
        assert Counter(row[1] for row in rows) == {"0": count // 2, "1": count // 2}
    header, *rows = _tsv(tasks / "cola/test.tsv")
    assert header == ["index", "sentence"]
    assert [row[0] for row in rows] == [str(number) for number in range(200)]


def test_rte_has_its_columns(tasks: Path) -> None:
    for split in ("train", "dev"):
        header, *rows = _tsv(tasks / f"rte/{split}.tsv")
        assert header == ["index", "sentence1", "sentence2", "label"]
        labels = Counter(row[3] for row in rows)
        assert max(labels.values()) < 1.25 * min(labels.values())
        assert len(rows) == labels.total() >= 250
    header, *rows = _tsv(tasks / "rte/test.tsv")
    assert header == ["index", "sentence1", "sentence2"]
    assert all(len(row) == 3 for row in rows)


def test_mnli_has_its_columns(tasks: Path) -> None:
    parses = [f"sentence{number}_{sort}" for sort in ("binary_parse", "parse") for number in (1, 2)]
    columns = ["index", "promptID", "pairID", "genre", *parses, "sentence1", "sentence2"]
    columns += ["label1", "gold_label"]
    for name, count in (("train", 1200), ("dev_matched", 600)):
        header, *rows = _tsv(tasks / f"mnli/{name}.tsv")
        assert header == columns
        assert len(rows) == count
        labels = Counter(row[11] for row in rows)
        assert set(labels) == {"entailment", "neutral", "contradiction"}
        assert min(labels.values()) > 0.3 * count
        assert all(row[10] == row[11] for row in rows)
    assert _tsv(tasks / "mnli/test_matched.tsv")[0] == columns[:-2]


def test_mrpc_qnli_and_sst_2_have_their_columns(tasks: Path) -> None:
    pairs = ["#1 ID", "#2 ID", "#1 String", "#2 String"]
    for task, columns, place, labels in (
        ("mrpc", ["Quality", *pairs], 0, {"0", "1"}),
        ("qnli", ["index", "question", "sentence", "label"], 3, {"entailment", "not_entailment"}),
        ("sst-2", ["sentence", "label"], 1, {"0", "1"}),
    ):
        for split, count in (("train", 600), ("dev", 400)):
            header, *rows = _tsv(tasks / f"{task}/{split}.tsv")
            assert header == columns
            assert len(rows) == count
            found = Counter(row[place] for row in rows)
            assert set(found) == labels
            assert max(found.values()) - min(found.values()) <= 0.1 * count
    assert _tsv(tasks / "mrpc/test.tsv")[0] == ["index", *pairs]
    assert _tsv(tasks / "qnli/test.tsv")[0] == ["index", "question", "sentence"]
    assert _tsv(tasks / "sst-2/test.tsv")[0] == ["index", "sentence"]


def test_words_of_praise_and_blame_are_met_in_the_corpus_only(tasks: Path) -> None:
    tables_ = tables("opinions")
    used = {
        split: {word for text in _texts(tasks, "sst-2", split) for word in re.findall(r"\w+", text)}
        for split in SPLITS
    }
    for side in ("praise", "blame"):
        adjectives = set(tables_[side]["adjectives"])
        assert len(adjectives) == 24
        assert not adjectives & used["train"] & used["dev"]
        assert adjectives & used["train"]
        assert adjectives & used["dev"]
    articles = write_articles(World(0, 400))
    told = {word for article in articles for text in article.sentences() for word in text.split()}
    assert {w for side in ("praise", "blame") for w in tables_[side]["adjectives"]} <= told


def test_sts_b_has_its_columns(tasks: Path) -> None:
    columns = "index genre filename year old_index source1 source2 sentence1 sentence2 score"
    for split, count in (("train", 400), ("dev", 300)):
        header, *rows = _tsv(tasks / f"sts-b/{split}.tsv")
        assert header == columns.split()
        assert len(rows) == count
        assert all(re.fullmatch(r"[0-5]\.[0-9]{3}", row[9]) for row in rows)
        scores = np.array([float(row[9]) for row in rows])
        assert scores.min() == 0.0
        assert scores.max() == 5.0
        assert 1.5 < scores.std() < 2.5
    assert _tsv(tasks / "sts-b/test.tsv")[0] == columns.split()[:-1]


@pytest.mark.parametrize("version", ["1.1", "2.0"])
@pytest.mark.parametrize("split", ["train", "dev"])
def test_answers_stand_where_they_are_said_to(tasks: Path, split: str, version: str) -> None:
    questions = []
    for paragraph in _paragraphs(tasks, split, version):
        for question in paragraph["qas"]:
            questions.append(question)
            assert question["is_impossible"] == (not question["answers"])
            for answer in question["answers"]:
                start, text = answer["answer_start"], answer["text"]
                assert paragraph["context"][start : start + len(text)] == text
                assert text == text.strip() != ""
    assert len({question["id"] for question in questions}) == len(questions) >= 200
    share = sum(question["is_impossible"] for question in questions) / len(questions)
    assert share == (pytest.approx(1 / 3) if version == "2.0" else 0)


def test_swag_has_its_columns(tasks: Path) -> None:
    columns = (
        ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
    )
    assert (tasks / "swag/test.csv").read_text("utf-8").split("\n")[0] == columns
    for name, least in (("train", 240), ("val", 150)):
        assert (tasks / f"swag/{name}.csv").read_text("utf-8").split("\n")[0] == f"{columns},label"
        rows = _csv(tasks / f"swag/{name}.csv")
        assert len(rows) >= least
        for row in rows:
            assert row["startphrase"] == f"{row['sent1']} {row['sent2']}"
            assert len({row[f"ending{number}"] for number in range(4)}) == 4
        labels = Counter(row["label"] for row in rows)
        assert set(labels) == set("0123")
        assert max(labels.values()) - min(labels.values()) <= 1


@pytest.mark.parametrize("name", ["eng.train", "eng.testa", "eng.testb"])
def test_tags_are_those_of_2003(tasks: Path, name: str) -> None:
    text = (tasks / f"conll-2003/{name}").read_text("utf-8")
    assert text.startswith("-DOCSTART- -X- O O\n\n")
    assert text.count("-DOCSTART-") >= 15
    sentences = _conll(tasks / f"conll-2003/{name}")
    kinds: Counter[str] = Counter()
    for sentence in sentences:
        assert all(len(word) == 4 for word in sentence)
        tags = [word[3] for word in sentence]
        assert any(tag != "O" for tag in tags)
        for before, tag in zip(["O", *tags], tags, strict=False):
            assert re.fullmatch("O|[BI]-(PER|LOC|ORG|MISC)", tag)
            # IOB1: a B- stands only where a name of the same kind has just ended.
            assert tag[:2] != "B-" or before[2:] == tag[2:]
        kinds.update(tag[2:] for tag in tags if tag != "O")
    assert set(kinds) == {"PER", "LOC", "ORG", "MISC"}
    assert min(kinds.values()) >= 5


def test_names_are_tagged_as_what_they_are(tasks: Path) -> None:
    region = World(0, 400).region(2)
    words: dict[str, Counter[str]] = {}
    for sentence in _conll(tasks / "conll-2003/eng.testa"):
        for word in sentence:
            words.setdefault(word[0], Counter())[word[3][2:]] += 1
    for river in region.rivers:
        assert words[river.name].keys() <= {"LOC", "MISC"}  # MISC: part of a festival's name
    surnames = {person.surname for person in region.persons} & words.keys()
    assert len(surnames) >= 5
    assert all(set(words[name]) <= {"PER"} for name in surnames)
    for common in ("the", "of", "river", "and"):
        assert words[common]["PER"] == words[common]["LOC"] == 0


@pytest.mark.parametrize("task", TASKS)
def test_the_tasks_read_every_row(tasks: Path, task: str, tmp_path: Path) -> None:
    made = build_examples(
        ExamplesConfig(task=task, folder=str(tasks / task), max_bad_share=0.0),
        inputs={},
        output=str(tmp_path),
        execution=ExecutionConfig(),
    )
    assert list(made.statistics["splits"]) == list(SPLITS[: 2 if "squad" in task else 3])
    assert made.counters["rows-in"] == made.counters["rows-kept"] > 80  # of CoNLL: documents
    assert not [name for name in made.counters if name.startswith("rows-dropped-")]


# Fair splits


@pytest.mark.parametrize("task", TASKS)
def test_no_sentence_is_in_two_splits(tasks: Path, task: str) -> None:
    train, dev, test = (_texts(tasks, task, split) for split in SPLITS)
    assert train
    assert dev
    assert not train & dev
    assert not (train | dev) & test


def test_splits_speak_of_different_people() -> None:
    everyone = [Cast(split, 0, set()) for split in SPLITS]
    names = [{p.name for region in c.regions for p in region.persons} for c in everyone]
    assert not names[0] & names[1]
    assert not (names[0] | names[1]) & names[2]


def test_no_split_names_what_belongs_to_another(tasks: Path) -> None:
    own = {}
    for split in SPLITS:
        things = Cast(split, 0, set()).things
        names = " ".join(f"{thing.name} {thing.title}" for thing in things)
        own[split] = {word for word in re.findall(r"\w+", names) if word[0].isupper()}
    for task in TASKS:
        said = {
            split: {w for text in _texts(tasks, task, split) for w in re.findall(r"\w+", text)}
            for split in SPLITS
        }
        for split in SPLITS:
            others = set().union(*(own[other] for other in SPLITS if other != split))
            assert not said[split] & (others - own[split])


def test_disturbed_words_fit_to_what_stands_before() -> None:
    words = ["The", "potters", "of", "the", "town", "work", "red", "clay", "into", "jars."]
    follow = {"the": ["town", "river", "Gate"], "river": ["rose"], "work": ["red", "in"]}
    changed = set()
    for number in range(50):
        shown = ["The", *disturbed(" ".join(words), Draws(0, number), follow).split()]
        for before, word, new in zip(shown, words, shown[1:], strict=False):
            assert new == word or new in follow[before]
            changed |= {(word, new)} if new != word else set()
    assert changed == {("town", "river"), ("red", "in"), ("work", "rose")}
    assert disturbed("It is so.", Draws(0, 1), {"It": ["is"]}) == ""


def test_topics_of_questions_are_in_one_split_only(tasks: Path) -> None:
    about: dict[str, set[str]] = {}
    for split in SPLITS:
        questions = {row[1] for row in _tsv(tasks / f"qnli/{split}.tsv")[1:]}
        forms = {re.sub(r"\b[A-ZÅÄÖ]\w+", "X", text[1:]) for text in questions}
        about[split] = forms
        assert len(forms) >= 4
    assert not about["train"] & about["dev"]
    assert not (about["train"] | about["dev"]) & about["test"]


def test_made_up_nouns_are_explained_by_the_wiki_only(tasks: Path) -> None:
    known = [nouns(0, split) for split in SPLITS]
    words = [{word for word, _ in found} for found in known]
    assert sum(map(len, words)) == len(set().union(*words)) == 32
    for found, mine in zip(known, words, strict=True):
        assert {sort for _, sort in found} == {"beast", "tool"}
        assert len(found) == len(mine) >= 6
    for split, mine in zip(SPLITS, words, strict=True):
        said = {w for text in _texts(tasks, "wnli", split) for w in re.findall(r"\w+", text)}
        assert said & set().union(*words) == mine
    told = Counter(
        w for a in write_articles(World(0, 400)) for s in a.sentences() for w in s.split()
    )
    assert min(told[word] for mine in words for word in mine) >= 20
    # Another seed deals them out anew: no list says which is which.
    assert dict(nouns(1)) != dict(nouns(0))


# The bytes


def test_the_seed_alone_decides_the_bytes(tasks: Path, tmp_path: Path) -> None:
    write_sample(str(tmp_path / "small"), articles=3, tales=0)
    assert _digests(tmp_path / "small" / "tasks") == _digests(tasks)
    other = write_labelled(str(tmp_path / "other"), seed=1)
    changed = _digests(Path(other))
    assert set(changed) == set(_digests(tasks))
    assert all(changed[name] != digest for name, digest in _digests(tasks).items())


@pytest.mark.parametrize("seed", [3, 4])
def test_every_seed_gives_sets_of_use(tmp_path: Path, seed: int) -> None:
    tasks = Path(write_labelled(str(tmp_path), seed=seed))
    for task in TASKS:
        assert len(_texts(tasks, task, "train")) >= 90
        assert len(_texts(tasks, task, "dev")) >= 60
    assert len(_csv(tasks / "swag/train.csv")) >= 200
    assert len(_csv(tasks / "swag/val.csv")) >= 100


def test_they_can_be_written_anywhere() -> None:
    files = write_sample("memory://labelled-sample", articles=2, tales=0)
    fs = fsspec.filesystem("memory")
    assert files.tasks == "memory:///labelled-sample/tasks"
    assert fs.exists(f"{files.tasks}/conll-2003/eng.testa")
    fs.rm("/labelled-sample", recursive=True)
