# ruff: noqa: RUF001 - Cyrillic letters and dashes
"""Join sentences that were cut behind an ordinal, within a date or behind an abbreviation.

Many languages write a full stop behind ordinals (`15. mars 1828`, `XIV. Lajos`, `im 18.
Jahrhundert`) and within eras (`50 f. Kr.`, `av. J.-C.`). Sentencex takes some of these for ends of
sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_CONTEXT = 20
"""Number of characters on each side of a boundary that the rules see."""

_ALPHABETS = "".join(map(chr, range(0x2000)))
_LOWER_CASE = frozenset(letter for letter in _ALPHABETS if letter != letter.title())
"""Lower-case letters of the alphabets whose sentences begin with a capital letter."""

_CONTINUING = _LOWER_CASE | frozenset("0123456789-‑–—/")
_NUMERALS = frozenset("0123456789IVXLCDM")
_ERAS = ("C.", "Chr.", "Hr.", "Kr.", "Хр.")
_LETTER = r"[^\W\d_]"
_ROMAN = "[IVXLCDM]{1,7}"
_WORD = re.compile(r"(?![α-ω]\b)[\w'’-]+")
_CONSONANT = "[bcdfghjklmnpqrstvwxzßçćčďģķľłļńňņŕřśšşșťțźżžбвгджзйклмнпрстфхцчшщћђџљњј]"

# Beginnings of month names that are abbreviated in dates.
_MONTH = (
    "[Jj][aä]a?n|ian|gen|ene|[Ff][eé][bv]|[Mm][aä]r|mrt|[Aa][bpv]r|ápr|[Jj][uú][iln]|giu|lug"
    "|[Aa][uv]g|ago|aoû|[Ss]e[pt]|sze|[Oo][ckt]t|out|[Nn]o[iv]|[Dd][eéi][ckszt]"
    "|sty|lut|kwi|cze|lip|sie|wrz|paź|lis|gru|sij|velj|ožu|tra|svi|srp|kol|ruj|stu|pro"
    "|янв?|јан|фев|мар|апр|юн|юл|июн|июл|јун|јул|авг|се[нп]|окт|но[её]|дек"
    "|січ|лют|бер|кві|тра|чер|лип|сер|вер|жов|лис|гру"
)

_BEFORE_LOWER_CASE = re.compile(
    rf"""(?:
        \d                                              # 15. mars
        | \b{_ROMAN}                                    # XIX. mendean
        | (?<![\w'’]){_LETTER}                          # 1828 r. w Krakowie
        | \.{_LETTER}{{1,4}}                            # p.n.e. w Rzymie
        | \b(?i:{_CONSONANT}{{2,5}})                    # 50 f. Kr. i Rom
        | \d\.\s{_LETTER}{{1,5}}                        # 19. saj. alguses
        | \d\s(?:{_MONTH}){_LETTER}{{0,3}}              # 15 févr. à Lyon
    )\.\Z""",
    re.VERBOSE,
)
_WITHIN_DATE = re.compile(
    rf"""
    \d\.\s*\n[-‑–—/]\s?\d{{1,4}}\.                                    # 15.–18. mars
    | (?<!\d)\d{{1,2}}\.\s*\n\d{{1,2}}\.\s?\d{{4}}                       # 15. | 3. 1828
    | \d\.\s\d{{1,2}}\.\s*\n\d{{4}}\b                                  # 15. 3. | 1828
    | \d\.\s*\n{_ROMAN}\.\s?\d                                        # 1848. | III. 15.
    | \d\.\s{_ROMAN}\.\s*\n\d                                         # 1848. III. | 15.
    | (?<!\d)\d{{1,2}}\.?\s(?:{_MONTH}){_LETTER}{{0,3}}\.\s*\n\d      # 15. sept. | 1828
    | (?<!\w)(?:{_LETTER}|p[or]|př|п[ор]|пре)\.\s*\n(?:Chr|Hr|Kr|Хр)\.    # 50 f. | Kr.
    | (?<!\w)[ad]\.\s*\nC\.                                           # 50 a. | C.
    | (?<![\w'’.])(?:[^\W\d_A-Z]|{_CONSONANT}{{2,3}}|Nr)\.\s*\n\d     # kl. | 12
    | {_LETTER}\.\n[-‑]{_LETTER}                                      # av. J. | -C.
    | \b(?:M\.?\s?[ÖS]|[Ii]\.\s?(?:e|sz)|Kr\.\s?[eu]|K\.\s?[ao])\.\s*\n\d    # M.Ö. | 331
    """,
    re.VERBOSE,
)


class OrdinalRules:
    """Rules of a language.

    Attributes:
        continuing: First characters of segments that may continue the sentence before them.
        ordinary: Letters of alphabets that always begin a sentence.
    """

    def __init__(
        self, continuing: Iterable[str], before_capital: re.Pattern[str] | None = None
    ) -> None:
        """Initialize the rules.

        Args:
            continuing: First characters of segments that may continue the sentence before them.
            before_capital: Pattern of an ordinal, a line feed at the boundary, and a capitalized
                word.
        """
        self.continuing = frozenset(continuing)
        self.ordinary = frozenset(filter(str.isalpha, _ALPHABETS)) - self.continuing
        self._before_capital = before_capital

    def find_gap(self, segments: Sequence[str], number: int) -> str | None:
        """Return the white space before a segment, or None if it begins a sentence.

        Args:
            segments: Segments of a paragraph.
            number: Position of the segment.
        """
        before = "".join(segments[max(0, number - 3) : number])[-_CONTEXT:]
        stripped, segment = before.rstrip(), segments[number]
        if not stripped.endswith("."):
            return None
        if segment[0] in _LOWER_CASE:
            # Names such as `iPod`, or Greek letters of stars, begin sentences, too.
            word = _WORD.match(segment)
            continues = word and word[0].islower() and _BEFORE_LOWER_CASE.search(stripped)
        elif segment[0].isupper() and not (
            stripped[-2:-1] in _NUMERALS or segment.startswith(_ERAS)
        ):
            continues = None
        else:
            after = "".join(segments[number : number + 3])[:_CONTEXT]
            continues = _WITHIN_DATE.search(f"{before}\n{after}") or (
                self._before_capital
                and segment[0].isupper()
                and self._before_capital.search(f"{segments[number - 1][-_CONTEXT:]}\n{after}")
            )
        return before[len(stripped) :] if continues else None


def _rules(ordinal: str, *, nouns: str, starters: str) -> OrdinalRules:
    """Return the rules of a language whose ordinals often precede capitalized words.

    Args:
        ordinal: Pattern of an ordinal that continues before any word but `starters`.
        nouns: Beginnings of words that continue a sentence behind every number.
        starters: Words that begin a sentence even behind such an ordinal.
    """
    pattern = re.compile(
        rf"(?:{ordinal})\.\s*\n(?!(?:{'|'.join(starters.split())})\b)"
        rf"|(?<![\w.,])(?:\d{{1,3}}|{_ROMAN})\.\s*\n(?:{'|'.join(nouns.split())})"
    )
    return OrdinalRules(_CONTINUING | set(filter(str.isupper, _ALPHABETS)), pattern)


_GENERAL = OrdinalRules(_CONTINUING)
_WITH_ERAS = OrdinalRules(_CONTINUING | {era[0] for era in _ERAS})
_WITHOUT_SPACES = OrdinalRules(())
_GERMAN = _rules(
    r"(?:\A|\b(?:(?i:d(?:er|ie|as|e[mnrs]?|éi|at)|[ai]m|v[ou]m|zu[mr]|beim|ins|um"
    r"|(?:[dkm]?ein|sein|ihr|unser|jed|dies|jen|säin|hir)(?:e[mnrs]?)?))\s)"
    rf"(?:\d{{1,3}}|{_ROMAN})",
    nouns="Jahrh Jahrt Jh Joerh Joorh Johrh Januar Jänner Jan\\. Februar Feb\\. März Mäerz Mär\\. "
    "April Abrëll Apr\\. Mai\\b Mee\\b Juni\\b Jun\\. Juli\\b Jul\\. August\\b Aug\\. Sept Oktober "
    "Okt\\. November Nov\\. Dezember Dez\\.",
    starters="Aber Als Am An Auch Auf Aus Außerdem Bei Bis Da Dabei Damals Danach Dann Daran "
    "Darauf Das Dass De Dem Den Denn Der Des Die Dies Diese Diesem Diesen Dieser Dieses "
    "Doch Dort Du Duerno Ein Eine Einem Einen Einer Er Erst Es Et Für Heute Hien Hier Ich "
    "Ihr Ihre Ihren Im In Jedoch Kurz Man Mit Nach Nachdem Nicht Nun Nur Ob Schließlich "
    "Sein Seine Seinen Seit Si Sie So Später Trotz Um Und Unter Vom Von Vor Was Während "
    "Weil Wenn Wer Wie Wir Wo Zu Zuerst Zum Zur Über",
)
_HUNGARIAN = _rules(
    rf"(?<![\w.,]){_ROMAN}|\b[Aa]z?\s\d{{1,3}}",
    nouns="Ukrán",
    starters="A Az Azonban Azóta Be Csak De E Egy Ekkor Emellett És Ez Ezt Ezután Ha Hogy Itt Ki "
    "Később Majd Már Még Mert Miután Nem Ő Ott Után Utána Végül",
)
_TURKISH = _rules(
    rf"(?<![\w.,]){_ROMAN}",
    nouns="Dünya Meşrutiyet Ordu Kolordu Cumhur",
    starters="Ama Ancak Ardından Bir Böylece Bu Bugün Bunun Burada Daha Eğer Fakat Her Hem İlk "
    "Kent O Onlar Onun Ondan Orada Ve Sonra Şehir Şimdi Yine",
)
_LANGUAGES = {
    language: rules
    for languages, rules in (
        ("bg bs es et fo gl hr is it lt lv mk nb nn no pt ro sh sl sq sr sv", _WITH_ERAS),
        ("ja zh", _WITHOUT_SPACES),
        ("als bar de gsw ksh lb nds pdc pfl", _GERMAN),
        ("hu", _HUNGARIAN),
        ("az tr", _TURKISH),
    )
    for language in languages.split()
}


def ordinal_rules(language: str) -> OrdinalRules:
    """Return the rules of a language, or the general ones.

    Args:
        language: ISO 639 code.
    """
    return _LANGUAGES.get(language, _GENERAL)
