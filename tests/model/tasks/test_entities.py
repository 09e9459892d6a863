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


def random_sentences(draw, alphabet, *, count, longest=12):
    # Repeating the tag before makes long entities as likely as short ones.
    sentences = []
    for _ in range(count):
        tags = []
        for _ in range(draw.randint(1, longest)):
            repeats = tags and draw.random() < 0.4
            tags.append(tags[-1] if repeats else draw.choice(alphabet))
        sentences.append(tags)
    return sentences


def as_iob1(tags):
    """Return IOB1 tags: B- only after an adjacent entity of the same type."""
    found = ["O"] * len(tags)
    before = None
    for entity in entities_of(tags):
        touches = before and before.end == entity.start and before.type == entity.type
        found[entity.start : entity.end] = [f"I-{entity.type}"] * (entity.end - entity.start)
        if touches:
            found[entity.start] = f"B-{entity.type}"
        before = entity
    return found


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


def test_gold_in_iob1_scores_as_gold_in_iob2():
    draw = random.Random(9)
    gold = [
        iob2(entities_of(tags), words=len(tags))
        for tags in random_sentences(draw, ANY_IOB, count=80)
    ]
    old = [as_iob1(tags) for tags in gold]
    assert old != gold
    predicted = [
        [tag if draw.random() < 0.8 else draw.choice(ANY_IOB) for tag in tags] for tags in gold
    ]
    new, former = counted(gold, predicted), counted(old, predicted)
    assert former["entity-f1"] == new["entity-f1"] == pytest.approx(f1_score(old, predicted))
    assert counted(old, gold)["entity-f1"] == 1.0


def test_what_conlleval_does_with_tags_that_no_scheme_allows():
    assert entities_of(["O", "I-LOC", "I-LOC"]) == [Entity(1, 3, "LOC")]
    assert entities_of(["B-LOC", "I-PER"]) == [Entity(0, 1, "LOC"), Entity(1, 2, "PER")]
    assert entities_of(["B-LOC", "B-LOC"]) == [Entity(0, 1, "LOC"), Entity(1, 2, "LOC")]
    assert entities_of(["E-LOC", "I-LOC"]) == [Entity(0, 1, "LOC"), Entity(1, 2, "LOC")]


def test_an_entity_with_a_wrong_end_is_one_missed_and_one_too_many():
    scores = counted([["B-LOC", "I-LOC", "O"]], [["B-LOC", "O", "O"]])
    assert (scores["entity-precision"], scores["entity-recall"], scores["entity-f1"]) == (0, 0, 0)
    assert scores["word-accuracy"] == pytest.approx(2 / 3)


def test_entities_do_not_reach_over_the_end_of_a_sentence():
    assert counted([["B-LOC"], ["I-LOC"]], [["B-LOC"], ["I-LOC"]])["entity-f1"] == 1.0
    counts = EntityCounts()
    counts.add(["B-LOC"], ["O"])
    counts.add(["I-LOC"], ["I-LOC"])
    assert (counts.gold.total(), counts.correct.total()) == (2, 1)


def test_bilou_is_bioes_under_other_names():
    assert entities_of(["B-LOC", "L-LOC", "U-PER"]) == [Entity(0, 2, "LOC"), Entity(2, 3, "PER")]


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
