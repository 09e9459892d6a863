"""Near-duplicates are those that brute force finds, the newest stays, and the work stays linear."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.corpus_builder import as_input
from support.document_builder import Written, write_documents

from pipelines.documents.bucket_tables import bucket_tables
from pipelines.documents.exclusions import EXCLUSIONS_FILE, shard_items
from pipelines.documents.word_hashes import WordHasher, ngram_sets
from pipelines.instances.job import build_instances
from pipelines.io.shards import open_shard
from pipelines.io.stage_inputs import InputFile, input_file
from pipelines.near_duplicates import pairs as near_duplicates
from pipelines.near_duplicates.job import find_near_duplicates
from pipelines.near_duplicates.pairs import NEAR_PAIRS, find_near_duplicates_in_bucket
from pipelines.near_duplicates.sketches import FOUND, Bands, SketchShard, band_keys
from pipelines.tokens.job import build_tokens
from pipelines.vocabulary.job import build_vocabulary
from schemas.corpus_configs import (
    InstancesConfig,
    NearDuplicatesConfig,
    TokensConfig,
    VocabularyConfig,
)
from schemas.errors import ConfigError
from schemas.execution_configs import ExecutionConfig
from schemas.fingerprint import content_digest
from schemas.manifest import StageInput, StageOutput

WORDS = ["".join(letters) for letters in itertools.product("bdfgklmnprstvz", "aeiou", "lnrst")]


def document(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words))


def edited(text: str, chance: random.Random, *, rate: float) -> str:
    words = text.split()
    return " ".join(chance.choice(WORDS) if chance.random() < rate else word for word in words)


def find(documents: StageInput, folder: Path, **options: Any) -> StageOutput:
    folder.mkdir(parents=True, exist_ok=True)
    how = ExecutionConfig(workers=options.pop("workers", 1))
    pieces = options.pop("pieces", "")
    return find_near_duplicates(
        NearDuplicatesConfig(**options),
        inputs={"documents": documents},
        output=str(folder),
        execution=how,
        pieces=pieces,
    )


def left_out(made: StageOutput, folder: Path) -> dict[str, str]:
    """Return the excluded documents, each with the document that is kept."""
    table = input_file(as_input("near_duplicates", made, str(folder)), EXCLUSIONS_FILE)
    with open_shard(table) as reader:
        rows = reader.read_all().to_pylist()
    assert {row["reason"] for row in rows} <= {"near-duplicate"}
    return {row["document_id"]: row["matched"] for row in rows}


def found_among(texts: Iterable[str], folder: Path, **options: Any) -> dict[str, str]:
    documents = [Written(f"d{number}", text) for number, text in enumerate(texts)]
    documents_input = write_documents(documents, folder / "documents")
    return left_out(find(documents_input, folder / "near", **options), folder / "near")


def similarity(one: str, other: str) -> float:
    """Jaccard of the sets of 5-grams, by Python's own sets."""
    sets = [
        {tuple(words[at : at + 5]) for at in range(len(words) - 4)}
        for words in (one.split(), other.split())
    ]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def with_copies(seed: int, originals: int) -> list[Written]:
    """Documents and copies of them that were edited at several rates, some more than once."""
    chance = random.Random(seed)
    texts = []
    for _ in range(originals):
        text = document(chance, chance.randint(20, 300))
        texts += [text, *(edited(text, chance, rate=rate) for rate in (0.004, 0.01, 0.02, 0.04))]
        texts.append(edited(texts[-1], chance, rate=0.01))
    distinct = list(dict.fromkeys(texts))
    chance.shuffle(distinct)
    return [Written(f"d{number}", text) for number, text in enumerate(distinct)]


def sets_of(*documents: list[str]) -> list[list[int]]:
    values, offsets = ngram_sets(pa.array(documents), 5, hasher=WordHasher())
    return [values[a:b].tolist() for a, b in itertools.pairwise(offsets)]


