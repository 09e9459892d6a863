import random
from collections import Counter

import pyarrow as pa
import pytest
from seqeval.metrics import accuracy_score, classification_report
from seqeval.metrics.sequence_labeling import get_entities
from support.task_rows import faults, read, write

from model.tasks.ner import Entity, entities_of, iob2, is_tag
from model.tasks.tagging import EntityCounts
from schemas.arrow import TAG_EXAMPLES
from schemas.errors import MissingInputError, TaskDataError

WITH_MARKS = """-DOCSTART- -X- -X- O

Mia NNP I-NP I-PER
Brand NNP I-NP I-PER
sang VBD I-VP O

Oslo NNP I-NP I-LOC
Bergen NNP I-NP B-LOC
. . O O

-DOCSTART- -X- O O

Acme NNP I-NP I-ORG
"""


@pytest.fixture
def file(tmp_path):
    return lambda content, name="train.txt": write(tmp_path / name, content)


def test_conll_documents_sentences_and_old_tags(file):
    rows, bad = read("conll-2003", "train", file(WITH_MARKS))
    assert bad == []
    assert [row.values["id"] for row in rows] == ["document-1", "document-2"]
    assert [row.position for row in rows] == ["line 3", "line 13"]
    first = rows[0].values
    assert first["words"] == ["Mia", "Brand", "sang", "Oslo", "Bergen", "."]
    assert first["sentence_lengths"] == [3, 3]
    assert first["tags"] == ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "O"]
    assert [row.notes for row in rows] == [("from-iob1",), ("from-iob1",)]
    pa.Table.from_pylist([row.values for row in rows], schema=TAG_EXAMPLES)


@pytest.mark.parametrize(
    ("tags", "expected", "note"),
    [
        (["B-A", "I-A", "O", "B-A"], ["B-A", "I-A", "O", "B-A"], None),
        (["S-A", "B-A", "I-A", "E-A"], ["B-A", "B-A", "I-A", "I-A"], "from-bioes"),
        (["U-A", "B-A", "L-A", "O"], ["B-A", "B-A", "I-A", "O"], "from-bioes"),
        (["I-A", "O", "O", "B-A"], ["B-A", "O", "O", "B-A"], "from-iob1"),
        (["I-A", "B-A", "I-A", "O"], ["B-A", "B-A", "I-A", "O"], "from-iob1"),
        (["I-A", "I-B", "I-A", "O"], ["B-A", "B-B", "B-A", "O"], "from-iob1"),
        (["B-A", "I-B", "O", "O"], ["B-A", "B-B", "O", "O"], "from-iob1"),
    ],
)
def test_schemes_are_told_from_the_data(file, tags, expected, note):
    rows, _ = read("conll-2003", "train", file("".join(f"w {tag}\n" for tag in tags)))
    assert rows[0].values["tags"] == expected
    assert rows[0].notes == ((note,) if note else ())


@pytest.mark.parametrize(
    ("task", "content", "documents", "bad"),
    [
        ("tagging", "a\tO\nb\tB-x\n\t\n \n\nc\tO\n", [["a", "b"], ["c"]], []),
        (
            "conll-2003",
            b"a\tO\n\n\tO\n\n\xff\tO\nb\tO\n\nc\tO\n",
            [["a"], ["c"]],
            [("line 3", "no-word"), ("line 5", "not-utf-8")],
        ),
        (
            "conll-2003",
            "\ufeffa   B-x  \r\nb O \r\n   \r\nc\u00a0d O\r\ne\x85f O",
            [["a", "b"], ["c\u00a0d", "e\x85f"]],
            [],
        ),
        ("tagging", "New York\tB-x\n# 1\tO\n\n#\tO\n", [["New York", "# 1"], ["#"]], []),
    ],
    ids=["sentences-are-documents", "no-word", "spaces", "words-with-spaces"],
)
def test_words_of_files_without_marks(file, task, content, documents, bad):
    rows, dropped = read(task, "train", file(content))
    assert [row.values["words"] for row in rows] == documents
    assert faults(dropped) == bad


def test_a_bad_line_costs_its_sentence_and_nothing_else(file):
    content = (
        "-DOCSTART- O\n\ngood O\n\nshort\nrest O\nof O\n\nlast O\n\n"
        "-DOCSTART- O\n\nwide x O\n\nother LOC\n\n-DOCSTART- O\n\nfine B-LOC\n"
    )
    rows, bad = read("conll-2003", "train", file(content))
    assert [(item.position, item.reason, item.is_fault) for item in bad] == [
        ("line 5", "too-few-columns", True),
        ("line 13", "too-many-columns", True),
        ("line 15", "unknown-tag", True),
    ]
    assert "3 words" in bad[0].detail
    assert [row.values["words"] for row in rows] == [["good", "last"], ["fine"]]
    assert rows[0].notes == ("without-a-sentence",)
    assert rows[1].notes == ()
    assert rows[1].values["id"] == "document-3"


