"""Cleaning one book's text, and finding its encoding."""

# ruff: noqa: RUF001 - the quotes and dashes of books are what this is about

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import get_args

import pytest

from benchmarks import bench_books_cleaning
from pipelines.books import clean_book as cleaning
from pipelines.books.blocks import Reason
from pipelines.books.clean_book import CleanedBook
from pipelines.books.gutenberg import drop_brackets, split_books
from pipelines.books.layout import LineJoiner, find_layout
from pipelines.books.words import count_words
from pipelines.io.encodings import decode_text, normalise

OPENING = (
    "It was a bright cold morning when the three of them set out along the river\n"
    "bank, and no one in the village had yet opened so much as a single shutter\n"
    "to see them go."
)
SECOND = (
    "They walked until noon without saying very much, for each of them was busy\n"
    "with a private anxiety which none of the others would have understood."
)
ONE_LINE = OPENING.replace("\n", " ")
SECOND_LINE = SECOND.replace("\n", " ")

GUTENBERG = f"""The Project Gutenberg EBook of The Long Walk, by Ann Writer

This eBook is for the use of anyone anywhere at no cost.

Title: The Long Walk

Author: Ann Writer

*** START OF THIS PROJECT GUTENBERG EBOOK THE LONG WALK ***




Produced by A Volunteer and the Online Distributed Proofreading Team.





THE LONG WALK

BY

ANN WRITER

_Author of "The Short Walk"_

LONDON
BIG AND SONS, LIMITED
1903

_To my mother_


CONTENTS

CHAPTER                      PAGE
I. The River Bank               1
II. Noon                       17


ILLUSTRATIONS

They set out              _Frontispiece_
The river                       12




CHAPTER I.

THE RIVER BANK

{OPENING}

[Illustration: They set out.
A second line of the caption.]

"Where are we going?" said Tom.

"Away," said Mary.[1] "_Far_ away--as far as
ever we can."

       *       *       *       *       *

    The river runs, the river runs,
      And never stays for me;
    It has a hundred little sons
      And takes them to the sea.



CHAPTER II.

NOON

{SECOND}

THE END




Printed by Little and Co., Edinburgh.

Transcriber's Note: Obvious errors were corrected.




End of the Project Gutenberg EBook of The Long Walk, by Ann Writer

*** END OF THIS PROJECT GUTENBERG EBOOK THE LONG WALK ***

Most people start at our Web site.
"""
PROSE = [
    ONE_LINE,
    '"Where are we going?" said Tom.',
    '"Away," said Mary. "Far away--as far as ever we can."',
    "The river runs, the river runs, And never stays for me; It has a hundred little sons And "
    "takes them to the sea.",
    SECOND_LINE,
    "Printed by Little and Co., Edinburgh.",
]


def clean_book(text: str) -> CleanedBook:
    (book,) = map(cleaning.clean_book, split_books(text))
    return book


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_gutenberg_book_keeps_its_prose_and_nothing_else(line_end: str) -> None:
    book = clean_book("\ufeff" + GUTENBERG.replace("\n", line_end))
    assert book.text.title == "The Long Walk"
    assert book.paragraphs == PROSE


def test_without_header_and_footer_the_text_is_the_same() -> None:
    body = GUTENBERG.partition("LONG WALK ***")[2].partition("End of the Project")[0]
    book = clean_book(body)
    assert book.text.title == ""
    assert book.paragraphs == PROSE


def test_cleaning_twice_changes_nothing() -> None:
    assert clean_book("\n\n".join(PROSE)).paragraphs == PROSE


@pytest.mark.parametrize(
    ("header", "footer"),
    [
        (
            "*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n",
            "End of The Project Gutenberg Etext of X\n",
        ),
        ("***START OF THE PROJECT GUTENBERG EBOOK X***\n", "***END OF THE PROJECT GUTENBERG\n"),
        (
            "*** START OF THIS PROJECT GUTENBERG EBOOK X,\nOR Y ***\n",
            "End of Project Gutenberg's X\n",
        ),
    ],
)
def test_markers_of_every_age_are_known(header: str, footer: str) -> None:
    text = f"Project Gutenberg Etext\n\nlegal\n\n{header}\nBody here.\n\n{footer}\nlegal\n"
    assert split_books(text)[0].body.strip() == "Body here."


