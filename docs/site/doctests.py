"""Examples in docstrings, `>>>` and what is printed, become blocks of code on the site."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^(>>> (?:.+\n?)+)", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts each example between fences."""

    def on_object(self, *, obj: griffe.Object, **_given: Any) -> None:
        """Put fences around the examples of a class, function or module."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\1\n```\n", text)
