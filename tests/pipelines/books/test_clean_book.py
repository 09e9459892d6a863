"""Cleaning one book's text, and finding its encoding."""

# ruff: noqa: RUF001 - the quotes and dashes of books are what this is about

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from benchmarks import bench_books_cleaning
from pipelines.books.clean_book import clean_book, drop_brackets, strip_gutenberg
from pipelines.books.layout import LineJoiner, find_layout
from pipelines.io.encodings import decode_text, normalise

OPENING = (
    "It was a bright cold morning when the three of them set out along the river\n"
    "bank, and nobody in the village had yet opened so much as a single shutter\n"
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
]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_gutenberg_book_keeps_its_prose_and_nothing_else(line_end: str) -> None:
    book = clean_book("\ufeff" + GUTENBERG.replace("\n", line_end))
    assert (book.title, book.author) == ("The Long Walk", "Ann Writer")
    assert book.paragraphs == PROSE


def test_without_header_and_footer_the_text_is_the_same() -> None:
    body = GUTENBERG.partition("LONG WALK ***")[2].partition("End of the Project")[0]
    book = clean_book(body)
    assert book.title == ""
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
    assert strip_gutenberg(text).body.strip() == "Body here."


def test_a_title_over_two_lines_is_joined() -> None:
    text = "Title: A Long Title\n  Of Two Lines\n\n*** START OF THE PROJECT GUTENBERG EBOOK ***\nx"
    assert strip_gutenberg(text).title == "A Long Title Of Two Lines"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a [Illustration: x [y] z] b", "a  b"),
        ("a [Illustration: never closed\n\nb", "a \n\nb"),
        ("He said [in a whisper] no.", "He said [in a whisper] no."),
        ("a\n\n[Footnote 1: See there.]\n\nb", "a\n\nSee there.\n\nb"),
        ("a [Footnote 1: See there.] b", "a  b"),
    ],
)
def test_brackets_of_pictures_and_notes_go(text: str, expected: str) -> None:
    assert drop_brackets(text) == expected


BOTH, BOTH_LINES = f"{OPENING}\n\n{SECOND}", [ONE_LINE, SECOND_LINE]
STORY = "\n\n".join([BOTH] * 10)
LONG_STORY = "\n\n".join([BOTH] * 40)
CATALOGUE = """A SELECTED LIST OF BOOKS

THE SHORT WALK. Crown 8vo, cloth gilt, 6s.

"A book that no reader will put down before the end, and which we warmly commend to all who walk,
and to those who do not walk as well."--_The Evening Paper_.

THE LONG SIT. By the same hand. 12mo, cloth, $1.25

"It is long, and we were sitting."--_The Morning Paper_.

ON STANDING STILL. Demy 8vo, price 3s. 6d. net."""


@pytest.mark.parametrize(
    "back",
    [
        CATALOGUE,
        CATALOGUE.partition("\n\n")[2],
        "FOOTNOTES:\n\n[1] A stang is a pole of sixteen feet.\n\n[2] So the old copies have it.",
        "Footnotes:\n\nThis was so at that time, and was never changed by those who came after.",
        "[1] A stang is a pole of sixteen feet.\n\n[2] So the old copies have it, and it is right.",
        "NOTES\n\n1. A stang is a pole of sixteen feet.\n\n2. So the old copies have it.",
        "ERRATA\nPage 12, line 3, for walk read talk.\nPage 19, line 30, for noon read moon.",
        "Addenda et Corrigenda\n\nPage 12, line 3, for walk read talk.",
        "Page 12, line 3, for walk read talk.\n\nPage 19, line 30, for noon read moon.",
        "PUBLICATIONS OF\n\nTHE SOCIETY\n\nI. _Songs_\n\nSung by A READER. 1914. Price $1.50",
    ],
)
def test_notes_errata_and_catalogues_behind_the_text_go(back: str) -> None:
    book = clean_book(f"CHAPTER I\n\n{STORY}\n\n\n{back}\n")
    assert book.paragraphs == BOTH_LINES * 10


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


def test_notes_at_the_end_go_with_the_lines_that_continue_them() -> None:
    notes = "FOOTNOTES:\n\n[1] The old song has it:--\n\nWith a pole, with a pole.\n\n[2] So it is."
    book = clean_book(f"CHAPTER I\n\n{STORY}\n\n{CHAPTER_NOTES}\n\n{STORY}\n\n{notes}\n")
    assert book.paragraphs[-1] == SECOND_LINE
    assert not any("old song" in paragraph for paragraph in book.paragraphs)