def test_a_title_over_two_lines_is_joined() -> None:
    text = "Title: A Long Title\n  Of Two Lines\n\n*** START OF THE PROJECT GUTENBERG EBOOK ***\nx"
    assert split_books(text)[0].title == "A Long Title Of Two Lines"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a [Illustration: x [y] z] b", "a  b"),
        ("a [Illustration: never closed\n\nb", "a \n\nb"),
        ("He said [in a whisper] no.", "He said [in a whisper] no."),
        ("a\n\n[Footnote 1: See there.]\n\nb", "a\n\nSee there.\n\nb"),
        ("a [Footnote 1: See there.] b", "a  b"),
        ("a\n\n[Footnote: See there.]\n\nb", "a\n\nSee there.\n\nb"),
        ("a\n\n[Fußnote 12: Siehe dort.]\n\nb", "a\n\nSiehe dort.\n\nb"),
        ("a\n\n[Illustration 3: See there.]\n\nb", "a\n\n\n\nb"),
        ("a\n\n[Abbildung: Am Fluss.]\n\nb", "a\n\n\n\nb"),
        ("a\n\n[Greek: alpha]\n\nb", "a\n\n[Greek: alpha]\n\nb"),
    ],
)
def test_brackets_of_pictures_and_notes_go(text: str, expected: str) -> None:
    assert drop_brackets(text) == expected


BOTH, BOTH_LINES = f"{OPENING}\n\n{SECOND}", [ONE_LINE, SECOND_LINE]
STORY = "\n\n".join([BOTH] * 10)
LONG_STORY = "\n\n".join([BOTH] * 40)


@pytest.mark.parametrize(
    "back",
    [
        ["[1] A stang is a pole of sixteen feet.", "[2] So the old copies have it."],
        ["1. A stang is a pole of sixteen feet.", "2. So the old copies have it."],
        ["Postscript. They all live there still, and walk along the river every day."],
        ["It was a dream, as I said when I began, and I have never told it since."],
    ],
)
@pytest.mark.parametrize("end", ["", "THE END", "FINIS", "_Fin_", "Конец", "完"])
def test_notes_and_postscripts_behind_the_text_stay(back: list[str], end: str) -> None:
    book = clean_book("\n\n".join(["CHAPTER I", STORY, end, *back]))
    assert book.paragraphs == [*BOTH_LINES * 10, *back]


CHAPTER_NOTES = "FOOTNOTES:\n\n[1] A stang is a pole.\n\n[2] So the old copies have it."
LAST_PART = "\n\n".join([SECOND, OPENING] * 8)


@pytest.mark.parametrize(
    "between",
    [
        f"{CHAPTER_NOTES}\n\n\nCHAPTER II",
        f"{CHAPTER_NOTES}\n\n\nThe Last Day",
        f"{CHAPTER_NOTES}\n\n\n*CHAPTER II*",
        CHAPTER_NOTES,
        "NOTES\n\n1. A stang is a pole.\n\n2. So the old copies have it.\n\n\nCHAPTER II",
        "Footnotes:\n\nThis was so at that time, and was never changed.",
        "[1] A stang is a pole.\n\n[2] So the old copies have it.",
        "Transcriber's Note: the next leaf is torn.",
        "Transcriber's Note: the next leaf is torn.\n\n\nCHAPTER II",
        "ERRATA\nPage 12, line 3, for walk read talk.",
        "POPULAR NOVELS",
        "ACKNOWLEDGEMENTS",
    ],
)
def test_text_behind_the_notes_of_a_chapter_stays(between: str) -> None:
    book = clean_book(f"CHAPTER I\n\n{LONG_STORY}\n\n\n{between}\n\n\n{LAST_PART}\n")
    assert book.paragraphs[-16:] == [SECOND_LINE, ONE_LINE] * 8


PREFACE = "To the Press, and to my publishers, I owe thanks for the second edition of this."
RULES = [
    "It was bound in cloth, and she paid 5s. for it, which was more than she had.",
    "1. That no one was to leave the house before the others had come home again.",
    "2. That no one was to ask why this was so, or who had made the rule at all.",
]
DIALOGUE = ['"Tom!"', "No answer.", '"TOM!"', ONE_LINE]
SPOKEN = "He had read of Project Gutenberg, and of the end of Project X."
PRINTERS = "The printers were late."


