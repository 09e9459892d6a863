"""Which language a text is in, as far as a default recipe has to know. Data alone, no model.

Scripts tell most languages without Latin letters; among those with them, the most frequent little
words do. Where neither tells, it is said so, and the general rules of sentences apply.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import NamedTuple

_SCRIPTS = {
    **{"HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko", "CJK": "zh", "THAI": "th"},
    **{"CYRILLIC": "ru", "GREEK": "el", "ARABIC": "ar", "HEBREW": "he", "DEVANAGARI": "hi"},
    **{"TAMIL": "ta", "BENGALI": "bn", "GEORGIAN": "ka", "ARMENIAN": "hy"},
}
"""The language that a script, by the first word of its characters' names, is taken for."""

_WORDS = {
    "en": "the of and to in is that was for with it his as on he",
    "de": "der die und in den von zu das mit sich des auf für ist nicht ein",
    "fr": "de la le et les des en un du une que est pour qui dans par",
    "es": "de la que el en y los se del las un por con una su para",
    "it": "di e il la che in un è per del una della con si le gli",
    "pt": "de a o que e do da em um para com não uma os no na",
    "nl": "de van een het en in is dat op te zijn met voor niet aan",
    "sv": "och i att en som det av för den är på med till ett",
    "da": "og i at det en den til er som på de med af ikke der",
    "pl": "w i na z się do nie to że jest o jak od przez po",
    "cs": "a v se na je že s z do o to i ve jako byl",
    "tr": "ve bir bu da de için ile olarak çok en olan daha",
    "fi": "ja on oli ei se hän että joka mutta kun ovat",
    "hu": "a az és hogy nem is egy volt meg mint csak",
    "ro": "și de în a la cu o nu pe este din un care",
    "id": "yang dan di dari dengan untuk pada adalah ini dalam",
    "vi": "và của là có một không được người cho trong",
}
_UNCASED = frozenset({"en"})
"""Languages whose models are as good in lower case and without accents (as BERT's uncased is)."""

_LARGE_ALPHABETS = frozenset({"ja", "zh", "th", "ko"})
_WORD = re.compile(r"[^\W\d_]+")
_LEAST_HITS = 0.08
_SAMPLE_LETTERS = 20_000


class Guess(NamedTuple):
    """What a text looks like."""

    language: str
    """ISO 639 code."""

    is_sure: bool
    """False where nothing told, and `en` stands for the general rules."""

    characters: int
    """Distinct letters met, those of a single place left out."""

    @property
    def lowercase(self) -> bool:
        """Whether a vocabulary without capitals and accents suits the language."""
        return self.is_sure and self.language in _UNCASED

    @property
    def has_large_alphabet(self) -> bool:
        """Whether there are characters by the thousand, or words are not told apart by spaces."""
        return self.language in _LARGE_ALPHABETS


def guess_language(text: str) -> Guess:
    """The language of a text of some thousand letters."""
    letters = [letter for letter in text if letter.isalpha()][:_SAMPLE_LETTERS]
    counts = Counter(text)
    distinct = sum(count > 1 and letter.isalpha() for letter, count in counts.items())
    scripts = Counter(_script(letter) for letter in letters)
    kana = scripts["HIRAGANA"] + scripts["KATAKANA"]
    if kana and kana + scripts["CJK"] > 0.3 * len(letters) and kana > 0.1 * scripts["CJK"]:
        return Guess("ja", is_sure=True, characters=distinct)
    script, count = scripts.most_common(1)[0] if scripts else ("", 0)
    if script in _SCRIPTS and count > 0.5 * len(letters):
        return Guess(_SCRIPTS[script], is_sure=True, characters=distinct)
    words = Counter(word.lower() for word in _WORD.findall(text))
    total = max(1, words.total())
    shares = {
        language: sum(words[word] for word in little.split()) / total
        for language, little in _WORDS.items()
    }
    best = max(sorted(shares), key=lambda language: shares[language])
    if shares[best] < _LEAST_HITS:
        return Guess("en", is_sure=False, characters=distinct)
    return Guess(best, is_sure=True, characters=distinct)


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]
