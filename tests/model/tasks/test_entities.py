import random

import pytest
from seqeval.metrics import (
    accuracy_score,
    classification_report,
    f1_score,
    precision_score,
    recall_score,
)
from seqeval.metrics.sequence_labeling import get_entities

from model.tasks.entities import Entity, EntityCounts, entities_of, iob2, is_tag

TYPES = ("LOC", "PER", "creative-work")
ANY_IOB = ("O", *(f"{role}-{kind}" for role in "BI" for kind in TYPES))
ANY_BIOES = ("O", *(f"{role}-{kind}" for role in "BIES" for kind in TYPES))


def random_sentences(draw, alphabet, *, count):
    # Repeating the tag before makes long entities as likely as short ones.
    sentences = []
    for _ in range(count):
        tags = [draw.choice(alphabet)]
        for _ in range(draw.randint(0, 11)):
            tags.append(tags[-1] if draw.random() < 0.4 else draw.choice(alphabet))
        sentences.append(tags)
    return sentences


def counted(gold, predicted):
    counts = EntityCounts()
    for one, other in zip(gold, predicted, strict=True):
        counts.add(one, other)
    return counts.metrics()


@pytest.mark.parametrize("alphabet", [ANY_IOB, ANY_BIOES], ids=["iob", "bioes"])
def test_entities_of_any_tags_are_those_of_conlleval(alphabet):
    for tags in random_sentences(random.Random(1), alphabet, count=2000):
        theirs = [Entity(start, end + 1, kind) for kind, start, end in get_entities(tags)]
        assert entities_of(tags) == theirs, tags


@pytest.mark.parametrize("seed", range(5))
def test_scores_of_any_tags_are_those_of_seqeval(seed):
    draw = random.Random(seed)
    gold = random_sentences(draw, ANY_IOB, count=60)
    # Some right, some wrong, so that precision and recall differ and are not 0 or 1.
    predicted = [
        [tag if draw.random() < 0.7 else draw.choice(ANY_IOB) for tag in tags] for tags in gold
    ]
    scores = counted(gold, predicted)
    assert 0 < scores["entity-f1"] < 1
    assert scores["entity-precision"] != scores["entity-recall"]
    assert scores["entity-f1"] == pytest.approx(f1_score(gold, predicted), abs=1e-12)
    assert scores["entity-precision"] == pytest.approx(precision_score(gold, predicted), abs=1e-12)
    assert scores["entity-recall"] == pytest.approx(recall_score(gold, predicted), abs=1e-12)
    assert scores["word-accuracy"] == pytest.approx(accuracy_score(gold, predicted), abs=1e-12)
    report = classification_report(gold, predicted, output_dict=True)
    for kind in TYPES:
        assert scores[f"entity-f1:{kind}"] == pytest.approx(report[kind]["f1-score"], abs=1e-12)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["O", "I-LOC", "I-LOC"], [(1, 3, "LOC")]),
        (["B-LOC", "I-PER"], [(0, 1, "LOC"), (1, 2, "PER")]),
        (["B-LOC", "B-LOC"], [(0, 1, "LOC"), (1, 2, "LOC")]),
        (["E-LOC", "I-LOC"], [(0, 1, "LOC"), (1, 2, "LOC")]),
        (["B-LOC", "L-LOC", "U-PER"], [(0, 2, "LOC"), (2, 3, "PER")]),  # BILOU
    ],
)
def test_entities_of_tags_that_no_scheme_allows(tags, expected):
    assert entities_of(tags) == expected


def test_entity_with_wrong_end_is_one_missed_and_one_too_many():
    scores = counted([["B-LOC", "I-LOC", "O"]], [["B-LOC", "O", "O"]])
    assert (scores["entity-precision"], scores["entity-recall"], scores["entity-f1"]) == (0, 0, 0)
    assert scores["word-accuracy"] == pytest.approx(2 / 3)


def test_entities_end_with_their_sentence():
    assert counted([["B-LOC"], ["I-LOC"]], [["B-LOC"], ["I-LOC"]])["entity-f1"] == 1.0
    scores = counted([["B-LOC"], ["I-LOC"]], [["O"], ["I-LOC"]])
    assert (scores["entity-precision"], scores["entity-recall"]) == (1.0, 0.5)


def test_iob2_gives_the_same_entities_back():
    for tags in random_sentences(random.Random(4), ANY_BIOES, count=500):
        written = iob2(entities_of(tags), words=len(tags))
        assert entities_of(written) == entities_of(tags)
        assert all(is_tag(tag) for tag in written)
        for before, tag in zip(["O", *written], written, strict=False):
            assert tag[0] != "I" or before[2:] == tag[2:]


def test_scores_without_entities_are_0_and_never_divide_by_0():
    scores = counted([["O", "O"]], [["O", "O"]])
    assert scores["entity-f1"] == scores["entity-precision"] == scores["entity-recall"] == 0.0
    assert scores["word-accuracy"] == 1.0
    assert EntityCounts().metrics()["word-accuracy"] == 0.0


@pytest.mark.parametrize("text", ["", "o", "LOC", "B", "B-", "B- ", "X-LOC", "BLOC", "B_LOC"])
def test_what_is_no_tag_is_refused(text):
    assert not is_tag(text)
    with pytest.raises(ValueError, match="B-LOC"):
        entities_of([text])


def test_sentences_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="zip"):
        EntityCounts().add(["O"], ["O", "O"])
