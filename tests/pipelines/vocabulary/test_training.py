"""Words are counted exactly, and a vocabulary has its exact size, the same in every process."""

from __future__ import annotations

import collections
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.paths import PYTHONPATH

from pipelines.vocabulary.training import (
    count_words,
    merge_counts,
    scale_counts,
    train_vocabulary,
)
from pipelines.wordpiece.tokenizer import (
    WordPieceTokenizer,
    bert_normalizer,
    bert_pre_tokenizer,
    tokenizer_config_json,
    tokenizer_json,
)
from pipelines.wordpiece.vocab_files import FIXED_TOKENS, check_vocab, read_vocab, vocab_text
from schemas.arrow import WORD_COUNTS, check_schema
from schemas.corpus_configs import VocabularyConfig
from schemas.errors import InputError, VocabularyError

STEMS = ("walk", "talk", "pack", "lock", "mend", "end", "play", "rain", "sail", "turn", "Turn")
ENDINGS = ("", "s", "ed", "ing", "er", "ers", "able", "ably")


def counts_of(words: dict[str, int]) -> pa.Table:
    columns = [pa.array(list(words), pa.string()), pa.array(list(words.values()), pa.uint64())]
    return merge_counts([pa.table(columns, schema=WORD_COUNTS)])


def small_counts() -> pa.Table:
    """88 words with many equal counts, so that ties have to be broken."""
    words = [stem + ending for stem in STEMS for ending in ENDINGS]
    return counts_of({word: 3 + index % 4 for index, word in enumerate(words)})


def config(**changes: object) -> VocabularyConfig:
    return VocabularyConfig.model_validate({"vocab_size": 200, **changes})


def as_dict(table: pa.Table) -> dict[str, int]:
    return dict(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True))


# ---- counting ----


@pytest.mark.parametrize("lowercase", [True, False])
@settings(max_examples=200)
@given(sentences=st.lists(st.text() | st.text(st.sampled_from("aAé .'\t\u00a0日\u0301ß"))))
def test_counts_are_those_of_the_library_word_by_word(
    lowercase: bool, sentences: list[str]
) -> None:
    normalizer, pre_tokenizer = bert_normalizer(lowercase=lowercase), bert_pre_tokenizer()
    expected = collections.Counter(
        word
        for sentence in sentences
        for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(sentence))
    )
    table = count_words(sentences, lowercase=lowercase)
    check_schema(table.schema, WORD_COUNTS, where="counts")
    assert as_dict(table) == expected
    assert table["word"].to_pylist() == sorted(expected, key=str.encode)


def test_null_sentence_is_refused() -> None:
    with pytest.raises(InputError, match="sentence 0"):
        count_words(pa.array([None, "a"]), lowercase=True)


@settings(max_examples=50)
@given(st.lists(st.lists(st.sampled_from(["a b", "b c c", "", "é z"]))))
def test_merging_parts_is_counting_the_whole(parts: list[list[str]]) -> None:
    merged = merge_counts(count_words(part, lowercase=False) for part in parts)
    whole = count_words([sentence for part in parts for sentence in part], lowercase=False)
    assert merged.equals(whole, check_metadata=True)


# ---- scaling ----


@given(
    counts=st.dictionaries(st.text("abc", min_size=1), st.integers(1, 10**12), min_size=1),
    budget=st.integers(1, 10**6),
)
def test_scaled_counts_fit_the_budget_in_proportion(counts: dict[str, int], budget: int) -> None:
    scaled = as_dict(scale_counts(counts_of(counts), budget=budget))
    assert sum(scaled.values()) <= max(budget, 0)
    assert len(scaled) == min(len(counts), budget)
    assert min(scaled.values()) >= 1
    by_count = sorted(scaled, key=lambda word: counts[word])
    assert [scaled[word] for word in by_count] == sorted(scaled.values())
    assert all(scaled[word] <= counts[word] for word in scaled)


def test_scaling_by_hand() -> None:
    table = counts_of({"a": 1, "b": 11, "c": 31})
    assert as_dict(scale_counts(table, budget=23)) == {"a": 1, "b": 1 + 5, "c": 1 + 15}
    assert as_dict(scale_counts(table, budget=2)) == {"b": 1, "c": 1}


# ---- learning ----


@pytest.mark.parametrize("size", [150, 173, 200])
def test_exact_size_and_fixed_ids(size: int) -> None:
    vocab = train_vocabulary(small_counts(), config(vocab_size=size))
    assert len(vocab) == size
    assert vocab[0] == "[PAD]"
    assert vocab[1:100] == [f"[unused{number}]" for number in range(99)]
    assert vocab[100:104] == ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    check_vocab(vocab)


@pytest.mark.parametrize(
    ("counts", "changes", "learned"),
    [
        # The pairs: (a, ##b) 14, (##a, ##b) 11, then (ab, ##ab) 9.
        ({"abab": 9, "ab": 5, "cab": 2, "d": 2}, {"vocab_size": 114},
         ["a", "b", "c", "d", "##a", "##b", "ab", "##ab", "abab", "cab"]),
        # Only the most frequent characters; of equally frequent ones the lower code point.
        ({"aa": 9, "bb": 9, "ca": 2, "cc": 2}, {"vocab_size": 110, "limit_alphabet": 2},
         ["a", "b", "##a", "##b", "aa", "bb"]),
        ({"z": 5, "y": 5, "é": 5, "xx": 50}, {"vocab_size": 108, "limit_alphabet": 2},
         ["x", "y", "##x", "xx"]),
        # Words that are not rare and not too long.
        ({"ab": 9, "cc": 1, "d" * 101: 9}, {"vocab_size": 110, "min_frequency": 2},
         ["a", "b", "c", "##b", "##c", "ab"]),
    ],
)  # fmt: skip
def test_alphabet_is_followed_by_merges_by_frequency(
    counts: dict[str, int], changes: dict[str, int], learned: list[str]
) -> None:
    assert train_vocabulary(counts_of(counts), config(**changes))[104:] == learned


