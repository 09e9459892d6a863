import gzip
from collections import Counter

import pyarrow as pa
import pytest

from model.tasks.column_files import read_documents
from model.tasks.entities import entities_of
from model.tasks.ner import NER_TASKS
from model.tasks.task import BadRow, FileLayout, Row
from schemas.arrow import TAG_EXAMPLES
from schemas.errors import MissingInputError, TaskDataError

CONLL = NER_TASKS["conll-2003"]

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
def write(tmp_path):
    def _write(content, name="train.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return _write


def read(task, url, split="train"):
    found = list(task.reader(task, split, url))
    rows = [item for item in found if isinstance(item, Row)]
    return rows, [item for item in found if isinstance(item, BadRow)]


def test_conll_documents_sentences_and_old_tags(write):
    rows, bad = read(CONLL, write(WITH_MARKS))
    assert bad == []
    assert [row.values["id"] for row in rows] == ["document-1", "document-2"]
    assert [row.position for row in rows] == ["line 3", "line 13"]
    first = rows[0].values
    assert first["words"] == ["Mia", "Brand", "sang", "Oslo", "Bergen", "."]
    assert first["sentence_lengths"] == [3, 3]
    assert first["tags"] == ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "O"]
    assert [row.notes for row in rows] == [("from-iob1",), ("from-iob1",)]
    pa.Table.from_pylist([row.values for row in rows], schema=TAG_EXAMPLES)


def test_the_same_in_iob2_has_no_note(write):
    rows, _ = read(CONLL, write(WITH_MARKS))
    tags = iter(tag for row in rows for tag in row.values["tags"])
    lines = [
        f"{line.rpartition(' ')[0]} {next(tags)}" if line and "DOCSTART" not in line else line
        for line in WITH_MARKS.split("\n")
    ]
    again, _ = read(CONLL, write("\n".join(lines)))
    assert [row.values for row in again] == [row.values for row in rows]
    assert [row.notes for row in again] == [(), ()]


@pytest.mark.parametrize(
    ("tags", "expected", "note"),
    [
        (["S-A", "B-A", "I-A", "E-A"], ["B-A", "B-A", "I-A", "I-A"], "from-bioes"),
        (["U-A", "B-A", "L-A", "O"], ["B-A", "B-A", "I-A", "O"], "from-bioes"),
        (["I-A", "O", "O", "B-A"], ["B-A", "O", "O", "B-A"], "tags-mended"),
        (["I-A", "B-A", "I-A", "O"], ["B-A", "B-A", "I-A", "O"], "from-iob1"),
        (["I-A", "I-B", "I-A", "O"], ["B-A", "B-B", "B-A", "O"], "from-iob1"),
        (["B-A", "I-B", "O", "O"], ["B-A", "B-B", "O", "O"], "tags-mended"),
    ],
)
def test_schemes_are_told_from_the_data(write, tags, expected, note):
    rows, _ = read(CONLL, write("".join(f"w {tag}\n" for tag in tags)))
    assert rows[0].values["tags"] == expected
    assert rows[0].notes == (note,)


def test_without_marks_every_sentence_is_a_document(write):
    rows, bad = read(NER_TASKS["wnut17"], write("a\tO\nb\tB-x\n\t\n \n\nc\tO\n"))
    assert bad == []
    assert [row.values["id"] for row in rows] == ["sentence-1", "sentence-2"]
    assert [row.values["words"] for row in rows] == [["a", "b"], ["c"]]
    assert [row.values["sentence_lengths"] for row in rows] == [[2], [1]]


def test_a_bad_line_costs_its_sentence_and_nothing_else(write):
    content = (
        "-DOCSTART- O\n\ngood O\n\nshort\nrest O\nof O\n\nlast O\n\n"
        "-DOCSTART- O\n\nwide x O\n\nother LOC\n\n-DOCSTART- O\n\nfine B-LOC\n"
    )
    rows, bad = read(CONLL, write(content))
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


def test_a_missing_column_is_not_taken_for_another(write):
    # Its last column is a well-formed tag, of the chunk.
    rows, bad = read(CONLL, write(WITH_MARKS.replace("sang VBD I-VP O", "sang VBD I-VP")))
    assert [item.reason for item in bad] == ["too-few-columns"]
    assert rows[0].values["words"] == ["Oslo", "Bergen", "."]


def test_a_word_missing_before_a_tab_and_bytes_that_are_no_text(write):
    rows, bad = read(CONLL, write(b"a\tO\n\n\tO\n\n\xff\tO\nb\tO\n\nc\tO\n"))
    assert [(item.position, item.reason) for item in bad] == [
        ("line 3", "no-word"),
        ("line 5", "not-utf-8"),
    ]
    assert [row.values["words"] for row in rows] == [["a"], ["c"]]


