"""Hostile texts, and how the time to process one grows when the text is twice as long.

A text repeats a pattern of openers, closers, separators and words of a format. Patterns come from
seeds, so that a failure can be reproduced by its number. Only CPU times of this process are
compared, of the same pattern at two lengths: no test depends on the speed of the machine.
"""

# ruff: noqa: RUF001 - punctuation of several scripts
from __future__ import annotations

import ast
import gc
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

LIMIT = 2.6
"""Maximum time ratio of a doubling: 2 is linear, 4 quadratic."""

_NOISE_SECONDS = 0.02
_MAX_SECONDS = 0.5  # what takes longer is not made longer
_MIN_CHARACTERS, _MAX_CHARACTERS = 1_000, 512_000
_ATTEMPTS = 9
_ESCAPE = re.compile(r"\\(?:x..|u....|.)")


class Pattern(NamedTuple):
    """A text of any length: `first` repeated, then `second` as often, between fixed ends."""

    number: int
    prefix: str
    first: str
    second: str = ""
    suffix: str = ""

    def text(self, characters: int) -> str:
        """Return a text of about this length."""
        times = max(1, characters // len(self.first + self.second))
        return self.prefix + self.first * times + self.second * times + self.suffix


class Growth(NamedTuple):
    """The times of one pattern at three lengths, each twice the one before."""

    characters: tuple[int, int, int]
    seconds: tuple[float, float, float]

    @property
    def of_a_doubling(self) -> float:
        """Return the time ratio of the last doubling; 1 if it is only noise."""
        _, middle, large = self.seconds
        return large / middle if large >= _NOISE_SECONDS / 2 else 1.0


def patterns(count: int, atoms: Sequence[str]) -> Iterator[Pattern]:
    """Yield patterns: a third are single atoms with or without a word, the others mixtures."""
    word, second_word = WORDS[:2]
    mixture = [*atoms, *atoms, *WORDS]
    ends = ["", "", *WORDS, *atoms]
    for number in range(count):
        rng = random.Random(f"growth-{number}")
        atom = rng.choice(atoms)
        if number % 3 == 0:
            plain = rng.choice([("", atom), (word, atom), ("", atom + second_word)])
            yield Pattern(number, *plain, suffix=rng.choice(("", word)))
            continue
        first = "".join(rng.choices(mixture, k=rng.randint(1, 5)))
        second = "".join(rng.choices(mixture, k=rng.randint(1, 3))) if rng.random() < 0.4 else ""
        yield Pattern(number, rng.choice(ends), first, second, rng.choice(ends))


def measure(work: Callable[[str], object], pattern: Pattern) -> Growth:
    """Time a function on a pattern, up to a length at which the time is more than noise.

    A growth above the limit is measured again, since other processes disturb the caches, and at
    the next length, since it may be a single step.
    """
    characters = [_MIN_CHARACTERS]
    seconds = [_seconds(work, pattern.text(_MIN_CHARACTERS))]
    while len(seconds) < 3 or (seconds[-1] < _NOISE_SECONDS and characters[-1] < _MAX_CHARACTERS):
        characters.append(characters[-1] * 2)
        seconds.append(_seconds(work, pattern.text(characters[-1])))
    growth = Growth(tuple(characters[-3:]), tuple(seconds[-3:]))
    for attempt in range(_ATTEMPTS):
        if growth.of_a_doubling <= LIMIT:
            break
        if attempt % 3 == 2 and growth.seconds[-1] < _MAX_SECONDS:
            longer = growth.characters[-1] * 2
            took = _seconds(work, pattern.text(longer))
            growth = Growth((*growth.characters[1:], longer), (*growth.seconds[1:], took))
            continue
        again = [_seconds(work, pattern.text(size)) for size in growth.characters]
        fastest = tuple(min(pair) for pair in zip(growth.seconds, again, strict=True))
        growth = Growth(growth.characters, fastest)
    return growth


def assert_linear(work: Callable[[str], object], unit: str, *, prefix: str = "") -> None:
    """Fail if twice as many units take far more than twice as long."""
    growth = measure(work, Pattern(0, prefix, unit))
    assert growth.of_a_doubling <= LIMIT, growth


def _seconds(work: Callable[[str], object], text: str) -> float:
    gc.disable()
    try:
        begin = time.process_time()
        work(text)
        return time.process_time() - begin
    finally:
        gc.enable()


def _atoms(table: str) -> tuple[str, ...]:
    """Split a table of texts, in which `␣` is a space and escapes are as in Python."""
    return tuple(_ESCAPE.sub(_unescape, atom).replace("␣", " ") for atom in table.split())


def _unescape(escape: re.Match[str]) -> str:
    return str(ast.literal_eval(f"'{escape[0]}'"))


WORDS = ("word ", "a", " and, then", ". The next one", "1 2", "\n", "\n\n", " ", "é人。")

WIKITEXT = _atoms(r"""
{{ {{{ { [[ [ [http:// [// [http://a.b␣c http:// {| \n{| |- }} }}} } ]] ] |} \n|} | \n| = \n= \n==
\n==a==\n < > <ref> <ref␣name=x> <ref␣name=x>a\n <ref␣name=x/> </ref> <REF> </REF␣>
<span␣style=display:none> <span> </span> <div> <br> <br/> <!-- --> <nowiki> </nowiki> <nowiki/>
<math> </math> <code> <table> </table> <pre> <gallery> <sup> <sup>2</sup> <ul> <li> <source> <b>
<i <x␣y> '' ''' ' '''' ''a' {{x}} {{x|a=b}} {{x\n}} {{end}} \n{{end}} {{convert|
{{convert|1|-|1|-| |1|- 1|to| |km}} {{lang|de| {{nowrap|a}} {{quote| {{nihongo|a|b}} {{as␣of|
{{frac|1|2}} {{!}} {{'}} {{IPA|a}} {{val|1|e= {{coord|1|N| {{formatnum: {{date|1|2| {{lang-de|
{{circa| {{sfn|a}} ({{IPAc-en| {{IPA-de|a}} {{formatnum:{{ {{su|b= a/b| [[File:a| [[Category:a]]
[[:en: [[de: [[a| [[a]] [[a|b]] |thumb __TOC__ __ _ \ufdd0 \ufdd1 \ufdec \ufdee \ufded &nbsp;
&amp; & &#160; &#x -{ }- ( ) (␣ ␣) (, ,) , ␣, ; : . ! (： （ ） 「 」 『 “ ” 、 ， 。 () a()
(IPA:␣ \n* \n# \n: \n; \n*a \n␣ \n\n ---- \t \xa0 \u200b \u200d or ␣or␣ – — % e.g.␣ et␣al.
Fig. Dr.␣ A.␣ ... ?! \x1b \x00
""")

BOOKS = _atoms(r"""
␣ ␣␣ \t \n \n\n \n␣ \r\n \xa0 \ufeff _ __ _a_ = =a= * *␣*␣*\n - -- — -\n a-\n —\n . ... .␣.␣. .\n
! , ; : " “ ” ' ’ ( ) [ ] { } {1} [1] [A] [*] [Illustration:␣ [Footnote␣1:␣ [Footnote␣
[Illustration] \n\n[Footnote␣1:␣a] [Greek:␣ [␣_ [Transcriber's␣Note:␣ +---+\n | |␣a␣|\n \n| +- + ~
# § · • CHAPTER␣ CHAPTER␣I \n\nCHAPTER␣I\n\n CHAPTER␣I.␣THE␣ Book␣the␣First.␣ VOLUME␣ONE,␣ I IV
XLI. \nII.\n 1 12 1.␣ THE␣ The␣ the␣ twenty- first␣ LAST␣ PREFACE \n\nPREFACE\n\n INTRODUCTION␣
THE\t TABLE␣OF␣ CONTENTS \nCONTENTS\n LIST␣OF␣ ILLUSTRATIONS PAGE␣ \nA␣Title␣␣␣12\n ␣␣␣12 ␣.␣12 .␣
\nPART␣I␣␣5\n THE␣END \nTHE␣END\n FINIS END␣OF␣ END␣OF␣THE␣BOOK NOTES \nNOTE\n ERRATA
TRANSCRIBER'S␣NOTE \n\nTRANSCRIBER'S␣NOTE\n\n BY␣THE␣SAME␣AUTHOR ABOUT␣THE␣AUTHOR\n printed␣
printed␣by␣ printers␣ PRINTED series␣ volume␣ vols.␣ cloth 1s.␣6d.␣ published␣by␣ copyright
copyright␣( a@ a.b@c www. http:// etext $1 \u2028 ***␣START␣OF␣THE␣PROJECT␣GUTENBERG␣EBOOK␣
***␣START␣OF␣ *** *END* *END*THE␣SMALL␣PRINT ***␣END␣OF␣THE␣PROJECT␣GUTENBERG End␣of␣ The␣End␣of␣
Project␣ Project␣Gutenberg Project␣Gutenberg's␣ Gutenberg␣Etext␣of␣ ␣by␣ by␣ ,␣by Title:␣a\n
Title: Author: A␣SPEAKER.␣ \nFIRST␣LORD.\n ␣␣indented\n word-word 'tis é ß Word WORD␣
""")

SENTENCES = _atoms(r"""
. ! ? ... … .␣ !␣ ?␣ .\n \n ␣ ␣␣ \t \xa0 。 ！ 」 " ." "␣ “ ” ( ) [ ] { } « » ‘ ’ ' '' `` 「 e.g.
e.g.␣ Mr.␣ Dr. U.S. U.S.␣ A.␣ a. 1. 1.␣ 3.14 Jan.␣ No.␣1 https://a.b a@b.c www.a.b , ; : - – — * _
\ud7ff \u200b Ⅷ 人 です。 א ا ؟ । é e\u0301 İ ß ǅ \x00 \x85 \u2028 \ufeff She␣said,␣ said.␣ “A.”␣
(a.␣B)␣ [1] [1]␣ A Ab ab a␣b aaaaaaaaaaaa
""")

RECIPES = _atoms(r"""
[ ] { } [] {} , :␣ : -␣ - ?␣ ? a:␣ a:␣b \na:␣b \n-␣a \n \n␣ \n␣␣ ␣ \t &a␣ *a &a␣[*a] ! !!str␣ !a␣
!<a> <<:␣ <<:␣*a | |\n > >\n |- ' " '' \\" \\ \\x41 # ␣# #␣a\n % %YAML␣1.1 --- \n---\n ... \n...\n
@ ` $ ${ } ${A:- ${A:-b} $$ ${A ~ null true 1 1_ 0x 1: 1:2 1e .5 2001-01-01 2001- 0b1 = é \x00
\x07 \ufeff \u2028 \x85 \ud83d name:␣a\n build_documents:\n sources:␣
""")

MESSAGES = _atoms(r"""
:// ://a: @ / token tokentoken= secret 'token':␣ ' " hf_ AKIA authorization authorization:␣
bearer␣ -- --a-token = & %3D sig= < <AWSAccessKeyId> password _ access_key \x1b \u202e a 1 :
s3://a:b
""")
