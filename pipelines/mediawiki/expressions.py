"""Value of `{{#expr:...}}`: arithmetic with numbers, as MediaWiki's ParserFunctions compute it."""

# ruff: noqa: RUF001 - signs that editors write
from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable

_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d*)?|\.\d+)|([a-z]+|[-+*/^()−×÷]))", re.IGNORECASE)
_BINARY: dict[str, tuple[int, Callable[[float, float], float]]] = {
    "^": (8, operator.pow),
    "*": (7, operator.mul),
    "/": (7, operator.truediv),
    "div": (7, operator.truediv),
    "mod": (7, lambda a, b: math.fmod(int(a), int(b))),
    "+": (6, operator.add),
    "-": (6, operator.sub),
    "round": (5, lambda a, b: _round(a, int(b))),
}
"""Operator to its rank and function. A higher rank binds more tightly."""

_UNARY: dict[str, Callable[[float], float]] = {
    "abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
    "-": operator.neg,
    "+": operator.pos,
}
_UNARY_RANK = 9
_SIGNS = {"−": "-", "×": "*", "÷": "/"}
_MAX_LENGTH = 1000


def evaluate(expression: str) -> str:
    """Return the value of an expression as MediaWiki writes it, or "" if it has none."""
    try:
        value = _Expression(expression).value()
    except (ValueError, TypeError, ArithmeticError, IndexError):
        return ""
    return f"{value:.14g}" if abs(value) < 1e14 else ""


def _round(number: float, digits: int) -> float:
    """Round halves away from zero."""
    scale = 10.0 ** max(-20, min(digits, 20))
    return math.copysign(math.floor(abs(number) * scale + 0.5) / scale, number)


class _Expression:
    """An expression, read from left to right with a stack of operands and one of operators."""

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_LENGTH:
            raise ValueError(text[:20])
        self._text = text.strip()
        self._operands: list[float] = []
        self._operators: list[tuple[int, str]] = []  # rank, name; rank 0 for a bracket

    def value(self) -> float:
        position, is_operand_next = 0, True
        while position < len(self._text):
            token = _TOKEN.match(self._text, position)
            if token is None:
                raise ValueError(self._text[position])
            position = token.end()
            word = _SIGNS.get(token[2], token[2].lower()) if token[2] else ""
            is_operand_next = self._read(token[1], word, is_operand_next=is_operand_next)
        self._apply(above=-1)
        (value,) = self._operands
        if is_operand_next or isinstance(value, complex):
            raise ValueError(self._text)
        return value

    def _read(self, number: str | None, word: str, *, is_operand_next: bool) -> bool:
        """Read one token. Return whether an operand must follow it."""
        if is_operand_next and number:
            self._operands.append(float(number))
            return False
        if is_operand_next and (word == "(" or word in _UNARY):
            self._operators.append((0 if word == "(" else _UNARY_RANK, word))
            return True
        if not is_operand_next and word == ")":
            self._apply(above=0)
            if self._operators.pop() != (0, "("):
                raise ValueError(word)
            return False
        if is_operand_next or word not in _BINARY:
            raise ValueError(word)
        rank = _BINARY[word][0]
        self._apply(above=rank - 1)
        self._operators.append((rank, word))
        return True

    def _apply(self, *, above: int) -> None:
        """Apply the last operators of a rank above `above`."""
        while self._operators and self._operators[-1][0] > above:
            rank, name = self._operators.pop()
            if rank == _UNARY_RANK:
                self._operands.append(_UNARY[name](self._operands.pop()))
            elif rank:
                right, left = self._operands.pop(), self._operands.pop()
                self._operands.append(_BINARY[name][1](left, right))
            else:
                raise ValueError(name)  # a bracket that is not closed
