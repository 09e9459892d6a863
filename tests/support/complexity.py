"""Generated hostile texts, and how the time spent on one grows when it is made twice as long.

A text is a pattern repeated: openers, closers, separators and words of a format, alone, interleaved,
or some first and others after them. All are drawn from seeds, so that each has a number and a
failure can be looked at again. Time is this process's own, the best of several tries, and never
compared with a number of seconds: only with the same pattern's at another length.
"""

# ruff: noqa: RUF001, E501 - punctuation of several scripts; tables of short texts
from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

FLOOR = 0.02
"""CPU seconds below which a measurement is noise."""

_LONG = 0.5  # seconds; what takes so long is not made longer
LIMIT = 2.6  # of a doubling; what is linear has 2, what is a square 4
SHORTEST, LARGEST = 1_000, 512_000
"""Characters. What takes less than the floor at the largest length is fast, however it grows."""


class Pattern(NamedTuple):
    """A text of any length."""

    number: int
    prefix: str
    first: str
    """Repeated."""

    second: str
    """Repeated as often, after the first; mostly ""."""

    suffix: str

    def text(self, characters: int) -> str:
        """The pattern, about so long."""
        times = max(1, characters // len(self.first + self.second))
        return self.prefix + self.first * times + self.second * times + self.suffix


class Growth(NamedTuple):
    """The times of one pattern at three lengths."""

    characters: tuple[int, int, int]
    seconds: tuple[float, float, float]

    @property
    def of_a_doubling(self) -> float:
        """Return the time ratio of the last doubling of the text; 1 below the floor."""
        _, middle, large = self.seconds
        return large / middle if large >= FLOOR / 2 else 1.0


def patterns(count: int, atoms: Sequence[str], words: Sequence[str]) -> Iterator[Pattern]:
    """Return `count` patterns: one third single atoms before or after a word, then mixtures."""
    for number in range(count):
        rng = random.Random(f"growth-{number}")
        atom, first, *_ = rng.choice(atoms), *words
        plain = [("", atom), (first, atom), ("", atom + words[1])]
        if number % 3 == 0:
            yield Pattern(number, *rng.choice(plain), "", rng.choice(("", first)))
            continue
        both = [*atoms, *atoms, *words]
        unit = "".join(rng.choices(both, k=rng.randint(1, 5)))
        second = "".join(rng.choices(both, k=rng.randint(1, 3))) if rng.random() < 0.4 else ""
        ends = ["", "", *words, *atoms]
        yield Pattern(number, rng.choice(ends), unit, second, rng.choice(ends))


def measure(work: Callable[[str], object], pattern: Pattern, *, limit: float) -> Growth:
    """Time `work` on a pattern at three lengths, each twice the one before.

    Args:
        limit: a growth above this is measured again before it is believed, for another process may
            have had the processor's caches; and at the next length, for it may have been a step.
    """
    characters, seconds = [SHORTEST], [_seconds(work, pattern.text(SHORTEST))]
    while len(seconds) < 3 or (seconds[-1] < FLOOR and characters[-1] < LARGEST):
        characters.append(characters[-1] * 2)
        seconds.append(_seconds(work, pattern.text(characters[-1])))
    found = Growth(tuple(characters[-3:]), tuple(seconds[-3:]))
    for number in range(9):
        if found.of_a_doubling <= limit:
            break
        if number % 3 == 2 and found.seconds[-1] < _LONG:
            longer = found.characters[-1] * 2
            took = _seconds(work, pattern.text(longer))
            found = Growth((*found.characters[1:], longer), (*found.seconds[1:], took))
            continue
        again = [_seconds(work, pattern.text(size)) for size in found.characters]
        best = tuple(min(pair) for pair in zip(found.seconds, again, strict=True))
        found = Growth(found.characters, best)
    return found


def assert_linear(work: Callable[[str], object], unit: str, *, prefix: str = "") -> None:
    """Refuse work that takes far more than twice as long for twice as many units."""
    found = measure(work, Pattern(0, prefix, unit, "", ""), limit=LIMIT)
    assert found.of_a_doubling <= LIMIT, found


def _seconds(work: Callable[[str], object], text: str) -> float:
    gc.disable()
    try:
        begin = time.process_time()
        work(text)
        return time.process_time() - begin
    finally:
        gc.enable()


WORDS = ("word ", "a", " and, then", ". The next one", "1 2", "\n", "\n\n", " ", "é人。")

WIKITEXT = (
    "{{", "{{{", "{", "[[", "[", "[http://", "[//", "[http://a.b c", "http://", "{|", "\n{|", "|-",
    "}}", "}}}", "}", "]]", "]", "|}", "\n|}", "|", "\n|", "=", "\n=", "\n==", "\n==a==\n", "<",
    ">", "<ref>", "<ref name=x>", "<ref name=x>a\n", "<ref name=x/>", "</ref>", "<REF>", "</REF >",
    "<span style=display:none>", "<span>", "</span>", "<div>", "<br>", "<br/>", "<!--", "-->",
    "<nowiki>", "</nowiki>", "<nowiki/>", "<math>", "</math>", "<code>", "<table>", "</table>",
    "<pre>", "<gallery>", "<sup>", "<sup>2</sup>", "<ul>", "<li>", "<source>", "<b>", "<i", "<x y>",
    "''", "'''", "'", "''''", "''a'", "{{x}}", "{{x|a=b}}", "{{x\n}}", "{{end}}", "\n{{end}}",
    "{{convert|", "{{convert|1|-|1|-|", "|1|-", "1|to|", "|km}}", "{{lang|de|", "{{nowrap|a}}",
    "{{quote|", "{{nihongo|a|b}}", "{{as of|", "{{frac|1|2}}", "{{!}}", "{{'}}", "{{IPA|a}}",
    "{{val|1|e=", "{{coord|1|N|", "{{formatnum:", "{{date|1|2|", "{{lang-de|", "{{circa|",
    "{{sfn|a}}", "({{IPAc-en|", "{{IPA-de|a}}", "{{formatnum:{{", "{{su|b=", "a/b|", "[[File:a|",
    "[[Category:a]]", "[[:en:", "[[de:", "[[a|", "[[a]]", "[[a|b]]", "|thumb", "__TOC__", "__", "_",
    "\ufdd0", "\ufdd1", "\ufdec", "\ufdee", "\ufded", "&nbsp;", "&amp;", "&", "&#160;", "&#x", "-{",
    "}-", "(", ")", "( ", " )", "(,", ",)", ",", " ,", ";", ":", ".", "!", "(：", "（", "）", "「", "」",
    "『", "“", "”", "、", "，", "。", "()", "a()", "(IPA: ", "\n*", "\n#", "\n:", "\n;", "\n*a", "\n ",
    "\n\n", "----", "\t", "\u00a0", "\u200b", "\u200d", "or", " or ", "–", "—", "%", "e.g. ",
    "et al.", "Fig.", "Dr. ", "A. ", "...", "?!", "\x1b", "\x00",
)  # fmt: skip

BOOKS = (
    " ", "  ", "\t", "\n", "\n\n", "\n ", "\r\n", "\u00a0", "\ufeff", "_", "__", "_a_", "=", "=a=",
    "*", "* * *\n", "-", "--", "—", "-\n", "a-\n", "—\n", ".", "...", ". . .", ".\n", "!", ",", ";",
    ":", '"', "“", "”", "'", "’", "(", ")", "[", "]", "{", "}", "{1}", "[1]", "[A]", "[*]",
    "[Illustration: ", "[Footnote 1: ", "[Footnote ", "[Illustration]", "\n\n[Footnote 1: a]",
    "[Greek: ", "[ _", "[Transcriber's Note: ", "+---+\n", "|", "| a |\n", "\n|", "+-", "+", "~",
    "#", "§", "·", "•", "CHAPTER ", "CHAPTER I", "\n\nCHAPTER I\n\n", "CHAPTER I. THE ",
    "Book the First. ", "VOLUME ONE, ", "I", "IV", "XLI.", "\nII.\n", "1", "12", "1. ", "THE ",
    "The ", "the ", "twenty-", "first ", "LAST ", "PREFACE", "\n\nPREFACE\n\n", "INTRODUCTION ",
    "THE\t", "TABLE OF ", "CONTENTS", "\nCONTENTS\n", "LIST OF ", "ILLUSTRATIONS", "PAGE ",
    "\nA Title   12\n", "   12", " . 12", ". ", "\nPART I  5\n", "THE END", "\nTHE END\n", "FINIS",
    "END OF ", "END OF THE BOOK", "NOTES", "\nNOTE\n", "ERRATA", "TRANSCRIBER'S NOTE",
    "\n\nTRANSCRIBER'S NOTE\n\n", "BY THE SAME AUTHOR", "ABOUT THE AUTHOR\n", "printed ",
    "printed by ", "printers ", "PRINTED", "series ", "volume ", "vols. ", "cloth", "1s. 6d. ",
    "published by ", "copyright", "copyright (", "a@", "a.b@c", "www.", "http://", "etext", "$1",
    "\u2028", "*** START OF THE PROJECT GUTENBERG EBOOK ", "*** START OF ", "***", "*END*",
    "*END*THE SMALL PRINT", "*** END OF THE PROJECT GUTENBERG", "End of ", "The End of ",
    "Project ", "Project Gutenberg", "Project Gutenberg's ", "Gutenberg Etext of ", " by ", "by ",
    ", by", "Title: a\n", "Title:", "Author:", "A SPEAKER. ", "\nFIRST LORD.\n", "  indented\n",
    "word-word", "'tis", "é", "ß", "Word", "WORD ",
)  # fmt: skip

SENTENCES = (
    ".", "!", "?", "...", "…", ". ", "! ", "? ", ".\n", "\n", " ", "  ", "\t", "\u00a0", "。", "！",
    "」", '"', '."', '" ', "“", "”", "(", ")", "[", "]", "{", "}", "«", "»", "‘", "’", "'", "''",
    "``", "「", "e.g.", "e.g. ", "Mr. ", "Dr.", "U.S.", "U.S. ", "A. ", "a.", "1.", "1. ", "3.14",
    "Jan. ", "No. 1", "https://a.b", "a@b.c", "www.a.b", ",", ";", ":", "-", "–", "—", "*", "_",
    "\ud7ff", "\u200b", "Ⅷ", "人", "です。", "א", "ا", "؟", "।", "é", "e\u0301", "İ", "ß", "ǅ", "\x00",
    "\x85", "\u2028", "\ufeff", "She said, ", "said. ", "“A.” ", "(a. B) ", "[1]", "[1] ", "A",
    "Ab", "ab", "a b", "aaaaaaaaaaaa",
)  # fmt: skip

RECIPES = (
    "[", "]", "{", "}", "[]", "{}", ",", ": ", ":", "- ", "-", "? ", "?", "a: ", "a: b", "\na: b",
    "\n- a", "\n", "\n ", "\n  ", " ", "\t", "&a ", "*a", "&a [*a]", "!", "!!str ", "!a ", "!<a>",
    "<<: ", "<<: *a", "|", "|\n", ">", ">\n", "|-", "'", '"', "''", '\\"', "\\", "\\x41", "#", " #",
    "# a\n", "%", "%YAML 1.1", "---", "\n---\n", "...", "\n...\n", "@", "`", "$", "${", "}",
    "${A:-", "${A:-b}", "$$", "${A", "~", "null", "true", "1", "1_", "0x", "1:", "1:2", "1e", ".5",
    "2001-01-01", "2001-", "0b1", "=", "é", "\x00", "\x07", "\ufeff", "\u2028", "\x85", "\ud83d",
    "name: a\n", "build_documents:\n", "sources: ",
)  # fmt: skip