def test_comments_before_a_sentence_are_passed_over(file):
    url = file("# id 7 domain=en\na _ _ B-x\nb _ _ O\n\n# id 8 domain=en\nc _ _ O\n\nd _ _ O\n")
    rows, bad = read("tagging", "train", url)
    assert bad == []
    assert [row.values["words"] for row in rows] == [["a", "b"], ["c"], ["d"]]


def test_words_alone_are_a_test_set_and_no_training_data(file):
    url = file("-DOCSTART-\n\na\nb\n\nc\n")
    rows, bad = read("conll-2003", "test", url)
    assert bad == []
    assert rows[0].values["tags"] is None
    assert rows[0].values["sentence_lengths"] == [2, 1]
    assert rows[0].notes == ()
    with pytest.raises(TaskDataError, match=r"line 3: .*got one column"):
        read("conll-2003", "dev", url)


def test_a_file_without_words_is_refused(file):
    for content in ("", "\n\n", "-DOCSTART- O\n\n-DOCSTART- O\n"):
        with pytest.raises(TaskDataError, match="Is it empty"):
            read("conll-2003", "train", file(content))
    with pytest.raises(MissingInputError):
        read("conll-2003", "train", "/nowhere/train.txt")


def test_wikigold_is_read_as_published(real_data):
    # Its own page says 934 PER, 1014 LOC, 898 ORG, 712 MISC, and 39,152 tokens in 1,841 sentences
    # with 145 marks among either.
    rows, bad = read("tagging", "train", real_data / "ner/wikigold/data/wikigold.conll.txt")
    assert (len(rows), bad) == (145, [])
    counts = Counter(tag[2:] for row in rows for tag in row.values["tags"] if tag[0] == "B")
    assert counts == {"PER": 934, "LOC": 1014, "ORG": 898, "MISC": 712}
    assert sum(len(row.values["sentence_lengths"]) for row in rows) == 1841 - 145
    assert sum(len(row.values["words"]) for row in rows) == 39_152 - 145
    assert Counter(note for row in rows for note in row.notes) == {"from-iob1": 145}


@pytest.mark.parametrize(
    ("split", "name", "sentences", "words", "people"),
    [
        ("train", "wnut17train.conll", 3394, 62_730, 660),
        ("dev", "emerging.dev.conll", 1009, 15_733, 470),
        ("test", "emerging.test.annotated", 1287, 23_394, 429),
    ],
)
def test_wnut17_has_its_published_sizes(real_data, split, name, sentences, words, people):
    rows, bad = read("tagging", split, real_data / "ner" / "wnut17" / name)
    assert bad == []
    assert len(rows) == sum(len(row.values["sentence_lengths"]) for row in rows) == sentences
    tags = [tag for row in rows for tag in row.values["tags"]]
    assert (len(tags), tags.count("B-person")) == (words, people)


# Entities, counted like conlleval

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


@pytest.mark.parametrize("seed", range(2))
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
    report = classification_report(gold, predicted, output_dict=True)
    expected = {
        "entity-f1": report["micro avg"]["f1-score"],
        "entity-precision": report["micro avg"]["precision"],
        "entity-recall": report["micro avg"]["recall"],
        "word-accuracy": accuracy_score(gold, predicted),
        **{f"entity-f1:{kind}": report[kind]["f1-score"] for kind in TYPES},
    }
    assert scores == pytest.approx(expected, abs=1e-12)


def test_bilou_is_read_like_bioes_and_bare_tags_have_one_type():
    assert all(map(is_tag, "BIESLUO"))
    assert entities_of(["B", "I", "O", "S"]) == [(0, 2, "ENTITY"), (3, 4, "ENTITY")]
    assert entities_of(["B-LOC", "L-LOC", "U-PER"]) == [(0, 2, "LOC"), (2, 3, "PER")]


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


@pytest.mark.parametrize("text", ["", "o", "LOC", "B-", "B- ", "X-LOC", "BLOC", "B_LOC"])
def test_what_is_no_tag_is_refused(text):
    assert not is_tag(text)
    with pytest.raises(ValueError, match="B-LOC"):
        entities_of([text])