def test_ngrams_are_those_of_words_in_any_writing() -> None:
    first, second, two, same_two, one, none = sets_of(
        ["Call me, Ishmael!", "Some years ago"],
        ["call me ISHMÁEL some", "-- years ago --"],
        ["some words"],
        ["Some; words."],
        ["ni"] * 40,
        ["... !"],
    )
    assert first == second == sorted(first)
    assert two == same_two != one
    assert [len(ngrams) for ngrams in (first, two, one, none)] == [2, 1, 1, 0]
    for text in ("むかしむかしあるところに", "你好世界日本語", "กาลคราวนานมาแลว"):
        characters, spaced = sets_of([text], [" ".join(text)])  # a character is a word
        assert characters == spaced
        assert len(characters) >= len(text) - 7


def test_keys_are_the_same_on_every_machine() -> None:
    """Keys do not depend on the version of `rensa` and numpy, or the processor."""
    chance = random.Random(1)
    values, offsets = ngram_sets(
        pa.array([[document(chance, n)] for n in (3, 40, 900)]), 5, hasher=WordHasher()
    )
    keys = band_keys(values, offsets, Bands.of(NearDuplicatesConfig()))
    assert hashlib.sha256(values.tobytes()).hexdigest()[:16] == "beb824b6b1b127eb"
    assert hashlib.sha256(keys.tobytes()).hexdigest()[:16] == "62fdff495a568b06"


def test_bands_find_what_is_at_the_threshold() -> None:
    assert Bands.of(NearDuplicatesConfig()) == (18, 7)
    for threshold, permutations in itertools.product((0.5, 0.7, 0.9, 1.0), (32, 128, 1024)):
        config = NearDuplicatesConfig(threshold=threshold, num_perm=permutations)
        bands = Bands.of(config)
        assert bands.bands * bands.rows <= permutations
        assert bands.probability(threshold) >= FOUND


def test_what_is_left_out_is_what_brute_force_finds(tmp_path: Path) -> None:
    documents = with_copies(3, 30)
    made = find(write_documents(documents, tmp_path / "documents", shards=3), tmp_path / "near")
    left = left_out(made, tmp_path / "near")
    texts = {one.name: one.text for one in documents}
    assert all(similarity(texts[one], texts[other]) >= 0.8 for one, other in left.items())
    assert not set(left) & set(left.values())
    pairs = [
        (one, other)
        for one, other in itertools.combinations(texts, 2)
        if similarity(texts[one], texts[other]) >= 0.8
    ]
    is_left_out = [one in left or other in left for one, other in pairs]
    assert len(pairs) > 50
    assert np.mean(is_left_out) >= 0.95
    assert made.counters["documents-in"] == len(documents)
    assert made.counters["documents-dropped-near-duplicate"] == len(left)
    assert made.counters["documents-kept"] == len(documents) - len(left)


@pytest.mark.slow
def test_files_are_equal_whatever_the_workers_and_of_pieces_that_were_kept(tmp_path: Path) -> None:
    documents = write_documents(with_copies(4, 10), tmp_path / "documents", shards=5)
    pieces, data = tmp_path / "pieces" / "near" / "0", tmp_path / "artifacts"
    pieces.mkdir(parents=True)
    first = find(documents, data / "a" / "data", pieces=str(pieces))
    records = sorted(pieces.rglob("*.json"))
    assert len(records) == 5
    records[0].unlink()  # as after a job that was killed: of one piece there is no record
    again = find(documents, data / "b" / "data", pieces=str(pieces))
    two = find(documents, data / "c" / "data", workers=2)
    assert again.reuse is not None
    assert again.reuse.items_reused == 4
    assert len({content_digest(made.files) for made in (first, again, two)}) == 1
    assert first.counters == again.counters == two.counters


def test_of_revisions_the_newest_stays(tmp_path: Path) -> None:
    chance = random.Random(5)
    text = document(chance, 300)
    times = ["2014-03-01T00:00:00Z", "2026-01-01T00:00:00Z", None, "2020-05-05T12:00:00Z"]
    revisions = [
        Written(f"wiki:{n}", edited(text, chance, rate=0.002 * n), time)
        for n, time in enumerate(times)
    ]
    documents = write_documents(
        [*revisions, Written("other", document(chance, 300))], tmp_path / "documents"
    )
    left = left_out(find(documents, tmp_path / "near"), tmp_path / "near")
    assert left == dict.fromkeys(("wiki:0", "wiki:2", "wiki:3"), "wiki:1")


