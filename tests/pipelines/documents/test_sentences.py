"""Splitting paragraphs into sentences."""

# ruff: noqa: RUF001 - the quotes of many languages are what this is about

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import complexity

from benchmarks import bench_sentences
from pipelines.text.sentences import normalised_text, split_sentences

LONGEST = 10_000


def split(*paragraphs: str, language: str = "en") -> list[str]:
    return split_sentences(list(paragraphs), language, max_characters=LONGEST)


@pytest.mark.parametrize(
    ("quoted", "count"),
    [
        ('"I will not. | You know that," he said. | "Go away. | Now!"', 4),
        ("“I see. | ‘Go away. | Now,’ he said. | So I went.” | Tom laughed.", 5),
        ("'I will go. | You stay,' he said. | Don't. | 'Tis so.", 4),
        ("He said “I will go. | You stay”. | Then he went.", 3),
        ("(It rained. | They went home.) | Then it cleared.", 3),
        ("Some (Tom and Bo.) | They left.", 2),
    ],
)
def test_sentences_end_within_speech_and_whole_brackets(quoted: str, count: int) -> None:
    expected = quoted.split(" | ")
    assert len(expected) == count
    assert split(" ".join(expected)) == expected


@pytest.mark.parametrize(
    "whole",
    [
        '"Where?" Tom asked.',
        "“Stop!” the old man cried.",
        "“Who is it?” Mrs. Pell called.",
        "The film “Help! I Am Here!” was long.",
        "The song “What? No” was short.",
        "He (Tom. Or Bo.) left.",
        "Alas! how small it looked.",
        "It fell to approx. a half, see Vol. 2 and Fig. 3.",
        "He said “Mr. Pell and J. R. Rusk went to St. Ives” and left.",
        "See http://example.org/a.html?b=C.d for more.",
    ],
)
def test_titles_reporting_clauses_and_short_forms_stay_in_one_sentence(whole: str) -> None:
    assert split(f"It began. {whole} It ended.") == ["It began.", whole, "It ended."]


def test_who_writes_in_small_letters_ends_sentences_all_the_same() -> None:
    assert split("ok so. what? i dunno") == ["ok so.", "what?", "i dunno"]


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("fr", ["« Bonjour.", "Ça va ? » dit-il.", "Il part."]),
        ("de", ["„Hallo.", "Wie geht es?“ sagte er.", "Er ging."]),
        ("de", ["»Nein.", "Ich gehe!« sagte er.", "Er ging."]),
        ("es", ["«Hola.", "¿Qué tal?», dijo.", "Se fue."]),
        ("ru", ["«Нет.", "Я уйду», — сказал он.", "Он ушёл."]),
        ("hi", ["यह है।", "वह था।"]),
        ("ar", ["هل هذا؟", "نعم."]),
    ],
)
def test_other_scripts_and_quotes(language: str, expected: list[str]) -> None:
    assert split(" ".join(expected), language=language) == expected


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("ja", ["「今日は雨だ。傘を持って行こう。」", "彼は出た。"]),
        ("ja", ["『はい！』", "彼女は笑った。"]),
        ("zh", ["他说：“你好。我走了。”", "她笑了。"]),
    ],
)
def test_text_without_spaces_is_split_as_sentencex_splits_it(
    language: str, expected: list[str]
) -> None:
    assert split("".join(expected), language=language) == expected


def test_what_has_no_letter_is_no_sentence() -> None:
    assert split("1. Open it. 2. Close it.") == ["1. Open it.", "2. Close it."]
    assert split("The first.", "36.", "The next.") == ["The first.", "36. The next."]
    assert split("He left. ) Then he came.") == ["He left. )", "Then he came."]
    assert split("He left.", ")", "He came.") == ["He left. )", "He came."]
    assert split("He left.", "* * *") == ["He left. * * *"]
    assert split("What year? 1999.", "No.") == ["What year? 1999.", "No."]
    assert split("1.", ")") == ["1. )"]
    assert split("", "  ") == []


def test_quotes_stay_with_their_sentences() -> None:
    assert split("Don't. 'Tis so.") == ["Don't.", "'Tis so."]
    assert split("It is so.[citation needed] Then no.") == [
        "It is so.[citation needed]",
        "Then no.",
    ]


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


@pytest.mark.parametrize(
    "unit",
    [
        '"I go. You stay." ',
        '"',
        "(",
        ". ",
        '." ',
        "“A. ",
        "'a. B' ",
        "1. ",
        ") ",
        "x",
        ".",
        "[a. ",
        "« ",
    ],
)
def test_time_grows_with_the_text_and_not_faster(unit: str) -> None:
    complexity.assert_linear(split, unit)


def test_boundaries_agree_with_those_of_a_treebank() -> None:
    paragraphs = bench_sentences.written()
    own = bench_sentences.score(paragraphs, bench_sentences.ours)
    peer = bench_sentences.score(paragraphs, bench_sentences.bare)
    assert own.gold > 150
    assert own.precision > max(0.98, peer.precision)
    assert own.recall > max(0.95, peer.recall)


def test_boundaries_agree_with_text_that_others_split(real_data: Path) -> None:
    unseen = bench_sentences.wikigold(real_data)[1::2]
    own = bench_sentences.score(unseen, bench_sentences.ours)
    peer = bench_sentences.score(unseen, bench_sentences.bare)
    assert own.precision >= peer.precision
    assert own.recall > max(0.97, peer.recall)


def test_normalised_text_is_blind_to_case_spaces_and_composition() -> None:
    assert normalised_text(["E\u0301  A", "b"]) == normalised_text(["é a B"])
