"""Detection of a text's language by its script and its most frequent short words."""

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
"""Language by the first word of its characters' Unicode names."""

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

_MIN_WORD_RATIO = 0.08
_MAX_LETTERS = 20_000


class Guess(NamedTuple):
    """Detected language of a text."""

    language: str
    """ISO 639 code."""

    is_sure: bool
    """False if the language is not detected; `language` is `en` then."""

    characters: int
    """Number of distinct letters that occur at least twice."""

    @property
    def lowercase(self) -> bool:
        """True if the vocabulary is to be uncased, as in BERT's uncased English models."""
        return self.is_sure and self.language == "en"

    @property
    def has_large_alphabet(self) -> bool:
        """True if the language has thousands of characters, or no spaces between words."""
        return self.language in ("ja", "zh", "th", "ko")


def guess_language(text: str) -> Guess:
    """Detect the language of a text of some thousand letters."""
    characters = sum(count > 1 and letter.isalpha() for letter, count in Counter(text).items())
    letters = [letter for letter in text if letter.isalpha()][:_MAX_LETTERS]
    scripts = Counter(unicodedata.name(letter, "").partition(" ")[0] for letter in letters)
    kana = scripts["HIRAGANA"] + scripts["KATAKANA"]
    if kana + scripts["CJK"] > 0.3 * len(letters) and kana > 0.1 * scripts["CJK"]:
        return Guess("ja", is_sure=True, characters=characters)
    for script, count in scripts.most_common(1):
        if script in _SCRIPTS and count > 0.5 * len(letters):
            return Guess(_SCRIPTS[script], is_sure=True, characters=characters)
    words = Counter(word.lower() for word in re.findall(r"[^\W\d_]+", text))
    hits = {key: sum(words[word] for word in common.split()) for key, common in _WORDS.items()}
    best = max(hits, key=lambda language: hits[language])
    if hits[best] < _MIN_WORD_RATIO * max(1, words.total()):
        return Guess("en", is_sure=False, characters=characters)
    return Guess(best, is_sure=True, characters=characters)
