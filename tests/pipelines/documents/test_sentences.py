"""Splitting paragraphs into sentences."""

# ruff: noqa: RUF001 - the quotes of many languages are what this is about

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import bench_sentences
from pipelines.documents.sentences import normalize_text, split_sentences

LONGEST = 10_000


def split(*paragraphs: str, language: str = "en") -> list[str]:
    return split_sentences(list(paragraphs), language, max_characters=LONGEST)


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        (
            "en",
            [
                "It fell at 3 p.m. today.",
                "“Who is it?” she asked.",
                "“Mr. Pell and J. R. Rusk went to St. Ives.”",
                "See http://example.org/a.html?b=C.d for more.",
            ],
        ),
        ("en", ["ok so.", "what?", "i dunno"]),
        ("en", ["It is so.[citation needed][a]", "Then no."]),
        ("en", ["It is so.", "[Then] no."]),
        ("hi", ["यह है।", "वह था।"]),
        ("ar", ["هل هذا؟", "نعم."]),
        ("ru", ["Нет.", "Он ушёл."]),
        ("ja", ["「今日は雨だ。傘を持って行こう。」", "彼は出た。"]),
        ("ja", ["『はい！』", "彼女は笑った。"]),
        ("zh", ["他说：“你好。我走了。”", "她笑了。"]),
    ],
)
def test_sentences_end_where_those_of_the_language_do(language: str, expected: list[str]) -> None:
    text = ("" if language in ("ja", "zh") else " ").join(expected)
    assert split(text, language=language) == expected


def test_marks_without_letter_or_digit_are_joined_to_a_sentence() -> None:
    assert split("He left.", ")", "He came.") == ["He left. )", "He came."]
    assert split("He left.", "* * *") == ["He left. * * *"]
    assert split("* * *", "-", "He left.") == ["* * * - He left."]
    assert split("*", ")") == ["* )"]
    assert split("The first.", "36.", "The next.") == ["The first.", "36.", "The next."]
    assert split("", "  ") == []


def test_long_sentences_are_cut_and_long_paragraphs_read_in_windows() -> None:
    sentence = "The quick brown fox went over the lazy dog and then went home."
    text = " ".join([sentence] * 2_000)
    assert split(text) == [sentence] * 2_000
    assert all(
        len(piece) <= 100 for piece in split_sentences(["word " * 500], "en", max_characters=100)
    )
    assert "".join(split("字" * 25_000, language="zh")) == "字" * 25_000


PIECES = st.sampled_from(
    ["I", "go", "Mr.", "12", "a", "...", ".", "!", "?", '"', "'", "“", "”", "(", ")", "«", "»",
     "「", "」", "。", "[", "]", " ", "  ", "\n\n", "é", "字", "।", "-", "—", ","]
)  # fmt: skip


@given(st.lists(PIECES, max_size=60), st.sampled_from(["en", "fr", "ja", "hi", "xx"]))
def test_no_character_is_lost(pieces: list[str], language: str) -> None:
    text = "".join(pieces)
    sentences = split(text, language=language)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)


def test_boundaries_are_at_least_as_good_as_those_of_sentencex(real_data: Path) -> None:
    sets = [
        bench_sentences.written(),
        bench_sentences.wikigold(real_data),
        bench_sentences.qnli(real_data),
    ]
    for paragraphs in sets:
        ours = bench_sentences.score(paragraphs, bench_sentences.ours)
        peer = bench_sentences.score(paragraphs, bench_sentences.bare)
        assert ours.gold > 150
        assert ours.f1 >= peer.f1 > 0.85


def test_normalize_text_is_blind_to_case_spaces_and_composition() -> None:
    assert normalize_text(["E\u0301  A", "b"]) == normalize_text(["é a B"])
