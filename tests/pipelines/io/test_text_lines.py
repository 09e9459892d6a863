"""Tests of `last_sentence_end`: the place at which a long line is cut."""

from __future__ import annotations

import pytest

from pipelines.io.lines import last_sentence_end


@pytest.mark.parametrize("letters", [10, 5_000, 20_000, 40_000])
@pytest.mark.parametrize("end", [". ", "? ", '." ', "。", " "])
def test_line_is_cut_at_last_sentence_end_of_second_half(letters: int, end: str) -> None:
    before = f"{'a' * 45_000}{end}{'b' * 9}{end}"
    assert last_sentence_end(f"{before}{'c' * letters}".encode()) == len(before.encode())


def test_line_is_cut_at_sentence_end_before_word_end() -> None:
    before = f"{'a' * 45_000}. "
    assert last_sentence_end(f"{before}{'b c ' * 5_000}".encode()) == len(before)