AROUND = {
    "gutenberg": ([OPENING, SPOKEN, SECOND], [ONE_LINE, SPOKEN, SECOND_LINE]),
    "preface": (["A BOOK", "BY A MAN", "PREFACE", PREFACE, "I.", OPENING], [PREFACE, ONE_LINE]),
    "dialogue": (["TOM", "CHAPTER I", *DIALOGUE], DIALOGUE),
    "collection": (["CHAPTER I", STORY, "THE END", STORY], BOTH_LINES * 20),
    "printers": ([STORY, PRINTERS, BOTH, BOTH], [*BOTH_LINES * 10, PRINTERS, *BOTH_LINES * 2]),
    "prices": (["CHAPTER I", STORY, *RULES, OPENING], [*BOTH_LINES * 10, *RULES, ONE_LINE]),
    **{
        line: (["THE WALK", "BY", "A MAN", line, "CHAPTER I", STORY], BOTH_LINES * 10)
        for line in ("1883.", "LONDON, _May_ 1886.", "All Rights reserved.", "Vol. I.")
    },
    "nothing": ([""], []),
    "marks": (["* * *"], []),
    "title-page": (["THE TITLE", "BY", "AN AUTHOR"], []),
}


@pytest.mark.parametrize("kind", AROUND)
def test_story_stays_and_what_is_around_it_goes(kind: str) -> None:
    parts, paragraphs = AROUND[kind]
    assert clean_book("\n\n".join(parts)).paragraphs == paragraphs


def test_last_lines_behind_the_notes_of_a_chapter_stay() -> None:
    start = f"CHAPTER I\n\n{LONG_STORY}\n\n{CHAPTER_NOTES}\n\n"
    book = clean_book(f"{start}{SECOND}\n\n{OPENING}\n")
    assert book.paragraphs[-2:] == [SECOND_LINE, ONE_LINE]
    assert clean_book(f"{start}*CHAPTER II*\n").paragraphs[:80] == BOTH_LINES * 40


def test_paragraphs_between_their_notes_stay() -> None:
    noted = "\n\n".join(f"{SECOND}\n\n[{number}] So it is." for number in range(1, 17))
    book = clean_book(f"CHAPTER I\n\n{LONG_STORY}\n\n{noted}\n")
    assert book.paragraphs.count(SECOND_LINE) == 40 + 16


PERSONS = "ORLA, a keeper of lamps.\nTOM, her brother.\nPELL, who is in love with Orla, a miller."
TURNS = [
    ("ORLA", "Who's there?"), ("TOM", "No"), ("ORLA", "Late!"), ("TOM", "Yes"), ("PELL", "Ho"),
    ("ORLA", "Hush!"), ("TOM", "Let him in."), ("ORLA", "I will not let him in tonight, nor ever."),
]  # fmt: skip


@pytest.mark.parametrize("between", [". ", "\n\n", ".--"])
def test_a_play_keeps_its_first_speeches(between: str) -> None:
    speeches = [f"{name}{between}{said}" for name, said in TURNS * 4]
    play = "\n\n\n".join(["THE LAMP\n\nBY\n\nA MAN", f"DRAMATIS PERSONAE\n\n{PERSONS}", "ACT I"])
    book = clean_book(f"{play}\n\n" + "\n\n".join(speeches))
    assert book.paragraphs[1:] == "\n\n".join(speeches).split("\n\n")


def test_a_wrapped_line_of_one_word_is_no_heading() -> None:
    lines = [*OPENING.split("\n")[:2], "persons."]
    text = "\n".join([*lines * 8, "introduction.", *lines])
    assert " ".join(clean_book(text).paragraphs) == text.replace("\n", " ")


@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_one_line_a_paragraph(gap: str) -> None:
    lines = [f"{ONE_LINE} {SECOND_LINE}", '"Yes," she said.', f"{SECOND_LINE} {ONE_LINE}"]
    text = gap.join(lines * 3)
    assert find_layout(text.split("\n")) == "one-line"
    assert clean_book(text).paragraphs == lines * 3


def test_wrapped_lines_without_blank_lines_are_parted_at_short_lines() -> None:
    text = "\n".join(["CHAPTER I", *[OPENING] * 6, "CHAPTER II", "Noon", f"{OPENING}\n{SECOND}"])
    assert find_layout(text.split("\n")) == "no-blank-lines"
    assert clean_book(text).paragraphs == [*[ONE_LINE] * 7, SECOND_LINE]