def test_a_document_that_is_near_to_one_left_out_only_stays(tmp_path: Path) -> None:
    words = document(random.Random(6), 200).split()
    texts = [" ".join(words[start : start + 150]) for start in (0, 15, 30)]
    near = [similarity(texts[one], texts[other]) for one, other in ((0, 1), (1, 2), (0, 2))]
    assert near[0] > 0.8 < near[1]
    assert near[2] < 0.7
    assert found_among(texts, tmp_path) == {"d1": "d0"}


def test_hostile_documents(tmp_path: Path) -> None:
    texts = ["ni " * n for n in (1, 5, 500)] + ["one two", "two one", "One, two!", "...", "!?", ""]
    left = found_among(texts, tmp_path)
    # Sets of n-grams ignore punctuation and the number of occurrences.
    assert left == {"d2": "d1", "d5": "d3"}


@pytest.mark.parametrize("rate", [0.002, 0.015])
def test_work_on_one_huge_group_grows_with_it(tmp_path: Path, rate: float) -> None:
    """Documents that are all near to each other, or of which none is near enough."""
    compared = []
    for amount in (300, 600):
        chance = random.Random(7)
        text = document(chance, 200)
        texts = [edited(text, chance, rate=rate) for _ in range(amount)]
        documents = [Written(f"d{n}", one) for n, one in enumerate(dict.fromkeys(texts))]
        documents_input = write_documents(documents, tmp_path / f"documents-{amount}")
        made = find(documents_input, tmp_path / f"near-{amount}", threshold=0.85)
        compared.append(made.counters["pairs-compared"])
    assert compared[1] < 2.6 * compared[0]


