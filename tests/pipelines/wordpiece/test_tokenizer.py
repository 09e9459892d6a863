"""The tokenizer gives the `tokenizers` library's ids, for any text and batch."""

from __future__ import annotations

import functools
import gzip
import json
import re
import unicodedata
from pathlib import Path
from typing import Unpack

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipelines.wordpiece.text_rules import TextRules
from pipelines.wordpiece.tokenizer import (
    Sentences,
    WordPieceTokenizer,
    bert_normalizer,
    bert_pre_tokenizer,
    bert_tokenizer,
    sentence_batches,
    shared_pre_tokenizer,
    tokenizer_json,
)
from pipelines.wordpiece.vocab_files import FIXED_TOKENS

RULES = pytest.mark.parametrize(
    "rules",
    [
        {"lowercase": True},
        {"lowercase": False},
        {"lowercase": True, "strip_accents": False},
        {"lowercase": False, "strip_accents": True, "tokenize_chinese_chars": False},
    ],
    ids=str,
)
CASES = pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
OTHERS = "!\"#'(),-.:;?[]_·“”’—…αβσςжшеłøßıé日本語かなカ한가ابت👍"  # noqa: RUF001
WORDS = ("the", "mask", "MASK", "sep", "SEP", "is", "##ing", "##ed", "un", "Don", "don", "##bc")
VOCAB = [*FIXED_TOKENS, *LETTERS, *OTHERS, *(f"##{c}" for c in LETTERS + OTHERS), *WORDS]

# Whole-Unicode text, and text dense in what decides the cutting of words.
AWKWARD = (
    " \t\n\r\x00\x1c\x1f\x85\xa0\u1680\u200b\u200d\u2028\u3000\ufeff\ufffd.'-#[]\u0301\u0327"
    "\u0345\u1100\u1161\u302e\U0001d16d\u1b44\u05b0aAéÉσςΣİıßﬁ日か가🏽"  # noqa: RUF001
)
TEXT = st.one_of(
    st.text(),
    st.text(st.sampled_from(AWKWARD)),
    st.lists(st.sampled_from([*WORDS, "[MASK]", "[SEP]", "don't", "x" * 70, "y" * 201])).map(
        " ".join
    ),
)


def expected_ids(reference: Tokenizer, sentences: list[str]) -> list[list[int]]:
    encodings = reference.encode_batch_fast(sentences, add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def rows(tokenizer: WordPieceTokenizer, sentences: Sentences) -> list[list[int]]:
    ids, lengths = tokenizer.encode_sentences(sentences)
    assert ids.dtype == tokenizer.id_type
    assert lengths.dtype == np.uint32
    assert int(lengths.sum()) == len(ids)
    return (
        [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])] if len(lengths) else []
    )


@functools.cache
def reference_tokenizer(*rules: tuple[str, bool]) -> Tokenizer:
    return bert_tokenizer(VOCAB, **dict(rules))


@RULES
@settings(max_examples=150)
@given(sentences=st.lists(TEXT, max_size=8), word_cache_size=st.integers(1, 6) | st.just(1000))
def test_ids_are_the_librarys(rules: TextRules, sentences: list[str], word_cache_size: int) -> None:
    reference = reference_tokenizer(*rules.items())
    tokenizer = WordPieceTokenizer(VOCAB, word_cache_size=word_cache_size, **rules)
    expected = expected_ids(reference, sentences)
    for sentence, ids in zip(sentences, expected, strict=True):
        assert rows(tokenizer, [sentence]) == [ids]
    assert rows(tokenizer, sentences) == expected


@RULES
def test_words_of_every_assigned_character(rules: TextRules) -> None:
    assert_same_words(all_characters()["assigned"], **rules)
    for category in ("Cn", "Co"):
        assert_same_words(all_characters()[category][::97], **rules)


@pytest.mark.slow
@pytest.mark.parametrize("category", ["Cn", "Co"])
def test_words_of_every_other_character(category: str) -> None:
    # Rules that strip accents leave unassigned characters to the library.
    assert_same_words(all_characters()[category], lowercase=True, strip_accents=False)


@functools.cache
def all_characters() -> dict[str, list[str]]:
    """Return the characters of the categories Cn, Co and Cs, and those of all others."""
    groups: dict[str, list[str]] = {"Cn": [], "Co": [], "Cs": [], "assigned": []}
    for character in map(chr, range(0x110000)):
        own = unicodedata.category(character)
        groups[own if own in groups else "assigned"].append(character)
    return groups