def test_indented_first_lines_part_paragraphs_without_blank_lines() -> None:
    text = f"  {OPENING}\n  {SECOND}\n  {OPENING}\n\n  {SECOND}"
    assert clean_book(text).paragraphs == [ONE_LINE, SECOND_LINE, ONE_LINE, SECOND_LINE]


HABIT_OF_COMPOUNDS = "A well-known man.\nHe is well-\nknown. "
HABIT_OF_SYLLABLES = "A corruption.\nIt is a cor-\nruption. "


@pytest.mark.parametrize(
    ("text", "lines", "expected"),
    [
        ("The undulations of it.", ["the undula-", "tions here"], "the undulations here"),
        ("A well-known thing.", ["a well-", "known man"], "a well-known man"),
        ("A market-place, a market-place, a marketplace.", ["market-", "place"], "market-place"),
        ("A broad hat. A brimmed hat.", ["a broad-", "brimmed hat"], "a broad-brimmed hat"),
        ("", ["a strange cor-", "ruption"], "a strange corruption"),
        ("", ["his mother-", "in-law"], "his mother-in-law"),
        ("His mother-in-law.", ["his mother-in-", "law"], "his mother-in-law"),
        ("Great confidence.", ["self-con-", "fidence"], "self-confidence"),
        ("", ["the Anglo-", "Saxon king"], "the Anglo-Saxon king"),
        ("Преступление.", ["это пре-", "ступление"], "это преступление"),
        (HABIT_OF_COMPOUNDS, ["a bald-", "headed man"], "a bald-headed man"),
        (HABIT_OF_SYLLABLES, ["her gentle-", "ness"], "her gentleness"),
        (HABIT_OF_SYLLABLES + "Half an acre, in part.", ["in-", "part"], "inpart"),
        (HABIT_OF_SYLLABLES + "Stone. A cutter.", ["a stone-", "cutter"], "a stone-cutter"),
        ("", ["he paused--", "then spoke"], "he paused--then spoke"),
        ("", ["he paused -", "then spoke"], "he paused - then spoke"),
    ],
)
def test_hyphens_at_line_ends_follow_the_words_and_the_habit_of_the_book(
    text: str, lines: list[str], expected: str
) -> None:
    assert LineJoiner(text).join(lines) == expected


@pytest.mark.parametrize(
    ("paragraph", "wanted"),
    [
        ("_Never_ again, _never_.", "Never again, never."),
        ("An _im_possible thing.", "An impossible thing."),
        ("Mr. ____ of snake_case.", "Mr. ____ of snake_case."),
        ("=Bold= and 1 = 1.", "Bold and 1 = 1."),
        ("A word[12] and another[A].", "A word and another."),
        ("He [Tom] stayed.", "He [Tom] stayed."),
    ],
)
def test_marks_of_emphasis_and_of_footnotes_go(paragraph: str, wanted: str) -> None:
    assert clean_book(f"{OPENING}\n\n{paragraph}\n\n{SECOND}").paragraphs[1] == wanted


def test_invisible_characters_go() -> None:
    assert normalise("a\u00adb\u200b\x00c\u00a0d\x0ce\u2028f") == "abc d\ne\nf"


