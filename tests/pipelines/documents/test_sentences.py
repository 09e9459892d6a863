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
    parts = split_sentences(["word " * 501], "en", max_characters=99)
    assert parts == [" ".join(["word"] * 20)] * 25 + ["word"]
    assert "".join(split("字" * 25_000, language="zh")) == "字" * 25_000


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("no", "Slaget stod 3. juni 1711 ved elva og varte til 5. juni."),
        ("nn", "Det 14. hundreåret var hardt."),
        ("nb", "Skipet gikk 12. sept. 1884 fra Bergen."),
        ("da", "Loven kom i det 17. århundrede."),
        ("sv", "Borgen brann den 4. maj 1523 enligt krönikan."),
        ("is", "Bærinn brann 2. apríl 1790 um nótt."),
        ("fo", "Kirkjan varð vígd 6. juli 1850 í Havn."),
        ("de", "Der 4. Sohn wurde im 17. Jahrhundert Abt."),
        ("de", "Unter Ludwig II. wurde am 9. Juni gebaut."),
        ("de", "Das 2. Regiment zog am 12. Nov. 1870 ab."),
        ("de", "Seine 3. Frau kam aus dem II. Bezirk."),
        ("lb", "Um 9. Mee koum hien am 17. Joerhonnert heem."),
        ("hu", "III. Béla 1172. január 13-án lett király."),
        ("hu", "Az 1. Magyar Hadsereg 1944. VIII. 5. napján indult."),
        ("hu", "A várat i. e. 50 körül és Kr. u. 9 táján is lakták."),
        ("tr", "Sultan III. Selim 18. yüzyılın sonunda tahta çıktı."),
        ("tr", "Kent M.Ö. 546 yılında Perslere geçti."),
        ("et", "Kirik põles 1773. aasta 4. mail ja 19. saj. alguses taas."),
        ("lv", "Pils nodega 1709. gada 3. maijā."),
        ("eu", "Herria XII. mendean sortu zen, 1325. urtean gutunarekin."),
        ("sr", "Манастир је из 1321. године, а звоник из 18. века."),
        ("sr", "Град су подигли у 3. веку п. н. е. на обали."),
        ("hr", "Vijeće je 4. lipnja 1848. donijelo odluku, a 9. 7. 1848. i drugu."),
        ("hr", "Naselje je staro kao i cesta iz 2. st. pr. Kr. do mora."),
        ("bs", "Džamija je iz 1557. godine."),
        ("sh", "Most je srušen 1687. godine."),
        ("sl", "Grad je pogorel 4. maja 1511 in 2. avg. 1689 znova."),
        ("cs", "Kostel je z 13. století a zvon z 4. 5. 1602."),
        ("sk", "Hrad stojí od 13. storočia."),
        ("pl", "Zamek spłonął 4. maja 1655 r. po oblężeniu."),
        ("pl", "Osadę założono w VI w. p.n.e. nad rzeką."),
        ("fi", "Linna paloi 4. toukokuuta 1614."),
        ("fr", "Le port fut bâti au IIe siècle av. J.-C. par des marins."),
        ("fr", "La loi du 9 févr. 1810 fut abrogée en 30 apr. J.-C. ou plus tard."),
        ("it", "Il porto fu costruito nel 90 a.C. dai coloni e ampliato nel 12 d. C. circa."),
        ("pt", "O porto é do século II a. C. segundo a lenda."),
        ("ro", "Cetatea a fost ridicată în 90 î. Hr. de daci."),
        ("bg", "Крепостта е от 90 г. пр. Хр. и е запазена."),
        ("ru", "Крепость построена в 90 г. до н. э. греками."),
        ("mk", "Градот е од 90 п.н.е. наваму."),
        ("en", "The rule of Charles I. ended on the 30. of January."),
        ("xx", "Ab 12. cde 1900. efg."),
    ],
)
def test_sentences_are_not_cut_within_dates_ordinals_and_eras(language: str, sentence: str) -> None:
    for text in (sentence, sentence.replace(". ", ".\u00a0")):
        assert split(text, language=language) == [text]


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("no", ["Skolen åpnet i 1884.", "Han ble 80.", "Etterpå kom krigen."]),
        ("de", ["Es brannte 1523.", "Danach baute man neu.", "Er wurde 80.", "Maria wurde 90."]),
        ("de", ["Er kam am 3. Mai.", "Er ging am 4.", "Danach war Ruhe."]),
        ("hu", ["Az eredmény 15.", "A többi később jött.", "Ez a IV.", "A másik az V."]),
        ("tr", ["Kapı numarası 15.", "Ev eskidir.", "Yıl 1973.", "Savaş bitti."]),
        ("sr", ["Школу је завршио 1846.", "Потом је отишао."]),
        ("fr", ["Il mourut en 12 av. J.-C.", "Puis la paix revint.", "Il avait 50 ans."]),
        ("it", ["Morì nel 12 a.C.", "Poi venne la pace."]),
        ("en", ["She was 15.", "iPods came in 2001.", "It was magnitude 5.", "α Arietis is 2."]),
        ("en", ["1.", "He scored 15.", "2.", "She scored 12."]),
        ("en", ["GMB had 40.", "44,000 workers left GMB.", "12 stayed."]),
        ("ka", ["ეს იყო 15.", "მერე NATO მოვიდა."]),
        ("en", ["she was 15.", "then she left.", "he was 18."]),
    ],
)
def test_sentences_end_with_numbers_years_and_eras(language: str, expected: list[str]) -> None:
    assert split(" ".join(expected), language=language) == expected