@functools.cache
def has_accent(character: str) -> bool:
    return any(map(unicodedata.combining, unicodedata.normalize("NFD", character)))


def assert_same_words(tested: list[str], **rules: Unpack[TextRules]) -> None:
    """Compare texts of many characters; one with an accent decides how its whole text is cut."""
    normalizer, pre_tokenizer = bert_normalizer(**rules), bert_pre_tokenizer()
    words = shared_pre_tokenizer(**rules).words
    accented = [[character] for character in tested if has_accent(character)]
    others = [character for character in tested if not has_accent(character)]
    for batch in accented + [others[start : start + 256] for start in range(0, len(others), 256)]:
        for pattern in ("a{0}b", "\u0316{0}\u0301{0}"):
            text = " ".join(pattern.format(character) for character in batch)
            normalized = normalizer.normalize_str(text)
            expected = [word for word, _ in pre_tokenizer.pre_tokenize_str(normalized)]
            assert words(text) == expected, ascii(batch)


def test_marks_that_are_kept_stand_in_canonical_order() -> None:
    text = "a\u302e\u1b44b"  # combining classes 224 and 9
    assert shared_pre_tokenizer(lowercase=True).words(text) == ["a\u1b44\u302eb"]
    assert shared_pre_tokenizer(lowercase=False).words(text) == [text]


def test_special_tokens_in_the_text_are_text() -> None:
    tokenizer = WordPieceTokenizer(VOCAB, lowercase=True)
    ids = tokenizer.encode("[MASK] [sep] [PAD]")
    assert tokenizer.convert_ids_to_tokens(ids)[:6] == ["[", "mask", "]", "[", "sep", "]"]
    special = {tokenizer.mask_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.cls_id}
    assert not special & set(ids)


def test_known_ids() -> None:
    tokenizer = WordPieceTokenizer(VOCAB, lowercase=False)
    ids = tokenizer.encode("Don't unabc\tthe")
    assert tokenizer.convert_ids_to_tokens(ids) == ["Don", "'", "t", "un", "##a", "##bc", "the"]
    assert (tokenizer.pad_id, tokenizer.unk_id) == (0, 100)
    assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (101, 102, 103)
    assert [bool(tokenizer.is_continuation[i]) for i in ids] == [False] * 4 + [True] * 2 + [False]


def test_sentences_without_words_have_length_zero() -> None:
    tokenizer = WordPieceTokenizer(VOCAB, lowercase=True)
    empty = ["", " ", "    ", "\t", "\u00a0 \u3000", "\x00\x1f\u200b", "\n\n"]
    assert rows(tokenizer, ["the", *empty]) == [tokenizer.encode("the"), *([] for _ in empty)]
    assert rows(tokenizer, []) == []


def test_word_length_limit_is_200_characters() -> None:
    tokenizer = WordPieceTokenizer([*VOCAB, "z" * 200, "z" * 201], lowercase=True)
    assert tokenizer.encode("z" * 200) == [len(VOCAB)]
    assert tokenizer.encode("z" * 201) == [tokenizer.unk_id]


def test_every_kind_of_arrow_array() -> None:
    tokenizer = WordPieceTokenizer(VOCAB, lowercase=True)
    sentences = ["the", "", "don't is", " un ", "日本 mask"]
    expected = rows(tokenizer, sentences)
    padded = ["x", *sentences, "y"]
    for kind in (pa.string(), pa.large_string()):
        assert rows(tokenizer, pa.array(sentences, kind)) == expected
        assert rows(tokenizer, pa.array(padded, kind).slice(1, 5)) == expected
    chunked = pa.chunked_array([sentences[:2], [], sentences[2:]], pa.string())
    assert rows(tokenizer, chunked) == expected


@given(sentences=st.lists(st.text(max_size=30)), max_bytes=st.integers(1, 40))
def test_batches_keep_every_sentence(sentences: list[str], max_bytes: int) -> None:
    batches = list(sentence_batches(sentences, max_bytes=max_bytes))
    assert [s for batch in batches for s in batch.to_pylist()] == sentences
    for batch in batches:
        size = sum(len(s.encode()) for s in batch.to_pylist())
        assert len(batch) == 1 or size <= max_bytes


def test_vocabularies_above_65536_have_uint32_ids() -> None:
    vocab = [*VOCAB, *(f"w{number}" for number in range(1 << 16))]
    tokenizer = WordPieceTokenizer(vocab, lowercase=True)
    assert tokenizer.id_type == np.uint32
    assert rows(tokenizer, [f"w{(1 << 16) - 1}"]) == [[len(vocab) - 1]]