# Paragraphs of a story, and headings of two chapters, in scripts with and without spaces or case.
LANGUAGES = {
    "arabic": (
        "خرج الشيخ في الصباح الباكر إلى ضفة النهر، ونظر إلى السفن التي كانت نائمة في الضباب.",
        ["الفصل الأول", "الفصل الثاني"],
    ),
    "chinese": (
        "那日天氣晴和，老人帶了兩個孩子到城外去看花，走了半日，方纔到了一座小廟前頭。",
        ["第一回　老人看花", "第二回　小廟聽雨"],
    ),
    "hebrew": (
        "הזקן יצא בבוקר אל שפת הנהר, והביט באוניות שישנו בתוך הערפל, עד שזרחה השמש על המים.",
        ["פרק א", "פרק ב"],
    ),
    "hindi": (
        "सुबह होते ही बूढ़ा आदमी नदी के किनारे गया और उन नावों को देखने लगा जो धुंध में सो रही थीं।",
        ["पहला अध्याय", "दूसरा अध्याय"],
    ),
    "japanese": (
        "その日は朝から天気がよかったので、老人は二人の子供を連れて、町の外へ花を見に出かけた。",
        ["第一章　花見", "第二章　雨"],
    ),
    "korean": (
        "노인은 아침 일찍 강가로 나가서 안개 속에 잠들어 있는 배들을 오랫동안 바라보고 있었다.",
        ["제1장", "제2장 돌아온 사람"],
    ),
    "russian": (
        "Старик рано утром вышел на берег реки и долго смотрел на корабли, которые спали в тумане.",
        ["Глава первая", "ГЛАВА II"],
    ),
    "thai": (
        "เช้าวันนั้นชายชราพาเด็กสองคนออกไปดูดอกไม้นอกเมือง เดินอยู่ครึ่งวันจึงไปถึงวัดเล็กแห่งหนึ่งที่ริมน้ำ",
        ["บทที่ ๑", "บทที่ ๒", "บทที่ ๓"],
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("gap", ["\n\n", "\n\n\n\n"])
def test_prose_of_any_language_stays_and_its_headings_go(language: str, gap: str) -> None:
    paragraph, headings = LANGUAGES[language]
    prose = [paragraph, f"“{paragraph}”", paragraph * 2]
    parts = [f"{heading}\n\n" + "\n\n".join(prose) for heading in headings]
    book = clean_book(gap.join(parts))
    assert book.paragraphs == prose * len(headings)
    assert book.dropped_words["heading"] == sum(map(count_words, headings))


@pytest.mark.parametrize(
    "block",
    [
        "I remain, sir,\n\nYours truly,\n\nANN WRITER",
        "“Yes”",
        "— Oui",
        "The wind, the wind\nAnd the rain, the rain\nAnd who shall say--_Old Song_",
        "and so they came to the house",
        "1. That no one was to leave.\n2. That no one was to ask.",
        "He said that the house stood on the hill above the town and no one lived in it",
    ],
)
def test_short_blocks_that_are_no_headings_stay(block: str) -> None:
    book = clean_book(f"{BOTH}\n\n{block}\n\n{BOTH}")
    expected = [" ".join(part.split()).replace("_", "") for part in block.split("\n\n")]
    assert book.paragraphs == [*BOTH_LINES, *expected, *BOTH_LINES]


def gutenberg_file(title: str, *, start: str = "", end: str = "", footer: str = "") -> str:
    start = start or f"*** START OF THE PROJECT GUTENBERG EBOOK {title.upper()} ***"
    end = end or f"*** END OF THE PROJECT GUTENBERG EBOOK {title.upper()} ***"
    header = f"The Project Gutenberg EBook of {title}, by Ann Writer\n\nTitle: {title}\n"
    return f"{header}\n{start}\n\n\n{title}. {ONE_LINE}\n\n{end}\n\nLegal text.\n{footer}\n"


SMALL_PRINT = (
    "***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN EBOOKS**START***\nYou know: lawyers.\n\n"
    "*END THE SMALL PRINT! FOR PUBLIC DOMAIN EBOOKS*Ver.02/11/02*END*\n"
)
FILES = {
    "new": gutenberg_file("Alpha"),
    "small-print-first": gutenberg_file(
        "Beta", start=SMALL_PRINT, end="End of this Project Gutenberg Etext"
    ),
    "small-print-last": gutenberg_file("Gamma", footer=SMALL_PRINT),
    "german": gutenberg_file("Delta", end="Ende dieses Projekt Gutenberg Etextes Delta"),
    "small-print-before-end": gutenberg_file(
        "Epsilon", end=f"{SMALL_PRINT}\nEnd of The Project Gutenberg Etext"
    ),
}


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "names", [*([name] for name in FILES), list(FILES), list(FILES)[::-1], ["new"] * 3]
)
def test_marks_delimit_the_books_of_a_file(names: list[str], line_end: str) -> None:
    files = [FILES[name].replace("\n", line_end) for name in names]
    books = list(map(cleaning.clean_book, split_books("".join(files))))
    titles = [re.findall("Title: (.*)", FILES[name])[0] for name in names]
    assert [book.text.title for book in books] == titles
    assert [book.paragraphs for book in books] == [[f"{title}. {ONE_LINE}"] for title in titles]
    text = "".join(files)
    assert [text[book.text.start : book.text.end] for book in books] == files


def test_truncated_book_ends_at_the_header_of_the_next_one() -> None:
    truncated = FILES["new"].partition("*** END")[0]
    books = list(map(cleaning.clean_book, split_books(truncated + FILES["german"])))
    assert [book.paragraphs for book in books] == [[f"Alpha. {ONE_LINE}"], [f"Delta. {ONE_LINE}"]]


@pytest.mark.parametrize(
    "license_text",
    [
        "<<THIS ELECTRONIC VERSION OF THE WORKS IS COPYRIGHT 1990 BY SOMEONE, INC., AND IS\n"
        "PROVIDED BY PROJECT GUTENBERG ETEXT WITH PERMISSION.\n\n"
        "IT MAY NOT BE SOLD, NOR BY A SERVICE THAT CHARGES FOR MEMBERSHIP.>>",
        "This Project Gutenberg etext may be copied under the license below.",
    ],
)
def test_license_between_the_works_of_a_collection_is_dropped_and_counted(
    license_text: str,
) -> None:
    book = clean_book(f"{BOTH}\n\n{license_text}\n\n{BOTH}\n\n<<Oui,>> dit-il.")
    assert book.paragraphs == [*BOTH_LINES * 2, "<<Oui,>> dit-il."]
    assert book.dropped_words == {"license": len(license_text.split())}


@pytest.mark.parametrize(
    "text",
    [
        GUTENBERG,
        "".join(FILES.values()),
        "|a box|\n\n[Note 3: see [there] x.]\n\n* * *\n\nno- \n\nend",
        "第一章\n\n那日天氣晴和，老人帶了兩個孩子到城外去看花。\n　　走了半日 three words here。",
        *(f"{heading}\n\n{paragraph}" for paragraph, (heading, *_) in LANGUAGES.values()),
    ],
)
def test_every_word_of_a_raw_book_is_kept_or_counted_by_reason(text: str) -> None:
    for book in map(cleaning.clean_book, split_books(text)):
        raw = normalise(text[book.text.start : book.text.end])
        assert book.words == count_words(raw)
        assert book.words == book.kept_words + book.dropped_words.total()
        assert set(book.dropped_words) <= set(get_args(Reason))


TEXT = "“Café,” she said — naïve, déjà vu; it cost £5. Über alles."


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (codecs.BOM_UTF8 + TEXT.encode(), "utf-8"),
        (TEXT.encode(), "utf-8"),
        (TEXT.encode("utf-16"), "utf-16-le"),
        (codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), "utf-16-be"),
        (TEXT.encode("utf-32"), "utf-32-le"),
        (TEXT.encode("utf-16-le"), "utf-16-le"),
        (TEXT.encode("utf-16-be"), "utf-16-be"),
        (TEXT.encode("cp1252"), "cp1252"),
    ],
)
def test_encodings_are_found(data: bytes, encoding: str) -> None:
    assert decode_text(data) == (TEXT, encoding)


def test_latin_1_is_told_from_its_neighbours() -> None:
    western = "Größe, señor: ¿qué? 20° à la façade."
    assert decode_text(western.encode("latin-1")) == (western, "cp1252")
    russian = "Это русский текст о книгах и людях, и он довольно длинный. " * 5
    for encoding in ("cp1251", "koi8-r"):
        decoded = decode_text(russian.encode(encoding))
        assert decoded is not None
        assert decoded.text == russian


def test_bytes_that_are_no_text_are_refused() -> None:
    assert decode_text(bytes(range(256)) * 4) is None
    assert decode_text(b"\xff\xfe\x00\xd8") is None  # UTF-16 with half a surrogate pair


@pytest.mark.slow
def test_cleaning_agrees_with_cleaning_by_hand(real_data: Path) -> None:
    result = bench_books_cleaning.measure(real_data / "books", align=False)
    for scores in (result.as_it_is, result.set_aside):
        total = bench_books_cleaning.total(scores)
        assert total.precision >= 0.995
        assert total.recall >= 0.998
        # No book may be lost in the sum.
        assert min(score.recall for score in scores) >= 0.9
        # Advertisements behind the last page are text to a rule that knows no language.
        assert min(score.precision for score in scores) >= 0.8