def test_time_of_training_does_not_grow_with_high_counts() -> None:
    few, many = {"abab": 9, "ab": 5, "cab": 2, "d": 2}, 10**9
    table = counts_of({word: count * many for word, count in few.items()})
    assert train_vocabulary(table, config(vocab_size=114)) == train_vocabulary(
        counts_of(few), config(vocab_size=114)
    )


def test_every_training_word_is_covered() -> None:
    vocab = train_vocabulary(small_counts(), config(vocab_size=150))
    tokenizer = WordPieceTokenizer(vocab, lowercase=False)
    ids, _ = tokenizer.encode_sentences(small_counts()["word"])
    assert tokenizer.unk_id not in ids


def test_error_of_small_corpus_names_the_largest_vocabulary() -> None:
    with pytest.raises(VocabularyError) as error:
        train_vocabulary(small_counts(), config(vocab_size=3000))
    (possible,) = map(int, re.findall(r"at most (\d+)", str(error.value)))
    assert len(train_vocabulary(small_counts(), config(vocab_size=possible))) == possible


@pytest.mark.parametrize(
    ("counts", "size", "message"),
    [(small_counts(), 110, "limit_alphabet"), (counts_of({}), 200, "at most"),
     (counts_of({"a": 1}), 200, "at most")],
)  # fmt: skip
def test_corpus_that_does_not_fit_is_refused(counts: pa.Table, size: int, message: str) -> None:
    with pytest.raises(VocabularyError, match=message):
        train_vocabulary(counts, config(vocab_size=size))


_LEARN = """
import hashlib
import tests.pipelines.vocabulary.test_training as t
vocab = t.train_vocabulary(t.small_counts(), t.config(max_training_words=1000, vocab_size=190))
print(hashlib.sha256(t.vocab_text(vocab).encode()).hexdigest())
"""


def test_vocabulary_is_the_same_in_every_process() -> None:
    here = train_vocabulary(small_counts(), config(max_training_words=1000, vocab_size=190))
    expected = hashlib.sha256(vocab_text(here).encode()).hexdigest()
    variables = {"RAYON_NUM_THREADS": "3", "TOKENIZERS_PARALLELISM": "true"}
    output = subprocess.run(
        [sys.executable, "-c", _LEARN],
        env={**os.environ, "PYTHONHASHSEED": "2", "PYTHONPATH": PYTHONPATH, **variables},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.strip() == expected


# ---- files ----


def test_written_and_read_again() -> None:
    vocab = [*FIXED_TOKENS, "a", "\u2028x", "##b"][:105]
    with fsspec.open("memory://test-vocabulary/vocab.txt", "wb") as stream:
        stream.write(vocab_text(vocab).encode())
    assert read_vocab("memory://test-vocabulary/vocab.txt") == vocab


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (vocab_text([*FIXED_TOKENS, "a", "a"]), "line 106.*line 105"),
        (vocab_text(["", *FIXED_TOKENS]), "line 1:"),
        (vocab_text([*FIXED_TOKENS, ""]), "line 105:"),
        (vocab_text(FIXED_TOKENS).replace("\n", "\r\n"), "line 1:"),
        (vocab_text([*FIXED_TOKENS, "two words"]), "line 105:"),
        (vocab_text(FIXED_TOKENS[:-1]), r"\[MASK\]"),
        ("\ufeff" + vocab_text(FIXED_TOKENS), "line 1:"),
        ("\udcff", "byte 0"),
        ("", r"\[PAD\], \[UNK\], \[CLS\], \[SEP\], \[MASK\]"),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path: Path, content: str, line: str) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(VocabularyError, match=line) as error:
        read_vocab(str(path))
    assert str(path) in str(error.value)
    path.unlink()
    with pytest.raises(VocabularyError, match=str(path)):
        read_vocab(str(path))


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_published_vocabularies(real_data: Path, case: str) -> None:
    vocab = read_vocab(str(real_data / "vocab" / f"bert-base-{case}" / "vocab.txt"))
    assert len(vocab) == {"uncased": 30_522, "cased": 28_996}[case]


@pytest.mark.parametrize("lowercase", [True, False])
def test_loads_in_transformers(tmp_path: Path, lowercase: bool) -> None:
    transformers = pytest.importorskip("transformers")
    vocab = train_vocabulary(small_counts(), config())
    (tmp_path / "vocab.txt").write_text(vocab_text(vocab))
    (tmp_path / "tokenizer.json").write_text(tokenizer_json(vocab, lowercase=lowercase))
    (tmp_path / "tokenizer_config.json").write_text(tokenizer_config_json(lowercase=lowercase))
    ours = WordPieceTokenizer(vocab, lowercase=lowercase)
    for loader, longest in (
        (transformers.AutoTokenizer, 200),
        (transformers.BertTokenizerFast, 100),
    ):
        theirs = loader.from_pretrained(str(tmp_path))
        text, other = "Turned walking sailers", "lock " + "s" * longest
        a, b = ours.encode(text), ours.encode(other)
        encoded = theirs(text, other)
        assert encoded["input_ids"] == [ours.cls_id, *a, ours.sep_id, *b, ours.sep_id]
        assert encoded["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert (theirs.mask_token_id, theirs.pad_token_id) == (ours.mask_id, ours.pad_id)
        assert ours.unk_id not in b