def test_equal_parts_are_joined_where_each_stands() -> None:
    text = "Byen brant 3. mai. Den 3. mai. Den 3. mai ble den bygd."
    expected = ["Byen brant 3. mai.", "Den 3. mai.", "Den 3. mai ble den bygd."]
    assert split(text, language="no") == expected


def test_paragraphs_are_not_joined() -> None:
    assert split("Dette er nr. 1.", "mai kom. Og gikk.", language="no") == [
        "Dette er nr. 1.",
        "mai kom.",
        "Og gikk.",
    ]


@pytest.mark.parametrize("space", ["\u00a0", " \u00a0", "\u00a0\u2009", "\u3000", "\x85"])
@pytest.mark.parametrize("language", ["en", "fr", "ja", "xx"])
def test_wide_space_between_capital_and_full_stop_is_no_error(space: str, language: str) -> None:
    text = f"Le plan B{space}. Oui."
    assert "".join("".join(split(text, language=language)).split()) == "LeplanB.Oui."
    assert "".join(split("x" * 6_000 + text, language=language)).endswith("Oui.")


PIECES = st.sampled_from(
    ["I", "go", "Mr.", "12", "a", "...", ".", "!", "?", '"', "'", "“", "”", "(", ")", "«", "»",
     "「", "」", "。", "[", "]", " ", "  ", "\n\n", "é", "字", "।", "-", "—", ",",
     "3", "IV", "mai", "Kr", "Der", "J", "\u00a0", "\u2009", "\u3000"]
)  # fmt: skip


@given(
    st.lists(PIECES, max_size=60),
    st.sampled_from(["en", "fr", "ja", "hi", "no", "de", "hu", "xx"]),
    st.sampled_from([1, 7, LONGEST]),
)
def test_no_character_is_lost(pieces: list[str], language: str, longest: int) -> None:
    text = "".join(pieces)
    sentences = split_sentences([text], language, max_characters=longest)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)
    assert max(map(len, sentences), default=0) <= longest


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


@pytest.mark.parametrize(("language", "paragraphs"), bench_sentences.dates().items())
def test_boundaries_near_dates_are_at_least_as_good_as_those_of_sentencex(
    language: str, paragraphs: list[bench_sentences.Gold]
) -> None:
    ours = bench_sentences.score(paragraphs, bench_sentences.ours)
    peer = bench_sentences.score(paragraphs, bench_sentences.bare)
    assert {paragraph.language for paragraph in paragraphs} == {language}
    assert ours.f1 >= max(peer.f1, 0.95)


def test_normalize_text_is_blind_to_case_spaces_and_composition() -> None:
    assert normalize_text(["E\u0301  A", "b"]) == normalize_text(["é a B"])