def test_tokenizer_json_encodes_pairs() -> None:
    tokenizer = Tokenizer.from_str(tokenizer_json(VOCAB, lowercase=True))
    encoding = tokenizer.encode("the [MASK]", "is")
    assert encoding.tokens == ["[CLS]", "the", "[MASK]", "[SEP]", "is", "[SEP]"]
    assert encoding.type_ids == [0, 0, 0, 0, 1, 1]
    assert tokenizer_json(VOCAB, lowercase=True) == tokenizer_json(tuple(VOCAB), lowercase=True)


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_golden_ids_of_the_papers_tokenizer(real_data: Path, case: str) -> None:
    """No line of the golden files is affected by the differences listed below: all are equal."""
    lines = gzip.decompress(
        (real_data / "golden" / f"reference-token-ids-{case}.jsonl.gz").read_bytes()
    )
    golden = [json.loads(line) for line in lines.decode().split("\n") if line]
    assert len(golden) == 826
    tokenizer = WordPieceTokenizer.from_vocab_file(
        str(real_data / "vocab" / f"bert-base-{case}" / "vocab.txt"), lowercase=case == "uncased"
    )
    encoded = rows(tokenizer, [line["text"] for line in golden])
    wrong = [line["text"] for line, ids in zip(golden, encoded, strict=True) if line["ids"] != ids]
    assert wrong == []


# ---- where the library, and so bertloom, leaves the paper's own tokenizer ----

# Characters whose category changed after the library's Unicode tables were made.
RECLASSIFIED = {0x166D: "punctuation to symbol", 0x111C9: "punctuation to mark", 0x1734: "Mn to Mc"}


def papers_words(text: str, *, lowercase: bool) -> list[str]:
    """Return the words of the paper's tokenizer, with Python's Unicode tables."""
    spaced = ""
    for character in text:
        category = unicodedata.category(character)
        if character in "\t\n\r" or category == "Zs":
            spaced += " "
        elif character not in "\0\ufffd" and category not in {"Cc", "Cf"}:
            is_cjk = any(start <= ord(character) <= end for start, end in PAPERS_CJK)
            spaced += f" {character} " if is_cjk else character
    words: list[str] = []
    for word in spaced.split():
        if lowercase:
            decomposed = unicodedata.normalize("NFD", word.lower())
            word = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        isolated = (
            f" {c} " if re.match(r"[!-/:-@\[-`{-~]", c) or unicodedata.category(c)[0] == "P" else c
            for c in word
        )
        words += "".join(isolated).split()
    return words


PAPERS_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def reason_for_difference(code_point: int, ours: list[str], theirs: list[str]) -> str:
    character = chr(code_point)
    category = unicodedata.category(character)
    if category == "Co":
        return "private use: dropped by the library, kept by the paper's" * (ours == ["ab"])
    if 0x2B820 <= code_point <= 0x2B91F:
        return "CJK extension E: the library's range starts at U+2B920" * (len(theirs) == 3)
    if code_point in RECLASSIFIED:
        return RECLASSIFIED[code_point]
    if category in {"Mn", "Cf", "Mc"} or category[0] == "P":
        # Older tables have no such character, so it is no accent, control or punctuation.
        return "newer than the library's tables" * (len(ours) == 1 and ours != ["ab"])
    return "newer than Python's tables" * (category == "Cn")


@CASES
def test_every_difference_from_the_papers_tokenizer_has_a_reason(lowercase: bool) -> None:
    words = shared_pre_tokenizer(lowercase=lowercase).words
    unexplained, reasons = [], set()
    for code_point in (*range(0xD800), *range(0xE000, 0x32000), *range(0xE0000, 0xE0200), 0xF0000):
        text = f"a{chr(code_point)}b"
        ours, theirs = words(text), papers_words(text, lowercase=lowercase)
        if ours != theirs:
            reason = reason_for_difference(code_point, ours, theirs)
            reasons.add(reason)
            if not reason:
                unexplained.append((hex(code_point), ours, theirs))
    assert unexplained == []
    assert len(reasons) >= 4


def test_greek_final_sigma_does_not_depend_on_its_place() -> None:
    text = "\u039f\u0394\u039f\u03a3"  # ODOS in capitals
    assert shared_pre_tokenizer(lowercase=True).words(text) == ["\u03bf\u03b4\u03bf\u03c3"]
    assert papers_words(text, lowercase=True) == ["\u03bf\u03b4\u03bf\u03c2"]
