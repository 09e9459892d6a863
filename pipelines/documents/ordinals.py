# ruff: noqa: RUF001 - Cyrillic letters and dashes
"""Join sentences that were cut behind an ordinal, within a date or behind an abbreviation.

Many languages write a full stop behind ordinals (`15. mars 1828`, `XIV. Lajos`, `im 18. Jahrhundert`)
and within eras (`50 f. Kr.`, `av. J.-C.`). Sentencex takes some of these for ends of sentences.
"""

from __future__ import annotations

import re

_CONTEXT = 16
"""Number of characters on each side of a boundary that are compared with the rules."""

_LOWER_CASE = frozenset(letter for letter in map(chr, range(0x2000)) if letter != letter.title())
"""Lower-case letters of the alphabets whose sentences begin with a capital letter."""

_CONTINUING = _LOWER_CASE | frozenset("0123456789-‑–—/")
"""First characters of segments that may continue the sentence before them, in any language."""

_ERAS = ("C.", "Chr.", "Hr.", "Kr.", "Хр.")
_NUMERALS = frozenset("0123456789IVXLCDM")
_ROMAN = "[IVXLCDM]{1,7}"
_LETTER = r"[^\W\d_]"
_WORD = re.compile(r"(?![α-ω]\b)[\w'’-]+")
_CONSONANT = "[bcdfghjklmnpqrstvwxzßçćčďģķľłļńňņŕřśšşșťțźżžбвгджзйклмнпрстфхцчшщђћџљњј]"