BLURB = (
    "This series of CLASSICS OF THE ROAD is published by the Society in the belief that greater "
    "familiarity with the chief songs of the road will help those who walk to a better "
    "understanding of those who sang, and thus serve to make both of them walk on together to "
    "good ends in all the years to come."
)
PREFACE = "To the Press, and to my publishers, I owe thanks for the second edition of this."
ADVERTISEMENTS = "\n\n".join(["=Another Book.= 12mo, cloth, price 75 cents.", SECOND] * 3)
RULES = [
    "It was bound in cloth, and she paid 5s. for it, which was more than she had.",
    "1. That nobody was to leave the house before the others had come home again.",
    "2. That nobody was to ask why this was so, or who had made the rule at all.",
]
DIALOGUE = ['"Tom!"', "No answer.", '"TOM!"', ONE_LINE]
SPOKEN = "He had read of Project Gutenberg, and of the end of Project X."
PRINTERS = "The printers were late."


AROUND = {
    "gutenberg": ([OPENING, SPOKEN, SECOND], [ONE_LINE, SPOKEN, SECOND_LINE]),
    "preface": (["A BOOK", "BY A MAN", "PREFACE", PREFACE, "I.", OPENING], [PREFACE, ONE_LINE]),
    "dialogue": (["TOM", "CHAPTER I", *DIALOGUE], DIALOGUE),
    "collection": (["CHAPTER I", STORY, "THE END", STORY], BOTH_LINES * 20),
    "advertisements": (["CHAPTER I", STORY, "THE END.", ADVERTISEMENTS], BOTH_LINES * 10),
    "printers": ([STORY, PRINTERS, BOTH, BOTH], [*BOTH_LINES * 10, PRINTERS, *BOTH_LINES * 2]),
    "prices": (["CHAPTER I", STORY, *RULES, OPENING], [*BOTH_LINES * 10, *RULES, ONE_LINE]),
    "series": (["THE WALK", BLURB, "CHAPTER I", STORY], BOTH_LINES * 10),
    **{
        date: (["THE WALK", "BY", "A MAN", "VOL. I.", date, STORY], BOTH_LINES * 10)
        for date in ("1883.", "LONDON, _May_ 1886.", "All Rights reserved.")
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
    assert book.paragraphs == "\n\n".join(speeches).split("\n\n")


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


def test_words_cut_at_line_ends_are_mended_by_the_books_own_words() -> None:
    joiner = LineJoiner("The undulations of a broad hat. A well-known brimmed thing.")
    assert joiner.join(["the undula-", "tions here"]) == "the undulations here"
    assert joiner.join(["a well-", "known man"]) == "a well-known man"
    assert joiner.join(["a broad-", "brimmed hat"]) == "a broad-brimmed hat"
    assert joiner.join(["a strange cor-", "ruption"]) == "a strange corruption"
    assert joiner.join(["he paused--", "then spoke"]) == "he paused--then spoke"
    assert joiner.join(["he paused -", "then spoke"]) == "he paused - then spoke"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("_Never_ again, _never_.", "Never again, never."),
        ("An _im_possible thing.", "An impossible thing."),
        ("Mr. ____ of snake_case.", "Mr. ____ of snake_case."),
        ("=Bold= and 1 = 1.", "Bold and 1 = 1."),
        ("A word[12] and another[A].", "A word and another."),
        ("He [Tom] stayed.", "He [Tom] stayed."),
    ],
)
def test_marks_of_emphasis_and_of_footnotes_go(given: str, wanted: str) -> None:
    assert clean_book(f"{OPENING}\n\n{given}\n\n{SECOND}").paragraphs[1] == wanted


def test_invisible_characters_go() -> None:
    assert normalise("a\u00adb\u200b\x00c\u00a0d\x0ce\u2028f") == "abc d\ne\nf"


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
        assert total.precision >= 0.99
        assert total.recall >= 0.99
        # No book may be lost in the sum.
        assert min(score.recall for score in scores) >= 0.9
        assert min(score.precision for score in scores) >= 0.9
