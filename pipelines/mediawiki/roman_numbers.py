"""Roman numbers."""

from __future__ import annotations

_LETTERS = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"),
            (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))  # fmt: skip


def roman_number(number: int) -> str:
    """Return a positive number in Roman letters.

    >>> roman_number(1994)
    'MCMXCIV'
    """
    letters = []
    for value, letter in _LETTERS:
        letters.append(letter * (number // value))
        number %= value
    return "".join(letters)