# Beginnings of the names of months that are abbreviated, not of those that are written out.
_MONTH = (
    "[Jj][aä]a?n|ian|gen|ene|[Ff][eé][bv]|[Mm][aä]r|mrt|[Aa][bpv]r|ápr|[Jj]ú?[lnu][lnsi]?|giu|lug"
    "|[Aa]ug|ago|aoû|[Ss]e[pt]|sze|[Oo][ckt]t|out|[Nn]o[iv]|[Dd][eéi][ckszt]"
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
        | \b(?i:{_CONSONANT}{{2,5}})                    # 50 v. Chr. in Rom
        | \d\.\s{_LETTER}{{1,5}}                        # 19. saj. alguses
        | \d\s(?:{_MONTH}){_LETTER}{{0,3}}              # 15 févr. à Lyon
    )\.\s*\Z""",
    re.VERBOSE,
)

_WITHIN_DATE = re.compile(
    rf"""
    \d\.\s*\n[-‑–—/]\s?\d{{1,4}}\.                                  # 15.–18. mars
    | (?<!\d)\d{{1,2}}\.\s*\n\d{{1,2}}\.\s?\d                       # 15. | 3. 1828
    | \d\.\s*\n{_ROMAN}\.\s?\d                                      # 1848. | III. 15.
    | \d\.\s(?:\d{{1,2}}|{_ROMAN})\.\s*\n\d{{1,4}}\b                  # 15. 3. | 1828
    | (?<!\d)\d{{1,2}}\.?\s(?:{_MONTH}){_LETTER}{{0,3}}\.\s*\n\d    # 15. sept. | 1828
    | (?<!\w)(?:{_LETTER}|p[or]|př|п[ор]|пре)\.\s*\n(?:Chr|Hr|Kr|Хр)\.   # 50 f. | Kr.
    | (?<!\w)[ad]\.\s*\nC\.                                         # 50 a. | C.
    | {_LETTER}\.\n[-‑]{_LETTER}                                    # av. J. | -C.
    | \b(?:M\.?\s?[ÖS]|[Ii]\.\s?(?:e|sz)|Kr\.\s?[eu]|K\.\s?[ao])\.\s*\n\d    # M.Ö. | 331
    """,
    re.VERBOSE,
)


def _capitals(ordinal: str, *, nouns: str = "", starters: str) -> re.Pattern[str]:
    """Return a pattern of ordinals before a capitalized word.

    Args:
        ordinal: Pattern of an ordinal before any word that is not one of `starters`.
        nouns: Words that also continue a sentence behind any other number.
        starters: Words that begin a new sentence even behind an ordinal.
    """
    numbers = rf"(?<![\w.,])(?:\d{{1,3}}|{_ROMAN})\.\s*\n(?:{'|'.join(nouns.split())})"
    words = "|".join(starters.split())
    before = rf"(?:{ordinal})\.\s*\n(?!(?:{words})\b)"
    return re.compile(f"{before}|{numbers}" if nouns else before)


_GERMAN = _capitals(
    r"(?:\A|\b(?:[Dd](?:er|ie|as|e[mnrs]?|éi|at)|[Aai]m|[Ii]m|[Vv][ou]m|[Zz]u[mr]|[Bb]eim|[Ii]ns|[Uu]m"
    r"|(?i:[dkms]?ein|ihr|unser|jed|dies|jen|s[äe]i?n|hir)(?:e[mnrs]?)?)\s)"
    rf"(?:\d{{1,3}}|{_ROMAN})",
    nouns="Jahrh Jahrt Jh Joerh Joorh Johrh Januar Jänner Jan\\. Februar Feb\\. März Mäerz Mär\\. April "
    "Abrëll Apr\\. Mai\\b Mee\\b Juni Jun\\. Juli\\b Jul\\. August\\b Aug\\. Sept Oktober Okt\\. "
    "November Nov\\. Dezember Dez\\.",
    starters="Aber Als Am An Auch Auf Aus Außerdem Bei Bis Da Dabei Damals Danach Dann Daran Darauf "
    "Das Dass De Dem Den Denn Der Des Die Dies Diese Diesem Diesen Dieser Dieses Doch Dort Du Duerno "
    "Ein Eine Einem Einen Einer Er Erst Es Et Für Heute Hien Hier Ich Ihr Ihre Ihren Im In Jedoch "
    "Kurz Man Mit Nach Nachdem Nicht Nun Nur Ob Schließlich Sein Seine Seinen Seit Si Sie So "
    "Später Trotz Um Und Unter Vom Von Vor Was Während Weil Wenn Wer Wie Wir Wo Zu Zuerst Zum Zur "
    "Über",
)  # fmt: skip
_HUNGARIAN = _capitals(
    rf"(?<![\w.,]){_ROMAN}|\b[Aa]z?\s\d{{1,3}}",
    starters="A Az Azonban Azóta Ám Be Csak De E Egy Ekkor Emellett És Ez Ezt Ezután Ha Hogy Itt Ki "
    "Később Majd Már Még Mert Miután Nem Ő Ott Után Utána Végül",
)
_TURKISH = _capitals(
    rf"(?<![\w.,]){_ROMAN}",
    nouns="Dünya Meşrutiyet Ordu Kolordu Lig Cumhur",
    starters="Ama Ancak Ardından Bir Böylece Bu Bugün Bunun Burada Daha Eğer Fakat Her Hem İlk Kent O "
    "Onlar Onun Ondan Orada Ve Şehir Sonra Şimdi Yine",
)

class Specials(dict):
    """"""
    def __init__(self, continuing):
        self._continuing=continuing
    def __missing__(self, character):
        r = self[character] = not character.isalpha() or character in self._continuing
        return r

class OrdinalRules:
    def __init__(self, continuing=_CONTINUING, capitals=None):
        self.continuing=continuing
        self.capitals=capitals
        self.is_special=Specials(continuing)

    def find_gap(self, segments, number):
        before, after = segments[number - 1], segments[number]
        if after[:1].isupper() and not after.startswith(_ERAS) and before[-3:-2] not in _NUMERALS:
            return None
        if not _continues(segments, number, self.capitals):
            return None
        return before[len(before.rstrip()):]

_WITH_ERAS = _CONTINUING | {era[0] for era in _ERAS}
_WITH_CAPITALS = _WITH_ERAS | frozenset(map(str.title, _LOWER_CASE))
_ANY = OrdinalRules()
_E = OrdinalRules(_WITH_ERAS)
_LANGUAGES = {
    **dict.fromkeys("bg bs es et fo gl hr is it lt lv mk nb nn no pt ro sh sl sq sr sv".split(), _E),
    **dict.fromkeys(("de", "lb", "als", "gsw", "bar", "ksh", "nds", "pdc", "pfl"), OrdinalRules(_WITH_CAPITALS,_GERMAN)),
    "hu": OrdinalRules(_WITH_CAPITALS,_HUNGARIAN),
    **dict.fromkeys(("tr", "az"), OrdinalRules(_WITH_CAPITALS,_TURKISH)),
}
def ordinal_rules(language): return _LANGUAGES.get(language, _ANY)

def _continues(segments: list[str], number: int, capitals: re.Pattern[str] | None) -> bool:
    """Tell whether a segment continues the sentence of the segment before it."""
    before = "".join(segments[max(0, number - 3) : number])[-_CONTEXT:]
    after = "".join(segments[number : number + 3])[:_CONTEXT]
    if after[0] in _LOWER_CASE:
        # Names such as `iPod` and `α Arietis` begin sentences, too.
        word = _WORD.match(after)
        return bool(word and word[0].islower() and _BEFORE_LOWER_CASE.search(before))
    if _WITHIN_DATE.search(f"{before}\n{after}"):
        return True
    if capitals is None or not after[0].isupper():
        return False
    return bool(capitals.search(f"{segments[number - 1][-_CONTEXT:]}\n{after}"))
