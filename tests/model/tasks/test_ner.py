from collections import Counter

import pyarrow as pa
import pytest
from support.task_rows import faults, read, write

from model.tasks.entities import entities_of
from model.tasks.ner import NER_TASKS
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
        (["I-A", "O", "O", "B-A"], ["B-A", "O", "O", "B-A"], "tags-mended"),
        (["I-A", "B-A", "I-A", "O"], ["B-A", "B-A", "I-A", "O"], "from-iob1"),
        (["I-A", "I-B", "I-A", "O"], ["B-A", "B-B", "B-A", "O"], "from-iob1"),
        (["B-A", "I-B", "O", "O"], ["B-A", "B-B", "O", "O"], "tags-mended"),
    ],
)
def test_schemes_are_told_from_the_data(file, tags, expected, note):
    rows, _ = read("conll-2003", "train", file("".join(f"w {tag}\n" for tag in tags)))
    assert rows[0].values["tags"] == expected
    assert rows[0].notes == ((note,) if note else ())


def test_without_marks_every_sentence_is_a_document(file):
    rows, bad = read("wnut17", "train", file("a\tO\nb\tB-x\n\t\n \n\nc\tO\n"))
    assert bad == []
    assert [row.values["id"] for row in rows] == ["sentence-1", "sentence-2"]
    assert [row.values["words"] for row in rows] == [["a", "b"], ["c"]]
    assert [row.values["sentence_lengths"] for row in rows] == [[2], [1]]


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
    assert "3 words" in bad[0].found
    assert [row.values["words"] for row in rows] == [["good", "last"], ["fine"]]
    assert rows[0].notes == ("without-a-sentence",)
    assert rows[1].notes == ()
    assert rows[1].values["id"] == "document-3"


def test_a_missing_column_is_not_taken_for_another(file):
    # Its last column is a well-formed tag, of the chunk.
    rows, bad = read(
        "conll-2003", "train", file(WITH_MARKS.replace("sang VBD I-VP O", "sang VBD I-VP"))
    )
    assert [item.reason for item in bad] == ["too-few-columns"]
    assert rows[0].values["words"] == ["Oslo", "Bergen", "."]


def test_a_word_missing_before_a_tab_and_bytes_that_are_no_text(file):
    rows, bad = read("conll-2003", "train", file(b"a\tO\n\n\tO\n\n\xff\tO\nb\tO\n\nc\tO\n"))
    assert faults(bad) == [("line 3", "no-word"), ("line 5", "not-utf-8")]
    assert [row.values["words"] for row in rows] == [["a"], ["c"]]


def test_spaces_line_ends_and_a_byte_order_mark_are_no_part_of_words(file):
    content = "\N{ZERO WIDTH NO-BREAK SPACE}a   B-x  \r\nb O \r\n   \r\nc\u00a0d O\r\ne\x85f O"
    rows, bad = read("conll-2003", "train", file(content))
    assert bad == []
    assert [row.values["words"] for row in rows] == [["a", "b"], ["c\u00a0d", "e\x85f"]]


def test_words_with_spaces_and_hashes_in_files_with_tabs(file):
    rows, _ = read("tagging", "train", file("New York\tB-x\n# 1\tO\n\n#\tO\na\tO\n"))
    assert [row.values["words"] for row in rows] == [["New York", "# 1"], ["#", "a"]]


def test_comments_are_for_the_general_task_alone(file):
    url = file("# id 7 domain=en\na _ _ B-x\nb _ _ O\n\n# id 8 domain=en\nc _ _ O\n\nd _ _ O\n")
    rows, bad = read("tagging", "train", url)
    assert bad == []
    assert [row.values["words"] for row in rows] == [["a", "b"], ["c"], ["d"]]
    _, bad = read("wnut17", "train", url)
    assert [item.reason for item in bad] == ["unknown-tag", "unknown-tag"]


def test_words_alone_are_a_test_set_and_no_training_data(file):
    url = file("-DOCSTART-\n\na\nb\n\nc\n")
    rows, bad = read("conll-2003", "test", url)
    assert bad == []
    assert rows[0].values["tags"] is None
    assert rows[0].values["sentence_lengths"] == [2, 1]
    assert rows[0].notes == ()
    with pytest.raises(TaskDataError, match="found one column"):
        read("conll-2003", "dev", url)