@pytest.mark.parametrize("repeats", [1, 18])
def test_launcher_work_is_linear_in_buckets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repeats: int
) -> None:
    """Count the rows of all copies that the launching process makes."""
    monkeypatch.setattr(near_duplicates, "_HELD", 100)
    copied: list[int] = []
    concat_tables = pa.concat_tables
    monkeypatch.setattr(
        near_duplicates.pa,
        "concat_tables",
        lambda tables: copied.append(sum(map(len, tables))) or concat_tables(tables),
    )
    rows = []
    for buckets in (200, 400, 800):
        copied.clear()
        tables = [
            near_pairs_table(np.arange(20) + number // repeats * 20) for number in range(buckets)
        ]
        pairs = near_duplicates._distinct_pairs(tables)
        assert sorted(pairs["later"].to_pylist()) == list(
            range(1, 20 * (-(-buckets // repeats)) + 1)
        )
        rows.append(sum(copied))
    assert rows[1] <= 2.6 * rows[0]
    assert rows[2] <= 2.6 * rows[1]


def near_pairs_table(first: np.ndarray) -> pa.Table:
    none = np.zeros(len(first), np.int64)
    return pa.table([first + 1, first, none, none], schema=near_duplicates.NEAR_PAIRS)


def test_group_of_equal_documents_gives_one_pair_per_document(tmp_path: Path) -> None:
    text = document(random.Random(12), 40)
    for amount in (100, 200):
        texts = [f"{text} {'.' * number}" for number in range(amount)]
        documents = [Written(f"d{number}", one) for number, one in enumerate(texts)]
        folder = tmp_path / str(amount)
        shards = shard_items(write_documents(documents, folder / "d"), remove_duplicates=True)
        work = SketchShard(NearDuplicatesConfig(), str(folder))
        work.setup()
        (blob, *_) = work.process(shards[0]).blobs
        report = find_near_duplicates_in_bucket(
            blob.bucket, [blob.data], output=str(folder), threshold=0.8
        )
        (pairs,) = bucket_tables([report], NEAR_PAIRS, output=str(folder))
        assert report.counters["pairs-compared"] == pairs.num_rows == amount - 1
        assert set(pairs["first"].to_pylist()) == {0}


def test_what_is_left_out_is_no_random_b_of_its_copy(tmp_path: Path) -> None:
    chance = random.Random(8)
    originals = ["\n".join(document(chance, 12) for _ in range(12)) for _ in range(12)]
    copies = [text.replace("\n", " zzz\n", 1) for text in originals]
    texts = [*originals, *copies]
    documents_input = write_documents(
        [Written(f"d{n}", text) for n, text in enumerate(texts)], tmp_path / "d", shards=2
    )
    near = as_input(
        "near_duplicates", find(documents_input, tmp_path / "near"), str(tmp_path / "near")
    )
    assert random_bs_of_copies(tmp_path / "with", {"documents": documents_input}) > 0
    inputs = {"documents": documents_input, "near_duplicates": near}
    assert random_bs_of_copies(tmp_path / "without", inputs) == 0


def random_bs_of_copies(folder: Path, inputs: dict[str, StageInput]) -> int:
    """Return the number of random Bs from a copy of A's document."""
    here = ExecutionConfig()
    words = build_vocabulary(
        VocabularyConfig(vocab_size=300), inputs=inputs, output=str(folder / "v"), execution=here
    )
    inputs = inputs | {"vocabulary": as_input("vocabulary", words, str(folder / "v"))}
    made = build_tokens(TokensConfig(), inputs=inputs, output=str(folder / "t"), execution=here)
    dropped = 12 if "near_duplicates" in inputs else 0
    for counters in (words.counters, made.counters):
        assert counters.get("documents-dropped-near-duplicate", 0) == dropped
        assert counters["documents-kept"] == 24 - dropped
    tokens = as_input("tokens", made, str(folder / "t"))
    config = InstancesConfig(max_seq_length=48, dupe_factor=4, held_out_fraction=0.0)
    instances = build_instances(
        config, inputs=inputs | {"tokens": tokens}, output=str(folder / "i"), execution=here
    )
    ids = []
    for entry in tokens.files:
        with open_shard(InputFile.of(tokens, entry)) as reader:
            ids.append(reader.read_all().column("document_id").to_pylist())
    bad = 0
    for entry in instances.files:
        number = int(entry.path.split("-")[1])
        pool = [int(shard) for shard in str(entry.statistics["pool"]).split(",")]
        with open_shard(f"{folder}/i/{entry.stored_name}") as reader:
            rows = reader.read_all().to_pylist()
        for row in rows:
            if row["next_sentence_label"] == 1:
                a = ids[number][row["document_row"]]
                b = ids[pool[row["segment_b_shard"]]][row["segment_b_row"]]
                bad += int(a[1:]) % 12 == int(b[1:]) % 12
    return bad


def test_shard_is_done_again_only_for_its_own_excluded_documents(tmp_path: Path) -> None:
    text = document(random.Random(9), 100)
    written = [Written("a", text), Written("b", "Another text."), Written("c", f"{text} zzz")]
    documents = write_documents(written, tmp_path / "documents", shards=2)
    near = as_input("near_duplicates", find(documents, tmp_path / "near"), f"{tmp_path}/near")
    plain = shard_items(documents, remove_duplicates=True)
    fewer = shard_items(
        documents, remove_duplicates=True, exclusions=[input_file(near, EXCLUSIONS_FILE)]
    )
    assert [set(item.identity()) for item in plain] == 2 * [{"shard", "repeated", "left-out"}]
    same = [a.identity() == b.identity() for a, b in zip(plain, fewer, strict=True)]
    assert same == [False, True]


def test_near_duplicates_want_duplicates_removed() -> None:
    from flows.recipes.loader import recipe_from

    recipe = {
        "name": "x",
        "build_documents": {"sources": [{"kind": "text", "name": "x", "paths": ["x"]}]},
        "build_tokens": {"remove_duplicates": False},
        "find_near_duplicates": {},
    }
    with pytest.raises(ConfigError, match=r"build_tokens\.remove_duplicates"):
        recipe_from(recipe, where="x", folder=Path("/nowhere"))
