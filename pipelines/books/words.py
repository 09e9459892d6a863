"""Count words in any script."""

from __future__ import annotations

import re

# Thai, Lao, Burmese, Khmer, Chinese, Japanese: written without spaces between words.
_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf\uf900-\ufaff\uff66-\uff9f"
_IS_SPACELESS = re.compile(f"[{_SPACELESS}]")
_WORD = re.compile(rf"[{_SPACELESS}]{{1,2}}|[^\s{_SPACELESS}]+")


def count_words(text: str) -> int:
    """Return the number of words; in scripts without spaces, two characters are a word.

    The words of the lines of a text add up to the words of the text.

    >>> count_words("two words"), count_words("四個字符")
    (2, 2)
    """
    if text.isascii() or not _IS_SPACELESS.search(text):
        return len(text.split())
    return sum(1 for _ in _WORD.finditer(text))
