"""White space of texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipelines.white_space import collapse_spaces, count_spaced_words

_WHITE_SPACE = [character for character in map(chr, range(0x110000)) if character.isspace()]


@given(st.lists(st.one_of(st.text(), st.sampled_from([*_WHITE_SPACE, " ", "  "]))).map("".join))
def test_spaces_and_words_are_those_of_split(text: str) -> None:
    words = text.split()
    assert collapse_spaces(text) == " ".join(words)
    assert count_spaced_words(text) == len(words)