def test_spaces_line_ends_and_a_byte_order_mark_are_no_part_of_words(write):
    content = "\N{ZERO WIDTH NO-BREAK SPACE}a   B-x  \r\nb O \r\n   \r\nc\u00a0d O\r\ne\x85f O"
    rows, bad = read(CONLL, write(content))
    assert bad == []
    assert [row.values["words"] for row in rows] == [["a", "b"], ["c\u00a0d", "e\x85f"]]


def test_words_with_spaces_and_hashes_in_files_with_tabs(write):
    rows, _ = read(NER_TASKS["tagging"], write("New York\tB-x\n# 1\tO\n\n#\tO\na\tO\n"))
    assert [row.values["words"] for row in rows] == [["New York", "# 1"], ["#", "a"]]


def test_comments_are_for_the_general_task_alone(write):
    url = write("# id 7 domain=en\na _ _ B-x\nb _ _ O\n\n# id 8 domain=en\nc _ _ O\n\nd _ _ O\n")
    rows, bad = read(NER_TASKS["tagging"], url)
    assert bad == []
    assert [row.values["words"] for row in rows] == [["a", "b"], ["c"], ["d"]]
    _, bad = read(NER_TASKS["wnut17"], url)
    assert [item.reason for item in bad] == ["unknown-tag", "unknown-tag"]


def test_words_alone_are_a_test_set_and_no_training_data(write):
    url = write("-DOCSTART-\n\na\nb\n\nc\n")
    rows, bad = read(CONLL, url, "test")
    assert bad == []
    assert rows[0].values["tags"] is None
    assert rows[0].values["sentence_lengths"] == [2, 1]
    assert rows[0].notes == ()
    with pytest.raises(TaskDataError, match="found one column"):
        read(CONLL, url, "dev")


def test_a_file_without_words_is_refused(write):
    for content in ("", "\n\n", "-DOCSTART- O\n\n-DOCSTART- O\n"):
        with pytest.raises(TaskDataError, match="Is it empty"):
            read(CONLL, write(content))
    with pytest.raises(MissingInputError):
        read(CONLL, "/nowhere/train.txt")


def test_compressed_files_are_read_as_plain_ones(write):
    plain, _ = read(CONLL, write(WITH_MARKS))
    packed, _ = read(CONLL, write(gzip.compress(WITH_MARKS.encode()), "train.txt.gz"))
    assert packed == plain


def test_the_one_file_is_cut_the_same_way_wherever_documents_stand(write):
    task = NER_TASKS["wikigold"]
    texts = [f"word{number} O\nx I-LOC\n" for number in range(200)]

    def cut(order):
        url = write("\n-DOCSTART- O\n\n".join(order))
        found = {}
        for split in task.splits:
            rows, bad = read(task, url, split)
            assert len(rows) + len(bad) == len(order)
            assert {item.reason for item in bad} <= {"in-another-split"}
            assert not any(item.is_fault for item in bad)
            found[split] = {row.values["words"][0] for row in rows}
        return found

    found = cut(texts)
    assert sorted(word for words in found.values() for word in words) == sorted(
        f"word{number}" for number in range(200)
    )
    assert cut(texts[::-1]) == found
    assert {split: len(words) for split, words in found.items()} == {
        "train": pytest.approx(140, abs=25),
        "dev": pytest.approx(30, abs=20),
        "test": pytest.approx(30, abs=20),
    }


def test_bad_sentences_are_counted_in_one_split_only(write):
    task = NER_TASKS["wikigold"]
    content = "\n-DOCSTART- O\n\n".join(f"w{number} O\n\nbad\n" for number in range(20))
    faults = [item for split in task.splits for item in read(task, write(content), split)[1]]
    assert sum(item.reason == "too-few-columns" for item in faults) == 20


def real(task, url, split="train"):
    rows, bad = read(task, str(url), split)
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
    assert real(NER_TASKS["tagging"], url) == {
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
    task = NER_TASKS["wikigold"]
    url = str(real_data / "ner" / "wikigold" / "data" / "wikigold.conll.txt")
    sizes = {}
    names = []
    for split in task.splits:
        rows, _ = read(task, url, split)
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
    assert real(NER_TASKS["wnut17"], real_data / "ner" / "wnut17" / name, split) == expected
    assert name in NER_TASKS["wnut17"].splits[split]


def test_documents_begin_at_their_first_line(write):
    documents = read_documents(write(WITH_MARKS), FileLayout(), split="test")
    begins = [
        (found.position, [sentence.words[0] for sentence in found.sentences]) for found in documents
    ]
    assert begins == [("line 3", ["Mia", "Oslo"]), ("line 13", ["Acme"])]
