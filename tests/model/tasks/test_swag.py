import csv
import json

import pyarrow as pa
import pytest
from support.task_rows import faults, read, write

from schemas.arrow import CHOICE_EXAMPLES
from schemas.errors import TaskDataError

HEADER = [
    "", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source",
    "ending0", "ending1", "ending2", "ending3", "label",
]  # fmt: skip
FIRST = [
    "7", "clip_1", "3416", "A man sits. He", "A man sits, \"alone\".", "He", "gold",
    "stands up.", "sings,\nloudly.", "is a chair.", "melts.", "2",
]  # fmt: skip


@pytest.fixture
def write_csv(tmp_path):
    def _write(rows, header=HEADER, name="train.csv"):
        path = tmp_path / name
        with path.open("w", newline="", encoding="utf-8") as target:
            csv.writer(target).writerows([header, *rows])
        return str(path)

    return _write


def changed(**values):
    return [values.get(name, old) for name, old in zip(HEADER, FIRST, strict=True)]


def test_a_row_of_swag(write_csv):
    rows, bad = read("swag", "train", write_csv([FIRST]))
    assert bad == []
    assert rows[0].values == {
        "id": "7",
        "context": 'A man sits, "alone".',
        "continuations": ["He stands up.", "He sings,\nloudly.", "He is a chair.", "He melts."],
        "label": 2,
    }
    pa.Table.from_pylist([rows[0].values], schema=CHOICE_EXAMPLES)


def test_bad_rows_are_told_with_place_and_reason(write_csv):
    lines = [
        FIRST,
        changed(ending3="  "),
        changed(label="4"),
        changed(label="gold"),
        changed(label=""),
        FIRST[:-2],
        changed(sent2=""),
    ]
    rows, bad = read("swag", "train", write_csv(lines))
    assert len(rows) == 2
    assert rows[1].values["continuations"][0] == "stands up."
    # The first row has a line break in a field, so the second begins on line 4.
    assert faults(bad) == [
        ("line 4", "empty-text"),
        ("line 6", "unknown-label"),
        ("line 8", "unknown-label"),
        ("line 10", "no-answer"),
        ("line 12", "too-few-columns"),
    ]
    assert "ending3" in bad[0].detail


def test_another_file_is_refused(write_csv):
    with pytest.raises(TaskDataError, match=r"missing .*sent2.*_full\.csv"):
        read("swag", "train", write_csv([["a", "b"]], header=["sent1", "distractor-0"]))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"label": -1}, "no-answer"),
        ({"label": 10**400}, "unknown-label"),
        ({"label": True}, "unknown-label"),
        ({"label": False}, "unknown-label"),
        ({"sent1": "\ud800"}, "no-text"),
        ({"sent2": "\ud800"}, "no-text"),
        ({"sent2": 7}, "no-text"),
        ({"ending3": "\ud800"}, "no-text"),
    ],
)
def test_values_of_json_that_are_no_answer_or_text_are_bad(tmp_path, changes, reason):
    row = {"sent1": "a", "sent2": "b", **dict.fromkeys(HEADER[7:-1], "c"), "label": 1}
    url = write(tmp_path / "a.jsonl", f"{json.dumps(row)}\n{json.dumps({**row, **changes})}\n")
    rows, bad = read("swag", "train", url)
    assert (len(rows), [item.reason for item in bad]) == (1, [reason])
    if reason == "no-answer":
        assert read("swag", "test", url)[0][1].values["label"] is None