def test_a_file_without_words_is_refused(file):
    for content in ("", "\n\n", "-DOCSTART- O\n\n-DOCSTART- O\n"):
        with pytest.raises(TaskDataError, match="Is it empty"):
            read("conll-2003", "train", file(content))
    with pytest.raises(MissingInputError):
        read("conll-2003", "train", "/nowhere/train.txt")


def test_one_file_is_split_the_same_way_in_any_order(file):
    texts = [f"word{number} O\nx I-LOC\n" for number in range(200)]

    def split_file(order):
        url, found = file("\n-DOCSTART- O\n\n".join(order)), {}
        for split in NER_TASKS["wikigold"].splits:
            rows, bad = read("wikigold", split, url)
            assert len(rows) + len(bad) == len(order)
            assert {(row.reason, row.is_fault) for row in bad} == {("in-another-split", False)}
            found[split] = {row.values["words"][0] for row in rows}
        return found

    found = split_file(texts)
    words = [word for own in found.values() for word in own]
    assert sorted(words) == sorted(text.split()[0] for text in texts)
    assert split_file(texts[::-1]) == found
    assert [len(words) for words in found.values()] == pytest.approx([140, 30, 30], abs=20)


def test_bad_sentences_are_counted_in_one_split_only(file):
    url = file("\n-DOCSTART- O\n\n".join(f"w{number} O\n\nbad\n" for number in range(20)))
    bad = [row for split in NER_TASKS["wikigold"].splits for row in read("wikigold", split, url)[1]]
    assert sum(row.reason == "too-few-columns" for row in bad) == 20


def count(task, url, split="train"):
    rows, bad = read(task, split, url)
    assert bad == []
    counts = Counter()
    for row in rows:
        counts["documents"] += 1
        counts["sentences"] += len(row.values["sentence_lengths"])
        counts["words"] += len(row.values["words"])
        counts.update(f"note {note}" for note in row.notes)
        end = 0
        for length in row.values["sentence_lengths"]:
            start, end = end, end + length
            counts.update(entity.type for entity in entities_of(row.values["tags"][start:end]))
    return dict(counts)


def test_all_of_wikigold(real_data):
    # Its own page says 934 PER, 1014 LOC, 898 ORG, 712 MISC, and 39,152 tokens in 1,841 sentences
    # with 145 marks among either.
    url = real_data / "ner" / "wikigold" / "data" / "wikigold.conll.txt"
    assert count("tagging", url) == {
        "documents": 145,
        "sentences": 1841 - 145,
        "words": 39_152 - 145,
        "note from-iob1": 145,
        "PER": 934,
        "LOC": 1014,
        "ORG": 898,
        "MISC": 712,
    }


def test_the_splits_of_wikigold(real_data):
    url = real_data / "ner" / "wikigold" / "data" / "wikigold.conll.txt"
    sizes, names = {}, []
    for split in NER_TASKS["wikigold"].splits:
        rows, _ = read("wikigold", split, url)
        sizes[split] = (len(rows), sum(len(row.values["words"]) for row in rows))
        names += [row.values["id"] for row in rows]
    assert sizes == {"train": (108, 28_739), "dev": (18, 6_496), "test": (19, 3_772)}
    assert len(set(names)) == 145


@pytest.mark.parametrize(
    ("split", "name", "expected"),
    [
        (
            "train",
            "wnut17train.conll",
            {"documents": 3394, "sentences": 3394, "words": 62_730, "person": 660, "location": 548,
             "group": 264, "corporation": 221, "product": 142, "creative-work": 140},
        ),
        (
            "dev",
            "emerging.dev.conll",
            {"documents": 1009, "sentences": 1009, "words": 15_733, "person": 470, "location": 74,
             "group": 39, "corporation": 34, "product": 114, "creative-work": 105},
        ),
        (
            "test",
            "emerging.test.annotated",
            {"documents": 1287, "sentences": 1287, "words": 23_394, "person": 429, "location": 150,
             "group": 165, "corporation": 66, "product": 127, "creative-work": 142},
        ),
    ],
)  # fmt: skip
def test_all_of_wnut17(real_data, split, name, expected):
    assert count("wnut17", real_data / "ner" / "wnut17" / name, split) == expected
    assert name in NER_TASKS["wnut17"].splits[split]
