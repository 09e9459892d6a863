import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.task_rows import faults, read, write

from model.tasks.swag import SWAG_TASKS
from schemas.arrow import CHOICE_EXAMPLES
from schemas.errors import TaskDataError

CODAH = SWAG_TASKS["codah"]
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


def test_test_files_have_no_label(write_csv):
    rows, bad = read("swag", "test", write_csv([FIRST[:-1]], header=HEADER[:-1]))
    assert bad == []
    assert rows[0].values["label"] is None
    with pytest.raises(TaskDataError, match="missing label"):
        read("swag", "train", write_csv([FIRST[:-1]], header=HEADER[:-1]))


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
    assert "ending3" in bad[0].found


def test_the_hubs_parquet(tmp_path):
    table = pa.table(
        {
            "video-id": ["clip", "clip"],
            "fold-ind": ["1", "2"],
            "startphrase": ["x", "x"],
            "sent1": ["A man sits.", "A dog runs."],
            "sent2": ["He", "It"],
            "gold-source": ["gold", "gen"],
            **{f"ending{n}": [f"ends {n}.", f"stops {n}."] for n in range(4)},
            "label": [3, -1],
        }
    )
    url = str(tmp_path / "test-00000-of-00001.parquet")
    pq.write_table(table, url)
    rows, bad = read("swag", "test", url)
    assert bad == []
    assert [row.values["label"] for row in rows] == [3, None]
    assert [row.values["id"] for row in rows] == ["0", "1"]
    assert rows[1].values["continuations"][2] == "It stops 2."
    rows, bad = read("swag", "train", url)
    assert [item.reason for item in bad] == ["no-answer"]


def test_another_file_is_refused(write_csv):
    with pytest.raises(TaskDataError, match=r"missing sent1.*_full\.csv"):
        read("swag", "train", write_csv([["a", "b"]], header=["sent1", "distractor-0"]))


def codah_file(folder, lines):
    return write(folder / "full_data.tsv", "".join(f"{line}\n" for line in lines))


def codah_line(number, label=0):
    return f'o\tPrompt {number} says "\tone.\ttwo"\tthree.\tfour.\t{label}'


def test_codah_is_cut_by_its_prompts(tmp_path):
    numbers = [*range(100), *range(0, 100, 2)]  # some prompts come twice
    url = codah_file(tmp_path, [codah_line(number, number % 4) for number in numbers])
    prompts = {}
    for split in CODAH.splits:
        rows, bad = read("codah", split, url)
        assert len(rows) + len(bad) == 150
        assert {(item.reason, item.is_fault) for item in bad} == {("in-another-split", False)}
        prompts[split] = {row.values["context"] for row in rows}
        for row in rows:
            assert row.values["continuations"] == ["one.", 'two"', "three.", "four."]
            assert row.values["label"] == int(row.values["context"].split()[1]) % 4
    assert sum(map(len, prompts.values())) == len(set().union(*prompts.values())) == 100
    assert len(prompts["train"]) > len(prompts["dev"]) > 0
    assert prompts["test"]


def test_bad_rows_of_codah_are_faults_of_one_split(tmp_path):
    url = codah_file(
        tmp_path, [*(codah_line(number) for number in range(20)), "o\tshort", codah_line(1, 9)]
    )
    faults = [item for split in CODAH.splits for item in read("codah", split, url)[1]]
    assert sorted(item.reason for item in faults if item.is_fault) == [
        "too-few-columns",
        "unknown-label",
    ]


def test_codah_needs_seven_columns(tmp_path):
    with pytest.raises(TaskDataError, match="seven tab-separated columns"):
        read("codah", "train", codah_file(tmp_path, ["a\tb\tc"]))


def test_all_of_codah(real_data):
    url = str(real_data / "swag" / "codah-full_data.tsv")
    sizes, seen = {}, []
    prompts = {}
    for split in CODAH.splits:
        rows, bad = read("codah", split, url)
        assert len(rows) + len(bad) == 2776
        assert not any(item.is_fault for item in bad)
        sizes[split] = len(rows)
        seen += [row.values["id"] for row in rows]
        prompts[split] = {row.values["context"] for row in rows}
        assert all(len(row.values["continuations"]) == 4 for row in rows)
        assert {row.values["label"] for row in rows} == {0, 1, 2, 3}
    assert sizes == {"train": 1642, "dev": 573, "test": 561}
    assert sorted(map(int, seen)) == list(range(2776))
    assert not prompts["train"] & prompts["dev"]
    assert not prompts["train"] & prompts["test"]


def test_what_json_can_hold_and_no_table_can_is_a_bad_row(tmp_path):
    row = {"sent1": "a", "sent2": "b", **{f"ending{number}": "c" for number in range(4)}}
    rows = [{**row, "label": 10**400}, {**row, "label": 1, "sent1": "\ud800"}]
    rows += [{**row, "label": 1, "sent2": "\ud800"}, {**row, "label": 1, "ending3": "\ud800"}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    _, bad = read("swag", "train", path)
    assert [row.reason for row in bad] == [
        *("unknown-label", "empty-text", "malformed", "empty-text"),
    ]
