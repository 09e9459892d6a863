"""Own labels and tags: missing ones, tags without a type, rows in both train and dev."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.task_rows import build, write

from model.tasks.examples import read_examples
from schemas.errors import ConfigError, MissingInputError, TaskDataError

TEXTS = ["gut gemacht", "très mauvais", "очень хорошо", "とても悪い", "rất tốt", "kötü bir film"]


def write_csv(path: Path, labels: Sequence[str], *, prefix: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["sentence", "label"])
        writer.writerows(
            (f"{prefix}{TEXTS[n % len(TEXTS)]} {n}", label) for n, label in enumerate(labels)
        )
    return str(path)


def splits(tmp_path: Path, train: Sequence[str], dev: Sequence[str]) -> dict[str, tuple[str, ...]]:
    return {
        "train": (write_csv(tmp_path / "train.csv", train),),
        "dev": (write_csv(tmp_path / "dev.csv", dev, prefix="dev "),),
    }


@pytest.mark.parametrize(
    "mark",
    ["NaN", "nan", "-nan", "null", "NULL", "None", "NA", "N/A", "<NA>", "#N/A", "\\N", "", " "],
)
def test_missing_label_is_no_class(tmp_path: Path, mark: str) -> None:
    files = splits(tmp_path, ["ja", "nein", mark] * 30, ["ja", "nein"] * 5)
    with pytest.raises(TaskDataError, match=r"line 4: no-answer: label"):
        build(tmp_path / "out", task="single-sentence", data_files=files)
    made, provided = build(
        tmp_path / "b", task="single-sentence", data_files=files, max_invalid_fraction=0.5
    )
    assert made.statistics["labels"] == ["ja", "nein"]
    assert made.counters["rows-dropped-no-answer@train"] == 30
    assert len(read_examples(provided, "train")) == 60
    assert any("no-answer" in note for note in made.notes)


@pytest.mark.parametrize("mark", ["None", "NA", "NaN"])
def test_mark_of_missing_value_is_a_label_if_it_is_named(tmp_path: Path, mark: str) -> None:
    files = splits(tmp_path, ["hate", mark] * 5, [mark, "hate"])
    made, _ = build(
        tmp_path / "out", task="single-sentence", data_files=files, labels=("hate", mark)
    )
    assert made.statistics["labels"] == ["hate", mark]
    assert made.statistics["splits"] == {"train": 10, "dev": 2}


@pytest.mark.parametrize("word", ["none", "NONE", "Nana", "nullius", "nan bread"])
def test_other_words_are_labels(tmp_path: Path, word: str) -> None:
    files = splits(tmp_path, ["hate", word] * 5, [word])
    made, _ = build(tmp_path / "out", task="single-sentence", data_files=files)
    assert made.statistics["labels"] == sorted(["hate", word])


def test_whole_numbers_with_decimals_are_the_labels_of_the_numbers(tmp_path: Path) -> None:
    files = splits(tmp_path, ["0", "1", "10", "2"] * 3, ["0.0", "10.0", "2.00", "1"])
    made, provided = build(tmp_path / "out", task="single-sentence", data_files=files)
    assert made.statistics["labels"] == ["0", "1", "2", "10"]
    assert read_examples(provided, "dev")["label"].to_pylist() == ["0", "10", "2", "1"]
    assert made.counters["rows-whole-number-label@dev"] == 3


@pytest.mark.parametrize(("shared", "own"), [(8, 0), (3, 5), (0, 8)])
def test_rows_of_train_in_dev_are_counted(tmp_path: Path, shared: int, own: int) -> None:
    train = write_csv(tmp_path / "train.csv", ["a", "b"] * 4)
    lines = Path(train).read_text().splitlines()
    dev = [*lines[: 1 + shared], *(f"another {n},a" for n in range(own))]
    files = {"train": (train,), "dev": (write(tmp_path / "dev.csv", "\n".join(dev) + "\n"),)}
    made, _ = build(tmp_path / "out", task="single-sentence", data_files=files)
    assert made.counters.get("rows-also-in-train@dev", 0) == shared
    assert len(made.notes) == (1 if shared else 0)
    assert all(f"{shared} of 8 rows" in note for note in made.notes)


# Tags without a type


def tagged(*sentences: str) -> str:
    """Return a CoNLL file of sentences of `word/TAG`."""
    words = (word.replace("/", " ") for sentence in sentences for word in [*sentence.split(), ""])
    return "\n".join(words) + "\n"


@pytest.mark.parametrize(
    ("sentences", "tags"),
    [
        (["le/O gène/B BRCA/I est/O", "EGFR/B TP53/B"], ["O", "B", "I", "O", "B", "B"]),
        (["ген/B TP53/E и/O", "EGFR/S"], ["B", "I", "O", "B"]),
        (["遺伝子/B BRCA/I 一/L と/O", "EGFR/U"], ["B", "I", "I", "O", "B"]),
        (["gen/I BRCA/I en/O", "EGFR/I"], ["B", "I", "O", "B"]),
    ],
    ids=["iob2", "bioes", "bilou", "io"],
)
@pytest.mark.parametrize("form", ["conll", "json"])
def test_tags_without_a_type_have_one_type(
    tmp_path: Path, sentences: list[str], tags: list[str], form: str
) -> None:
    text = tagged(*sentences)
    if form == "json":
        pairs = [[word.split("/") for word in sentence.split()] for sentence in sentences]
        rows = [{"tokens": [w for w, _ in row], "ner_tags": [t for _, t in row]} for row in pairs]
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
    files = {split: (write(tmp_path / split, text),) for split in ("train", "dev")}
    made, provided = build(tmp_path / "out", task="tagging", data_files=files)
    assert made.statistics["labels"] == ["O", "B-ENTITY", "I-ENTITY"]
    rows = read_examples(provided, "train")["tags"].to_pylist()
    expected = [tag if tag == "O" else f"{tag}-ENTITY" for tag in tags]
    assert [tag for row in rows for tag in row] == expected
    assert made.counters["rows-bare-tags@train"] == 2


def test_mixture_of_tags_with_and_without_type_is_refused(tmp_path: Path) -> None:
    bare, typed = tagged("gene/B BRCA/I", "is/O"), tagged("gene/B-GENE BRCA/I-GENE", "is/O")
    for train, dev in ((bare + "\n" + typed, bare), (bare, typed), (typed, bare)):
        files = {
            "train": (write(tmp_path / "train", train),),
            "dev": (write(tmp_path / "dev", dev),),
        }
        with pytest.raises(TaskDataError, match="without"):
            build(tmp_path / "out", task="tagging", data_files=files)


def test_comment_that_ends_in_a_letter_is_no_word(tmp_path: Path) -> None:
    text = "# Chapter I\ngene B\nis O\n\n# B\n1 O\n"
    files = {split: (write(tmp_path / split, text),) for split in ("train", "dev")}
    _, provided = build(tmp_path / "out", task="tagging", data_files=files)
    assert read_examples(provided, "train")["words"].to_pylist() == [["gene", "is"], ["#", "1"]]


# A dev split of training rows


def test_dev_fraction_splits_train_by_text_in_any_order(tmp_path: Path) -> None:
    header, *lines = Path(write_csv(tmp_path / "a.csv", ["x", "y"] * 200)).read_text().splitlines()
    splits = []
    for rows in (lines * 2, lines[::-1]):
        file = write(tmp_path / "b.csv", "\n".join([header, *rows]))
        made, provided = build(
            tmp_path / str(len(rows)),
            task="single-sentence",
            data_files={"train": (file,)},
            dev_fraction=0.2,
        )
        texts = [read_examples(provided, split)["text_a"].to_pylist() for split in ("train", "dev")]
        assert len(texts[0]) + len(texts[1]) == len(rows)
        counters = made.counters
        assert counters["rows-dropped-in-another-split@train"] == counters["rows-kept@dev"]
        assert "rows-also-in-train" not in counters
        splits.append(tuple(map(set, texts)))
    assert splits[0] == splits[1]
    train, dev = splits[0]
    assert not train & dev
    assert 50 < len(dev) < 110


def test_dev_fraction_splits_tagged_documents(tmp_path: Path) -> None:
    text = tagged(*(f"gene{n}/B is/O" for n in range(100)))
    test = tagged("gene/B is/O")
    files = {"train": (write(tmp_path / "a", text),), "test": (write(tmp_path / "b", test),)}
    made, _ = build(tmp_path / "out", task="tagging", data_files=files, dev_fraction=0.3)
    result = made.statistics["splits"]
    assert result["train"] + result["dev"] == 100
    assert result["dev"] > 10
    assert result["test"] == 1


def test_dev_fraction_needs_a_task_without_dev_file(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "train.csv", ["x", "y"] * 20)
    with pytest.raises(MissingInputError, match="dev_fraction"):
        build(tmp_path / "out", task="single-sentence", data_files={"train": (file,)})
    with pytest.raises(ConfigError, match="dev_fraction"):
        build(tmp_path / "out", task="sst-2", data_files={"train": (file,)}, dev_fraction=0.1)
    files = {"train": (file,), "dev": (file,)}
    with pytest.raises(ValueError, match="dev_fraction"):
        build(tmp_path / "out", task="single-sentence", data_files=files, dev_fraction=0.1)
    write_csv(tmp_path / "dev.csv", ["x"])
    with pytest.raises(ConfigError, match="dev_fraction"):
        build(tmp_path / "out", task="single-sentence", data_dir=str(tmp_path), dev_fraction=0.1)
