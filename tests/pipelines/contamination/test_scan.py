"""Planted evaluation texts are found in a corpus, and no others."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.corpus_builder import as_input
from support.document_builder import Written, write_documents

from pipelines.contamination import MATCHES_FILE, PASSAGES_FILE
from pipelines.contamination.job import find_contamination
from pipelines.contamination.ngrams import WordStream
from pipelines.documents.exclusions import EXCLUSIONS_FILE
from pipelines.documents.word_hashes import WordHasher, normalized_words, word_window
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import input_file
from schemas.arrow import EXAMPLES
from schemas.corpus_configs import ContaminationConfig
from schemas.errors import ConfigError
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageInput, StageOutput

HERE = ExecutionConfig()
_WORDS = [f"w{a}{b}" for a in "bcdfgklmnprst" for b in "aeiouxyz"]


def made_up(words: int, seed: object) -> list[str]:
    """Words of a text that shares no three in a row with that of another seed."""
    draws = random.Random(f"{seed}")
    return [f"{draws.choice(_WORDS)}{draws.randrange(1000)}" for _ in range(words)]


def corpus(folder: Path, documents: Sequence[list[str]], *, shards: int = 1) -> StageInput:
    """Documents of sentences, named d0, d1, ..."""
    written = [Written(f"d{n}", "\n".join(document)) for n, document in enumerate(documents)]
    return write_documents(written, folder, shards=shards)


def examples(folder: Path, kind: str, **splits: list[dict[str, Any]]) -> StageInput:
    """An artifact as that of build-examples; rows get ids by their numbers."""
    files = []
    for split, rows in splits.items():
        with ShardWriter(f"{split}.arrow", schema=EXAMPLES[kind], output=str(folder)) as shard:
            named = [{"id": f"{split}-{n}", **row} for n, row in enumerate(rows)]
            shard.write(pa.RecordBatch.from_pylist(named, schema=EXAMPLES[kind]))
        files.append(shard.entry())
    output = StageOutput(files=tuple(files), statistics={"kind": kind, "task": "t"})
    return as_input("examples", output, str(folder))


def sentences(*texts: str | list[str]) -> list[dict[str, Any]]:
    return [{"text_a": text if isinstance(text, str) else " ".join(text)} for text in texts]


class Found:
    """Result of a search."""

    def __init__(
        self, folder: Path, documents: StageInput, execution: ExecutionConfig = HERE,
        tasks: dict[str, StageInput] | None = None, **config: Any,
    ) -> None:  # fmt: skip
        inputs = {f"examples.{name}": task for name, task in (tasks or {}).items()}
        self.made = find_contamination(
            ContaminationConfig(**config), inputs={"documents": documents, **inputs},
            output=str(folder), execution=execution,
        )  # fmt: skip
        self.counters = self.made.counters
        self._given, self._folder = as_input("contamination", self.made, str(folder)), folder
        counters = self.counters
        assert counters["texts-in"] == sum(
            counters[f"texts-{kind}"] for kind in ("contaminated", "clean", "too-short")
        )

    def rows(self, path: str = MATCHES_FILE) -> list[dict[str, Any]]:
        with open_shard(input_file(self._given, path)) as reader:
            rows: list[dict[str, Any]] = reader.read_all().to_pylist()
            return rows

    def pairs(self) -> set[tuple[str, str]]:
        """Examples, and documents that have them."""
        return {(row["example_id"], row["document_id"]) for row in self.rows()}

    def left_out(self) -> dict[str, str]:
        return {row["document_id"]: row["matched"] for row in self.rows(EXCLUSIONS_FILE)}

    def passages(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(input_file(self._given, PASSAGES_FILE).read())
        return rows


def planted(folder: Path) -> tuple[list[list[str]], StageInput, StageInput]:
    """EvalTexts, a corpus of many shards that has seven of them, and the task.

    They are in other case and punctuation, over the ends of paragraphs and sentences, at any place.
    """
    texts = [made_up(30, n) for n in range(12)]
    plants = [
        " ".join(texts[0]),
        " ".join(texts[1]).upper(),
        ", ".join(texts[2]) + "!",
        ". ".join(texts[3]),
        "-".join(texts[4]),
        "\n".join(texts[5]),
        " ".join(texts[6][7:20]),  # 13 words of it
        " ".join(texts[7][7:19]),  # 12: not found
    ]
    documents = []
    for n in range(40):
        around = (" ".join(made_up(200, f"{n} {side}")) + "." for side in "ab")
        before, after = around
        plant = plants[n // 4] if n % 4 == 0 and n // 4 < len(plants) else ""
        documents.append([*(p for p in (before, *plant.split("\n"), after) if p)])
    documents[0] = plants[0].split("\n")  # nothing but the text
    documents_input = corpus(folder / "c", documents, shards=9)
    task = examples(folder / "t", "classification", dev=sentences(*texts), train=[])
    return texts, documents_input, task


def test_planted_texts_are_all_found_and_none_is_invented(tmp_path: Path) -> None:
    texts, documents, task = planted(tmp_path)
    scan = Found(tmp_path / "f", documents, tasks={"a": task})
    assert scan.pairs() == {(f"dev-{n}", f"d{4 * n}") for n in range(7)}
    rows = {row["example_id"]: row for row in scan.rows()}
    assert [rows[f"dev-{n}"]["longest_run"] for n in range(7)] == [*6 * [30], 13]
    assert (rows["dev-6"]["ngrams"], rows["dev-6"]["ngrams_found"]) == (18, 1)
    assert rows["dev-6"]["text_word"] == 7
    assert (scan.counters["texts-contaminated"], scan.counters["texts-clean"]) == (7, 5)
    assert set(scan.left_out()) == {f"d{4 * n}" for n in range(6)}  # of the last it is 1 of 18
    assert scan.left_out()["d4"] == "a dev dev-1 text_a"
    shared = {row["example_id"]: row["passage"] for row in scan.passages()}
    assert shared["dev-6"] == " ".join(texts[6][7:20])
    assert all(row["title"] == row["document_id"] for row in scan.passages())


@pytest.mark.slow
def test_two_workers_write_the_same_bytes(tmp_path: Path) -> None:
    _, documents, task = planted(tmp_path)
    runs = [
        Found(tmp_path / f"f{workers}", documents, ExecutionConfig(workers=workers), {"a": task})
        for workers in (1, 2)
    ]
    digests = [{entry.path: entry.sha256 for entry in run.made.files} for run in runs]
    assert digests[0] == digests[1]
    assert runs[0].made.statistics == runs[1].made.statistics


def test_disjoint_texts_are_clean_and_short_ones_are_counted(tmp_path: Path) -> None:
    short = made_up(8, "short")
    documents = corpus(
        tmp_path / "c", [[" ".join(made_up(300, n))] for n in range(5)] + [[" ".join(short)]]
    )
    task = examples(
        tmp_path / "t",
        "classification",
        dev=sentences(made_up(40, "other"), short, made_up(12, "else"), made_up(7, "tiny"), "?"),
    )
    scan = Found(tmp_path / "f", documents, tasks={"a": task})
    assert scan.pairs() == {("dev-1", "d5")}
    counts = {name: n for name, n in scan.counters.items() if name.startswith("texts")}
    assert counts == {
        "texts-in": 5, "texts-contaminated": 1, "texts-clean": 2, "texts-too-short": 2,
    }  # fmt: skip
    part_of_a_longer = Found(tmp_path / "g", documents, tasks={"a": task}, min_text_words=7)
    assert part_of_a_longer.counters["texts-too-short"] == 1


def test_passages_and_their_questions_are_told_apart(tmp_path: Path) -> None:
    """A passage of many questions is one text; it contaminates all their examples."""
    passages = [" ".join(made_up(60, n)) for n in range(3)]
    question = " ".join(made_up(14, "question"))
    rows = [
        {"title": "", "question": asked, "context": passages[n], "answers": [],
         "answer_starts": [], "is_impossible": False}
        for n, asked in ((0, "who one?"), (0, "who two?"), (1, question), (2, "who three?"))
    ]  # fmt: skip
    documents = corpus(tmp_path / "c", [["x", passages[0]], [question]])
    task = examples(tmp_path / "t", "span", dev=rows, train=rows)
    scan = Found(tmp_path / "f", documents, tasks={"squad": task})
    by_field = {row["field"]: row for row in scan.made.statistics["fields"]}
    assert {row["split"] for row in by_field.values()} == {"dev"}
    keys = ("texts", "contaminated", "clean", "too-short", "examples-contaminated")
    assert [by_field["context"][key] for key in keys] == [3, 1, 2, 0, 2]
    assert [by_field["question"][key] for key in keys] == [4, 1, 0, 3, 1]
    assert scan.made.statistics["splits"] == [
        {"task": "squad", "split": "dev", "examples": 4, "examples-contaminated": 3}
    ]
    assert {row["examples"] for row in scan.rows() if row["field"] == "context"} == {2}
    named = Found(tmp_path / "g", documents, tasks={"squad": task}, splits=("train",))
    assert {row["split"] for row in named.rows()} == {"train"}
    with pytest.raises(ConfigError, match="test"):
        Found(tmp_path / "h", documents, tasks={"squad": task}, splits=("test",))


@pytest.mark.parametrize("shards", [1, 5])
def test_a_common_phrase_makes_nothing_dirty(tmp_path: Path, shards: int) -> None:
    """The documents with the phrase are in one shard or in many."""
    phrase, rare = " ".join(made_up(20, "phrase")), " ".join(made_up(20, "rare"))
    texts = [[f"{' '.join(made_up(90, n))}. {phrase}."] for n in range(5)]
    texts[3].append(rare)
    documents = corpus(tmp_path / "c", texts, shards=shards)
    task = examples(tmp_path / "t", "classification", dev=sentences(phrase, rare))
    scan = Found(tmp_path / "f", documents, tasks={"a": task}, max_document_frequency=4)
    assert scan.pairs() == {("dev-1", "d3")}
    assert (scan.counters["ngrams"], scan.counters["ngrams-common"]) == (16, 8)
    allowed = Found(tmp_path / "g", documents, tasks={"a": task}, max_document_frequency=5)
    assert len(allowed.pairs()) == 6
    assert allowed.counters["ngrams-common"] == 0


def test_hits_of_a_common_phrase_do_not_grow_with_the_corpus(tmp_path: Path) -> None:
    phrase = " ".join(made_up(20, "license"))
    task = examples(tmp_path / "t", "classification", dev=sentences(phrase))
    sizes = []
    for count in (200, 600):
        texts = [[f"{' '.join(made_up(5, n))}. {phrase}."] for n in range(count)]
        scan = Found(
            tmp_path / f"f{count}", corpus(tmp_path / f"c{count}", texts), tasks={"a": task}
        )
        assert (scan.rows(), scan.left_out()) == ([], {})
        assert scan.counters["ngrams-common"] == 8
        sizes += [entry.rows for entry in scan.made.files if entry.path.startswith("__hits__")]
    assert sizes[0] == sizes[1]


def test_continuations_are_texts_of_one_example(tmp_path: Path) -> None:
    """An example that repeats a continuation counts once, and the passage has only its words."""
    right, wrong = (" ".join(made_up(15, side)) for side in ("right", "wrong"))
    rows = [{"context": "Who?", "continuations": [wrong, right, "no", right], "label": 1}]
    documents = corpus(tmp_path / "c", [[f"Before. {right}. After."]])
    task = examples(tmp_path / "t", "choice", dev=rows)
    scan = Found(tmp_path / "f", documents, tasks={"swag": task})
    assert [(row["field"], row["examples"]) for row in scan.rows()] == [("continuations", 1)]
    assert [row["passage"] for row in scan.passages()] == [right]
    assert scan.made.statistics["splits"][0]["examples-contaminated"] == 1
    assert scan.counters["texts-in"] == 4


def test_words_of_a_tagged_text_are_one_text(tmp_path: Path) -> None:
    words = made_up(20, "tagged")
    rows = [{"sentence_lengths": [12, 8], "words": words, "tags": None}]
    documents = corpus(tmp_path / "c", [[" ".join(words)]])
    task = examples(tmp_path / "t", "tagging", dev=rows)
    scan = Found(tmp_path / "f", documents, tasks={"ner": task})
    assert [(row["field"], row["longest_run"]) for row in scan.rows()] == [("words", 20)]


def test_japanese_is_compared_by_characters(tmp_path: Path) -> None:
    """26 of them are a run of 13 words; 25 are too few of a longer text."""
    text = "東京都は日本の首都であり、人口は約千四百万人にのぼる世界最大級の都市である。"
    other = "京都府は近畿地方に位置する府で、かつて都が置かれていた歴史ある地域である。"
    characters = normalized_words(text)
    assert len(characters) > 30
    documents = corpus(
        tmp_path / "c",
        [[f"前の文。{text}後の文。"], ["".join(characters[3:29])], ["".join(characters[3:28])]],
    )
    task = examples(tmp_path / "t", "classification", dev=sentences(text, other))
    scan = Found(tmp_path / "f", documents, tasks={"a": task})
    assert scan.pairs() == {("dev-0", "d0"), ("dev-0", "d1")}
    assert scan.counters["texts-clean"] == 1


def test_one_word_a_million_times_over(tmp_path: Path) -> None:
    """One n-gram of a repeated word gives one row."""
    words = 300_000
    documents = corpus(tmp_path / "c", [["spam " * words]])
    task = examples(tmp_path / "t", "classification", dev=sentences("spam " * 13, "spam " * 5000))
    scan = Found(tmp_path / "f", documents, tasks={"a": task})
    assert scan.pairs() == {("dev-0", "d0"), ("dev-1", "d0")}
    assert scan.counters["words"] == words
    assert [row["longest_run"] for row in scan.rows()] == [13, 5000]
    hits = [entry for entry in scan.made.files if entry.path.startswith("__hits__")]
    assert sum(entry.size_bytes for entry in hits) < 4096


def test_tasks_without_texts_and_a_corpus_without_any_match(tmp_path: Path) -> None:
    documents = corpus(tmp_path / "c", [["A text about another subject."]])
    empty = examples(tmp_path / "t", "classification", train=sentences(made_up(30, 1)), dev=[])
    scan = Found(tmp_path / "f", documents, tasks={"a": empty})
    assert (scan.rows(), scan.counters["texts-in"]) == ([], 0)
    assert scan.passages() == [] == scan.rows(EXCLUSIONS_FILE)
    without = Found(tmp_path / "g", documents)
    assert without.made.statistics == {"fields": [], "splits": []}


def test_words_of_a_stream_do_not_depend_on_how_it_is_cut() -> None:
    texts = ["A b-c d, é É", "東京a タワーb", "", "x" * 70 + " y"]
    together = WordHasher().words(pa.array(texts))
    single, small = WordHasher(), WordHasher(max_chunks=2)
    for hasher in (single, small):
        parts = [hasher.words(pa.array([text])) for text in texts]
        assert np.concatenate([part.hashes for part in parts]).tolist() == together.hashes.tolist()
    assert np.diff(together.offsets).tolist() == [len(normalized_words(text)) for text in texts]
    assert together.weights[6:12].tolist() == [1, 1, 2, 1, 1, 1]
    text = "Call me (Ishmael).  Some years ago"
    assert word_window(text, 2, 3) == "Ishmael).  Some years"


@pytest.mark.parametrize("chunk", ["w{0}", "a{0}-b{0}-c{0}-d{0}-e{0}", "語{0}彙"])
def test_word_hasher_forgets_what_exceeds_its_memory(chunk: str) -> None:
    hasher = WordHasher(max_chunks=100)
    numbers = range(9_000)
    texts = [pa.array([" ".join(map(chunk.format, numbers[at::3]))]) for at in range(3)]
    tracemalloc.start()
    try:
        for text in texts:
            hasher.words(text)
        assert tracemalloc.get_traced_memory()[0] < 300_000
    finally:
        tracemalloc.stop()


def test_ngrams_are_those_that_a_loop_finds() -> None:
    draws = random.Random(3)
    texts = [" ".join(draws.choices("ab東c", k=draws.randrange(9))) for _ in range(60)]
    words = WordHasher().words(pa.array(texts))
    stream = WordStream(words)
    hashes: dict[tuple[int, ...], int] = {}
    for weight in (2, 3, 5, 8):
        expected = []
        for start, end in zip(words.offsets, words.offsets[1:], strict=False):
            for first in range(start, end):
                sums = np.cumsum(words.weights[first:end])
                if len(at := np.flatnonzero(sums >= weight)):
                    expected.append((first, first + int(at[0]) + 1))
        ngrams = [column.tolist() for column in stream.ngrams(weight)]
        assert list(zip(*ngrams[:2], strict=True)) == expected
        for start, end, value in zip(*ngrams, strict=True):
            assert hashes.setdefault(tuple(words.hashes[start:end].tolist()), value) == value
    assert len(set(hashes.values())) == len(hashes)
